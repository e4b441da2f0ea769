# SPDX-License-Identifier: LGPL-3.0-or-later
"""Sources of the inventory: the tables ``[resource]`` and ``[fake-resources]`` of the configuration, or this host.

Keys of ``[fake-resources]``, invented nodes:

    nnodes           number of nodes (required)
    cores-per-node   default 64, or as in the XML
    gpus-per-node    default 0, or as in the XML
    host-prefix      default "fake": hosts are fake0, fake1, ...
    hwloc-xml-path   a file of hwloc XML that describes every node
    amend-r          MODULE:FUNCTION, called with R and the XML (None without); returns the R to use

``amend-r=flux.resource.TreePool:amend`` gives R the topology of the XML.
"""

import importlib
import json
import os

from flux_engine.formats import form, hostlist, idset, rset

_TABLE = form.Table(
    {
        **dict.fromkeys(("norestrict?", "noverify?", "no-update-watch?"), bool),
        **dict.fromkeys(("path?", "scheduling?", "exclude?"), str),
        **dict.fromkeys(("verify?", "rediscover?", "journal-max?", "history?"), object),
        "config?": list,
    }
)
_ENTRY = form.Table({"hosts": str, "cores?": str, "gpus?": str, "properties?": [str]})


def check(config):
    """Check the ``[resource]`` table. OSError EINVAL: it is not a table or has an unknown key."""
    form.check_table(config.get("resource"), _TABLE, "resource")


def from_config(config):
    """Make R from the ``[resource]`` table of a configuration; None if there is none. ValueError names the key that is wrong.

    ``path`` names a file with R; ``config`` is an array of ``{hosts, cores?, gpus?, properties?}``: hosts are numbered in the
    order in which they are first named, and several entries for one host add up; ``scheduling`` names a JSON file.
    """
    table = config.get("resource", {})
    if not isinstance(table, dict):
        raise ValueError("resource: expected a table")
    if "path" in table:
        R = read_json(table["path"], "resource.path")
    elif "config" in table:
        R = _from_entries(table["config"])
    else:
        return None
    if "scheduling" in table:
        R["scheduling"] = read_json(table["scheduling"], "resource.scheduling")
    return R


def read_json(path, where):
    """Return the content of a JSON file; ValueError naming `where` and the path if that fails."""
    if not isinstance(path, str):
        raise ValueError(f"{where}: expected the path of a JSON file")
    try:
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)
    except OSError as exc:
        raise ValueError(f"{where}: {path}: {exc.strerror}") from None
    except (ValueError, RecursionError) as exc:
        raise ValueError(f"{where}: {path}: not JSON: {exc}") from None


def _from_entries(entries):
    if not isinstance(entries, list) or not entries:
        raise ValueError("resource.config: expected an array with at least one table")
    ranks = {}  # host -> rank, as first named
    total = rset.RSet()
    for i, entry in enumerate(entries):
        where = f"resource.config[{i}]"
        form.check(entry, _ENTRY, where)
        hosts = _text(entry, "hosts", where, hostlist.decode)
        if not hosts:
            raise ValueError(f"{where}.hosts: missing or empty")
        named = {ranks.setdefault(host, len(ranks)): host for host in hosts}
        cores, gpus = (_text(entry, key, where, idset.decode) for key in ("cores", "gpus"))
        have = dict.fromkeys(named, rset.kinds({"core": cores, "gpu": gpus}))
        total.add(
            rset.RSet.from_ranks(have, named, dict.fromkeys(entry.get("properties", ()), named))
        )
    for rank, have in total.have.items():
        if "core" not in dict(have):
            raise ValueError(f"resource.config: host {total.hosts[rank]} has no cores")
    return total.to_dict()


def _text(entry, key, where, decode):
    try:
        return decode(entry.get(key, ""))
    except ValueError as exc:
        raise ValueError(f"{where}.{key}: {exc}") from None


def discover(hosts):
    """Make R from this host: the processors that this process may use, on each of `hosts`."""
    return rset.uniform(hosts, len(os.sched_getaffinity(0)))


def _count(low, high):
    def check(value):
        form.check(value, int, "it")
        if not low <= value <= high:
            raise ValueError(f"expected an integer from {low} to {high}")

    return check


_FAKE = form.Table(
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
    form.check(table, _FAKE, "fake-resources")
    xml = _read_xml(table["hwloc-xml-path"]) if "hwloc-xml-path" in table else None
    ncores, ngpus = (64, 0) if xml is None else _counts(xml)
    ncores, ngpus = table.get("cores-per-node", ncores), table.get("gpus-per-node", ngpus)
    prefix = table.get("host-prefix", "fake")
    R = rset.uniform([f"{prefix}{i}" for i in range(table["nnodes"])], ncores, ngpus)
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
