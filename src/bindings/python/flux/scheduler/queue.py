# SPDX-License-Identifier: LGPL-3.0-or-later
"""The queue of pending jobs: a heap, and for policies that look past its head, a backlog.

`PendingQueue` is what ``Scheduler._queue`` shows: a list in `heapq` order. `Backlog` is a queue
kept in order, for policies that look past a job that cannot start.

What a backlog is for
=====================

A pass over a deep queue takes many turns of the reactor, and every event ends it. What it has found
out must not be lost with it, or under steady events the end of the queue would never be examined.
Four notions do this:

Epoch
    A number that grows with everything that could help a blocked job (`Backlog.wake`). A job that
    was found blocked is marked with it (`Backlog.block`) and is not offered again in that epoch.
Round
    One walk over the queue from its head to its end, for the epoch in which it began. It is made
    of pieces: a pass that is cut short leaves the place where it stands, and the next goes on
    there after a few jobs at the head. `Backlog.wake` begins one if none is under way; what wakes
    during a round makes another begin when it is over. So every job has its turn, whatever
    happens, and `Backlog.stats` says how long one had to wait for it.
Refusal
    When a job cannot start now, jobs behind it of the same signature, with the same time limit or a
    longer one, are not examined in that epoch (``block(job, alike=True)``): they could not start
    either. A `PendingJob.signature` is the shape of the request and what admission rules have to
    tell of the job. Where the pool has no room for a shape at all, so are jobs of other signatures
    that could only get less (``block(job, family=True)``). Jobs of one signature are found by their
    limits (`Alike`), so that a round costs as many looks as there are signatures, however many jobs
    there are.
Fresh job
    A job that came in, or that something happened to which concerns it alone (`Backlog.again`). It
    is examined soon, unless the round under way will come to it.

Jobs that can only run when ranks come up are parked until some do (`Backlog.park`).
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Hashable, Iterable, Iterator
from itertools import count, islice
from math import inf
from typing import Any, Callable

from flux.scheduler.ordered_jobs import Alike, OrderedJobs, entry_of
from flux.scheduler.requests import PendingJob

#: Mask of all ranks, however many there are.
ALL = -1

#: Jobs of which `in_steps` sorts so many at a time: a rank costs 2 to 3 microseconds.
SORTED_PER_STEP = 256


def in_order(heap: Iterable[PendingJob]) -> Iterator[PendingJob]:
    """Yield the items of a `heapq` list in order; the list may change meanwhile, what is yielded
    does not.

    Costs a copy of the list and then, for each item, log of how many were asked for: nothing for
    items that are not, unlike sorting.
    """
    items = list(heap)
    size = len(items)
    front = [(items[0], 0)] if items else []
    while front:
        item, index = heapq.heappop(front)
        yield item
        for child in (2 * index + 1, 2 * index + 2):
            if child < size:
                heapq.heappush(front, (items[child], child))


def in_steps(
    jobs: list[PendingJob], key: Callable[[PendingJob], tuple[Any, ...]]
) -> Generator[None, None, Iterable[PendingJob]]:
    """Sort jobs by a key that ends with the job; a generator, whose value they are, and which yields
    after each `SORTED_PER_STEP`. What is never asked for of a long list is not put in order
    either."""
    if len(jobs) <= 1:
        return jobs
    if len(jobs) <= SORTED_PER_STEP:
        return [entry[-1] for entry in sorted(map(key, jobs))]
    parts = []
    for at in range(0, len(jobs), SORTED_PER_STEP):
        parts.append(sorted(map(key, jobs[at : at + SORTED_PER_STEP])))
        yield
    return (entry[-1] for entry in heapq.merge(*parts))


class Place:
    """A place in the queue, which stays where it is when the job that was there moves.

    Args:
        job (PendingJob): who is there now
    """

    __slots__ = ("order", "jobid")

    def __init__(self, job: PendingJob) -> None:
        self.order = job.order
        self.jobid = job.jobid

    def following(self) -> Place:
        """The place right behind this one."""
        new = object.__new__(type(self))
        new.order = self.order
        new.jobid = self.jobid + 1
        return new

    def is_before(self, job: PendingJob) -> bool:
        """Whether `job` comes after this place."""
        return bool(self.order < job.order or (self.order == job.order and self.jobid < job.jobid))


class PendingQueue:
    """The heap behind ``Scheduler._queue``.

    Removing a job or changing its priority only notes it down. `settle` brings the heap up to
    date: a few changes are made one by one in place, many by building the heap again.

    The heap is a plain list that policies work on with `heapq`, so the index of a job is not known
    for sure: each job carries a hint, which is checked and corrected when it is needed.
    """

    def __init__(self) -> None:
        self._heap: list[PendingJob] = []
        self._removed: set[PendingJob] = set()
        self._moved: set[PendingJob] = set()

    @property
    def heap(self) -> list[PendingJob]:
        """The list itself, with jobs that were removed since it was last brought up to date."""
        return self._heap

    def push(self, job: PendingJob) -> None:
        """Add a job."""
        if job in self._removed:
            self._settle()  # its removal comes before this
        heap = self._heap
        job.place = len(heap)
        heapq.heappush(heap, job)

    def remove(self, job: PendingJob) -> None:
        """Take `job` out, wherever it is; nothing happens to a job that is not in the heap."""
        self._moved.discard(job)
        self._removed.add(job)

    def move(self, job: PendingJob, priority: int) -> None:
        """Change a job's priority."""
        order = job.prioritize(priority)
        if order == job.order:
            self._moved.discard(job)
        elif job not in self._removed:
            job.next_order = order
            self._moved.add(job)

    def move_all(self, moves: dict[PendingJob, int]) -> None:
        """Change the priorities of jobs: by job, what it is to be."""
        for job, priority in moves.items():
            self.move(job, priority)

    def replace(self, jobs: Iterable[PendingJob]) -> None:
        """Use `jobs` as the heap from now on; a list is accepted without checking that it is
        one."""
        self._removed.clear()
        self._moved.clear()
        if not isinstance(jobs, list):
            jobs = list(jobs)
        self._heap = jobs

    def reorder(self) -> None:
        """What jobs are ordered by has changed, for any of them: sort them again.

        Costs a sort.
        """
        jobs = self.settle()
        for job in jobs:
            job.priority = job.priority
        heapq.heapify(jobs)

    def __len__(self) -> int:
        if self._removed or self._moved:
            self._settle()
        return len(self._heap)

    def __bool__(self) -> bool:
        """Whether any job waits; usually known without bringing the heap up to date."""
        if not self._removed:
            return bool(self._heap)
        return len(self._heap) > len(self._removed) or bool(self.settle())

    def settle(self) -> list[PendingJob]:
        """Return the heap, in order and without removed jobs."""
        if self._removed or self._moved:
            self._settle()
        return self._heap

    def in_order(self, most: int | None = None) -> Iterator[PendingJob]:
        """The jobs in order, as they are now, whatever comes or leaves meanwhile.

        Args:
            most (int): the first so many; None: all
        """
        return islice(in_order(self.settle()), most)

    def _settle(self) -> None:
        heap = self._heap
        removed, self._removed = self._removed, set()
        moved, self._moved = self._moved, set()
        # One change costs about as much as rebuilding costs for sixteen jobs.
        if 16 * (len(removed) + len(moved)) >= len(heap):
            for job in moved:
                job.order = job.next_order
            if removed:
                heap[:] = [job for job in heap if job not in removed]
            heapq.heapify(heap)
            return
        # One at a time: the heap is in order by `_order` before and after each.
        for job in removed:
            index = self._find(job)
            if index is not None:
                last = heap.pop()
                if index < len(heap):
                    heap[index] = last
                    self._sift(index)
        for job in moved:
            index = self._find(job)
            job.order = job.next_order
            if index is not None:
                self._sift(index)

    def _find(self, job: PendingJob) -> int | None:
        heap = self._heap
        size = len(heap)
        index = job.place
        # What `heapq` does to a job that is not the last one moves it up along its ancestors.
        while index < size:
            if heap[index] is job:
                job.place = index
                return index
            if index == 0:
                break
            index = (index - 1) >> 1
        found: int | None = None
        for index, other in enumerate(heap):
            other.place = index
            if other is job:
                found = index
        return found

    def _sift(self, index: int) -> None:
        """Put the job at `index` where it belongs, the rest of the heap being in order."""
        heap = self._heap
        job = heap[index]
        start = index
        while index:
            parent = (index - 1) >> 1
            other = heap[parent]
            if not job < other:
                break
            heap[index] = other
            other.place = index
            index = parent
        if index == start:
            size = len(heap)
            child = 2 * index + 1
            while child < size:
                if child + 1 < size and heap[child + 1] < heap[child]:
                    child += 1
                other = heap[child]
                if not other < job:
                    break
                heap[index] = other
                other.place = index
                index = child
                child = 2 * index + 1
        heap[index] = job
        job.place = index


