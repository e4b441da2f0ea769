# SPDX-License-Identifier: LGPL-3.0-or-later
"""A walk over the queue of pending jobs: the order in which a pass examines them, and the jobs it
skips. Also its data: jobs in queue order, groups of jobs with equal requests, and an index of
groups by the room that they need.

By definition a pass examines every pending job, from the head of the queue to its end. Most of
these examinations have no effect, and are skipped without any change to starts or promises:

- If nothing was freed since the last walk, only the unexamined jobs are: new ones, and jobs that an
  event concerns alone (`Backlog.again`). A new one that surely has to wait (`Backlog.waits`) is none.
- A job without a promise is examined if there is room for it, ignoring promises, and not all jobs
  with its signature are known to be too long beside them (`PromisedJobs.groups_with_room`), or if
  it may be promised a start (`PromisedJobs.may_be_promised`).
- Behind a job that cannot start, jobs with its signature and at least its limit cannot start either
  (`Backlog.block`). For a job examined before, a quick look at the plan suffices
  (`PromisedJobs.too_long`). Such jobs are found by their limits, so a walk costs one look per
  group of jobs with equal requests.

None of this outlives the walk. A long walk is made in steps, between which jobs arrive, leave and
move. It is never restarted for that, so that each job has its turn: events cause another.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from itertools import chain, count, filterfalse, islice, repeat
from math import inf
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Callable, List, Protocol

from flux.resource.pool.placement import room_kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flux.resource.plan.plan import Plan
    from flux.resource.pool.placement import RoomKind
    from flux.scheduler.requests import PendingJob

    # the position of a job in the queue: (`PendingJob.order`, job id)
    Position = tuple[Any, int]

    # a job behind its position: (order, job id, job)
    Entry = tuple[Any, int, PendingJob]

#: Maximum number of jobs per block.
JOBS_PER_BLOCK = 128

#: Number of jobs examined per reactor turn. A policy adds other work (`Backlog.effort`).
EFFORT_PER_TURN = 24

#: Number of unexamined jobs that each walk examines in any case.
MIN_UNEXAMINED = 8

#: With more sources of jobs than this, beside one for each kind of room and for each readmitted group,
#: the groups that have lost their room are found together, not one by one.
FEW_SOURCES = 2

#: Effort of looking up a group, or skipping an unexamined job, in examined jobs.
LOOKUP_EFFORT = 1 / 8


def entry_of(job: PendingJob) -> Entry:
    """Return a job with its position in the queue."""
    return job.order, job.jobid, job


class _Block(List["Entry"]):
    """Consecutive jobs of `OrderedJobs`, sorted.

    Attributes:
        shortest (float): a lower bound of their limits. The job with that limit may have left, which
            is noticed when a search for a shorter one fails: if many leave at once, each update
            would look at the rest of the block
    """

    __slots__ = ("shortest",)

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        super().__init__(entries)
        self.shortest: float = inf
        if entries:
            self.find_shortest()

    def find_shortest(self) -> None:
        """Compute `shortest`."""
        self.shortest = min([job.limit for _, _, job in self], default=inf)


_COUNT, _IS_DEFERRED = attrgetter("count"), attrgetter("is_deferred")
_BLOCKS, _FIRST = attrgetter("blocks"), itemgetter(0)


class OrderedJobs:
    """Jobs in queue order.

    They are kept in blocks, as entries ``(order, job id, job)``: a job is found by comparing
    numbers, without calls of the jobs' comparison. Adding or removing a job moves only the others
    of its block. While a job is in here its `PendingJob.order` must not change.
    """

    __slots__ = ("count", "is_deferred", "shortest", "blocks")

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        """`entries`: jobs, sorted."""
        self.count = len(entries)  # number of jobs
        self.is_deferred = False  # whether a rule keeps all of them from starting
        #: none is empty, unless it is the only one
        firsts = range(0, self.count or 1, JOBS_PER_BLOCK)
        self.blocks = [_Block(entries[at : at + JOBS_PER_BLOCK]) for at in firsts]
        self.shortest = min([block.shortest for block in self.blocks])  # as of blocks

    def __iter__(self) -> Iterator[PendingJob]:
        """Yield the jobs in order, as of now."""
        for block in [block[:] for block in self.blocks]:
            for _, _, job in block:
                yield job

    def to_list(self) -> list[PendingJob]:
        """Return the jobs in order, as a new list.  O(jobs)."""
        return [job for block in self.blocks for _, _, job in block]

    def head(self, most: int | None) -> list[PendingJob]:
        """Return the first `most` jobs (None: all), in order."""
        jobs = (job for block in self.blocks for _, _, job in block)
        return list(islice(jobs, most))

    @property
    def first(self) -> PendingJob:
        """The first job. Raises IndexError if there is none."""
        return self.blocks[0][0][2]

    @property
    def last(self) -> PendingJob:
        """The last job. Raises IndexError if there is none."""
        return self.blocks[-1][-1][2]

    def first_since(self, position: Position | None) -> PendingJob | None:
        """Return the first job from a position on (None: of all), or None if there is none or a rule
        keeps all from starting."""
        if not self.count or self.is_deferred:
            return None
        blocks = self.blocks
        first = blocks[0][0]
        if position is None or first >= position:
            return first[2]
        number = self._block(position) if len(blocks) > 1 else 0
        at = bisect_left(blocks[number], position)
        if at < len(blocks[number]):
            return blocks[number][at][2]
        return blocks[number + 1][0][2] if number + 1 < len(blocks) else None

    def shorter_since(self, position: Position | None, limit: float) -> PendingJob | None:
        """Return the first job from a position on (None: of all) with a limit below `limit` seconds,
        or None. Looks at each block in between, and at the jobs of one or two."""
        blocks = self.blocks
        begin = 0 if position is None or len(blocks) == 1 else self._block(position)
        for number in range(begin, len(blocks)):
            block = blocks[number]
            if block.shortest < limit:
                first = 0 if position is None else bisect_left(block, position)
                for _, _, job in block[first:] if first else block:
                    if job.limit < limit:
                        return job
                block.find_shortest()
        self.shortest = min([block.shortest for block in blocks])
        return None

    def add(self, entry: Entry) -> None:
        """Add a job (`entry_of`)."""
        self.count += 1
        at, block, limit = -1, self.blocks[-1], entry[2].limit
        if not block or block[-1] < entry:  # usually it is the last
            block.append(entry)
        else:
            at = self._block(entry[:2])
            block = self.blocks[at]
            insort(block, entry)
        if limit < block.shortest:
            block.shortest = limit
            if limit < self.shortest:
                self.shortest = limit
        if len(block) > JOBS_PER_BLOCK:
            half, end = len(block) // 2, at % len(self.blocks) + 1
            self.blocks[end - 1 : end] = _Block(block[:half]), _Block(block[half:])

    def remove(self, job: PendingJob) -> None:
        """Remove a job."""
        self.count -= 1
        blocks, position = self.blocks, (job.order, job.jobid)
        at = self._block(position) if len(blocks) > 1 else 0
        block = blocks[at]
        del block[bisect_left(block, position)]
        if not block and len(blocks) > 1:
            del blocks[at]

    def _block(self, position: Position) -> int:
        """Return the index of the block that contains a position, or ends before it; 0 if the
        position precedes all."""
        order, jobid = position
        # Lists compare by their first entries: count the blocks that begin at or before it.
        return max(0, bisect_left(self.blocks, [(order, jobid + 1)]) - 1)


class JobGroup(OrderedJobs):
    """Jobs with one signature and without promises: in a backlog, or deferred by a rule for one
    cause."""

    __slots__ = ("signature", "ranks", "request", "known_possible")

    def __init__(self, signature: Any) -> None:
        super().__init__()
        self.signature = signature  # their signature
        self.ranks = 0  # mask of the ranks for which these jobs and others take turns
        #: the request of one of them; the others differ only in their durations
        self.request: Any = None
        #: number of the check, by a policy, that they could run at all; 0: there was none
        self.known_possible = 0

    @property
    def is_readmitted(self) -> bool:
        """Whether it has a job, and no rule keeps all of them from starting."""
        return bool(self.count) and not self.is_deferred

    def add(self, entry: Entry) -> None:
        self.request = entry[2].resource_request
        super().add(entry)


class RoomIndex:
    """The groups of jobs in a backlog, by the needs of a node or slot and their number."""

    def __init__(self) -> None:
        # kind of room -> sorted list of (number of nodes or slots needed, serial number, group)
        self._kinds: dict[RoomKind, list[tuple[float, int, JobGroup]]] = {}
        self._entries: dict[JobGroup, tuple[RoomKind, float, int]] = {}
        #: groups to be entered, and groups whose room cannot be counted
        self._new: dict[JobGroup, None] = {}
        self._uncounted: dict[JobGroup, None] = {}
        self._numbers = count()

    def __len__(self) -> int:
        """Return the number of kinds of room."""
        return len(self._kinds)

    def enter(self, group: JobGroup) -> None:
        """Add a new group."""
        self._new[group] = None

    def leave(self, group: JobGroup) -> None:
        """Remove an empty group."""
        for groups_aside in (self._new, self._uncounted):
            if group in groups_aside:
                del groups_aside[group]
                return
        kind, needed, number = self._entries.pop(group)
        groups = self._kinds[kind]
        del groups[bisect_left(groups, (needed, number))]
        if not groups:
            del self._kinds[kind]

    def with_room(
        self, plan: Plan, beside_promises: bool = False
    ) -> tuple[list[JobGroup], dict[JobGroup, float]]:
        """Return the groups with room now, ignoring promises, and those whose room is unknown; and,
        if `beside_promises`, apart from these the groups with a limit, in seconds, that is known to
        be too long until a promise is dropped or made anew, without those whose jobs all have such
        limits. O(kinds of room + groups with room)"""
        countable = plan.pool.countable
        for group in self._new:
            shape = group.request.shape
            if countable(shape):
                kind, *entry = room_kind(shape), shape.least_count, next(self._numbers)
                self._entries[group] = kind, *entry
                insort(self._kinds.setdefault(kind, []), (*entry, group))
            else:
                self._uncounted[group] = None
        self._new.clear()
        found, limited = [*self._uncounted], dict[JobGroup, float]()
        for groups in self._kinds.values():
            needed, _, least = groups[0]
            room = plan.room(least.request)
            if room < needed:
                continue
            if room < groups[-1][0]:
                groups = groups[: bisect_right(groups, (room, inf))]
            if beside_promises:
                number, too_long = plan.too_long_until_dropped(least.request)
                if number < groups[-1][0]:
                    at = bisect_right(groups, (number, inf))
                    groups, larger = groups[:at], groups[at:]
                    for _, _, group in larger:
                        if group.shortest < too_long:
                            limited[group] = too_long
            found += map(itemgetter(2), groups)
        return found, limited


class PromisedJobs(Protocol):
    """The interface of a policy's promises for a walk."""

    def first_since(self, position: Position | None) -> PendingJob | None:
        """Return the first promised job from a position in the queue on, or None."""

    def due(self, freed: bool) -> Iterable[PendingJob]:
        """Return the promised jobs to be examined before all others: their time has come, or
        (`freed`) resources were freed and some promise is open."""

    def may_be_promised(self, job: PendingJob) -> bool:
        """Whether an unpromised job may be promised a start; if not, no job behind it that could
        use the same ranks may be."""

    def is_past_promise_limit(self, job: PendingJob, ranks: int) -> bool:
        """Whether the promises to jobs ahead of an unpromised one have reached the limit for its ranks
        (a mask), and no rule defers jobs. Until a promise is dropped, neither this job nor one behind
        it that could use the same ranks is then promised a start."""

    def would_be_deferred(self, job: PendingJob) -> bool:
        """Whether a rule keeps a job from starting now, so that no other job waits for it."""

    def groups_with_room(self) -> tuple[list[JobGroup], dict[JobGroup, float]] | None:
        """Return the groups of jobs for which there is room, ignoring promises; and, apart from
        these, further ones with a limit that is too long until a promise is dropped, in seconds.
        None: all groups must be examined."""

    def too_long(self, job: PendingJob) -> float | None:
        """Return a limit, in seconds, that is too long for an unpromised job and all others of its
        signature to start now; None if the job must be examined."""


