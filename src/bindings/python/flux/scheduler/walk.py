# SPDX-License-Identifier: LGPL-3.0-or-later
"""A walk over the queue of pending jobs: which of them a pass looks at, and in which order.

By definition a pass examines every pending job, from the head of the queue to its end. Most of these
looks are in vain, and can be left out without any difference to what starts or is promised:

- Where nothing was freed since the walk before, only newcomers are examined, and jobs that something
  happened to which concerns them alone (`Backlog.again`).
- A job that was promised nothing is examined if there is room for it, whatever is promised
  (`PromisedJobs.groups_with_room`), or if it may be promised a start (`PromisedJobs.may_be_promised`).
- Behind a job that cannot start, jobs that ask for the same, for as long or longer, cannot start
  either (`Backlog.block`). Of a job that was examined before, the plan says it by a quick look
  (`PromisedJobs.waits_from`). They are found by their limits, so that a walk costs as many looks as there
  are groups of jobs that ask for the same.

Nothing of this outlives the walk. A walk that takes long is made in steps, between which jobs come,
leave and move. It is never begun anew for that, so that each job has its turn: what happens
meanwhile is followed by another walk.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, Callable, Protocol

from flux.scheduler.ordered_jobs import JobGroup

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flux.scheduler.ordered_jobs import OrderedJobs
    from flux.scheduler.requests import PendingJob

    # A place in the queue: behind all jobs before ``(order, job id)``. None: its head.
    Place = tuple[Any, int] | None

#: Jobs that are examined in one turn of the reactor. A policy adds what it does beyond examining
#: (`Backlog.spend`).
EFFORT_PER_TURN = 24

#: Newcomers that each walk examines, whatever happens.
MIN_NEWCOMERS = 8

#: Groups of jobs that are looked up in the time that it takes to examine one job, and newcomers that
#: are passed over.
LOOKS_PER_EFFORT = 8


class PromisedJobs(Protocol):
    """What a walk has to know of the promises of a policy."""

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
    """What is used of a `Backlog`."""

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


class _ApartLine(_Line):
    """The same of jobs that a rule has set apart and lets in again."""

    __slots__ = ()
    jobs: JobGroup

    def first_since(self, place: Place) -> PendingJob | None:
        return None if self.jobs.is_shut else self.jobs.first_since(place)


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
                    break  # what was freed meanwhile goes first
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

    # -- what the policy tells ---------------------------------------------------------------------

    def refuse(self, signature: Any, limit: float, family: bool) -> None:
        """Leave out jobs of a signature, behind the one that is examined, that may run for `limit`
        seconds or longer, or with `family` all of its family."""
        if limit < self._refused.get(signature, inf):
            self._refused[signature] = limit
        group = self.backlog.groups.get(signature)
        if family and group is not None:
            self._refused_families.add(group.family)

    def allow(self) -> None:
        """What was found of one job does not hold for others that ask for the same."""
        self._refused.clear()
        self._refused_families.clear()
        self._is_stale = self.freed

    def begin_anew(self) -> None:
        """All jobs are in other groups."""
        self._groups = None
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

    # -- who is next -------------------------------------------------------------------------------

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
            sources += [_ApartLine(group.ranks, group) for group in backlog.apart]
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
        if isinstance(source, JobGroup) and source.is_shut:
            return None
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
