# SPDX-License-Identifier: LGPL-3.0-or-later
"""A walk over the queue of pending jobs: which of them a pass looks at, and in which order; and its
data: jobs in the order of the queue, the groups of those that ask for the same, and an index of these by
the room that they need.

By definition a pass examines every pending job, from the head of the queue to its end. Most of these
looks are in vain, and can be left out without any difference to starts or promises:

- Where nothing was freed since the walk before, only newcomers are examined, and jobs that something
  happened to which concerns them alone (`Backlog.again`).
- A job that was promised nothing is examined if there is room for it, whatever is promised
  (`PromisedJobs.groups_with_room`), or if it may be promised a start (`PromisedJobs.may_be_promised`).
- Behind a job that cannot start, jobs that ask for the same, for as long or longer, cannot start
  either (`Backlog.block`). Of a job that was examined before, the plan says it by a quick look
  (`PromisedJobs.waits_from`). They are found by their limits, so that a walk costs as many looks as there
  are groups of jobs that ask for the same.

Nothing of this outlives the walk. A walk that takes long is made in steps, between which jobs come,
leave and move. It is never begun anew for that, so that each job has its turn: events
meanwhile are followed by another walk.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Hashable, Iterator
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, Callable, Protocol

from flux.resource.plan.room_counts import RoomCounts, room_kind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flux.resource.plan.room_counts import RoomKind
    from flux.resource.ResourcePoolImplementation import ResourcePoolImplementation
    from flux.scheduler.requests import PendingJob

    #: A job behind its place, (`PendingJob.order`, job id, job).
    Entry = tuple[Any, int, PendingJob]

    # A place in the queue: behind all jobs before ``(order, job id)``. None: its head.
    Place = tuple[Any, int] | None

#: Most jobs of a block.
JOBS_PER_BLOCK = 128

#: Jobs that are examined in one turn of the reactor. A policy adds its work beyond examining
#: (`Backlog.spend`).
EFFORT_PER_TURN = 24

#: Newcomers that each walk examines in any case.
MIN_NEWCOMERS = 8

#: Groups of jobs that are looked up in the time that it takes to examine one job, and newcomers that
#: are passed over.
LOOKS_PER_EFFORT = 8


def entry_of(job: PendingJob) -> Entry:
    """A job with its place in the queue."""
    return job.order, job.jobid, job


class OrderedJobs:
    """Jobs in the order of the queue.

    They are kept in blocks, and in a block with their places, ``(order, job id, job)``: so a job is
    found by comparisons of numbers, where to ask jobs how they compare would be a call for each. A
    job that is put in or taken out moves the others of its block, not all that are behind it. As
    long as a job is in here its `PendingJob.order` must not change.

    Attributes:
        count (int): how many there are
        is_shut (bool): whether a rule keeps all of them from starting
    """

    __slots__ = ("count", "is_shut", "_blocks")

    def __init__(self) -> None:
        self.count = 0
        self.is_shut = False
        self._blocks: list[list[Entry]] = [[]]  # none of them is empty, unless it is the only one

    def __iter__(self) -> Iterator[PendingJob]:
        """The present jobs, in order; later changes do not matter."""
        for block in [block[:] for block in self._blocks]:
            for _, _, job in block:
                yield job

    def to_list(self) -> list[PendingJob]:
        """The jobs in order, as a list of its own.  O(jobs)."""
        return [job for block in self._blocks for _, _, job in block]

    def head(self, most: int | None) -> list[PendingJob]:
        """The first `most` jobs (None: all), in order."""
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
        """Return the first job from a place on (None: of all), or None if there is none or a rule
        keeps all from starting."""
        if not self.count or self.is_shut:
            return None
        blocks = self._blocks
        first = blocks[0][0]
        if place is None or first >= place:
            return first[2]
        number = self._block(place) if len(blocks) > 1 else 0
        at = bisect_left(blocks[number], place)
        if at < len(blocks[number]):
            return blocks[number][at][2]
        return blocks[number + 1][0][2] if number + 1 < len(blocks) else None

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
    """

    __slots__ = ("signature", "family", "ranks", "request", "_shortest", "_left")

    def __init__(self, signature: Any, family: Hashable) -> None:
        super().__init__()
        self.signature = signature
        self.family = family
        self.ranks = 0
        self.request: Any = None
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
    """The groups of jobs in a backlog, by the needs of a node or slot and their number.

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


class PromisedJobs(Protocol):
    """The interface of a policy's promises for a walk."""

    @property
    def drops(self) -> int:
        """A number that grows when a promise is dropped."""

    def first_since(self, place: Place) -> PendingJob | None:
        """The first promised job from a place in the queue on."""

    def due(self) -> list[PendingJob]:
        """The promised jobs that are to be examined before all others, since their time has come."""

    def may_be_promised(self, job: PendingJob) -> bool:
        """Whether a job without a promise may be promised a start; if not, no job behind it that could
        want the same ranks may be."""

    def is_kept_out(self, job: PendingJob) -> bool:
        """Whether a rule keeps a job from starting, so that no other waits for it."""

    def groups_with_room(self) -> Iterable[JobGroup] | None:
        """The groups of jobs for which there is room, if nothing is promised; None: it is not known of
        any whether there is."""

    def waits_from(self, job: PendingJob) -> float | None:
        """The limit (seconds) from which on jobs that ask for the same as one without a promise wait on
        as it does; None: it is to be examined."""