class _Backlog(Protocol):
    """The interface of a `Backlog` for a walk."""

    effort: float
    rooms: RoomIndex
    unexamined: list[Entry]
    woken: float | None
    groups: dict[Any, JobGroup]
    by_ranks: dict[int, OrderedJobs]
    readmitted: dict[JobGroup, None]
    requeue: Callable[[PendingJob], None]

    def join_group(self, job: PendingJob) -> None: ...

    def readmitted_groups(self) -> list[JobGroup]: ...

    def first_unexamined(self) -> PendingJob | None: ...


class Walk:
    """A walk over a backlog.

    Attributes:
        is_over (bool): whether it has ended
        in_order (bool): whether it examines jobs in order; the due ones come first
        promise_was_dropped (bool): whether a promise was dropped, so that another job may be
            promised a start; set by others
    """

    is_over = promise_was_dropped = False
    in_order = False
    # positions behind the last job, and the last promised one, examined in their turn
    _position: Position | None = None
    _promised_position: Position | None = None
    # groups with room when the walk began, or all to be examined; None: not determined
    _groups: list[JobGroup] | None = None
    _number = 0  # of the last source
    _has_started = False  # whether a job has left since groups with room were found

    def __init__(
        self, backlog: _Backlog, promises: PromisedJobs | None, freed: bool, all_groups: bool
    ) -> None:
        self.backlog = backlog
        self.promises = promises  # the promises; None: there are none
        #: whether resources were freed since the last walk; otherwise only unexamined jobs are
        self.freed = freed
        self.all_groups = all_groups  # whether to examine jobs without room
        # Heap of (entry, number, source, ranks). A source is a group, with `ranks` None; the promised
        # jobs, likewise; or the jobs that wait for `ranks` (a mask), of `Backlog.by_ranks` or
        # `Backlog.readmitted`: the first is examined while one of them may be promised a start. The
        # entry is that of its first job to examine, the number unique.
        self._sources: list[tuple[Entry, int, Any, int | None]] = []
        self._is_stale = freed  # whether to find the sources again
        # masks of ranks for which no more jobs may be promised a start
        self._unpromised: set[int] = set()
        # signature -> limit that was too long to start; and further groups with room -> such a limit
        self._refused: dict[Any, float] = {}
        self._limited: dict[JobGroup, float] = {}

    def __iter__(self) -> Iterator[PendingJob | None]:
        backlog, arrivals = self.backlog, 0
        job: PendingJob | None
        for job in self.promises.due(self.freed) if self.promises is not None else ():
            if job.queued and not job.request.finalized:
                yield job
                backlog.effort += 1
                self._has_started |= job.request.finalized
            if backlog.effort >= EFFORT_PER_TURN:
                yield None
                backlog.effort = 0
        self.in_order = True
        while True:
            if backlog.effort >= EFFORT_PER_TURN:
                yield None
                backlog.effort = 0
                if arrivals >= MIN_UNEXAMINED and not self._sources and backlog.woken is not None:
                    break  # jobs that a release may help go first
            if not self.freed and (self.promise_was_dropped or backlog.woken is not None):
                # The arrival examined last has made room, for example by taking others' promises.
                # Waiting jobs go before the arrivals behind it.
                self.freed = self._is_stale = True
            if self._is_stale or self.promise_was_dropped:
                yield from self._find_sources()
            job = self._next() if self._sources or backlog.unexamined else None
            if job is None:
                break
            if self._position is None or (job.order, job.jobid) >= self._position:
                self._position = job.order, job.jobid + 1
            if not (job.queued or job.request.finalized):
                backlog.requeue(job)  # its rule has readmitted it
                backlog.effort += LOOKUP_EFFORT
            if job.queued and not job.request.finalized:
                if not job.examined:
                    arrivals += 1
                    job.examined = True
                    if backlog.unexamined and backlog.unexamined[0][2] is job:
                        heapq.heappop(backlog.unexamined)
                try:
                    yield job
                finally:  # also if its examination raises
                    backlog.join_group(job)
                backlog.effort += 1
                self._has_started |= job.request.finalized
        self.is_over = True

    # -- findings of the policy --------------------------------------------------------------------

    def refuse(self, signature: Any, limit: float) -> None:
        """Skip jobs of a signature behind the current one with limits of at least `limit` seconds;
        0 shows that starts have left no room for them, and possibly for many others."""
        if limit < self._refused.get(signature, inf):
            self._refused[signature] = limit
        if not self._has_started or limit > 0 or self.all_groups:
            return
        rooms, readmitted = self.backlog.rooms, self.backlog.readmitted
        if len(self._sources) <= len(rooms) + len(readmitted) + FEW_SOURCES:
            return
        self._has_started = False
        with_room = None if self.promises is None else self.promises.groups_with_room()
        if with_room is not None:
            kept = {self.promises, *with_room[0], *with_room[1]}
            sources = [one for one in self._sources if one[3] is not None or one[2] in kept]
            self._sources[:] = sources
            heapq.heapify(self._sources)

    def begin_anew(self) -> None:
        """Start over: the queue was sorted again or replaced. All jobs are in other groups, and a
        position in the old order is meaningless, or does not even compare with new ones."""
        self._groups = self._position = self._promised_position = None
        self._is_stale = self.freed

    def skip_promised(self, last: PendingJob) -> None:
        """Skip the promised jobs up to `last`, which were examined."""
        self._promised_position = last.order, last.jobid + 1

    # -- the next job ------------------------------------------------------------------------------

    def _find_sources(self) -> Iterator[None]:
        """Determine the sources of jobs."""
        backlog, promises = self.backlog, self.promises
        if self._groups is None or self.promise_was_dropped:
            if backlog.readmitted:
                backlog.readmitted_groups()  # drops groups that are gone
            with_room = None
            if promises is not None and not self.all_groups:
                with_room = promises.groups_with_room()
            if with_room is None:
                with_room = [*backlog.groups.values(), *backlog.readmitted], {}
            self._groups, self._limited = with_room
            self._has_started = False
            if self.promise_was_dropped:
                self._refused.clear()
        self._is_stale = self.promise_was_dropped = False
        is_begin = self._position is None and not self._refused
        self._sources = self._firsts(self._groups) if is_begin else []
        sources: list[tuple[Any, int | None]]
        sources = [
            (group, None) for group in chain(self._limited, () if is_begin else self._groups)
        ]
        if promises is not None:
            sources.append((promises, None))
            sources += [
                (jobs, ranks)
                for ranks, jobs in backlog.by_ranks.items()
                if not promises.is_past_promise_limit(jobs.first, ranks)
            ]
            if backlog.readmitted:
                sources += [(group, group.ranks) for group in backlog.readmitted]
            self._unpromised.clear()
        for source, ranks in sources:
            job = self._first_of(source, ranks)
            if job is not None:
                self._number += 1
                self._sources.append((entry_of(job), self._number, source, ranks))
            backlog.effort += LOOKUP_EFFORT
            if backlog.effort >= EFFORT_PER_TURN:
                yield None
                backlog.effort = 0
        heapq.heapify(self._sources)

    def _firsts(self, groups: list[JobGroup]) -> list[tuple[Entry, int, Any, int | None]]:
        """Return groups as sources, each with its first job: as `_first_of`, without calls."""
        begun = self._number + 1
        self._number += len(groups)
        self.backlog.effort += LOOKUP_EFFORT * len(groups)
        # There may be one per user: this runs no Python per group.
        groups = list(filterfalse(_IS_DEFERRED, filter(_COUNT, groups)))
        firsts = map(_FIRST, map(_FIRST, map(_BLOCKS, groups)))
        return list(zip(firsts, count(begun), groups, repeat(None)))

    def _next(self) -> PendingJob | None:
        """Return the first unexamined job or job of a source that must be examined, or None."""
        backlog, sources, refused = self.backlog, self._sources, self._refused
        arrival = None
        if backlog.unexamined:
            arrival = self._first_unexamined() if refused else backlog.first_unexamined()
        if not sources:
            return arrival
        promises = self.promises
        while sources:
            (order, jobid, job), number, source, ranks = sources[0]
            position = self._position
            if (
                job.group is not source
                or job.order != order
                or (position is not None and (order, jobid) < position)
                or (refused and job.limit >= refused.get(job.signature, inf))
            ):
                first = self._first_of(source, ranks)
                if first is not job or job.order != order:
                    if first is None:
                        heapq.heappop(sources)
                    else:
                        heapq.heapreplace(sources, (entry_of(first), number, source, ranks))
                    backlog.effort += LOOKUP_EFFORT
                    continue
            if arrival is not None and (arrival is job or arrival < job):
                return arrival
            if promises is None or source is promises:
                return job
            if ranks is None:
                limit = promises.too_long(job)
                if limit is None:
                    return job
                self.refuse(job.signature, limit)
                if arrival is not None:
                    arrival = self._first_unexamined()
            elif ranks not in self._unpromised and promises.may_be_promised(job):
                return job
            elif promises.would_be_deferred(job):
                return job
            else:
                self._unpromised.add(ranks)
                heapq.heappop(sources)
            backlog.effort += LOOKUP_EFFORT
        return arrival

    def _first_of(self, source: Any, ranks: int | None) -> PendingJob | None:
        """Return the first job of a source that may be examined in its turn."""
        position = self._position
        if source is self.promises:
            if position is None or (
                self._promised_position is not None and position < self._promised_position
            ):
                position = self._promised_position
        elif ranks is None:
            limit = self._limited.get(source, inf)
            if self._refused:
                limit = min(limit, self._refused.get(source.signature, inf))
            if limit < inf:
                return source.shorter_since(position, limit) if limit > 0 else None
        job: PendingJob | None = source.first_since(position)
        return job

    def _first_unexamined(self) -> PendingJob | None:
        """Return the first unexamined job that no refusal of another one covers."""
        backlog = self.backlog
        while True:
            job = backlog.first_unexamined()
            if job is None or not self._refused or job.promised:
                return job
            if self._position is not None and (job.order, job.jobid) < self._position:
                return job  # it may have been ahead of the refused one
            limit = self._refused.get(job.signature, inf)
            if limit == inf or job.limit < limit or backlog.effort > 2 * EFFORT_PER_TURN:
                return job
            job.examined = True
            backlog.join_group(job)
            backlog.effort += LOOKUP_EFFORT
