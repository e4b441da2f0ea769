# SPDX-License-Identifier: LGPL-3.0-or-later
"""Rules of ``flux simulate check``: limits, budgets, licences and sharing.

They are checked from the written jobs, without the scheduler's own counts. If units are nodes, the
files do not have parts of nodes, and nodes are not shared. Rules of sharing by properties are not
checked, since the files do not have the properties of nodes.
"""

from collections import Counter

from flux.scheduler.site_policy.budgets import period_of
from flux.scheduler.site_policy.counting import PER
from flux.scheduler.site_policy.sharing import MODES
from flux.scheduler.site_policy.tables import Fields
from flux.scheduler.times import seconds_of, zone_named
from flux.simulate.results.reading import GRAIN
from flux_engine.formats import hostlist, idset, rset

#: Tables checked.
TABLES = ("limits", "budgets", "licenses", "sharing")


def tables_of(config):
    """Return the tables of a configuration to be checked, for the provenance of a result: {name:
    table}, and ``parents``, {virtual queue: parent}. Empty if there are none."""
    found = {}
    for name in TABLES:
        table = config.get(f"sched-{name}", config.get(name))
        if isinstance(table, dict) and table:
            found[name] = dict(table)
    queues = config.get("queues") or {}
    for name, queue in queues.items():
        mode = queue.get("policy", {}).get("scheduler", {}).get("sharing")
        if mode is not None:
            found.setdefault("sharing", {})[f"queues.{name}"] = {"mode": mode, "queues": [name]}
    if found:
        found["parents"] = {
            name: queue["parent"] for name, queue in queues.items() if "parent" in queue
        }
    return found


def broken(rows, tables, unit, cores):
    """Return the first violation of a table (the entry, the job and the time), in words, or None.

    Args:
        tables (dict): result of `tables_of`, and ``epoch``, the start of the workload
        cores (int): cores per node; 0 if nodes differ: rules of nodes are not checked then
    """
    limits, budgets, licenses, sharing = (tables.get(name) or {} for name in TABLES)
    of_nodes = unit, tables.get("parents") or {}, cores
    return (
        exceeded(rows, limits, *of_nodes)
        or overdrawn(rows, budgets, *of_nodes, tables.get("epoch", 0))
        or oversold(rows, licenses)
        or strangers(rows, sharing, *of_nodes)
    )


def oversold(rows, licenses):
    """Return the first use of more licences than exist, or None; arguments as for `broken`."""
    for name, entry in licenses.items():
        total = entry if isinstance(entry, int) else entry["total"] - entry.get("reserved", 0)
        used = 0
        for sign, row in changes_of(row for row in rows if (row.licenses or {}).get(name)):
            used += sign * row.licenses[name]
            if used > total:
                return f"licence {name}: {used} of {total} in use when job {row.id} started at {row.start:g} s"
    return None


