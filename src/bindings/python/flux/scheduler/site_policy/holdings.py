# SPDX-License-Identifier: LGPL-3.0-or-later
"""The resources that jobs hold by their R, including ranks that have left the instance; and
placeholders, which keep resources from jobs.

The pool forgets a rank that leaves. A job still holds it until the rank is freed, and limits count
it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from flux.resource.pool.masks import popcount
from flux.resource.pool.rv1 import object_of, read_lite

if TYPE_CHECKING:
    from flux.resource.pool.inventory import Selection
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.decision import PolicyView


class Holding(NamedTuple):
    """The resources held by a job.

    Attributes:
        nodes, cores, gpus (int): total numbers
    """

    ranks: int = 0  # mask of its ranks
    nodes: int = 0
    cores: int = 0
    gpus: int = 0

    def plus(self, other: Holding) -> Holding:
        """Return the sum of two holdings without common ranks."""
        return Holding(*[one + two for one, two in zip(self, other)])

    def left_of(self, R: Any) -> Holding:
        """Return the remainder after the ranks in `R` (an object, or a ResourcePool) are freed.
        Ranks that it does not hold are ignored."""
        ranks, nodes, cores, gpus = self
        for mask, core_mask, gpu_mask in read_lite(object_of(R)):
            count = popcount(mask & ranks)
            ranks &= ~mask
            nodes -= count
            cores -= count * popcount(core_mask)
            gpus -= count * popcount(gpu_mask)
        return Holding(ranks, nodes, cores, gpus)


NOTHING = Holding()


def _together(kinds: Iterable[tuple[int, int, int]]) -> Holding:
    """Return the total of ``(cores, GPUs, mask of ranks)``: these numbers on each rank. No rank may
    occur twice."""
    ranks = nodes = all_cores = all_gpus = 0
    for cores, gpus, mask in kinds:
        count = popcount(mask)
        ranks |= mask
        nodes += count
        all_cores += count * cores
        all_gpus += count * gpus
    return Holding(ranks, nodes, all_cores, all_gpus)


def holding_of(pool: ResourcePool, jobid: int) -> Holding:
    """Return the present holding of a job in a pool.  O(different holdings per rank)."""
    try:
        return _together(pool.held_kinds(jobid))
    except KeyError:
        return NOTHING


class Holdings:
    """The holdings of a scheduler's running jobs."""

    def __init__(self, scheduler: PolicyView) -> None:
        self._scheduler = scheduler
        #: job id -> holding, of jobs with ranks that have left
        self.departed: dict[int, Holding] = {}
        #: last query: job id, generation of the pool, holding
        self._last: tuple[int, int, Holding] = (0, -1, NOTHING)

    def held_by(self, jobid: int, where: Any = None) -> Holding:
        """Return the holding of a job, in the pool and on ranks that have left; or in `where`, a
        copy of the pool.  O(different holdings per rank); cached, as several rules ask about a
        starting job."""
        pool = self._scheduler.resources
        if where is not None and where is not pool:
            return holding_of(where, jobid)
        if jobid in self.departed:
            return self.departed[jobid]
        last, generation, held = self._last
        if last != jobid or generation != pool.generation:
            held = holding_of(pool, jobid)
            self._last = (jobid, pool.generation, held)
        return held

    @contextmanager
    def noting_departures(self, jobids: Iterable[int]) -> Iterator[None]:
        """A context in which ranks leave the pool: keeps these jobs' holdings on them.  O(jobs)."""
        before = {jobid: self.held_by(jobid) for jobid in jobids}
        yield
        for jobid, held in before.items():
            if holding_of(self._scheduler.resources, jobid) != held:
                self.departed[jobid] = held

    def found_departed(self, jobid: int, R: dict[str, Any]) -> None:
        """Add `R`, held by a job found running on ranks that had left by then."""
        kinds = [
            (popcount(cores), popcount(gpus), mask) for mask, cores, gpus in read_lite(object_of(R))
        ]
        self.departed[jobid] = self.held_by(jobid).plus(_together(kinds))

    def freed(self, jobid: int, R: Any, final: bool) -> None:
        """Remove `R`, freed by a job with ranks that have left; if `final`, all of its
        resources."""
        if final:
            del self.departed[jobid]
        else:
            self.departed[jobid] = self.departed[jobid].left_of(R)


#: First id of placeholders and of promises to no job, downwards from here.
FIRST_ID = -(1 << 40)


class Placeholders:
    """Allocations that belong to no job, in a scheduler's pool. Their ids are negative."""

    def __init__(self, scheduler: PolicyView) -> None:
        self._scheduler = scheduler
        self._ids = itertools.count(FIRST_ID, -1)

    def next_id(self) -> int:
        """Return an id in the pool and the plan that no job has."""
        return next(self._ids)

    def hold_free(
        self, ranks: int, until: float, of: Selection | None = None, pool: Any = None
    ) -> list[int]:
        """Allocate the free part of some ranks (a mask), or of a selection on them, until a time
        (0: no end). Return the id of the allocation, in a list that is empty if none is free.
        `pool`: a copy of the scheduler's pool to use instead."""
        jobid, pool = self.next_id(), pool or self._scheduler.resources
        return [jobid] if pool.hold_free(jobid, ranks, until, of) else []

    def free(self, jobids: list[int]) -> None:
        """Free allocations, and clear the list of their ids."""
        for jobid in jobids:
            self._scheduler.resources.free(jobid)
        jobids.clear()
