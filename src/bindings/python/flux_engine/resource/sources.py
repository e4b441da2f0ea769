# SPDX-License-Identifier: LGPL-3.0-or-later
"""Where the inventory comes from: ``[resource]`` configuration, or what this host has."""

import errno
import json
import os

from flux_engine.formats import hostlist, idset, policy, rset

_KEYS = frozenset(
    "path scheduling config verify exclude norestrict noverify no-update-watch rediscover"
    " journal-max history".split()
)
#: Keys of one ``[[resource.config]]`` entry.
_ENTRY_KEYS = {"hosts", "cores", "gpus", "properties"}


def check(config):
    """Check the ``[resource]`` table.

    Raises:
        OSError: EINVAL, it is no table or has a key that nobody knows
    """
    table = config.get("resource", {})
    where = "error parsing [resource] configuration"
    kinds = dict.fromkeys(("norestrict", "noverify", "no-update-watch"), bool)
    kinds.update(dict.fromkeys(("path", "scheduling", "exclude"), str))
    policy.check_types(table, kinds, where, _KEYS)
    if not isinstance(table.get("config", []), list):
        text = "error parsing [resource.config] array: resource config must be an array"
        raise OSError(errno.EINVAL, text)


def from_config(config):
    """Make R from the ``[resource]`` table of the configuration.

    Arguments: config (dict), the whole configuration. ``resource.path`` names a file with R,
    ``resource.config`` is an array of ``{hosts, cores?, gpus?, properties?}``: hosts are numbered
    in the order in which they are first named, and what several entries say of one host adds up.
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
        if not isinstance(entry, dict):
            raise ValueError(f"{where}: expected a table")
        unknown = set(entry) - _ENTRY_KEYS
        if unknown:
            raise ValueError(
                f"{where}.{min(unknown)}: unknown key: expected one of {', '.join(sorted(_ENTRY_KEYS))}"
            )
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
        names = entry.get("properties", [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"{where}.properties: expected an array of strings")
        for name in names:
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
    value = entry.get(key, "")
    try:
        if isinstance(value, str):
            return decode(value)
    except ValueError as exc:
        raise ValueError(f"{where}.{key}: {exc}") from None
    raise ValueError(f"{where}.{key}: expected a string")


def discover(hosts):
    """Make R from what this host has: the processors this process may use, on every one of `hosts`."""
    return rset.uniform(hosts, len(os.sched_getaffinity(0)))
