# SPDX-License-Identifier: LGPL-3.0-or-later
"""Availability where it matters which ranks a job gets, as a proof that all promises can be kept.

That is so with nodes of several kinds, GPUs, constraints, and nodes that jobs share.

Theory
    What a rank has free at a time is what running jobs have given back by then
    (``running_profile.py``), less what is booked on it (``bookings.py``), in counts of cores and
    GPUs: which of them a job gets is decided when it starts. A promise is *bound* when it has a
    booking. If all promises are bound and take no more than there is, that proves that all can be
    kept.

    A binding is a proof and nothing more. A request that does not fit beside the promises as they
    are bound may fit if they are bound differently. That is tried, with limited effort, before a
    request is said not to fit (``make_room()``, ``packing.py``): on pools of up to
    ``MAX_RANKS_FOR_ALL_WAYS`` ranks with so many promises at a time that all ways can be looked
    through, on larger ones with all promises at once, greedily.

    Where placement is not a matter of counts (containers, hooks of a site), it is simulated on the
    index as it will be, and on ranks without any booking.

The profile follows the pool by ``sync()``, when the pool's generation has moved on, or one change
at a time by ``enter()``, ``remove()`` and ``started()``, so that a pass over a long queue does not
have to make it anew for each job.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

from flux.resource.plan.bookings import Bookings
from flux.resource.plan.mask_timeline import INFINITY
from flux.resource.plan.packing import Effort, Item, deal, pack, taken, too_few
from flux.resource.plan.promise import Booking, BoundPromise, length_of
from flux.resource.plan.running_profile import Need, RunningProfile, Track
from flux.resource.plan.start_bounds import StartBounds
from flux.resource.plan.sums import Span, Sums
from flux.resource.pool.inventory import pairs, selected_ranks
from flux.resource.pool.masks import members, popcount, take
from flux.resource.pool.placement import slots_on

if TYPE_CHECKING:
    from flux.resource.plan.bookings import Step
    from flux.resource.plan.packing import Group
    from flux.resource.plan.promise import Part
    from flux.resource.pool.inventory import Selection
    from flux.resource.pool.rank_index import RankIndex
    from flux.resource.request import ResourceRequest, Shape
    from flux.resource.ResourcePoolImplementation import ResourcePoolImplementation

#: Promises that are bound again at once on up to MAX_RANKS_FOR_ALL_WAYS ranks: ``pack()`` looks
#: through all ways there, and their number grows with both.
MAX_REBOUND = 8
#: The same on more ranks, where all promises are dealt out at once, greedily.
MAX_REBOUND_ON_MANY_RANKS = 16
MAX_RANKS_FOR_ALL_WAYS = 64
#: What it takes to look at an item, and to take its promise out and in again, in steps (see
#: ``packing.Effort``).
STEPS_PER_ITEM = 10
STEPS_PER_ITEM_MOVED = 100
#: What it takes to take a promise out and search for it anew, where others may be bound again for it, in
#: such steps: some 0.4 ms, which after most changes of the pool is for nothing.
STEPS_PER_SEARCH = 400
#: Looks at single ranks that a look at a time takes usually, or less.
WORK_PER_LOOK = 16
#: Shapes of which it is remembered what they take at least, as many as a queue has at a time.
MAX_REMEMBERED_SHAPES = 4096
#: With more promises than this, a new one is not made earlier by binding others again: that would
#: cost an attempt for each time at which something ends, for jobs far down in the queue.
MAX_PROMISES_TO_REBIND = 32

#: The least that a shape takes in all: ``(ranks, cores, gpus)``.
Least = tuple[int, int, int]


class RankProfile:
    """What is free on each rank over time, beside promises that are bound to ranks.

    Args:
        pool (ResourcePoolImplementation): with a view.
        promises (dict): job id to BoundPromise: those of the plan, of which some may yet have to be
            bound. The plan goes on changing it.
        frozen (bool): promises stay on the ranks that they are bound to.
        running (RunningProfile): of the pool as it was, which is followed; None: there is none
    """

    def __init__(
        self,
        pool: ResourcePoolImplementation,
        promises: dict[int, BoundPromise],
        frozen: bool = False,
        running: RunningProfile | None = None,
    ) -> None:
        self._pool = pool
        self._frozen = frozen
        self._promises = promises
        #: steps that may be taken to bind promises again
        self.effort = Effort()
        #: promises so far that were looked at, since it was not known that they stay where they are
        self.looks = 0
        self._started: list[Booking] = []  # of the jobs started since the profile followed the pool
        self._started_ends: dict[int, float] = {}  # by job id, when these end, 0: not known
        self._entered = 0  # how many bookings were entered since all were entered anew
        self._bounds = StartBounds()
        # Shapes that do not fit from a moment on, and the least end of a span for which that was found.
        self._vain: dict[Shape, float] = {}
        self._vain_as_of = -INFINITY
        #: promises that were bound again since one was withdrawn, with the parts they had then
        self.rebound: list[tuple[BoundPromise, list[Part] | None]] = []
        self._changes = 0  # grows with every change of the bookings or the profile
        # The promise for which an earlier time was searched for last, with the changes there had been; and
        # a time before which there is none.
        self._searched: tuple[BoundPromise, int] | None = None
        self._searched_until = -INFINITY
        # The last question to _room() and its answer: several steps of one search ask the same.
        self._asked: tuple[Shape, float, float, int] | None = None
        self._answer = 0
        # Generation of the pool that all this is true for; None: of none that is known.
        self._seen: int | None = pool.generation
        self._profile = running.followed(pool) if running is not None else RunningProfile(pool)
        self._bookings = Bookings(self._profile)
        self._enter_all()
        # What _hopeless() looks at of the promises, and how many changes there had been then.
        self._others: list[tuple[float, float, Shape, int]] = []
        self._others_changes = -1
        # Promises that were found not to be lost. They stay so until something gets worse: a rank
        # goes down, or a job is there that was not placed beside them, or gets more time.
        self._kept: set[BoundPromise] = set()
        self._known_up = pool.eligible(None)
        self._placed: tuple[Selection, float] | None = None  # by place_now(), and its end
        self._sums: Sums | None = None  # what promises leave, in all; None: to be made
        self._summed: dict[BoundPromise, Span] = {}  # of which promises, and what they take there
        self._least: dict[Shape, Least] = {}  # by shape, with the inventory as it is
        # Shapes that do not fit among what is free now, and how often the pool had released then.
        self._too_large: set[Shape] = set()
        self._too_large_releases = -1
        # Shapes that fit there, as of a generation of the pool.
        self._small_enough: set[Shape] = set()
        self._small_enough_as_of: int | None = None

    def copy(self, promises: dict[int, BoundPromise]) -> RankProfile:
        """A frozen one of the pool as it is now, with the same bookings.

        What is known of running jobs is shared where it is up to date: it only becomes more, and
        who has to follow the pool changes a copy of it. O(ranks + promises), and a copy of some dicts
        as long as the running jobs where it is not.

        Args:
            promises (dict): those of the copy, bound as here
        """
        pool, bookings = self._pool, self._bookings
        if self._profile.inventory is not pool.inventory or not (
            bookings.removable or not self._started
        ):
            return RankProfile(pool, promises, frozen=True)
        new = object.__new__(RankProfile)
        new.__dict__.update(
            self.__dict__,
            _frozen=True,
            _promises=promises,
            _started=[],
            _started_ends={},
            _entered=len(promises),
            _bounds=StartBounds(),
            _vain={},
            rebound=[],
            _searched=None,
            _asked=None,
            _seen=pool.generation,
            _others=[],
            _others_changes=-1,
            effort=Effort(),
            _kept=set(),
            _placed=None,
            _sums=None,
            _summed={},
            _least={},
            _too_large=set(),
            _too_large_releases=-1,
            _small_enough=set(),
            _small_enough_as_of=None,
        )
        new._known_up = pool.eligible(None)
        if self._seen == pool.generation:
            new._kept.update(
                [promises[at] for at, one in self._promises.items() if one in self._kept]
            )
        self._profile.shared = True
        if self._started or self._seen != pool.generation:
            new._profile = self._profile.followed(pool)
        new._bookings = bookings.copy(new._profile)
        for booking in self._started:
            new._bookings.remove(booking)
        return new

    # -- the state ----------------------------------------------------------

    def now(self) -> float:
        """The time now, in seconds since the epoch; never back."""
        return max(self._pool.clock(), self._profile.now)

    def sync(self) -> None:
        """Take in what happened to the pool since the last call."""
        pool = self._pool
        if self._seen == pool.generation:
            return
        self._seen = pool.generation
        before = self._profile.inventory
        self._forget_kept()
        self._profile = self._profile.followed(pool)
        self._bookings.follow(self._profile)
        self._bounds = StartBounds()
        self._vain.clear()
        self.effort.earn()
        if before is not self._profile.inventory:
            self._least.clear()
        if (
            before is self._profile.inventory
            and self._sums is not None
            and self._sums.ranks == self._known_up
        ):
            self._sums.follow(self._profile)
        else:
            self._sums = None
        self._changes += 1
        self.rebound.clear()
        # The jobs that were started through the plan are among those that run, now.
        started, self._started = self._started, []
        self._started_ends.clear()
        if before.ranks != self._profile.inventory.ranks:
            self._enter_all()
        elif self._entered > 1000 + 4 * len(self._promises):
            self._enter_all()  # to be rid of times that are long past
        elif not all(self._bookings.remove(booking) for booking in started):
            self._enter_all()

    def _forget_kept(self) -> None:
        """After a change of the pool that the profile has yet to follow: promises may be lost, unless
        there is only more than before."""
        pool = self._pool
        up, self._known_up = self._known_up, pool.eligible(None)
        if (
            self._profile.inventory is not pool.inventory
            or up & ~self._known_up
            or self._has_less()
        ):
            self._kept.clear()

    def _has_less(self) -> bool:
        """Whether a job has come to the pool, or has another end, that is not known here."""
        changes = self._pool.changes_since(self._profile.generation)
        if changes is None:
            ends = self._pool.job_end_times()
        else:
            ends = [(jobid, record[0]) for jobid, record in changes.items() if record is not None]
        return any(end != self._known_end(jobid) for jobid, end in ends)

    def _known_end(self, jobid: int) -> float | None:
        """When a job ends, 0: that is not known; None: it was not there."""
        end = self._started_ends.get(jobid)
        return self._profile.end_of(jobid) if end is None else end

    @property
    def running(self) -> RunningProfile:
        """What running jobs leave; to be shared with whoever plans next."""
        return self._profile

    @property
    def is_renewed(self) -> bool:
        """Whether all jobs that were started are in the profile, and not among the bookings."""
        return not self._started

    def is_unswept(self, promise: BoundPromise) -> bool:
        """Whether a look at a promise may have to sweep over many ends of running jobs first."""
        return self._profile.unswept <= promise.start and not self._is_small()

    def renew_profile(self) -> None:
        """Make the profile anew if it lacks jobs that were started, so that these are in it."""
        if self._started:
            self._seen = None
            self.sync()

    def _enter_all(self) -> None:
        self._vain.clear()
        self._bookings = Bookings(self._profile)
        self._entered = 0
        for booking in self._started:
            self._enter(booking)
        for promise in self._promises.values():
            if promise.parts is not None:
                self._enter(promise)

    def _enter(self, booking: Booking) -> None:
        self._bookings.enter(booking)
        self._entered += 1
        self._changes += 1

    def enter(self, promise: BoundPromise, fits: bool = False) -> None:
        """Count in a promise that is bound, and already among those of the plan.

        Args:
            fits (bool): whether it was just bound where it fits
        """
        self._enter(promise)
        if fits:
            self._kept.add(promise)
        if self._sums is not None and promise not in self._summed:
            span = self._span_of(promise)
            if span is not None:
                self._summed[promise] = span
                self._sums.add(span)

    def is_kept(self, promise: BoundPromise) -> bool:
        """Whether it is known that a promise is not lost. O(1)."""
        return promise in self._kept

    def remove(self, promise: BoundPromise) -> None:
        """Count out a promise that is no longer among those of the plan."""
        self._changes += 1
        self._kept.discard(promise)
        span = self._summed.pop(promise, None)
        if span is not None and self._sums is not None:
            self._sums.remove(span)
        if not self._bookings.remove(promise):
            self._enter_all()
        self._bounds.released(promise.start)
        self._vain.clear()

    def started(self, jobid: int, now: float) -> None:
        """Count in a job that the pool has just started, as the only thing that changed."""
        pool = self._pool
        if self._seen is None or pool.generation != self._seen + 1:
            return
        inventory = pool.inventory
        parts = [(mask, inventory.key(units)) for mask, units in pairs(pool.held(jobid))]
        end = pool.job_end(jobid)
        booking = Booking(now, end or INFINITY, parts)
        placed, self._placed = self._placed, None
        if placed is None or placed[0] != pool.held(jobid) or booking.end > placed[1]:
            self._kept.clear()
        self._started_ends[jobid] = end
        self._started.append(booking)
        self._enter(booking)
        self._seen = pool.generation

    # -- questions ----------------------------------------------------------

    def earliest(self, request: ResourceRequest, start: float, until: float = INFINITY) -> float:
        """First time from ``start`` on at which a request fits; infinity if there is none before
        ``until``, or none at all."""
        shape = request.shape
        if not self._pool.countable(shape):
            return self._search(request, start, until)
        now = self.now()
        family = (shape.match, Need.of(shape), shape.node_count is None)
        count = shape.least_count
        length = length_of(request)
        least = max(start, self._bounds.least(family, count, length))
        found = self._search(request, least, until)
        if found > least and self._may_rebind(len(self._promises)):
            found = self._sooner(request, least, min(found, until))
            if found >= until:
                return INFINITY
        if start <= now and found < until:
            self._bounds.learn(family, count, length, found)
        return found

    def _sooner(self, request: ResourceRequest, start: float, found: float) -> float:
        """The first time before ``found`` at which a request fits if promises are bound again."""
        length = length_of(request)
        start = self.soonest(request, start)
        small = self._is_small()
        for _ in range(MAX_PROMISES_TO_REBIND if small else 2):
            if small:
                if self.effort.left <= 0:
                    break
                start = self._first_with_enough(request.shape, start, length, found, INFINITY)
            if start >= found:
                break
            if self.make_room(request, start, start + length):
                return start
            start = min(self._bookings.ends.after(start), self._profile.next_end_after(start))
        return found

    def earlier(self, promise: BoundPromise, now: float, looks: float = INFINITY) -> float | None:
        """First time at which a promise fits instead of where it is; its start if there is none.

        The promise stays in meanwhile: what it keeps counts for it from its start on. Where no steps are
        left (see ``packing.Effort``), no time is looked at but now.

        Args:
            looks (float): at most so many times later than the first are looked at now, fewer where a
                look costs more than usual

        Returns:
            the time; None if more looks have to be taken: the next call goes on where this one ended,
            unless something has changed since
        """
        request = promise.request
        shape, before = request.shape, promise.start
        length = length_of(request)
        effort, bookings = self.effort, self._bookings
        if not self._pool.countable(shape):
            return min(now, before)
        self.renew_profile()
        if effort.left <= 0:
            return now if self._fits_now_instead(promise, now) else before
        if self._searched == (promise, self._changes):
            start = max(now, self._searched_until)
        else:
            start = self.soonest(request, now)
            if start >= before:
                return before
            if self._may_rebind(len(self._promises) - 1):
                return self._first_by_sums(shape, start, length, before)
        self.looks += 1
        most, limit = looks, bookings.work + looks * WORK_PER_LOOK
        while True:
            start = self._first_by_sums(shape, start, length, before)
            if start >= before:
                return before
            if self._fits_instead(promise, start, start + length):
                return start
            if looks <= 0 or (looks < most and bookings.work > limit):
                return None
            looks -= 1
            effort.spend(STEPS_PER_ITEM * len(self._promises))  # a look is at what they all keep
            if effort.left <= 0:
                return before
            start = min(bookings.ends.after(start), self._profile.next_end_after(start))
            self._searched, self._searched_until = (promise, self._changes), start

    def search_anew(self, request: ResourceRequest, start: float) -> float:
        """As ``earliest()``, for a request whose promise was just taken out: where others may be bound
        again for it, that takes steps, so that it is not done for each promise after each end."""
        rebinds = self._may_rebind(len(self._promises))
        found = self.earliest(request, start)
        if rebinds:
            self.effort.spend(STEPS_PER_SEARCH)
        return found

    def end_search(self) -> None:
        """What was found of an earlier time for a promise is of no more use: the next search begins
        anew."""
        self._searched = None

    def _fits_now_instead(self, promise: BoundPromise, now: float) -> bool:
        """Whether a promise fits from now on instead of where it is. O(1) where too little is free, or
        where the same did not fit for as long a moment ago."""
        request, before = promise.request, promise.start
        shape = request.shape
        end = now + length_of(request)
        until = min(end, before)
        if self._vain_as_of != now:
            self._vain_as_of = now
            self._vain.clear()
        if until >= self._vain.get(shape, INFINITY):
            return False
        if not self.is_free(shape):
            self._vain[shape] = now
            return False
        self.looks += 1
        if not (self._enough_in_all(shape, now, until) and self.fits(request, now, until)):
            self._vain[shape] = until
            return False
        return end <= before or self._fits_instead(promise, now, end)

    def _fits_instead(self, promise: BoundPromise, start: float, end: float) -> bool:
        """Whether a promise fits in a span that begins before it does now."""
        shape = promise.request.shape
        before = promise.start
        least = self._least_ranks(shape)
        if popcount(self._room_alone(shape, start)) < least:
            return False
        if start <= self.now() and not self.is_free(shape):
            return False
        until = min(end, before)
        room = self._room(shape, start, until, least)
        if popcount(room) < least:
            return False
        if end <= before:
            return self._enough(shape, room, start, end)
        own = 0
        for mask, _ in promise.parts or ():
            own |= mask
        # Of the others only those matter that it does not have already.
        apart = room & ~own
        room &= own
        need, missing = Need.of(shape), max(0, least - popcount(room))
        room |= self._bookings.leaving(apart, need, before, end, missing)
        ranks = popcount(room)
        if ranks < least:
            return False
        left = shape.slot_count.min
        if shape.node_count is not None or ranks >= left:
            return True
        base = self._profile.inventory.key_base
        one = shape.slot_size * base + shape.gpu_per_slot
        kept = {
            rank: key // max(1, one) for mask, key in promise.parts or () for rank in members(mask)
        }
        for rank in members(room):
            slots = slots_on(*self._bookings.least(rank, start, before), shape)
            later = slots_on(*self._bookings.least(rank, before, end), shape)
            left -= min(slots, later + kept.get(rank, 0))
            if left <= 0:
                return True
        return False

    def _first_by_sums(self, shape: Shape, start: float, length: float, before: float) -> float:
        """A time before which a promise that begins at ``before`` can be no earlier."""
        return min(before, self._first_with_enough(shape, start, length, before, before))

    def _may_rebind(self, promises: int) -> bool:
        """Whether so many promises may be bound again to make another one earlier."""
        return 0 < promises <= MAX_PROMISES_TO_REBIND and not self._frozen and self.effort.left > 0

    def soonest(self, request: ResourceRequest, start: float) -> float:
        """A time before which a request does not fit, whatever was promised."""
        shape = request.shape
        if not self._pool.countable(shape):
            return start
        count = 1 if shape.node_count is None else shape.node_count.min
        ranks = self._pool.eligible(shape.match)
        return self._profile.track_of(shape).first(count, ranks, start)

    def next_change(self, time: float) -> float:
        """The first moment after a time at which a promise or a job started lately begins."""
        return self._bookings.starts.after(time)

    def count(self, shape: Shape, start: float, end: float) -> int:
        """How many nodes (slots where the shape has no node) fit in a span."""
        if shape.within is not None and shape.node_count is not None:
            room = self._room_alone(shape, start) & ~self._bookings.booked(start, end)
            return shape.within.best([(1, room)], popcount(room))
        room = self._room(shape, start, end)
        if shape.node_count is not None:
            return popcount(room)
        touched = room & self._bookings.touched(start, end)
        clear = room ^ touched
        base = self._profile.inventory.key_base
        count = 0
        if clear:
            for key, mask in self._profile.groups_at(start).items():
                ranks = popcount(mask & clear)
                if ranks:
                    count += ranks * slots_on(key // base, key % base, shape)
        for rank in members(touched):
            count += slots_on(*self._bookings.least(rank, start, end), shape)
        return count

    def fits(self, request: ResourceRequest, start: float, end: float) -> bool:
        """Whether a request fits in a span."""
        shape = request.shape
        if not self._pool.countable(shape):
            if shape.within is not None and not self._together(shape, start, end):
                return False
            return self._simulate(request, start, end) is not None
        least = self._least_ranks(shape)
        room = self._room(shape, start, end, least)
        return popcount(room) >= least and self._enough(shape, room, start, end)

    def lost(self, promise: BoundPromise, now: float) -> bool:
        """True if the ranks of a promise will not have what it needs when it starts, or now if that
        is later; also if its time is over.
        """
        pool, profile, bookings = self._pool, self._profile, self._bookings
        parts = promise.parts or []
        start = max(promise.start, now)
        if promise.is_open:
            up = pool.eligible(None)
            return any(mask & ~up for mask, _ in parts)
        if promise.end <= now:
            return True
        if promise in self._kept:
            return False
        shape = promise.request.shape
        if not pool.countable(shape):
            eligible = pool.eligible(shape.match)
            ranks = 0
            for mask, _ in parts:
                ranks |= mask & eligible
            return pool.place_request(promise.request, profile.index_at(start), ranks) is None
        up = pool.eligible(None)
        base = profile.inventory.key_base
        if not parts:
            return True
        for mask, key in parts:
            room = profile.track(Need(key // base, key % base, False)).at(start) & up
            # Where it has a rank to itself, room for it alone is enough.
            if mask & ~room or any(
                bookings.is_shared(rank) and bookings.overdrawn(rank, start)
                for rank in members(mask & bookings.touched(start, promise.end))
            ):
                return True
        self._kept.add(promise)
        return False

    # -- whether and when ---------------------------------------------------

    def _search(self, request: ResourceRequest, start: float, until: float = INFINITY) -> float:
        profile = self._profile
        length = length_of(request)
        shape = request.shape
        if self._pool.countable(shape):
            # It cannot fit before running jobs leave room on so many ranks, whatever is promised.
            count = 1 if shape.node_count is None else shape.node_count.min
            ranks = self._pool.eligible(shape.match)
            track = profile.track_of(shape)
            start = track.first(count, ranks, start)
            if shape.node_count is not None:
                return self._search_nodes(track, count, ranks, start, length, until)
        by_sums = self._sums_hold() and self._pool.countable(shape)
        if by_sums:
            self.renew_profile()
        while start < until:
            if by_sums:
                start = self._first_with_enough(shape, start, length, until, INFINITY)
                if start >= until:
                    break
            if self.fits(request, start, start + length):
                return start
            start = min(self._bookings.ends.after(start), self._profile.next_end_after(start))
        return INFINITY

    def _search_nodes(
        self, track: Track, count: int, ranks: int, start: float, length: float, until: float
    ) -> float:
        """As ``_search()``, for so many of these ranks with room for what a track is of."""
        if start == INFINITY:
            return start
        profile, leaving, need = self._profile, self._bookings.leaving, track.need
        room = track.at(start) & ranks
        next_end = profile.next_end_after(start)  # of a running job
        ends = self._bookings.ends.times
        place = bisect_right(ends, start)  # the next end of a booking
        while start < until:
            if (
                popcount(room) >= count
                and popcount(leaving(room, need, start, start + length, count)) >= count
            ):
                return start
            following = ends[place] if place < len(ends) else INFINITY
            start = min(next_end, following)
            if start == INFINITY:
                return INFINITY
            place += start == following
            if start == next_end:
                room = track.at(start) & ranks
                next_end = profile.next_end_after(start)
        return INFINITY

    def _enough(self, shape: Shape, room: int, start: float, end: float) -> bool:
        """True if a mask of ranks with room holds a shape's nodes or slots."""
        if shape.node_count is not None:
            return popcount(room) >= shape.node_count.min
        needed = shape.slot_count.min
        # Each of the ranks holds at least one slot.
        return popcount(room) >= needed or (
            room != 0 and needed > 1 and self.count(shape, start, end) >= needed
        )

    def _room(self, shape: Shape, start: float, end: float, least: int = 0) -> int:
        """Mask of the ranks with room for one node's or slot's need all through a span.

        Args:
            least (int): if there are fewer ranks than this, any fewer may be told: see
                ``Bookings.leaving()``
        """
        asked = (shape, start, end, self._changes)
        if asked != self._asked:
            track = self._profile.track_of(shape)
            room = track.at(start) & self._pool.eligible(shape.match)
            room = self._bookings.leaving(room, track.need, start, end, least)
            if popcount(room) < least:
                return room
            self._asked = asked
            self._answer = room
        return self._answer

    def _is_small(self) -> bool:
        """Whether all ways to bind promises can be looked through."""
        return popcount(self._profile.inventory.ranks) <= MAX_RANKS_FOR_ALL_WAYS

    def _room_alone(self, shape: Shape, start: float) -> int:
        """Mask of the ranks with room for one node's or slot's need from a time on, if nothing had
        been promised.
        """
        return self._profile.track_of(shape).at(start) & self._pool.eligible(shape.match)

    def _together(self, shape: Shape, start: float, end: float) -> bool:
        """False if counts show that a shape is not in as few groups as it has to be in a span. To ask
        the pool's placement would cost an index as it will be then, for each time in question."""
        assert shape.within is not None
        if shape.container_level is not None or shape.node_count is None:
            return True
        room = self._room_alone(shape, start) & ~self._bookings.booked(start, end)
        needed = shape.node_count.min
        if popcount(room) < needed:
            return False
        return shape.within.best([(1, room)], needed) >= needed

    def _simulate(self, request: ResourceRequest, start: float, end: float) -> Selection | None:
        """Selection that the pool's placement makes at a time to come, or None.

        For pools whose placement is not a matter of counts: ranks with any booking in the span are
        left out.
        """
        pool = self._pool
        eligible = pool.eligible(request.shape.match) & ~self._bookings.booked(start, end)
        placed = pool.place_request(request, self._profile.index_at(start), eligible)
        return None if placed is None else placed[0]

    # -- which ranks --------------------------------------------------------

    def bind(self, request: ResourceRequest, start: float, end: float) -> list[Part] | None:
        """Parts of a booking for a request, or None if it does not fit.

        Ranks that are busy now are taken first and, of the rest, the highest: they are the last
        that jobs which start earlier would want.
        """
        shape = request.shape
        if not self._pool.countable(shape):
            selection = self._simulate(request, start, end)
            return None if selection is None else self._all_of(selected_ranks(selection))
        room = self._room(shape, start, end)
        if not self._enough(shape, room, start, end):
            if not self._promises or not self.make_room(request, start, end):
                return None
            room = self._room(shape, start, end)
        now = self._free_now(shape)
        if shape.node_count is None and shape.slot_count.min > 1:
            return self._bind_slots(shape, start, end, room & ~now, room & now)
        needed = 1 if shape.node_count is None else shape.node_count.min
        chosen = _highest(room & ~now, needed)
        missing = needed - popcount(chosen)
        if missing:
            chosen |= _highest(room & now, missing)
        return self._parts_of(chosen, shape)

    def _free_now(self, shape: Shape) -> int:
        """Ranks with room for a shape at this moment, jobs started lately counted."""
        room = self._profile.track_of(shape).at(self.now())
        for booking in self._started:
            for mask, _ in booking.parts or ():
                room &= ~mask
        return room

    def _parts_of(self, ranks: int, shape: Shape) -> list[Part]:
        """Parts of a booking of one node's or slot's need on each rank of a mask."""
        if shape.exclusive:
            return self._all_of(ranks)
        need = Need.of(shape)
        return [(ranks, need.cores * self._profile.inventory.key_base + need.gpus)]

    def _all_of(self, ranks: int) -> list[Part]:
        """Parts of a booking of all that the ranks of a mask have."""
        inventory = self._profile.inventory
        return [
            (ranks & mask, inventory.keys[units])
            for units, mask in inventory.kinds.items()
            if ranks & mask
        ]

    def _bind_slots(
        self, shape: Shape, start: float, end: float, *preferred: int
    ) -> list[Part] | None:
        base = self._profile.inventory.key_base
        left = shape.slot_count.min
        one = shape.slot_size * base + shape.gpu_per_slot
        parts: dict[int, int] = {}
        for mask in preferred:
            for rank in reversed(members(_highest(mask, left))):
                slots = min(left, slots_on(*self._bookings.least(rank, start, end), shape))
                if slots:
                    parts[slots * one] = parts.get(slots * one, 0) | 1 << rank
                    left -= slots
                if not left:
                    return [(ranks, key) for key, ranks in parts.items()]
        return None

    def bind_ever(self, request: ResourceRequest) -> list[Part] | None:
        """Parts of a booking on ranks that are up, whatever runs on them; None if it never fits."""
        pool, profile = self._pool, self._profile
        shape = request.shape
        unused = profile.inventory.unused()
        up = pool.eligible(shape.match)
        apart = up & ~self._bookings.booked()
        placed = pool.place_request(request, unused, apart)
        if placed is None:
            apart = up
            placed = pool.place_request(request, unused, up)
        if placed is None:
            return None
        if not pool.countable(shape):
            return self._all_of(selected_ranks(placed[0]))
        if shape.node_count is None:
            return [(mask, profile.inventory.key(units)) for mask, units in pairs(placed[0])]
        large = pool.match_mask(request) & apart
        chosen = self._given_back_at_once(large, shape.node_count.min)
        missing = shape.node_count.min - popcount(chosen)
        time = self.now()
        while missing and time != INFINITY:
            room = large & ~chosen & profile.track_of(shape).at(time)
            more = take(room, min(missing, popcount(room)))
            chosen |= more
            missing -= popcount(more)
            time = profile.next_end_after(time)
        room = large & ~chosen
        return self._parts_of(chosen | take(room, min(missing, popcount(room))), shape)

    def _given_back_at_once(self, large: int, most: int) -> int:
        """At most so many ranks of a mask that come free at once when one job ends.

        Those of the only job without an end, where there is just one: with them, less has to be
        kept of what is free now.
        """
        pool = self._pool
        endless = busy = 0
        for jobid, end in pool.job_end_times():
            ranks = selected_ranks(pool.held(jobid)) & large
            if end:
                busy |= ranks
            elif ranks and endless:
                return 0
            else:
                endless |= ranks
        ranks = endless & ~busy
        return take(ranks, min(most, popcount(ranks)))

    # -- binding again ------------------------------------------------------

    def make_room(self, request: ResourceRequest, start: float, end: float) -> bool:
        """Bind promises again so that a request fits in a span; see ``packing.py``.

        Returns:
            bool: whether it fits now; if not, promises are bound as they were
        """
        shape = request.shape
        if self._frozen or not self._pool.countable(shape):
            return False
        self.renew_profile()
        small = self._is_small()
        effort = self.effort
        if (
            (small and effort.left <= 0)
            or not self._bookings.removable
            or not self._enough_in_all(shape, start, end)
            or self._hopeless(shape, start, end)
        ):
            return False
        if not small:
            return self._make_room_on_many(shape, start, end)
        moved = [
            promise
            for promise in self._promises.values()
            if promise.parts and not promise.is_open and self._pool.countable(promise.request.shape)
        ]
        if len(moved) > MAX_REBOUND:
            moved = [one for one in moved if one.start < end and start < one.end]
            moved.sort(key=lambda one: one.start)
            del moved[MAX_REBOUND:]
        effort.spend(STEPS_PER_ITEM * (len(moved) + 1))
        items = self._items_alone(shape, start, end, moved)
        if self._too_few(items):
            return False
        if len(moved) == len(self._promises):
            # Nothing else is booked, so nothing has to be taken out to see what there is.
            found = deal(items, self._most_without_promises) or self._pack(items, False)
            if found:
                self._bind_again(moved, items[1:])
                self._changes += 1
                self._enter_all()
            return found
        effort.spend(STEPS_PER_ITEM_MOVED * len(moved))
        for promise in moved:
            self._bookings.remove(promise)
        self._changes += 1
        items = [Item(shape, start, end, self._room(shape, start, end))]
        for promise in moved:
            shape = promise.request.shape
            room = self._room(shape, promise.start, promise.end)
            items.append(Item(shape, promise.start, promise.end, room))
        found = deal(items, self._most) or self._pack(items, True)
        if found:
            self._bind_again(moved, items[1:])
        for promise in moved:
            self._enter(promise)
        return found

    def _pack(self, items: list[Item], booked: bool) -> bool:
        """As ``pack()``, with what steps there are."""
        effort = self.effort
        return effort.left > 0 and pack(items, self._groups(items, booked), effort)

    def _bind_again(self, promises: list[BoundPromise], items: list[Item]) -> None:
        for promise, item in zip(promises, items):
            self.rebound.append((promise, promise.parts))
            promise.parts = self._parts_of_item(item)

    def bind_as_before(self) -> None:
        """Bind promises as they were when one was withdrawn the last time."""
        rebound, self.rebound = self.rebound, []
        for promise, parts in reversed(rebound):
            promise.parts = parts
        if rebound:
            self._changes += 1
            self._enter_all()

    def _make_room_on_many(self, shape: Shape, start: float, end: float) -> bool:
        """As ``make_room()``, on a pool where to take a promise out and in again costs too much to
        be tried for nothing.
        """
        promises = list(self._promises.values())
        if len(promises) > MAX_REBOUND_ON_MANY_RANKS or any(
            promise.is_open or not promise.parts or not self._pool.countable(promise.request.shape)
            for promise in promises
        ):
            return False
        items = self._items_alone(shape, start, end, promises)
        if self._too_few(items) or not deal(items, self._most_without_promises):
            return False
        self._bind_again(promises, items[1:])
        self._changes += 1
        self._enter_all()
        return True

    def _items_alone(
        self, shape: Shape, start: float, end: float, promises: list[BoundPromise]
    ) -> list[Item]:
        """Items for a request and for promises, each as if nothing else had been promised."""
        items = [Item(shape, start, end, self._room_alone(shape, start))]
        for one in promises:
            shape = one.request.shape
            items.append(Item(shape, one.start, one.end, self._room_alone(shape, one.start)))
        return items

    def _too_few(self, items: list[Item]) -> bool:
        """Whether running jobs leave too little for some items, wherever promises are bound."""
        inventory = self._profile.inventory
        base = inventory.key_base

        def free_at(time: float) -> Iterator[tuple[int, int, int]]:
            for key, mask in self._profile.groups_at(time).items():
                yield mask, key // base, key % base

        return too_few(items, [divmod(key, base) for key in inventory.keys.values()], free_at)

    def _hopeless(self, shape: Shape, start: float, end: float) -> bool:
        """True if a look at masks shows that there is no way."""
        room = self._room_alone(shape, start)
        least = self._least_ranks(shape)
        if popcount(room) < least:
            return True
        if self._others_changes != self._changes:
            self._others_changes = self._changes
            self._others = [
                (
                    one.start,
                    one.end,
                    one.request.shape,
                    self._room_alone(one.request.shape, one.start),
                )
                for one in self._promises.values()
                if not one.is_open and self._pool.countable(one.request.shape)
            ]
        return any(
            begin < end
            and start < finish
            and popcount(room | other_room) < least + self._least_ranks(other)
            and not self._go_together(shape, other)
            for begin, finish, other, other_room in self._others
        )

    def _go_together(self, shape: Shape, other: Shape) -> bool:
        """True if there is a kind of rank that has enough for one unit each of two shapes."""
        inventory = self._profile.inventory
        for key in inventory.keys.values():
            full = divmod(key, inventory.key_base)
            cores, gpus = (a + b for a, b in zip(taken(shape, full), taken(other, full)))
            if cores <= full[0] and gpus <= full[1]:
                return True
        return False

    def _enough_in_all(self, shape: Shape, start: float, end: float) -> bool:
        """False if the ranks together have too little left for a shape; see ``sums.py``."""
        _, cores, gpus = self._least_of(shape)
        return self._sums_now().enough(cores, gpus, start, end)

    def _first_with_enough(
        self, shape: Shape, start: float, length: float, before: float, until: float
    ) -> float:
        """As ``Sums.first()``, for what a shape takes at least."""
        _, cores, gpus = self._least_of(shape)
        return self._sums_now().first(cores, gpus, start, length, before, until)

    def _sums_hold(self) -> bool:
        """Whether sums tell where a request may fit: as long as no rank has less than nothing left,
        which others make up for in a sum."""
        return len(self._kept) == len(self._promises)

    def _sums_now(self) -> Sums:
        """What promises leave as they are now."""
        sums = self._sums
        if sums is None:
            sums = self._sums = Sums(self._profile, self._pool.eligible(None))
            self._summed = {}
            for promise in self._promises.values():
                span = self._span_of(promise)
                if span is not None:
                    self._summed[promise] = span
            sums.book(self._summed.values())
        return sums

    def _span_of(self, promise: BoundPromise) -> Span | None:
        """What a promise takes in all; None if it has no place in sums."""
        shape = promise.request.shape
        if promise.is_open or not self._pool.countable(shape):
            return None
        _, cores, gpus = self._least_of(shape)
        return promise.start, promise.end, cores, gpus

    def _least_ranks(self, shape: Shape) -> int:
        """A shape cannot do with fewer ranks."""
        return self._least_of(shape)[0]

    def _least_of(self, shape: Shape) -> Least:
        """The least that a shape takes in all: ranks, cores and GPUs."""
        least = self._least.get(shape)
        if least is None:
            if len(self._least) >= MAX_REMEMBERED_SHAPES:
                self._least.clear()
            inventory = self._profile.inventory
            sizes = [divmod(key, inventory.key_base) for key in inventory.keys.values()]
            count = ranks = shape.least_count
            if shape.node_count is None:
                most = max([slots_on(cores, gpus, shape) for cores, gpus in sizes], default=0)
                ranks = -(-count // most) if most else count
            each = [taken(shape, full) for full in sizes]
            cores = count * min([one for one, _ in each], default=0)
            gpus = count * min([one for _, one in each], default=0)
            least = self._least[shape] = (ranks, cores, gpus)
        return least

    def _most(self, rank: int, item: Item) -> int:
        """Slots that a rank can give to an item alone."""
        if self._bookings.touched(item.start, item.end) >> rank & 1:
            return slots_on(*self._bookings.least(rank, item.start, item.end), item.shape)
        return self._most_without_promises(rank, item)

    def _most_without_promises(self, rank: int, item: Item) -> int:
        """The same as if nothing had been promised."""
        bit = 1 << rank
        base = self._profile.inventory.key_base
        if item.groups is None:
            item.groups = self._profile.groups_at(item.start)
        for key, mask in item.groups.items():
            if mask & bit:
                return slots_on(key // base, key % base, item.shape)
        return 0

    def _groups(self, items: list[Item], booked: bool) -> list[Group]:
        """The ranks that items could use, by state: as ``pack()`` takes them.

        Args:
            booked (bool): whether there may be other bookings
        """
        profile, bookings = self._profile, self._bookings
        inventory = profile.inventory
        base = inventory.key_base
        every = 0
        for item in items:
            every |= item.room
        start = min([item.start for item in items])
        end = max([item.end for item in items])
        groups: list[Group] = []
        single = every & bookings.touched(start, end) if booked else 0
        for units, kind in inventory.kinds.items():
            full = divmod(inventory.keys[units], base)
            for rank in members(kind & single):
                groups.append((1 << rank, full, bookings.steps(rank, start, end)))
            same: list[tuple[int, tuple[Step, ...]]] = [(kind & every & ~single, ())]
            for item in items:
                same = [
                    (part, free) for mask, free in same for part in _cut(mask, item.room) if part
                ]
            for time in sorted({item.start for item in items}):
                there = profile.groups_at(time)
                nothing = every
                for ranks in there.values():
                    nothing &= ~ranks
                there[0] = nothing
                same = [
                    (mask & ranks, (*free, (time, *divmod(key, base))))
                    for mask, free in same
                    for key, ranks in there.items()
                    if mask & ranks
                ]
            groups += [(mask, full, free) for mask, free in same]
        return groups

    def _parts_of_item(self, item: Item) -> list[Part]:
        """Parts of a booking of what an item has chosen."""
        if not item.slots:
            return self._parts_of(item.chosen[1], item.shape)
        base = self._profile.inventory.key_base
        one = item.shape.slot_size * base + item.shape.gpu_per_slot
        return [(mask, units * one) for units, mask in item.chosen.items()]

    # -- starting now -------------------------------------------------------

    def is_free(self, shape: Shape) -> bool:
        """False if a shape does not fit among what is free now, whatever was promised. O(1) if
        that was found since something was last released.
        """
        pool = self._pool
        if not pool.countable(shape):
            return True
        if self._too_large_releases != pool.releases:
            self._too_large_releases = pool.releases
            self._too_large.clear()
        elif shape in self._too_large:
            return False
        if self._small_enough_as_of != pool.generation:
            self._small_enough_as_of = pool.generation
            self._small_enough.clear()
        elif shape in self._small_enough:
            return True
        ranks = pool.eligible(shape.match)
        need = Need.of(shape)
        inventory = pool.inventory
        base = inventory.key_base
        left = shape.least_count
        for key, mask in pool.index.groups.items():
            mask &= ranks
            if mask and need.fits(key, base):
                if shape.node_count is None:
                    left -= popcount(mask) * slots_on(key // base, key % base, shape)
                else:
                    left -= popcount(need.among(mask, key, inventory))
                if left <= 0:
                    self._small_enough.add(shape)
                    return True
        self._too_large.add(shape)
        return False

    def room_ends(self, shape: Shape, now: float) -> float:
        """A time up to which a shape may fit from now on, whatever promises are bound to; now, if too
        little is free, and infinity where nothing is known.
        """
        if not self.is_free(shape):
            return now
        if not self._pool.countable(shape) or not self._sums_hold():
            return INFINITY
        _, cores, gpus = self._least_of(shape)
        return self._sums_now().room_ends(cores, gpus, now)

    def place_now(
        self, request: ResourceRequest, now: float, end: float
    ) -> tuple[Selection, int] | None:
        """Place a request on the ranks, and of these the counts, that promises leave.

        Returns:
            as ``place_request()`` of the pool
        """
        pool = self._pool
        shape = request.shape
        if not pool.countable(shape):
            eligible = pool.eligible(shape.match) & ~self._bookings.booked(now, end)
            return pool.place_request(request, pool.index, eligible)
        if not self.may_fit(request, now):
            return None
        placed = self._place_beside(request, now, end)
        if placed is None and self._promises and self.make_room(request, now, end):
            placed = self._place_beside(request, now, end)
        self._placed = None if placed is None else (placed[0], end)
        return placed

    def may_fit(self, request: ResourceRequest, now: float) -> bool:
        """False if running jobs leave too few ranks for a request, whatever was promised."""
        shape = request.shape
        if not self._pool.countable(shape):
            return True
        return popcount(self._room_alone(shape, now)) >= self._least_ranks(shape)

    def _place_beside(
        self, request: ResourceRequest, now: float, end: float
    ) -> tuple[Selection, int] | None:
        """Place a request beside the promises as they are bound."""
        pool = self._pool
        shape = request.shape
        room = self._room(shape, now, end)
        if popcount(room) < self._least_ranks(shape):
            return None
        index = pool.index
        touched = 0
        if not _exact(shape):
            # Jobs that were started lately are booked, too; what they hold is out of the index already.
            touched = room & self._bookings.touched(now, end) & self._promised(now, end)
        if touched:
            index = self._reduced(touched, now, end)
        return pool.place_shape(index, shape, room)

    def _promised(self, start: float, end: float) -> int:
        """Mask of the ranks that promises are bound to in a span. O(promises)."""
        ranks = 0
        for promise in self._promises.values():
            if promise.start <= end and promise.end >= start:
                for mask, _ in promise.parts or ():
                    ranks |= mask
        return ranks

    def _reduced(self, touched: int, start: float, end: float) -> RankIndex:
        """The pool's index without what bookings in a span need of some ranks."""
        index = self._pool.index.copy()
        inventory = index.inventory
        for rank in members(touched):
            cores, gpus = self._bookings.least(rank, start, end)
            free = index.free(rank)
            free_cores = free & inventory.core_mask
            free_gpus = free >> inventory.shift
            if cores >= popcount(free_cores) and gpus >= popcount(free_gpus):
                continue
            keep = take(free_cores, min(cores, popcount(free_cores)))
            keep |= take(free_gpus, min(gpus, popcount(free_gpus))) << inventory.shift
            index.take((rank, free ^ keep))
        return index


def _cut(mask: int, other: int) -> tuple[int, int]:
    """The parts of a mask in another one, and out of it."""
    return mask & other, mask & ~other


def _highest(mask: int, count: int) -> int:
    """The ``count`` highest members of a mask, or all of it."""
    excess = popcount(mask) - count
    return mask ^ take(mask, excess) if excess > 0 else mask


def _exact(shape: Shape) -> bool:
    """True if room for one node's or slot's need is all that matters about a rank."""
    if shape.node_count is None:
        return shape.slot_count.max == 1
    return shape.slot_count.fixed