def strangers(rows, rules, unit, parents, cores):
    """Return the first job on a node claimed by others, or None; arguments as for `broken`."""
    by_properties = any(rule.get("properties") for rule in rules.values())
    if unit == "node" or not cores or not rules or by_properties:
        return None
    modes = {}
    on = {}  # node -> jobs on it
    for sign, row in changes_of(rows):
        if row.queue not in modes:
            given = [rule["mode"] for rule in rules.values() if _is_for(rule, row, parents)]
            modes[row.queue] = max(given, key=MODES.index, default="free")
        for node in {member // cores for member in idset.members(row.units())}:
            there = on.setdefault(node, [])
            if sign < 0:
                there.remove(row)
                continue
            for other in there:
                for mode in (modes[row.queue], modes[other.queue]):
                    apart = mode in ("bank", "user") and getattr(row, mode) != getattr(other, mode)
                    if mode == "node" or apart:
                        return (
                            f"sharing: job {row.id} started at {row.start:g} s on node {node} beside job {other.id},"
                            f" where {mode}s are kept apart"
                        )
            there.append(row)
    return None


def changes_of(rows):
    """Return ``(1, row)`` for starts and ``(-1, row)`` for ends of jobs that ran, by time, ends
    first."""
    changes = []
    for row in rows:
        if row.start is not None:
            end = float("inf") if row.end is None else row.end
            if end > row.start + GRAIN:
                changes += [(row.start + GRAIN, 1, row), (end, -1, row)]
    changes.sort(key=lambda change: change[:2])
    return [change[1:] for change in changes]


def _is_for(table, row, parents):
    """Whether a table applies to the queue of a job."""
    queues = Fields(table).names("queues")
    return not queues or row.queue in queues or parents.get(row.queue) in queues


def exceeded(rows, limits, unit, parents, cores):
    """Return the first excess of a limit, or None; arguments as for `broken`."""
    return _first("limit", rows, limits, parents, _first_excess, unit, cores)


def overdrawn(rows, budgets, unit, parents, cores, epoch):
    """Return the first start with too little budget left, or None; arguments as for `broken`, and
    the start of the workload in seconds since the epoch."""
    return _first("budget", rows, budgets, parents, _first_overdraft, unit, cores, epoch)


def _first(kind, rows, table, parents, check, *more):
    for name, entry in table.items():
        for whose, its in _by_key(rows, entry, parents):
            text = check(its, entry, *more)
            if text is not None:
                return f"{kind} {name}: {whose}: {text}"
    return None


def _by_key(rows, entry, parents):
    """Return ``(key, rows)`` of the jobs that ran, grouped by the entry's ``per``; empty if the
    entry cannot be checked."""
    by_key = {}
    keys = PER.get(entry.get("per")) if isinstance(entry, dict) else None
    if keys is None or entry.get("soft") or entry.get("in-reservations") is False:
        return ()
    for row in rows:
        if row.start is not None and _applies(entry, row, parents):
            queue = parents.get(row.queue, row.queue)
            place = {"user": row.user, "bank": row.bank, "queue": queue}
            by_key.setdefault(tuple(place[key] for key in keys), []).append(row)
    return [(" in ".join(str(one) for one in key) or "all", its) for key, its in by_key.items()]


def _applies(limit, row, parents):
    limited, exempt = Fields(limit), Fields(limit.get("exempt") or {})
    for key, value in (("users", row.user), ("banks", row.bank)):
        names = limited.names(key)
        if names and value not in names or value in exempt.names(key):
            return False
    return _is_for(limit, row, parents)


def _first_excess(rows, limit, unit, cores):
    """Return the first time at which the jobs together exceed a limit, in words, or None."""
    most = limit.get("max") or {}
    jobs, on, nodes = 0, Counter(), Counter()
    for sign, row in changes_of(rows):
        jobs += sign
        members = list(idset.members(row.units()))
        for counts, keys in ((on, members), (nodes, {one // (cores or 1) for one in members})):
            for key in keys:
                counts[key] += sign
                if not counts[key]:
                    del counts[key]
        used = {"jobs": jobs, f"{unit}s": len(on)}
        if unit == "core" and cores:
            used["nodes"] = len(nodes)
        for what, count in used.items():
            limited = most.get(what)
            if sign > 0 and limited is not None and count > limited:
                return f"{count} of {limited} {what} when job {row.id} started at {row.start:g} s"
    return None


def _first_overdraft(rows, budget, unit, cores, epoch):
    """Return the first time at which the jobs, run to their limits, could exceed a budget, in
    words, or None."""
    most = {what: 3600 * hours for what, hours in budget["max"].items()}
    zone = budget.get("zone") and zone_named(budget["zone"])
    begin, end, used, running = 0, float("-inf"), {}, {}

    def amounts(held, until):
        seconds = max(0.0, min(until, end) - max(held[0], begin))
        return {what: count * seconds for what, count in held[1].items()}

    for sign, row in changes_of(rows):
        now = row.start if sign > 0 else row.end
        if now >= end:
            begin, end = (one - epoch for one in period_of(budget["period"], zone, epoch + now))
            used = {}
        if sign < 0:
            for what, amount in amounts(running.pop(row.id), now).items():
                used[what] = used.get(what, 0) + amount
            continue
        members = list(idset.members(row.units()))
        held = {f"{unit}-hours": len(members)}
        if cores and unit == "core":
            held["node-hours"] = len({one // cores for one in members})
        limit = float("inf") if row.limit is None else row.limit
        running[row.id] = row.start, held, row.start + limit
        for what in held.keys() & most.keys():
            taken = used.get(what, 0)
            taken += sum(amounts(one, one[2])[what] for one in running.values())
            if taken > most[what] + 1:
                return f"{taken / 3600:.2f} of {most[what] / 3600:g} {what} taken when job {row.id} started at {row.start:g} s"
    return None


def groups_of(config, R):
    """Return the groups of a configuration, for the provenance of a result: {level (``[topology.LEVEL]``): {name: nodes,
    an idset of ranks}}."""
    topology = config.get("sched-topology", config.get("topology"))
    found = {}
    for level, table in topology.items() if isinstance(topology, dict) else ():
        if not isinstance(table, dict):
            continue
        groups, prefix = table.get("groups"), table.get("property-prefix")
        try:
            if isinstance(groups, dict):
                found[level] = _by_hosts(groups, R)
            elif isinstance(prefix, str) and prefix:
                properties = R["execution"].get("properties") or {}
                found[level] = {
                    name[len(prefix) :]: ranks
                    for name, ranks in properties.items()
                    if name.startswith(prefix) and name != prefix
                }
        except (TypeError, ValueError):
            continue  # the scheduler rejects such a table too
    return found


def _by_hosts(groups, R):
    ranks_of = {}
    for rank, host in zip(rset.ranks(R), rset.hosts(R)):
        ranks_of.setdefault(host, []).append(rank)
    return {
        name: idset.text(rank for host in hostlist.decode(hosts) for rank in ranks_of.get(host, ()))
        for name, hosts in groups.items()
    }


def queues_constrain(config):
    """Whether a queue of a configuration is restricted to some nodes."""
    queues = config.get("queues") or {}
    return any(queue.get("requires") or queue.get("hosts") for queue in queues.values())


def misplaced(row, topology, cores_per_node, any_node=True):
    """Return how a started job's placement differs from its request, or None.

    Args:
        topology (dict): result of `groups_of`
        cores_per_node (int or None): cores per node if units are cores, else None
        any_node (bool): whether all nodes are equal and in every queue; otherwise the preferred placement may have been
            impossible, and a job need not wait for it
    """
    wanted = row.placement
    groups = topology.get(wanted.get("level")) if wanted else None
    if groups is None or row.start is None:
        return None
    members, taken = [], set()
    for _, ranks in sorted(groups.items()):  # a node with two properties belongs to the first group
        members.append(set(idset.members(idset.decode(ranks))) - taken)
        taken |= members[-1]
    units = idset.members(row.units())
    nodes = set(units) if cores_per_node is None else {unit // cores_per_node for unit in units}
    spread = _spread(nodes, members, wanted)
    if spread is None:
        return None
    if wanted.get("mode", "required") == "required":
        return f"it requires {spread}"
    waited, wait = row.start - row.submit, seconds_of(wanted.get("wait", 0)) or 0
    if not any_node or waited >= wait - GRAIN or not _possible(len(nodes), members, wanted):
        return None
    return f"it waits {wait:g} s for what it prefers, and started after {waited:g} s: it prefers {spread}"


def _spread(nodes, groups, wanted):
    """Return the requirement that its nodes do not meet, in words, or None."""
    numbers = [len(nodes & group) for group in groups if nodes & group]
    level = wanted["level"]
    outside = len(nodes) - sum(numbers)
    if outside:
        return f"nodes of a {level}, and {outside} of its nodes are of none"
    segment = wanted.get("segment")
    if segment and any(number % segment for number in numbers):
        return f"segments of {segment} nodes, and has {numbers} in each {level}"
    most = _most(wanted)
    if most is not None and len(numbers) > most:
        return f"{most} of level {level} at most, and is in {len(numbers)}"
    return None


def _most(wanted):
    """Return the maximum number of groups a job accepts, or None."""
    return wanted.get("max") or (None if wanted.get("segment") else 1)


def _possible(nodes, groups, wanted):
    """Whether such a placement is possible on an empty machine of equal nodes."""
    segment = wanted.get("segment") or 1
    rooms = sorted((len(group) // segment for group in groups), reverse=True)
    return sum(rooms[: _most(wanted)]) * segment >= nodes
