# SPDX-License-Identifier: LGPL-3.0-or-later
"""A rule of ``flux simulate check``: a job that requires nodes of one rack has them, and one that prefers them has them
or has waited for them as long as it said.

It is checked from the jobs that are written and the groups of the configuration, whatever the scheduler has
made of them.
"""

from flux.simulate.results.reading import GRAIN
from flux_engine.formats import fsd, hostlist, idset, rset


def groups_of(config, R):
    """The groups of a configuration, for the provenance of a result; empty if there are none.

    Returns:
        dict: by level (``[topology.LEVEL]``) and name of the group, its nodes as an idset of ranks
    """
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
            continue  # the scheduler does not take such a table either
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
    """Whether a queue of a configuration is of certain nodes only."""
    queues = config.get("queues") or {}
    return any(queue.get("requires") or queue.get("hosts") for queue in queues.values())


def misplaced(row, topology, cores_per_node, any_node=True):
    """How a job that has started is not placed as it requires, or prefers.

    Args:
        row (Row): the job
        topology (dict): of `groups_of`
        cores_per_node (int or None): of how many cores each node is, where units are cores; else None
        any_node (bool): whether all nodes are alike and every queue has all of them: else it is not known whether a job
            could have had what it prefers, for which it need not have waited if not

    Returns:
        str or None: the violation
    """
    wanted = row.placement
    groups = topology.get(wanted.get("level")) if wanted else None
    if groups is None or row.start is None:
        return None
    members, taken = [], set()
    for _, ranks in sorted(groups.items()):  # a node with two properties is of the first group
        members.append(set(idset.members(idset.decode(ranks))) - taken)
        taken |= members[-1]
    units = idset.members(row.units())
    nodes = set(units) if cores_per_node is None else {unit // cores_per_node for unit in units}
    spread = _spread(nodes, members, wanted)
    if spread is None:
        return None
    if wanted.get("mode", "required") == "required":
        return f"it requires {spread}"
    waited, wait = row.start - row.submit, _wait(wanted)
    if not any_node or waited >= wait - GRAIN or not _possible(len(nodes), members, wanted):
        return None
    return f"it waits {wait:g} s for what it prefers, and started after {waited:g} s: it prefers {spread}"


def _spread(nodes, groups, wanted):
    """The requirement that its nodes do not meet, in words; None: they meet it."""
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
    """In at most how many groups a job wants to be; None: in any number."""
    return wanted.get("max") or (None if wanted.get("segment") else 1)


def _possible(nodes, groups, wanted):
    """Whether a number of nodes can be placed so on an empty machine whose nodes are alike."""
    segment = wanted.get("segment") or 1
    rooms = sorted((len(group) // segment for group in groups), reverse=True)
    return sum(rooms[: _most(wanted)]) * segment >= nodes


def _wait(wanted):
    """How long a job waits for its preferred placement, seconds."""
    value = wanted.get("wait", 0)
    if isinstance(value, str):
        try:
            return fsd.parse(value)
        except ValueError:
            return 0  # weeks, which RFC 23 does not have: not checked
    return value
