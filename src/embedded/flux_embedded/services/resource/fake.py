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

from flux_engine.formats import form
from flux_engine.formats.rset import uniform


def _count(low, high):
    def check(value):
        form.check(value, int, "it")
        if not low <= value <= high:
            raise ValueError(f"expected an integer from {low} to {high}")

    return check


_TABLE = form.Table(
    {
        "nnodes": _count(1, 1 << 20),
        "cores-per-node?": _count(1, 1 << 16),
        "gpus-per-node?": _count(0, 1 << 16),
        **dict.fromkeys(("host-prefix?", "hwloc-xml-path?", "amend-r?"), str),
    }
)


def fake_resources(config):
    """R of the table ``[fake-resources]``, or None without one; ValueError if a key is missing or wrong, or the amender failed."""
    if "fake-resources" not in config:
        return None
    table = config["fake-resources"]
    form.check(table, _TABLE, "fake-resources")
    xml = _read_xml(table["hwloc-xml-path"]) if "hwloc-xml-path" in table else None
    ncores, ngpus = (64, 0) if xml is None else _counts(xml)
    ncores, ngpus = table.get("cores-per-node", ncores), table.get("gpus-per-node", ngpus)
    prefix = table.get("host-prefix", "fake")
    R = uniform([f"{prefix}{i}" for i in range(table["nnodes"])], ncores, ngpus)
    return _amend(table["amend-r"], R, xml) if "amend-r" in table else R


def _read_xml(path):
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except (OSError, UnicodeDecodeError) as exc:
        text = exc.strerror if isinstance(exc, OSError) else exc
        raise ValueError(f"fake-resources.hwloc-xml-path: {path}: {text}") from None


def _counts(xml):
    # Imported only for a configuration with XML.
    from flux.resource.hwloc.amend import topology_from_xml

    try:
        return topology_from_xml(xml)[1:]
    except RuntimeError as exc:
        raise ValueError(f"fake-resources.hwloc-xml-path: {exc}") from None


def _amend(uri, R, xml):
    name, _, attribute = uri.partition(":")
    try:
        R = getattr(importlib.import_module(name), attribute)(R, hwloc_xml=xml)
    except Exception as exc:
        # A site's own code: any exception in it is a configuration error of this instance.
        raise ValueError(f"fake-resources.amend-r={uri}: {type(exc).__name__}: {exc}") from exc
    if not isinstance(R, dict):
        raise ValueError(f"fake-resources.amend-r={uri}: returned {type(R).__name__}, not R")
    return R
