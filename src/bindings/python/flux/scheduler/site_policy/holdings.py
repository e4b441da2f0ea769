# SPDX-License-Identifier: LGPL-3.0-or-later
"""What jobs hold by their R, also on ranks that have left the instance.

The pool forgets a rank that leaves. The job that is on it holds it all the same until it is freed, and
a limit counts it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from flux.resource.pool.masks import idset_text, popcount
from flux.resource.pool.rv1 import object_of, read_lite

if TYPE_CHECKING:
    from flux.resource.ResourcePool import ResourcePool


class Holding(NamedTuple):
    """What a job holds.

    Attributes:
        ranks (int): mask of the ranks on which it holds something
        cores, gpus (int): how many, in all
    """

    ranks: int = 0
    cores: int = 0
    gpus: int = 0

    def with_ranks_of(self, other: Holding) -> Holding:
        """Both together; they have no rank in common."""
        return Holding(self.ranks | other.ranks, self.cores + other.cores, self.gpus + other.gpus)

    def left_of(self, R: Any) -> Holding:
        """What is left when some of its ranks are given back, as R (an object, or a ResourcePool).
        Ranks that it does not hold are passed over."""
        ranks, cores, gpus = self
        for mask, core_mask, gpu_mask in read_lite(object_of(R)):
            count = popcount(mask & ranks)
            ranks &= ~mask
            cores -= count * popcount(core_mask)
            gpus -= count * popcount(gpu_mask)
        return Holding(ranks, cores, gpus)


NOTHING = Holding()


def _together(kinds: Iterable[tuple[int, int, int]]) -> Holding:
    """What is in ``(cores, GPUs, mask of ranks)``: so many on each of these ranks, none of them twice."""
    ranks = all_cores = all_gpus = 0
    for cores, gpus, mask in kinds:
        count = popcount(mask)
        ranks |= mask
        all_cores += count * cores
        all_gpus += count * gpus
    return Holding(ranks, all_cores, all_gpus)


def holding_of(pool: ResourcePool, jobid: int) -> Holding:
    """What a job holds in a pool now.  O(kinds of what it holds on a rank)."""
    try:
        return _together(pool.held_kinds(jobid))
    except KeyError:
        return NOTHING


def amounts_held(pool: ResourcePool, jobid: int) -> dict[str, Any] | None:
    """What a job holds of amounts such as memory, as the scheduling key of R has it, which does not come
    back with R; None where none are counted."""
    inventory = getattr(pool, "inventory", None)
    if inventory is None or not getattr(inventory, "amounts", ()):
        return None
    return {"amounts": inventory.amounts_of(pool.held(jobid))}


def holding_in(R: Any) -> Holding:
    """All that is in an R (an object, or a ResourcePool)."""
    return _together(
        (popcount(cores), popcount(gpus), mask) for mask, cores, gpus in read_lite(object_of(R))
    )


def part_of(R: Any, ranks: int) -> dict[str, Any] | None:
    """What an R (an object, or a ResourcePool) has on some ranks (a mask), as an R object; None:
    nothing."""
    entries = []
    for mask, cores, gpus in read_lite(object_of(R)):
        if mask & ranks:
            units = {"core": cores, "gpu": gpus}
            children = {name: idset_text(some) for name, some in units.items() if some}
            entries.append({"rank": idset_text(mask & ranks), "children": children})
    return {"version": 1, "execution": {"R_lite": entries}} if entries else None


class Holdings:
    """What each running job holds.

    Args:
        pool: gives the scheduler's pool
    """

    def __init__(self, pool: Callable[[], ResourcePool]) -> None:
        self._pool = pool
        #: by job id, what is held on ranks that have left
        self._departed: dict[int, Holding] = {}
        #: of the job that was asked about last, its id, the generation of the pool, and what it holds
        self._last: tuple[int, int, Holding] = (0, -1, NOTHING)

    def of(self, jobid: int, where: Any = None) -> Holding:
        """What a job holds, in the pool and on ranks that have left; or what an id holds in a copy of the
        pool.  O(kinds of what it holds on a rank); several rules ask about the job that starts."""
        pool = self._pool()
        if where is not None and where is not pool:
            return holding_of(where, jobid)
        last, generation, held = self._last
        if last != jobid or generation != pool.generation:
            held = holding_of(pool, jobid)
            self._last = (jobid, pool.generation, held)
        departed = self._departed.get(jobid)
        return held if departed is None else held.with_ranks_of(departed)

    @contextmanager
    def noting_departures(self, jobids: Iterable[int]) -> Iterator[None]:
        """Ranks leave the pool in the body of the ``with``: what these jobs hold there stays known.
        O(jobs)."""
        pool = self._pool()
        before = {jobid: holding_of(pool, jobid) for jobid in jobids}
        yield
        for jobid, held in before.items():
            ranks, cores, gpus = holding_of(pool, jobid)
            if ranks != held.ranks:
                self._add(jobid, Holding(held.ranks & ~ranks, held.cores - cores, held.gpus - gpus))

    def found_departed(self, jobid: int, R: dict[str, Any]) -> None:
        """A job that was found running holds R on ranks that had left by then."""
        self._add(jobid, holding_in(R))

    def _add(self, jobid: int, departed: Holding) -> None:
        self._departed[jobid] = self._departed.get(jobid, NOTHING).with_ranks_of(departed)

    def freed(self, jobid: int, R: Any, final: bool) -> None:
        """A job has given back R, and with `final` all it held."""
        departed = self._departed.get(jobid)
        if departed is None:
            return
        departed = NOTHING if final else departed.left_of(R)
        if departed.ranks:
            self._departed[jobid] = departed
        else:
            del self._departed[jobid]
