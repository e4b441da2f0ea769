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