class _Backlog(Protocol):
    """The interface of a `Backlog` for a walk."""

    effort: float
    groups: dict[Any, JobGroup]
    lines: dict[int, OrderedJobs]

    @property
    def is_woken(self) -> bool: ...

    @property
    def apart(self) -> dict[JobGroup, None]: ...

    @property
    def come_back(self) -> Callable[[PendingJob], None]: ...

    def waiting_apart(self) -> list[JobGroup]: ...

    def first_newcomer(self) -> PendingJob | None: ...


class _Promised:
    """The promised jobs, as a source of jobs to examine."""

    __slots__ = ("promises", "place")

    def __init__(self, promises: PromisedJobs) -> None:
        self.promises = promises
        self.place: Place = None  # all before it were examined

    def first_since(self, place: Place) -> PendingJob | None:
        if place is None or (self.place is not None and place < self.place):
            place = self.place
        return self.promises.first_since(place)


class _Line:
    """The jobs without a promise that could want the same ranks: as long as one of them may be promised
    a start, the first is examined."""

    __slots__ = ("jobs", "ranks")

    def __init__(self, ranks: int, jobs: OrderedJobs) -> None:
        self.ranks, self.jobs = ranks, jobs

    def first_since(self, place: Place) -> PendingJob | None:
        return self.jobs.first_since(place)


