# SPDX-License-Identifier: LGPL-3.0-or-later
"""A rule of ``flux simulate check``: no limit of the configuration was exceeded.

It is checked from the jobs that are written, whatever the scheduler has counted: how many jobs ran, and
how many units (nodes, or cores) they held, for each user or queue together. What is not written of a job
is not checked: its bank, and what of a node it holds where units are nodes.
"""

from flux_embedded.formats import idset

#: Rounding of what is written.
GRAIN = 1e-5

#: Per what it can be checked.
KEYS = {
    "user": ("user",),
    "queue": ("queue",),
    "user+queue": ("user", "queue"),
    "instance": (),
}


def tables_of(config):
    """The limits of a configuration, for the provenance of a result; empty if there are none."""
    tables = config.get("sched-limits", config.get("limits"))
    return tables if isinstance(tables, dict) else {}


def exceeded(rows, limits, unit, parents):
    """Find the first limit that was exceeded.

    Args:
        rows (list of Row): the jobs
        limits (dict): tables ``[limits.NAME]``, by name
        unit (str): what units are: "node" or "core"
        parents (dict): virtual queue -> its parent

    Returns:
        str or None: which, by whom, when
    """
    for name, limit in limits.items():
        if not isinstance(limit, dict) or limit.get("soft") or limit.get("banks"):
            continue
        keys = KEYS.get(limit.get("per"))
        if keys is None or (limit.get("exempt") or {}).get("banks"):
            continue
        by_key = {}
        for row in rows:
            if row.start is not None and _applies(limit, row, parents):
                place = {"user": row.user, "queue": parents.get(row.queue, row.queue)}
                by_key.setdefault(tuple(place[key] for key in keys), []).append(row)
        for key, its in by_key.items():
            text = _first_excess(its, limit.get("max") or {}, unit)
            if text is not None:
                whose = " in ".join(str(one) for one in key) or "all"
                return f"limit {name}: {whose}: {text}"
    return None


def _applies(limit, row, parents):
    queues = limit.get("queues")
    if queues and row.queue not in queues and parents.get(row.queue) not in queues:
        return False
    users = limit.get("users")
    if users and row.user not in users:
        return False
    return row.user not in (limit.get("exempt") or {}).get("users", ())


def _first_excess(rows, most, unit):
    """The first time at which some jobs together are more than a limit, in words, or None."""
    changes = []
    for row in rows:
        end = float("inf") if row.end is None else row.end
        if end > row.start + GRAIN:
            changes += [(row.start + GRAIN, 1, row), (end, -1, row)]
    changes.sort(key=lambda change: change[:2])
    jobs, on = 0, {}
    for _, sign, row in changes:
        jobs += sign
        for member in idset.members(idset.decode(row.allocated.replace(" ", ","))):
            on[member] = on.get(member, 0) + sign
            if not on[member]:
                del on[member]
        used = {"jobs": jobs, f"{unit}s": len(on)}
        for what, count in used.items():
            limited = most.get(what)
            if sign > 0 and limited is not None and count > limited:
                return f"{count} of {limited} {what} when job {row.id} started at {row.start:g} s"
    return None
