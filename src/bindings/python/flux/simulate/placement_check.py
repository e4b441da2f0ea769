# SPDX-License-Identifier: LGPL-3.0-or-later
"""A rule of ``flux simulate check``: a job that requires nodes in one group has them, and one that
prefers them has them or has waited for them as long as it stated.

It is checked from the written jobs and the groups of the configuration, without the scheduler's own
records.
"""

from flux.scheduler.times import seconds_of
from flux.simulate.results.reading import GRAIN
from flux_engine.formats import hostlist, idset, rset


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
