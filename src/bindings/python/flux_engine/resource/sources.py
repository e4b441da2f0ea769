# SPDX-License-Identifier: LGPL-3.0-or-later
"""Sources of the inventory: the ``[resource]`` configuration, or this host."""

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
    """Check the ``[resource]`` table.

    Raises:
        OSError: EINVAL, it is not a table or has an unknown key
    """
    form.check_table(config.get("resource"), _TABLE, "resource")


def from_config(config):
    """Make R from the ``[resource]`` table of the configuration.

    Arguments: config (dict), the whole configuration. ``resource.path`` names a file with R,
    ``resource.config`` is an array of ``{hosts, cores?, gpus?, properties?}``: hosts are numbered
    in the order in which they are first named, and several entries for one host add up.
    ``resource.scheduling`` names a JSON file that becomes R's ``scheduling`` key.

    Returns R, or None if the configuration defines no resources.

    Raises:
        ValueError: a key is wrong; the text names it
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
    order = []  # hosts as first named
    cores, gpus, properties = {}, {}, {}
    for i, entry in enumerate(entries):
        where = f"resource.config[{i}]"
        form.check(entry, _ENTRY, where)
        hosts = _text(entry, "hosts", where, hostlist.decode)
        if not hosts:
            raise ValueError(f"{where}.hosts: missing or empty")
        for host in hosts:
            if host not in cores:
                order.append(host)
                cores[host], gpus[host] = [], []
        for key, store in (("cores", cores), ("gpus", gpus)):
            ids = _text(entry, key, where, idset.decode)
            if ids:
                for host in hosts:
                    store[host] = idset.union(store[host], ids)
        for name in entry.get("properties", ()):
            properties.setdefault(name, set()).update(hosts)
    return _encode(order, cores, gpus, properties)


def _encode(order, cores, gpus, properties):
    have = {}
    for rank, host in enumerate(order):
        if not cores[host]:
            raise ValueError(f"resource.config: host {host} has no cores")
        have[rank] = rset.kinds({"core": cores[host], "gpu": gpus[host]})
    rank_of = {host: rank for rank, host in enumerate(order)}
    properties = {name: {rank_of[host] for host in hosts} for name, hosts in properties.items()}
    return rset.RSet.of(have, dict(enumerate(order)), properties).to_dict()


def _text(entry, key, where, decode):
    try:
        return decode(entry.get(key, ""))
    except ValueError as exc:
        raise ValueError(f"{where}.{key}: {exc}") from None


def discover(hosts):
    """Make R from this host: the processors that this process may use, on each of `hosts`."""
    return rset.uniform(hosts, len(os.sched_getaffinity(0)))