#: Jobs at the head of the queue that every pass examines first.
HEAD_JOBS = 8

#: Effort of a pass in one reactor turn. Examining a job is 1; a policy adds what it does beyond
#: that (`Backlog.spend`).
EFFORT_PER_TURN = 24

#: Number of signatures in the queue up to which a round goes from one signature's next job to
#: another's. A look at all of them has to fit in one reactor turn, at a microsecond each; where
#: there are more, a round goes from job to job.
MAX_SIGNATURES_MERGED = 2048

#: Jobs skipped without examining them that take as long as examining one, and looks for the next
#: job of a signature.
SKIPS_PER_EFFORT = 512
LOOKS_PER_EFFORT = 8

#: New jobs that need not be examined, since others speak for them, that are passed over in one reactor
#: turn: 2 to 3 microseconds for each.
FRESH_SKIPPED_PER_TURN = 256


def _place_in(jobs: list[PendingJob], order: Any, jobid: int) -> int:
    """Index of the first of `jobs`, which are in order, that is at a place or behind it."""
    low, high = 0, len(jobs)
    while low < high:  # bisect_left() takes no key before Python 3.10
        middle = (low + high) // 2
        job = jobs[middle]
        if job.order < order or (job.order == order and job.jobid < jobid):
            low = middle + 1
        else:
            high = middle
    return low


