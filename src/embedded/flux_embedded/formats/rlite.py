"""Small operations on R version 1 (RFC 20) as the job manager needs them.

R is handled as the JSON object it is; nothing here changes its argument.
"""

from flux_embedded.formats import hostlist, idset


def ranks(R):
    """Ranks of `R`, ascending (list of int)."""
    entries = R["execution"]["R_lite"]
    if len(entries) == 1:
        text = entries[0]["rank"]
        if text.isdigit():
            return [int(text)]
    found = []
    for entry in entries:
        found.extend(idset.members(idset.decode(entry["rank"])))
    return sorted(found)


def is_sound(R):
    """Whether `R` has the form that the job manager and execution rely on."""
    try:
        entries = R["execution"]["R_lite"]
        if len(entries) == 1 and entries[0]["rank"].isdigit():
            return isinstance(entries[0]["children"], dict) and bool(R["execution"]["nodelist"])
        return bool(children(R)) and len(ranks(R)) == len(hosts(R))
    except (TypeError, KeyError, ValueError, AttributeError):
        return False


def hosts(R):
    """Host names of `R` in rank order (list of str)."""
    names = []
    for text in R["execution"].get("nodelist", ()):
        names.extend(hostlist.decode(text))
    return names


def children(R):
    """Return {rank: children object} of `R`."""
    table = {}
    for entry in R["execution"]["R_lite"]:
        for rank in idset.members(idset.decode(entry["rank"])):
            table[rank] = entry["children"]
    return table


def count(R):
    """Return (nodes, cores) of `R`."""
    nodes = cores = 0
    for entry in R["execution"]["R_lite"]:
        text = entry["rank"]
        many = 1 if text.isdigit() else idset.count(idset.decode(text))
        nodes += many
        core = entry["children"].get("core", "")
        cores += many * (1 if core.isdigit() else idset.count(idset.decode(core)))
    return nodes, cores


def fragment(R, keep):
    """The part of `R` on the ranks `keep` (any container), for ``sched.free``.

    It has neither times nor ``nslots``: that is how a real job manager sends one.
    """
    execution = R["execution"]
    entries = []
    for entry in execution["R_lite"]:
        left = [rank for rank in idset.members(idset.decode(entry["rank"])) if rank in keep]
        if left:
            entries.append({"rank": idset.text(left), "children": entry["children"]})
    names = [name for rank, name in zip(ranks(R), hosts(R)) if rank in keep]
    return assemble(entries, names, _cut_properties(execution.get("properties"), keep))


def assemble(entries, names, properties):
    """An R of these R_lite entries, host names in rank order and {property: idset}."""
    execution = {"R_lite": entries, "starttime": 0.0, "expiration": 0.0}
    execution["nodelist"] = [hostlist.encode(names)]
    if properties:
        execution["properties"] = properties
    return {"version": 1, "execution": execution}


def _cut_properties(properties, keep):
    cut = {}
    for name, text in (properties or {}).items():
        left = [rank for rank in idset.members(idset.decode(text)) if rank in keep]
        if left:
            cut[name] = idset.text(left)
    return cut


def union(sets):
    """The union of R objects that share no core.

    Args:
        sets: iterable of (R, ranks to leave out, a container)
    """
    resources, names, properties = {}, {}, {}
    for R, gone in sets:
        for rank, name in zip(ranks(R), hosts(R)):
            if rank not in gone:
                names[rank] = name
        for rank, what in children(R).items():
            if rank in gone:
                continue
            mine = resources.setdefault(rank, {})
            for kind, text in what.items():
                mine.setdefault(kind, set()).update(idset.members(idset.decode(text)))
        for name, text in (R["execution"].get("properties") or {}).items():
            members = idset.members(idset.decode(text))
            properties.setdefault(name, set()).update(r for r in members if r not in gone)
    alike = {}
    for rank in sorted(resources):
        key = tuple(
            (kind, idset.text(members))
            for kind, members in sorted(resources[rank].items())
            if members
        )
        alike.setdefault(key, []).append(rank)
    entries = [
        {"rank": idset.text(members), "children": dict(key)} for key, members in alike.items()
    ]
    return assemble(
        entries,
        [names[rank] for rank in sorted(names)],
        {name: idset.text(members) for name, members in properties.items() if members},
    )


def with_expiration(R, expiration):
    """`R` with another expiration."""
    return {**R, "execution": {**R["execution"], "expiration": expiration}}


def redacted(R):
    """`R` without the scheduler's private key."""
    if "scheduling" not in R:
        return R
    return {key: value for key, value in R.items() if key != "scheduling"}
