# SPDX-License-Identifier: LGPL-3.0-or-later
"""Jobs in the order of the queue, in blocks, so that a job is entered or removed at a low cost; groups of
jobs that are alike; and the groups by the room that they need, to find those with room."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Hashable, Iterator
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, Callable

from flux.resource.plan.room_counts import RoomCounts, room_kind

if TYPE_CHECKING:
    from flux.resource.plan.room_counts import RoomKind
    from flux.resource.ResourcePoolImplementation import ResourcePoolImplementation
    from flux.scheduler.requests import PendingJob

    #: A job behind its place, (`PendingJob.order`, job id, job).
    Entry = tuple[Any, int, PendingJob]

#: Most jobs of a block.
JOBS_PER_BLOCK = 128


def entry_of(job: PendingJob) -> Entry:
    """A job with its place in the queue."""
    return job.order, job.jobid, job


class OrderedJobs:
    """Jobs in the order of the queue.

    They are kept in blocks, and in a block with their places, ``(order, job id, job)``: so a job is
    found by comparisons of numbers, where to ask jobs how they compare would be a call for each. A
    job that is put in or taken out moves the others of its block, not all that are behind it. As
    long as a job is in here its `PendingJob.order` must stay what it was.

    Attributes:
        count (int): how many there are
    """

    __slots__ = ("count", "_blocks")

    def __init__(self) -> None:
        self.count = 0
        self._blocks: list[list[Entry]] = [[]]  # none of them is empty, unless it is the only one

    def __iter__(self) -> Iterator[PendingJob]:
        """The jobs that there are now, in order; whatever comes or leaves meanwhile."""
        for block in [block[:] for block in self._blocks]:
            for _, _, job in block:
                yield job

    def to_list(self) -> list[PendingJob]:
        """The jobs in order, as a list of its own.  O(jobs)."""
        return [job for block in self._blocks for _, _, job in block]

    def head(self, most: int | None) -> list[PendingJob]:
        """The first jobs, so many at most (None: all), in order."""
        if most is None:
            return self.to_list()
        found: list[PendingJob] = []
        for block in self._blocks:
            found += [job for _, _, job in block[: most - len(found)]]
            if len(found) == most:
                break
        return found

    @property
    def first(self) -> PendingJob:
        """The job at the head. IndexError: there is none."""
        return self._blocks[0][0][2]

    @property
    def last(self) -> PendingJob:
        """The job behind all others. IndexError: there is none."""
        return self._blocks[-1][-1][2]

    def since(self, place: tuple[Any, int]) -> Iterator[PendingJob]:
        """The jobs from a place, ``(order, job id)``, on, in order; none may come or leave
        meanwhile."""
        begin = self._block(place)
        for number in range(begin, len(self._blocks)):
            block = self._blocks[number]
            for index in range(bisect_left(block, place) if number == begin else 0, len(block)):
                yield block[index][2]

    def first_since(self, place: tuple[Any, int] | None) -> PendingJob | None:
        """The first job from a place on, or of all; None: there is none."""
        if not self.count:
            return None
        first = self._blocks[0][0]
        return first[2] if place is None or first >= place else next(self.since(place), None)

    def add(self, entry: Entry) -> int:
        """Put in a job with its place (`entry_of`).

        Returns:
            the number of the block it is in; -1 if that was divided
        """
        self.count += 1
        at = len(self._blocks) - 1
        block = self._blocks[at]
        if not block or block[-1] < entry:  # mostly it comes behind all others
            block.append(entry)
        else:
            if at:
                at = self._block(entry[:2])
                block = self._blocks[at]
            insort(block, entry)
        if len(block) <= JOBS_PER_BLOCK:
            return at
        self._divide(at)
        return -1

    def remove(self, job: PendingJob) -> int:
        """Take out a job, which is there.

        Returns:
            the number of the block it was in; -1 if that is gone
        """
        self.count -= 1
        place = (job.order, job.jobid)
        at = self._block(place) if len(self._blocks) > 1 else 0
        block = self._blocks[at]
        del block[bisect_left(block, place)]
        if block or len(self._blocks) == 1:
            return at
        self._drop(at)
        return -1

    def _divide(self, at: int) -> None:
        """Make two blocks of one."""
        block = self._blocks[at]
        half = len(block) // 2
        self._blocks[at : at + 1] = block[:half], block[half:]

    def _drop(self, at: int) -> None:
        """Do without a block that is empty."""
        del self._blocks[at]

    def _block(self, place: tuple[Any, int]) -> int:
        """Number of the block that a place, ``(order, job id)``, is in, or behind whose jobs it is; 0
        if it is before all."""
        order, jobid = place
        # Lists compare by their first entries: how many blocks do not begin behind the place.
        return max(0, bisect_left(self._blocks, [(order, jobid + 1)]) - 1)


class JobGroup(OrderedJobs):
    """Jobs that have one signature, and no promise: in a backlog, or that wait for the same of a rule.

    Each block knows the shortest limit in it: to find the next job with a limit below some value
    takes a look at each block in between, and at the jobs of one or two.

    Attributes:
        signature: of all of them
        family: of the signature (`Backlog.family_of`)
        ranks (int): mask of the ranks for which these jobs and others wait for each other
        request: that of one of them, which those of the others are like but for their durations
        count (int): how many there are
        is_shut (bool): whether a rule keeps all of them from starting
    """

    __slots__ = ("signature", "family", "ranks", "request", "is_shut", "_shortest", "_left")

    def __init__(self, signature: Any, family: Hashable) -> None:
        super().__init__()
        self.signature = signature
        self.family = family
        self.ranks = 0
        self.request: Any = None
        self.is_shut = False
        # Of each block no job has a shorter limit; in a block without jobs infinity. One with this
        # limit may have left, which is found out when a shorter one is next looked for in vain:
        # where many leave at once, each would have the others of its block looked at.
        self._shortest: list[float] = [inf]
        self._left: list[bool] = [False]

    @property
    def lets_in(self) -> bool:
        """Whether there is a job, and no rule keeps all of them from starting."""
        return bool(self.count) and not self.is_shut

    def add(self, entry: Entry) -> int:
        job = entry[2]
        self.request = job.resource_request
        at = super().add(entry)
        if at >= 0 and job.limit < self._shortest[at]:
            self._shortest[at] = job.limit
        return at

    def remove(self, job: PendingJob) -> int:
        at = super().remove(job)
        if at >= 0 and not self._blocks[at]:
            self._find_shortest(at)
        elif at >= 0 and job.limit == self._shortest[at]:
            self._left[at] = True
        return at

    def shorter_since(self, place: tuple[Any, int] | None, limit: float) -> PendingJob | None:
        """The first job from a place on, or of all, with a limit below `limit` seconds; None: there is
        none."""
        blocks, shortest = self._blocks, self._shortest
        begin = 0 if place is None or len(blocks) == 1 else self._block(place)
        for number in range(begin, len(blocks)):
            if shortest[number] < limit:
                block = blocks[number]
                if number == begin and place is not None and block[0] < place:
                    block = block[bisect_left(block, place) :]
                for _, _, job in block:
                    if job.limit < limit:
                        return job
                if self._left[number]:
                    self._find_shortest(number)
        return None

    def _divide(self, at: int) -> None:
        super()._divide(at)
        self._shortest[at : at + 1] = inf, inf
        self._left[at : at + 1] = False, False
        self._find_shortest(at)
        self._find_shortest(at + 1)

    def _drop(self, at: int) -> None:
        super()._drop(at)
        del self._shortest[at], self._left[at]

    def _find_shortest(self, at: int) -> None:
        """Look at the limits of all jobs of a block."""
        self._shortest[at] = min([one.limit for _, _, one in self._blocks[at]], default=inf)
        self._left[at] = False


class RoomIndex:
    """The groups of jobs in a backlog, by what a node or slot of theirs needs and how many they need.

    Args:
        pool: function giving the scheduler's pool
    """

    def __init__(self, pool: Callable[[], ResourcePoolImplementation]) -> None:
        self._pool = pool
        # By kind of room, in order: (nodes or slots needed, a number, the group).
        self._kinds: dict[RoomKind, list[tuple[float, int, JobGroup]]] = {}
        self._place: dict[JobGroup, tuple[RoomKind, float, int]] = {}
        #: groups that are to be entered, and those for which room cannot be counted
        self._new: dict[JobGroup, None] = {}
        self._uncounted: dict[JobGroup, None] = {}
        self._numbers = count()
        self._counts: RoomCounts | None = None

    def enter(self, group: JobGroup) -> None:
        """A group has been made."""
        self._new[group] = None

    def leave(self, group: JobGroup) -> None:
        """A group has no job any more."""
        for groups_aside in (self._new, self._uncounted):
            if group in groups_aside:
                del groups_aside[group]
                return
        kind, needed, number = self._place.pop(group)
        groups = self._kinds[kind]
        del groups[bisect_left(groups, (needed, number))]
        if not groups:
            del self._kinds[kind]

    def with_room(self) -> list[JobGroup]:
        """The groups for which there is room now, whatever is promised, and those for which that is not
        known. O(kinds of room), and those that are returned."""
        pool = self._pool()
        for group in self._new:
            shape = group.request.shape
            if pool.countable(shape):
                place = room_kind(shape), shape.least_count, next(self._numbers)
                self._place[group] = place
                insort(self._kinds.setdefault(place[0], []), (*place[1:], group))
            else:
                self._uncounted[group] = None
        self._new.clear()
        if self._counts is None:
            self._counts = RoomCounts(pool)
        counts = self._counts
        found = list(self._uncounted)
        for groups in self._kinds.values():
            room = counts.of(groups[0][2].request.shape)
            if room >= groups[0][0]:
                found += [group for _, _, group in groups[: bisect_right(groups, (room, inf))]]
        return found
