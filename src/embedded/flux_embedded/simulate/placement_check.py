# SPDX-License-Identifier: LGPL-3.0-or-later
"""A rule of ``flux simulate check``: a job that requires nodes of one rack has them.

It is checked from the jobs that are written and the groups of the configuration, whatever the scheduler has
made of them.
"""

from flux_embedded.formats import hostlist, idset, rset


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


def misplaced(row, topology, cores_per_node):
    """How a job that has started is not placed as it requires.

    Args:
        row (Row): the job
        topology (dict): what `groups_of` found
        cores_per_node (int or None): of how many cores each node is, where units are cores; else None

    Returns:
        str or None: what is wrong
    """
    wanted = row.placement
    if not wanted or wanted.get("mode", "required") != "required" or row.start is None:
        return None
    groups = topology.get(wanted.get("level"))
    if groups is None:
        return None
    units = idset.members(idset.decode(row.allocated.replace(" ", ",")))
    left = set(units) if cores_per_node is None else {unit // cores_per_node for unit in units}
    numbers = []
    for ranks in groups.values():
        here = left & set(idset.members(idset.decode(ranks)))
        left -= here
        if here:
            numbers.append(len(here))
    level = wanted["level"]
    if left:
        return f"{len(left)} of its nodes are of no {level}"
    segment = wanted.get("segment")
    if segment and any(number % segment for number in numbers):
        return f"it requires segments of {segment} nodes, and has {numbers} in each {level}"
    most = wanted.get("max") or (None if segment else 1)
    if most is not None and len(numbers) > most:
        return f"it requires {most} of level {level} at most, and is in {len(numbers)}"
    return None
