# SPDX-License-Identifier: LGPL-3.0-or-later
"""Nodes that look alike, and the units of jobs on them: the data of the pictures.

``view(R, jobs, down)`` returns a ``NodeState`` per set of nodes that look alike: with the same
topology, and the same parts held by the same jobs. ``text.py`` and ``svg.py`` draw these.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Union

from flux.resource.pool.explain import counted
from flux.resource.pool.inventory import Entry, HostNames
from flux.resource.pool.masks import idset_text, mask_of, members, parse_idset, popcount
from flux.resource.pool.rv1 import read_lite
from flux.resource.tree.topology import Domain, Renumbering, is_of_treepool, read_children

#: ``(job, cores, gpus)``: masks of a job's units on a node; the job is any value.
Share = tuple[Any, int, int]
#: Jobs, and the R object held by each.
Jobs = Union[dict[Any, Any], Iterable[tuple[Any, Any]]]


class Part:
    """A domain to draw.

    Attributes:
        name (str): ``socket 0``.
        cores, gpus (int): masks of its own units, without those of subdomains.
        all_cores, all_gpus (int): the same with subdomains.
        memory (int or None): GiB.
        below (list): Parts.
    """

    __slots__ = ("name", "cores", "gpus", "all_cores", "all_gpus", "memory", "below")

    def __init__(self, name: str, domain: Domain, counts: dict[str, int]) -> None:
        self.name = name
        self.all_cores = domain.cores
        self.all_gpus = domain.gpus
        self.memory: int | None = domain.memory if type(domain.memory) is int else None
        self.below: list[Part] = []
        self.cores, self.gpus = domain.cores, domain.gpus
        if domain.leaf:
            return
        for level, entries in domain.levels:
            for entry in entries:
                number = counts[level] = counts.get(level, -1) + 1
                part = Part(f"{level} {number}", entry, counts)
                if part.all_cores or part.all_gpus:  # R may have part of the node
                    self.below.append(part)
                self.cores &= ~part.all_cores
                self.gpus &= ~part.all_gpus


class NodeState:
    """Nodes that look alike.

    Attributes:
        ranks (int): mask of the nodes.
        hosts (str): their hostlist.
        part (Part): the node.
        down (bool): whether they are down.
        held (list): ``(job, cores, gpus)``, masks of a job's units on each node; the job as given.
        free_cores, free_gpus (int): masks of the rest.
    """

    def __init__(
        self, ranks: int, hosts: str, part: Part, down: bool, held: Iterable[Share]
    ) -> None:
        self.ranks = ranks
        self.hosts = hosts
        self.part = part
        self.down = down
        self.held = held
        self.free_cores = part.all_cores
        self.free_gpus = part.all_gpus
        for _, cores, gpus in held:
            self.free_cores &= ~cores
            self.free_gpus &= ~gpus

    def title(self) -> str:
        """Return ``fake[0-1] (ranks 0-1)``."""
        many = popcount(self.ranks) > 1
        ranks = f"rank{'s' if many else ''} {idset_text(self.ranks)}"
        return f"{self.hosts} ({ranks})" if self.hosts else ranks

    def summary(self) -> str:
        """Return ``8 cores, 2 GPUs; 5 cores, 1 GPU free``, per node."""
        part = self.part
        all_of_it = contents(popcount(part.all_cores), popcount(part.all_gpus))
        if self.down:
            return f"{all_of_it}; down"
        if not self.held:
            return f"{all_of_it}; all free"
        free = contents(popcount(self.free_cores), popcount(self.free_gpus), part.all_gpus != 0)
        return f"{all_of_it}; {free} free"

    def holder(self, bit: int, gpu: bool) -> Any:
        """Return the job that holds a core or GPU (index), or None."""
        for job, cores, gpus in self.held:
            if (gpus if gpu else cores) >> bit & 1:
                return job
        return None


def jobs_in(states: list[NodeState]) -> dict[Any, int]:
    """Return the jobs on some nodes, numbered in the order in which they are drawn."""
    found: dict[Any, int] = {}
    for state in states:
        for job, _, _ in state.held:
            found.setdefault(job, len(found))
    return found


def contents(cores: int, gpus: int, show_gpus: bool = False) -> str:
    """Return ``5 cores, 1 GPU``; zero GPUs are only shown with ``show_gpus``."""
    text = counted(cores, "core")
    return f"{text}, {counted(gpus, 'GPU')}" if gpus or show_gpus else text


def view(
    R: dict[str, Any], jobs: Jobs = (), down: str = "", ranks: str | None = None
) -> list[NodeState]:
    """Return the states of the nodes of R, by lowest rank.

    Args:
        R (dict): resource set (RFC 20); a node without topology is one domain.
        jobs: dict or pairs of job (any value) and R object.
        down: idset of ranks that are down.
        ranks: idset of ranks to include; default: all.

    Raises:
        ValueError: R, a job's R, the topology or an idset is malformed.
    """
    lite = read_lite(R)
    everything = 0
    for mask, _, _ in lite:
        everything |= mask
    wanted = everything if ranks is None else everything & parse_idset(ranks)
    if everything and not wanted:
        raise ValueError(f"ranks {ranks}: R has {idset_text(everything)}")
    down_ranks = parse_idset(down)
    hosts = HostNames(everything, R["execution"].get("nodelist") or None)
    held = _held(jobs)
    topologies = _topologies(R, lite, everything)
    states: dict[tuple[Any, ...], int] = {}
    for mask, cores, gpus in lite:
        for number, (named, _) in enumerate(topologies):
            for rank in members(mask & named & wanted):
                is_down = down_ranks >> rank & 1
                key = (number, cores, gpus, is_down, tuple(held.get(rank, ())))
                states[key] = states.get(key, 0) | 1 << rank
    answer = []
    for (number, cores, gpus, is_down, jobs_on), mask in states.items():
        domain = Domain(topologies[number][1], "topo", cores, gpus)
        domain.cores, domain.gpus = cores, gpus
        names = hosts.hostlist(mask) if hosts.named else ""
        answer.append(NodeState(mask, names, Part("node", domain, {}), bool(is_down), jobs_on))
    answer.sort(key=lambda state: state.ranks & -state.ranks)
    return answer


def _held(jobs: Jobs) -> dict[int, list[Share]]:
    held: dict[int, list[Share]] = {}
    for job, R in jobs.items() if isinstance(jobs, dict) else jobs:
        for mask, cores, gpus in read_lite(R):
            for rank in members(mask):
                held.setdefault(rank, []).append((job, cores, gpus))
    return held


def _topologies(R: dict[str, Any], lite: list[Entry], everything: int) -> list[tuple[int, Any]]:
    """Return [(mask of R's ranks, topo)], which is empty without topology. TreePool counts ranks
    from 0, those of a job too."""
    scheduling = R.get("scheduling")
    position = Renumbering(everything)
    try:
        own = [(position(mask), cores) for mask, cores, _ in lite]
        found = read_children(scheduling, own)[2]
    except ValueError:
        if is_of_treepool(scheduling):
            raise
        return [(everything, {})]
    ranks = members(everything)
    return [(mask_of([ranks[at] for at in members(mask)]), topo) for mask, topo, _ in found]
