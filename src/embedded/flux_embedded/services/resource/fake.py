# SPDX-License-Identifier: LGPL-3.0-or-later
"""Invented nodes: the ``[fake-resources]`` table of the configuration.

    nnodes           number of nodes (required)
    cores-per-node   default 64, or as in the XML
    gpus-per-node    default 0, or as in the XML
    host-prefix      default "fake": hosts are fake0, fake1, ...
    hwloc-xml-path   a file of hwloc XML that describes every node
    amend-r          MODULE:FUNCTION, called with R and the XML (None without); returns the R to use

``amend-r=flux.resource.TreePool:amend`` gives R the topology of the XML.
"""

import importlib
import re

from flux_engine.formats.rset import uniform

_KEYS = ("nnodes", "cores-per-node", "gpus-per-node", "host-prefix", "hwloc-xml-path", "amend-r")
_URI = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_MOST_NODES = 1 << 20
_MOST_UNITS = 1 << 16


def fake_resources(config):
    """Make R from the ``[fake-resources]`` table.

    Arguments: config (dict), the whole configuration.
    Returns R (RFC 20), or None if there is no such table.

    Raises:
        ValueError: a key is missing or wrong, or the amender failed; the text names it
    """
    if "fake-resources" not in config:
        return None
    table = config["fake-resources"]
    if not isinstance(table, dict):
        raise ValueError("fake-resources: expected a table")
    for key in table:
        if key not in _KEYS:
            raise ValueError(
                f"fake-resources.{key}: unknown key: expected one of {', '.join(_KEYS)}"
            )
    if "nnodes" not in table:
        raise ValueError("fake-resources: [fake-resources] table requires the 'nnodes' key")
    nnodes = _count(table, "nnodes", 1, _MOST_NODES)
    prefix = _text(table, "host-prefix", "fake")
    xml = _read_xml(table)
    ncores, ngpus = (64, 0) if xml is None else _counts(xml)
    if "cores-per-node" in table:
        ncores = _count(table, "cores-per-node", 1, _MOST_UNITS)
    if "gpus-per-node" in table:
        ngpus = _count(table, "gpus-per-node", 0, _MOST_UNITS)
    R = uniform([f"{prefix}{i}" for i in range(nnodes)], ncores, ngpus)
    return _amend(table, R, xml)


def _count(table, key, low, high):
    value = table[key]
    if type(value) is not int or not low <= value <= high:
        raise ValueError(
            f"fake-resources.{key}={value!r}: expected an integer from {low} to {high}"
        )
    return value


def _text(table, key, default=None):
    value = table.get(key, default)
    if value is not None and (not isinstance(value, str) or not value):
        raise ValueError(f"fake-resources.{key}={value!r}: expected a string")
    return value


def _read_xml(table):
    path = _text(table, "hwloc-xml-path")
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except OSError as exc:
        raise ValueError(f"fake-resources.hwloc-xml-path: {path}: {exc.strerror}") from None
    except UnicodeDecodeError as exc:
        raise ValueError(f"fake-resources.hwloc-xml-path: {path}: {exc}") from None


def _counts(xml):
    # Imported only for a configuration with XML.
    from flux.resource.hwloc.amend import topology_from_xml

    try:
        return topology_from_xml(xml)[1:]
    except RuntimeError as exc:
        raise ValueError(f"fake-resources.hwloc-xml-path: {exc}") from None


def _amend(table, R, xml):
    uri = _text(table, "amend-r")
    if uri is None:
        return R
    if _URI.fullmatch(uri) is None:
        raise ValueError(f"fake-resources.amend-r={uri!r}: expected MODULE:FUNCTION")
    name, _, attribute = uri.partition(":")
    try:
        amender = getattr(importlib.import_module(name), attribute)
    except (ImportError, AttributeError) as exc:
        raise ValueError(f"fake-resources.amend-r={uri}: {exc}") from None
    try:
        R = amender(R, xml)
    except Exception as exc:
        # A site's own code: any exception in it is a configuration error of this instance.
        raise ValueError(f"fake-resources.amend-r={uri}: {type(exc).__name__}: {exc}") from exc
    if not isinstance(R, dict):
        raise ValueError(
            f"fake-resources.amend-r={uri}: returned {type(R).__name__}, not an R object"
        )
    return R