class Walk:
    """One walk over a backlog.

    Args:
        backlog (Backlog): the queue
        promises (PromisedJobs): None: no job is promised anything
        freed (bool): whether something was freed since the last walk; else only newcomers are looked at
        every (bool): whether jobs are examined for which there is no room
    """

    def __init__(
        self, backlog: _Backlog, promises: PromisedJobs | None, freed: bool, every: bool
    ) -> None:
        self.backlog = backlog
        self.promises = promises
        self.freed = freed
        self.every = every
        #: whether it has come to its end
        self.is_over = False
        # The place behind the last job that was examined in its turn.
        self._place: Place = None
        self._promised: _Promised | None = None
        # Those groups for which there was room when the walk began, or that are all looked at; None: they
        # are to be found.
        self._groups: list[JobGroup] | None = None
        # A heap of the sources, each with the place of the first job that it may have.
        self._sources: list[tuple[Any, int, int, Any]] = []
        self._numbers = count()
        self._is_stale = freed
        self._drops = -1 if promises is None else promises.drops
        # Masks of ranks for which no more jobs may be promised a start.
        self._unpromised: set[int] = set()
        # By signature, a limit which was too long to start with; and families without any room.
        self._refused: dict[Any, float] = {}
        self._refused_families: set[Hashable] = set()

    def __iter__(self) -> Iterator[PendingJob | None]:
        backlog, newcomers = self.backlog, 0
        for job in self.promises.due() if self.promises is not None else ():
            if job.queued and not job.request.finalized:
                yield job
                backlog.effort += 1
        while True:
            if backlog.effort >= EFFORT_PER_TURN:
                yield None
                backlog.effort = 0
                if newcomers >= MIN_NEWCOMERS and not self._sources and backlog.is_woken:
                    break  # jobs that a release may help go first
            if self._is_other():
                yield from self._find_sources()
            following = self._next()
            if following is None:
                break
            newcomers += not following.examined
            following.examined = True
            yield following
            backlog.effort += 1
        self.is_over = True

    # -- findings of the policy --------------------------------------------------------------------

    def refuse(self, signature: Any, limit: float, family: bool) -> None:
        """Leave out jobs of a signature, behind the one that is examined, that may run for `limit`
        seconds or longer, or with `family` all of its family."""
        if limit < self._refused.get(signature, inf):
            self._refused[signature] = limit
        group = self.backlog.groups.get(signature)
        if family and group is not None:
            self._refused_families.add(group.family)

    def allow(self) -> None:
        """Findings about one job do not hold for others that ask for the same."""
        self._refused.clear()
        self._refused_families.clear()
        self._is_stale = self.freed

    def begin_anew(self) -> None:
        """The queue was sorted anew or replaced: all jobs are in other groups, and a place in the former
        order tells nothing, and may not even compare with those of now."""
        self._groups = self._place = self._promised = None
        self._is_stale = self.freed

    def skip_promised(self, last: PendingJob) -> None:
        """The promised jobs up to one of them were examined."""
        if self._promised is not None:
            self._promised.place = last.order, last.jobid + 1

    def shortest_refused(self, group: JobGroup) -> float | None:
        """The limit (seconds) from which on jobs of a group are left out, 0 for all; None: for none."""
        if group.family in self._refused_families:
            return 0.0
        return self._refused.get(group.signature)

    def leaves_out(self, job: PendingJob) -> bool:
        """Leave out the first job of a group, and those of it that may run as long, if it waits on."""
        limit = None if self.promises is None else self.promises.waits_from(job)
        if limit is None:
            return False
        self.refuse(job.signature, limit, family=False)
        self.backlog.effort += 1 / LOOKS_PER_EFFORT
        return True

    # -- the next job ------------------------------------------------------------------------------

    def _is_other(self) -> bool:
        """Whether the sources of jobs are not known, or may be others by now."""
        dropped = self.promises is not None and self.promises.drops != self._drops
        if not self.freed and (dropped or self.backlog.is_woken):
            # The newcomer that was examined last has made room, as by taking promises of others. No
            # newcomer behind it goes before the jobs that wait.
            self.freed = self._is_stale = True
        return self._is_stale or dropped

    def _find_sources(self) -> Iterator[None]:
        """Find the sources of jobs."""
        backlog, promises = self.backlog, self.promises
        self._is_stale = False
        if self._groups is None:
            backlog.waiting_apart()  # without those that are gone
            groups: Iterable[JobGroup] | None = None
            if promises is not None and not self.every:
                groups = promises.groups_with_room()
            if groups is None:
                groups = [*backlog.groups.values(), *backlog.apart]
            self._groups = list(groups)
        sources: list[Any] = list(self._groups)
        if promises is not None:
            self._promised = self._promised or _Promised(promises)
            sources.append(self._promised)
            sources += [_Line(ranks, jobs) for ranks, jobs in backlog.lines.items()]
            sources += [_Line(group.ranks, group) for group in backlog.apart]
            self._drops = promises.drops
            self._unpromised.clear()
        self._sources = []
        for source in sources:
            job = self._first_of(source)
            if job is not None:
                self._sources.append((job.order, job.jobid, next(self._numbers), source))
            backlog.effort += 1 / LOOKS_PER_EFFORT
            if backlog.effort >= EFFORT_PER_TURN:
                yield None
                backlog.effort = 0
        heapq.heapify(self._sources)

    def _next(self) -> PendingJob | None:
        """The next job to examine; None: there is none."""
        while True:
            job = self._first_of_sources()
            newcomer = self._first_newcomer()
            if newcomer is not None and (job is None or newcomer < job or newcomer is job):
                job = newcomer
            elif job is None:
                return None
            elif self.promises is not None:
                source = self._sources[0][3]
                if isinstance(source, _Line):
                    may_be = source.ranks not in self._unpromised and (
                        self.promises.may_be_promised(job)
                    )
                    if not may_be and not self.promises.is_kept_out(job):
                        self._unpromised.add(source.ranks)
                        heapq.heappop(self._sources)
                        continue
                elif isinstance(source, JobGroup) and self.leaves_out(job):
                    continue
            place = job.order, job.jobid + 1
            if self._place is None or place > self._place:
                self._place = place
            if not job.queued and not job.request.finalized:
                self.backlog.come_back(job)  # a rule lets it in
            if job.queued and not job.request.finalized:
                return job

    def _first_of(self, source: Any) -> PendingJob | None:
        """The first job of a source that may be examined in its turn."""
        place: Place = self._place
        if self._refused and isinstance(source, JobGroup):
            limit = self.shortest_refused(source)
            if limit is not None:
                return source.shorter_since(place, limit) if limit > 0 else None
        job: PendingJob | None = source.first_since(place)
        return job

    def _first_of_sources(self) -> PendingJob | None:
        sources = self._sources
        while sources:
            order, jobid, number, source = sources[0]
            job = self._first_of(source)
            if job is None:
                heapq.heappop(sources)
            elif job.jobid == jobid and job.order == order:
                return job
            else:
                heapq.heapreplace(sources, (job.order, job.jobid, number, source))
            self.backlog.effort += 1 / LOOKS_PER_EFFORT
        return None

    def _first_newcomer(self) -> PendingJob | None:
        """The first newcomer for which no other job speaks."""
        backlog = self.backlog
        while True:
            job = backlog.first_newcomer()
            if job is None or not self._refused or job.promised:
                return job
            if self._place is not None and (job.order, job.jobid) < self._place:
                return job  # it was ahead of the one that was refused, perhaps
            limit = self.shortest_refused(backlog.groups[job.signature])
            if limit is None or job.limit < limit or backlog.effort > 2 * EFFORT_PER_TURN:
                return job
            job.examined = True
            backlog.effort += 1 / LOOKS_PER_EFFORT
