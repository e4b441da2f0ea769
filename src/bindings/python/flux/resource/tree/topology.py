# SPDX-License-Identifier: LGPL-3.0-or-later
"""The topology of a node in R.scheduling (RFC 49), and the facts for placement derived from it.

A *domain* (the ``topo`` of an entry, and each object below it) maps level names to arrays of
domains and may hold ``cores`` and ``gpus``, idsets of node-local ids. Equal nodes share one
``Layout`` of facts derived from the topology, computed once:

- *groups* by level, for slots: level 0 has the leaves, the last level the whole node;
- *containers* by name, for slots that ask for a whole socket, numa or another level of a site.

Sets of cores and GPUs are bit masks.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from flux.resource.pool.inventory import Selection, pairs
from flux.resource.pool.masks import UNIT_LIMIT, idset_text, parse_idset, popcount, quote, runs
from flux.resource.pool.rv1 import read_lite

#: Keys that describe a domain; every other key is the name of a level.
RESOURCE_KEYS = ("cores", "gpus", "memory", "storage")
#: Maximum depth of a topology; hwloc has about ten levels. More are an error rather than a deep
#: recursion.
MAX_DEPTH = 32
#: Maximum number of results for container names that are cached: jobs may ask for any name, and
#: invented ones must not fill the memory.
MAX_NAMES = 1024

#: ``(cores, gpus)``, masks: the units of a domain and of those below it.
Place = tuple[int, int]
#: The containers of one name in one domain.
ContainerGroup = tuple[Place, ...]


class Domain:
    """One domain of a node's topology.

    Attributes:
        cores, gpus (int): masks of its units and those of all domains below.
        own_gpus (int): mask of the GPUs that it lists itself.
        memory: GiB, or None.
        leaf (bool): whether it lists cores itself.
        levels (list): ``(name, [Domain, ...])`` directly below.

    Raises:
        ValueError: it is malformed; the text names the key.
    """

    __slots__ = ("cores", "gpus", "own_gpus", "memory", "leaf", "levels")

    def __init__(
        self, topo: Any, where: str, granted_cores: int = -1, granted_gpus: int = -1, depth: int = 0
    ) -> None:
        if depth > MAX_DEPTH:
            raise ValueError(f"{where}: more than {MAX_DEPTH} levels")
        if not isinstance(topo, dict):
            raise ValueError(f"{where}: expected an object, got {quote(topo)}")
        self.cores = _ids(topo, "cores", where) & granted_cores
        self.gpus = self.own_gpus = _ids(topo, "gpus", where) & granted_gpus
        self.leaf = "cores" in topo
        self.memory: Any = topo.get("memory")
        self.levels: list[tuple[str, list[Domain]]] = []
        for name, below in topo.items():
            if name in RESOURCE_KEYS:
                continue
            if not name.isprintable():
                raise ValueError(f"{where}: {quote(name)} is not a name of levels")
            here = f"{where}.{name}"
            if not isinstance(below, list):
                raise ValueError(f"{here}: expected an array of domains, got {quote(below)}")
            entries = [
                Domain(entry, f"{here}[{i}]", granted_cores, granted_gpus, depth + 1)
                for i, entry in enumerate(below)
            ]
            self.levels.append((name, entries))
            for entry in entries:
                self.cores |= entry.cores
                self.gpus |= entry.gpus

    def below(self) -> list[Domain]:
        """The domains directly below, of all levels, in the order of the topology."""
        return [entry for _, entries in self.levels for entry in entries]


def _ids(topo: dict[str, Any], key: str, where: str) -> int:
    try:
        return parse_idset(topo.get(key, ""), UNIT_LIMIT)
    except ValueError as exc:
        raise ValueError(f"{where}.{key}: {exc}") from None


class Layout:
    """Groups and containers of nodes with one topology and the same cores and GPUs.

    Args:
        topo (dict): domain of the node, as in R.
        cores, gpus (int): masks of the units of each such node in R; others in the topology are
            left out, and units in no domain belong to the node as a whole.
        where (str): name of the topology in an error.

    Raises:
        ValueError: it is not a topology; the text names the key.

    Attributes:
        domain (Domain): the whole node.
        levels (tuple): tuples of ``(cores, gpus)`` of groups, finest level first, in the order of
            the topology.
        unlisted (int): mask of the cores in no domain.
    """

    def __init__(self, topo: Any, cores: int, gpus: int, where: str = "topo") -> None:
        self.domain = Domain(topo, where, cores, gpus)
        self.unlisted = cores & ~self.domain.cores
        self.domain.cores = cores
        self.domain.gpus = gpus
        levels: list[list[Place]] = []
        _collect(self.domain, levels)
        self.levels = tuple(tuple(dict.fromkeys(level)) for level in levels)

    @lru_cache(maxsize=MAX_NAMES)  # noqa: B019
    def containers(self, name: str) -> ContainerGroup:
        """Return (cores, gpus) of each domain called ``name``, in the order of the topology.

        If a name occurs inside itself (``numa`` in ``numa``), the outer one counts. Domains without
        cores are left out, since no job can have them. O(1) for a known name.
        """
        return tuple(_named(self.domain, name))

    @lru_cache(maxsize=MAX_NAMES)  # noqa: B019
    def container_groups(self, name: str, least: int) -> tuple[ContainerGroup, ...]:
        """Return the containers of a name in each group with at least ``least`` of them, finest
        level first."""
        named = self.containers(name)
        found = []
        for groups in self.levels:
            for cores, gpus in groups:
                inside = [one for one in named if not (one[0] & ~cores or one[1] & ~gpus)]
                if len(inside) >= least:
                    found.append(tuple(inside))
        return tuple(found)


def _collect(domain: Domain, levels: list[list[Place]]) -> int:
    """Add the groups at and below a domain to ``levels``. Return its level, or -1 if it has no
    cores."""
    if not domain.cores:
        return -1
    height = -1
    groups = []
    for entry in () if domain.leaf else domain.below():
        above = _collect(entry, levels)
        if above >= 0:
            height = max(height, above)
            groups.append((entry.cores, entry.gpus))
    group = (domain.cores, domain.gpus)
    if groups == [group]:
        return height
    height += 1
    if height == len(levels):
        levels.append([])
    levels[height].append(group)
    return height


def _named(domain: Domain, name: str) -> Iterator[Place]:
    for level, entries in domain.levels:
        for entry in entries:
            if level == name:
                if entry.cores:
                    yield entry.cores, entry.gpus
            else:
                yield from _named(entry, name)


def is_of_treepool(scheduling: Any) -> bool:
    """Return whether TreePool wrote ``R.scheduling``."""
    return (
        isinstance(scheduling, dict)
        and str(scheduling.get("writer")).partition(":")[0] == "TreePool"
    )


def lacks_ranks(R: dict[str, Any]) -> bool:
    """Return whether R, if it is one, lacks ranks that its topology names: they are excluded from
    scheduling, or have left the instance."""
    ranks = named = 0
    try:
        for mask, _, _ in read_lite(R):
            ranks |= mask
        for mask, _ in entries_of(R["scheduling"]):
            named |= mask
    except (KeyError, TypeError, ValueError):
        return False
    return popcount(named) != popcount(ranks) or ranks & ranks + 1 != 0


def read_children(
    scheduling: Any, own: list[tuple[int, int]], all_ranks: bool = True
) -> tuple[dict[str, Any], list[tuple[int, Any]], list[tuple[int, Any, str]]]:
    """Check ``R.scheduling`` and number its ranks and cores like R's.

    Its ranks may be those of the enclosing instance: in ascending order they stand for 0 to n-1. So
    do the cores that ``record_cores()`` has recorded, for ranks whose cores in R are below n.

    Args:
        scheduling (dict): value of the key; not changed.
        own (list): ``(rank mask, cores)`` of R_lite.
        all_ranks (bool): whether R has all ranks that are named; else it may have some of them.

    Returns:
        (scheduling, entries, topologies): a copy with the numbers of R; its ``children``, as
        from ``entries_of()``; and [(rank mask, topo, where)], in which no rank is twice (the first
        entry that names it counts).

    Raises:
        ValueError: there is no topology, it is malformed (the text names the entry), it has more or
            fewer ranks than R, or R's ranks are not 0 to n-1.
    """
    if not isinstance(scheduling, dict):
        raise ValueError("TreePool: R has no scheduling key with a topology")
    children = scheduling.get("children")
    if not isinstance(children, list) or not children:
        raise ValueError(
            "TreePool: scheduling.children: expected an array with an entry per node type"
        )
    entries = []
    named = 0
    for i, entry in enumerate(children):
        where = f"scheduling.children[{i}]"
        if not isinstance(entry, dict):
            raise ValueError(f"{where}: expected an object, got {quote(entry)}")
        for key in ("ranks", "topo"):
            if key not in entry:
                raise ValueError(f"{where}: {key} is missing")
        try:
            mask = parse_idset(entry["ranks"])
        except ValueError as exc:
            raise ValueError(f"{where}.ranks: {exc}") from None
        named |= mask
        entries.append((mask, entry["topo"], f"{where}.topo"))
    domains = [Domain(topo, where) for _, topo, where in entries]
    if not any(entry[0] and domain.cores for entry, domain in zip(entries, domains)):
        raise ValueError("TreePool: scheduling.children: no entry has both ranks and cores")
    ranks = 0
    for mask, _ in own:
        ranks |= mask
    count, wanted = popcount(named), popcount(ranks)
    if count != wanted and (all_ranks or ranks >> count):
        raise ValueError(
            f"TreePool: scheduling.children: {count} ranks are named, but R has {wanted}"
        )
    if all_ranks and ranks & ranks + 1:
        raise ValueError(f"TreePool: the ranks of R are {idset_text(ranks)}, not 0 to {wanted - 1}")
    topologies = []
    taken = 0
    changed = []
    renumber = None if named == ranks else Renumbering(named)
    recorded = _recorded_cores(scheduling)
    for entry, (mask, topo, where) in zip(children, entries):
        entry = dict(entry)
        if renumber is not None and mask:
            mask = renumber(mask) & ranks
            entry["ranks"] = idset_text(mask)
        for part, cores in recorded:
            part = mask & (part if renumber is None else renumber(part))
            count = popcount(cores)
            part &= sum(ranks for ranks, of_R in own if of_R.bit_length() <= count)
            if part:
                here = _with_cores_from_0(topo, Renumbering(cores))
                changed.append((part, {**entry, "ranks": idset_text(part), "topo": here}))
                topologies.append((part & ~taken, here, where))
                taken |= part
                mask &= ~part
                entry["ranks"] = idset_text(mask)
        changed.append((mask, entry))
        topologies.append((mask & ~taken, topo, where))
        taken |= mask
    scheduling = {**scheduling, "children": [entry for _, entry in changed]}
    scheduling.pop("cores", None)
    return scheduling, [(mask, entry) for mask, entry in changed if mask], topologies


def record_cores(selection: Selection, core_mask: int) -> dict[str, str]:
    """Return ``scheduling.cores`` of an allocation: by ranks, the cores that an instance in the job
    will count from 0 (flux-core renumbers cores as it does ranks, but not GPUs)."""
    by_cores: dict[int, int] = {}
    for ranks, units in pairs(selection):
        cores = units & core_mask
        if cores & cores + 1:
            by_cores[cores] = by_cores.get(cores, 0) | ranks
    return {idset_text(ranks): idset_text(cores) for cores, ranks in by_cores.items()}


def _recorded_cores(scheduling: dict[str, Any]) -> list[tuple[int, int]]:
    recorded = scheduling.get("cores", {})
    if not isinstance(recorded, dict):
        raise ValueError(f"scheduling.cores: expected an object, got {quote(recorded)}")
    try:
        ranks = [parse_idset(text) for text in recorded]
    except ValueError as exc:
        raise ValueError(f"scheduling.cores: {exc}") from None
    return list(zip(ranks, (_ids(recorded, text, "scheduling.cores") for text in recorded)))


def _with_cores_from_0(topo: dict[str, Any], renumber: Renumbering) -> dict[str, Any]:
    changed = dict(topo)
    for key, value in topo.items():
        if key == "cores":
            changed[key] = idset_text(renumber(parse_idset(value, UNIT_LIMIT)))
        elif key not in RESOURCE_KEYS:
            changed[key] = [_with_cores_from_0(entry, renumber) for entry in value]
    return changed


class Renumbering:
    """Maps sets of given numbers (masks) to their positions: of ranks 5, 9 and 12, 9 becomes 1."""

    def __init__(self, ranks: int) -> None:
        self._runs: list[tuple[int, int, int]] = []
        position = 0
        for low, count in runs(ranks):
            self._runs.append((low, count, position))
            position += count

    def __call__(self, mask: int) -> int:
        result = 0
        for low, count, position in self._runs:
            result |= (mask >> low & (1 << count) - 1) << position
        return result


def entries_of(scheduling: dict[str, Any]) -> list[tuple[int, Any]]:
    """Return ``children`` as [(mask of ranks, entry)], without entries that have no ranks."""
    entries = []
    for entry in scheduling["children"]:
        mask = parse_idset(entry["ranks"])
        if mask:
            entries.append((mask, entry))
    return entries


def cut_children(
    scheduling: dict[str, Any], entries: list[tuple[int, Any]], ranks: int
) -> dict[str, Any]:
    """Return ``R.scheduling`` of a larger pool for some of its ranks (a mask): for an allocation, or a pool
    that lost ranks. `entries` is from ``entries_of()``.

    Entries keep their whole topology, since it describes the node and not the allocation, and lose
    the other ranks; those without ranks are left out. The original is unchanged.
    """
    children = []
    for mask, entry in entries:
        left = mask & ranks
        if left:
            children.append({**entry, "ranks": idset_text(left)})
    return {**scheduling, "children": children}