class Backlog(PendingQueue):
    """A `PendingQueue` that is kept in order, with what passes know about its jobs.

    A job that comes, leaves or changes its place costs the same however many there are, give or take
    a logarithm (`OrderedJobs`). As a list the jobs are there for who asks (`settle`), which is made
    anew after a change. What a policy pops off it must have its answer by the end of the step, or
    it is there again: a job is taken out for good by `remove`.

    Attributes:
        jobs (OrderedJobs): the jobs to examine
        parked (dict): by id, the jobs that wait for ranks to come up
        longest (float): longest time that a job had to wait to be examined after something had
            happened that could help it, seconds
        exempt_jobs: function giving the jobs that are `PendingJob.exempt`, in order; a policy that
            has such jobs sets it
        family_of: function giving what a signature has in common with others that are refused with
            it where the pool has no room at all (``block(job, family=True)``); a policy that tells
            such sets it. At first each is a family of its own
    """

    def __init__(self) -> None:
        super().__init__()
        self.jobs = OrderedJobs()
        # All jobs as a list, until the next change; None: nobody has asked for it.
        self._listed: list[PendingJob] | None = None
        self.parked: dict[int, PendingJob] = {}
        self.longest = 0.0
        #: grows with everything that could help a blocked job
        self._epoch = 1
        #: the epoch when the round under way began, and when that was; None: no round is wanted
        self._round: int | None = None
        self._round_began = 0.0
        #: the place at which the round goes on; None: the head
        self._resume: Place | None = None
        self._row_end: Place | None = None  # of the row behind the job that is examined
        #: effort spent in this step
        self._effort: float = 0
        #: whether the last pass was cut short at the head of the queue
        self._cut = False
        #: heap of (order, job id, job) of jobs that came in and were not examined yet
        self._fresh: list[tuple[Any, int, PendingJob]] = []
        #: by signature, a limit that is too long to start with in this epoch, and the job that was
        #: refused: those behind it with this limit or a longer one are refused, too
        self._refused: dict[Any, tuple[float, PendingJob]] = {}
        #: the jobs in the heap by signature
        self._signatures: dict[Any, Alike] = {}
        #: by signature, a job which, like those behind it that are not exempt, is not examined until
        #: its signature is roused; and the other signatures of the heap
        self._asleep: dict[Any, PendingJob] = {}
        self._awake: dict[Any, Alike] = {}
        #: by family, the signatures of the jobs in the heap
        self._families: dict[Hashable, dict[Any, None]] = {}
        # Of the round under way, a heap of (order, job id, a number, job, Alike): the next job of
        # each signature that is to be examined. It may have become another, farther on. The number
        # is for two entries of one job, which may come and go. None: the heap is to be made.
        self._front: list[tuple[Any, int, int, PendingJob, Alike]] | None = None
        self._entries = count()
        # gives the jobs that are `PendingJob.exempt`, in order
        self.exempt_jobs: Callable[[], list[PendingJob]] = list
        # gives the family of a signature
        self.family_of: Callable[[Any], Hashable] = lambda signature: signature

    # -- as a queue --------------------------------------------------------------------------------

    @property
    def heap(self) -> list[PendingJob]:
        """The jobs to examine, in order, as a list of its own, which is also a valid heap.
        O(jobs)."""
        return self.jobs.to_list()

    def push(self, job: PendingJob) -> None:
        self._listed = None
        job.examined_epoch = 0
        job.queued = True
        request = job.resource_request
        if job.limit < 0:
            job.limit = getattr(request, "duration", 0.0) or inf
            if job.signature is None:
                job.signature = getattr(request, "shape", None)
        alike = self._signatures.get(job.signature)
        if alike is None:
            alike = self._new_signature(job.signature)
        entry = entry_of(job)
        self.jobs.add(entry)
        alike.add(entry)
        asleep = self._asleep.get(job.signature)
        if asleep is not None and job < asleep:
            self.rouse(job.signature)
        if self._front is not None:
            heapq.heappush(self._front, self._entry(job, alike))
        heapq.heappush(self._fresh, entry)

    def remove(self, job: PendingJob) -> None:
        self._listed = None
        if self.parked.pop(job.jobid, None) is None and job.queued:
            job.queued = False
            self.jobs.remove(job)
            alike = self._signatures[job.signature]
            alike.remove(job)
            if self._asleep.get(job.signature) is job:
                self.rouse(job.signature)
            if not alike.count:
                self._drop_signature(alike)
            refused = self._refused.get(job.signature)
            if refused is not None and refused[1] is job:
                del self._refused[job.signature]
                self._front = None

    def move(self, job: PendingJob, priority: int) -> None:
        self.move_all({job: priority})

    def move_all(self, moves: dict[PendingJob, int]) -> None:
        parked = [job for job in moves if job.jobid in self.parked]
        for job in moves:
            self.remove(job)
        for job in parked:
            self.parked[job.jobid] = job
        for job, priority in moves.items():
            job.priority = priority
            if job.jobid not in self.parked:
                self.push(job)

    def replace(self, jobs: Iterable[PendingJob]) -> None:
        for job in self.jobs:
            job.queued = False
        self.parked.clear()
        self._clear()
        for job in jobs:
            self.push(job)

    def reorder(self) -> None:
        jobs = self.heap
        for job in [*jobs, *self.parked.values()]:
            job.priority = job.priority
        jobs.sort()
        self._fresh = [entry_of(job) for _, _, job in self._fresh]
        heapq.heapify(self._fresh)
        self._clear()
        for job in jobs:
            if job.signature not in self._signatures:
                self._new_signature(job.signature)
            entry = entry_of(job)
            self.jobs.add(entry)
            self._signatures[job.signature].add(entry)
        if self._round is not None:
            self._resume = None  # jobs that were examined in this round are marked, and passed over

    def _clear(self) -> None:
        """Forget the jobs, but for what is known of each."""
        self.jobs = OrderedJobs()
        self._listed = None
        self._signatures.clear()
        self._asleep.clear()
        self._awake.clear()
        self._families.clear()
        self._front = None

    def _new_signature(self, signature: Any) -> Alike:
        alike = Alike(signature, self.family_of(signature))
        self._signatures[signature] = self._awake[signature] = alike
        self._families.setdefault(alike.family, {})[signature] = None
        return alike

    def _drop_signature(self, alike: Alike) -> None:
        del self._signatures[alike.signature], self._awake[alike.signature]
        family = self._families[alike.family]
        del family[alike.signature]
        if not family:
            del self._families[alike.family]

    def settle(self) -> list[PendingJob]:
        if self._listed is None:
            self._listed = self.heap
            if self.parked:
                self._listed = sorted([*self._listed, *self.parked.values()])
        return self._listed

    def in_order(self, most: int | None = None) -> Iterator[PendingJob]:
        if self.parked:
            return islice(self.settle()[:], most)
        return iter(self.jobs if most is None else self.jobs.head(most))

    def behind(self, job: PendingJob) -> Iterator[PendingJob]:
        """The jobs to examine behind one of them, in order; none may come or leave meanwhile."""
        return islice(self.jobs.since(job.order, job.jobid), 1, None)

    @property
    def has_priorities(self) -> bool:
        """Whether the jobs to examine differ in their order.  O(1)."""
        jobs = self.jobs
        return bool(jobs.count and jobs.first.order != jobs.last.order)

    def __len__(self) -> int:
        return self.jobs.count + len(self.parked)

    def __bool__(self) -> bool:
        return bool(self.jobs.count or self.parked)

    # -- what passes know --------------------------------------------------------------------------

    def wake(self, now: float) -> None:
        """Something was released, came up or changed: blocked jobs are to be examined again."""
        self._epoch += 1
        self._refused.clear()
        self._front = None
        if self._round is None and self.jobs.count:
            self._round = self._epoch
            self._round_began = now
            self._resume = None

    def block(
        self, job: PendingJob, alike: bool = False, limit: float = inf, family: bool = False
    ) -> None:
        """`job` was examined and cannot start as things are.

        Args:
            job (PendingJob): the job
            alike (bool): nor can jobs behind it that ask for the same and may run as long or
                longer, unless they are exempt
            limit (float): a shorter time than the job's limit that is too long already, in seconds
            family (bool): nor can jobs behind it, however long they run, whose signatures are of the
                same family, unless they are exempt.  O(signatures of the family)
        """
        job.examined_epoch = self._epoch
        if family and job.signature is not None:
            for signature in self._families[self._signatures[job.signature].family]:
                refused = self._refused.get(signature)
                if refused is None or refused[0] > 0:
                    self._refused[signature] = 0.0, job
            return
        if alike and job.signature is not None:
            limit = min(limit, job.limit)
            refused = self._refused.get(job.signature)
            if refused is None or limit < refused[0]:
                self._refused[job.signature] = limit, job

    def block_row(self, first: PendingJob, jobs: list[PendingJob]) -> None:
        """Jobs behind `first`, the one that is examined, were examined as well, in order, and cannot
        start as things are; that tells nothing of others. If nobody else is between `first` and the
        last of them, the round goes on behind that one."""
        epoch = self._epoch
        for job in jobs:
            job.examined_epoch = epoch
        if jobs and self.jobs.index(jobs[-1]) - self.jobs.index(first) == len(jobs):
            self._row_end = Place(jobs[-1])

    def allow(self) -> None:
        """Something is not kept free any more: what was found of one job of a signature does not
        hold for those that were not examined themselves."""
        self._refused.clear()
        self._front = None

    def sleep(self, job: PendingJob) -> None:
        """`job` was blocked, and nothing will change for it, nor for those behind it that ask for the
        same and are not exempt, until their signature is roused: no round comes to them."""
        asleep = self._asleep.get(job.signature)
        if job.signature is not None and (asleep is None or job < asleep):
            self._asleep[job.signature] = job
            self._awake.pop(job.signature, None)

    def rouse(self, signature: Any) -> None:
        """The jobs of a signature are to be examined again, also in the round under way."""
        if self._asleep.pop(signature, None) is not None:
            alike = self._awake[signature] = self._signatures[signature]
            if self._resume is None:
                self._front = None
            elif self._front is not None and alike.count:
                found = self._next_alike(alike, self._resume.order, self._resume.jobid)
                if found is not None:
                    heapq.heappush(self._front, self._entry(found, alike))

    def rouse_all(self) -> None:
        """The jobs of all signatures are to be examined again."""
        self._asleep.clear()
        self._awake.update(self._signatures)
        self._front = None

    def again(self, job: PendingJob) -> None:
        """`job` is to be examined again, and no other job for its sake."""
        self.rouse(job.signature)
        job.examined_epoch = 0
        self._front = None
        self._refused.pop(job.signature, None)
        heapq.heappush(self._fresh, (job.order, job.jobid, job))

    def spend(self, effort: float) -> None:
        """The policy did something that takes as long as examining so many jobs."""
        self._effort += effort

    def park(self, job: PendingJob) -> None:
        """Leave `job` out of passes until ranks come up."""
        self.remove(job)
        self.parked[job.jobid] = job

    def unpark(self) -> None:
        """Ranks came up, or the inventory changed: all parked jobs are to be examined."""
        parked, self.parked = self.parked, {}
        for job in parked.values():
            self.push(job)

    def newcomers(self) -> Iterator[PendingJob]:
        """The jobs that came in since this was asked, or are worth another look, in order; for a
        policy that does not go by `to_examine`. O(log n) for each."""
        fresh = self._fresh
        while fresh:
            _, _, job = heapq.heappop(fresh)
            if job.queued and not job.request.finalized:
                yield job

    def forget_newcomers(self) -> None:
        """All newcomers were seen."""
        self._fresh.clear()

    def signatures(self) -> list[tuple[Any, Any]]:
        """The signatures of the jobs in the heap, each with a request like theirs but for its
        duration. O(signatures)."""
        return [(signature, one.request) for signature, one in self._signatures.items()]

    def count_of(self, signatures: Iterable[Any]) -> int:
        """How many jobs in the heap are of these signatures."""
        return sum(self._signatures[one].count for one in signatures if one in self._signatures)

    def stats(self, now: float) -> dict[str, float]:
        """For ``stats_get()``: how many jobs are parked, and for how many seconds some job has been
        waiting to be examined since something happened that could help it, now and at worst."""
        unlooked = 0.0 if self._round is None else now - self._round_began
        return {
            "parked": len(self.parked),
            "unlooked": unlooked,
            "unlooked_longest": max(unlooked, self.longest),
        }

    def to_examine(self, clock: Callable[[], float]) -> Iterator[PendingJob | None]:
        """The jobs that a pass should examine, roughly in order.

        Between two jobs the caller answers, blocks or parks the one it was given.

        Args:
            clock: function giving the time

        Yields:
            a job, or None where the pass should give way to other work
        """
        self._effort = 0
        if not self._cut:
            self._cut = True
            for job in self.jobs.head(HEAD_JOBS):
                if self._is_due(job):
                    yield job
                    self._effort += 1
                    if self._effort >= EFFORT_PER_TURN:
                        yield None
                        self._effort = 0
            self._effort = 0
        while self._fresh or self._round is not None:
            for fresh in self._fresh_jobs():
                if fresh is None:
                    self._cut = False
                    yield None
                else:
                    yield fresh
                    self._effort += 1
            for job in self._round_goes_on(clock):
                yield job
                self._effort += 1
            self._cut = False
            yield None
            self._effort = 0
        self._cut = False

    def _fresh_jobs(self) -> Iterator[PendingJob | None]:
        """Some of the new jobs that no round would come to, or not soon; None where the pass should
        give way, as often as so many came together that it takes long to pass over them."""
        fresh = self._fresh
        skipped = 0
        while fresh and self._effort < EFFORT_PER_TURN // 2:
            _, _, job = heapq.heappop(fresh)
            # A round that has not come to a job yet will, in its turn.
            coming = self._round is not None and (
                self._resume is None or self._resume.is_before(job)
            )
            if not coming and self._is_due(job):
                yield job
                continue
            skipped += 1
            if skipped == FRESH_SKIPPED_PER_TURN:
                skipped = 0
                yield None

    def _round_goes_on(self, clock: Callable[[], float]) -> Iterator[PendingJob]:
        """Some of the jobs that a round still has to examine."""
        if self._round is None:
            return
        merged = len(self._signatures) <= MAX_SIGNATURES_MERGED
        examined = False
        place = self._resume
        while self.jobs.count:
            head = place or Place(self.jobs.first)
            # As long as nobody is refused, the next job is mostly the next one in the queue.
            told = self._refused or self._asleep
            following = self._next_by_signature if merged and told else self._next_by_place
            job = following(head.order, head.jobid)
            if job is None:
                break
            place = self._resume = Place(job)
            if self._is_refused(job):  # so far: whether there is another is not known yet
                self._effort += 1
                if self._effort >= EFFORT_PER_TURN:
                    return
                continue
            if examined and self._effort >= EFFORT_PER_TURN:
                return
            examined = True
            self._row_end = None
            yield job
            place = (self._row_end or place).following()
        now = clock()
        self.longest = max(self.longest, now - self._round_began)
        self._resume = None
        self._front = None
        if self._round == self._epoch:
            self._round = None
        else:
            self._round = self._epoch
            self._round_began = now

    def _next_by_place(self, order: Any, jobid: int) -> PendingJob | None:
        """The first job from a place on that is to be examined, or, after `SKIPS_PER_EFFORT` jobs
        that are not, the next that is refused; None: there is none. Goes from job to job."""
        epoch = self._epoch
        for number, job in enumerate(self.jobs.since(order, jobid)):
            if job.examined_epoch < epoch and not job.request.finalized:
                if number > SKIPS_PER_EFFORT or not self._is_refused(job):
                    return job
        return None

    def _next_by_signature(self, order: Any, jobid: int) -> PendingJob | None:
        """The first job from a place on that is to be examined; None: there is none. Asks for the
        next job of each signature once for each round, and of the first of them again."""
        exempt = self._next_exempt(order, jobid)
        front = self._front
        if front is None:
            front = self._front = []
            for alike in self._awake.values():
                job = self._next_alike(alike, order, jobid)
                if job is not None:
                    front.append(self._entry(job, alike))
            heapq.heapify(front)
            self._effort += len(self._awake) / LOOKS_PER_EFFORT
        while front:
            *place, _, job, alike = front[0]
            if exempt is not None and [exempt.order, exempt.jobid] <= place:
                return exempt
            if (
                job.examined_epoch < self._epoch
                and job.queued
                and not job.request.finalized
                and [job.order, job.jobid] == place >= [order, jobid]
                and not self._is_refused(job)
            ):
                return job
            found = None
            if alike.count and alike.signature not in self._asleep:
                found = self._next_alike(alike, order, jobid)
            if found is None:
                heapq.heappop(front)
            else:
                heapq.heapreplace(front, self._entry(found, alike))
            self._effort += 1 / LOOKS_PER_EFFORT
        return exempt

    def _entry(self, job: PendingJob, alike: Alike) -> tuple[Any, int, int, PendingJob, Alike]:
        return job.order, job.jobid, next(self._entries), job, alike

    def _next_alike(self, alike: Alike, order: Any, jobid: int) -> PendingJob | None:
        """The first job of a signature from a place on that is to be examined."""
        refused = self._refused.get(alike.signature)
        if refused is not None and (refused[1].order, refused[1].jobid) < (order, jobid):
            if refused[0] <= 0:
                return None
            return alike.after(order, jobid, refused[0], self._epoch)
        job = alike.after(order, jobid, None, self._epoch)
        if refused is None or job is None or not self._is_refused(job):
            return job
        return alike.after(job.order, job.jobid, refused[0], self._epoch)

    def _is_due(self, job: PendingJob) -> bool:
        if job.examined_epoch >= self._epoch or not job.queued or job.request.finalized:
            return False
        if self._asleep and self._is_asleep(job):
            return False
        if self._refused and self._is_refused(job):
            job.examined_epoch = self._epoch
            return False
        return True

    def _is_asleep(self, job: PendingJob) -> bool:
        """Whether a job is left out of rounds until its signature is roused."""
        asleep = self._asleep.get(job.signature)
        return asleep is not None and not job.exempt and not job < asleep

    def _is_refused(self, job: PendingJob) -> bool:
        """Whether another job speaks for this one."""
        if self._asleep and self._is_asleep(job):
            return True
        refused = self._refused.get(job.signature)
        if refused is None or job.limit < refused[0] or job.exempt:
            return False
        other = refused[1]
        return bool((other.order, other.jobid) < (job.order, job.jobid))

    def _next_exempt(self, order: Any, jobid: int) -> PendingJob | None:
        """The first exempt job from a place on that is to be examined."""
        jobs = self.exempt_jobs()
        for index in range(_place_in(jobs, order, jobid), len(jobs)):
            job = jobs[index]
            if job.examined_epoch < self._epoch and job.queued and not job.request.finalized:
                return job
        return None
