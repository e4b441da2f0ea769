"""Planning on a pool: when a request can start, beside what is promised already.

A ``Plan`` is what running jobs will give back (``profile.py``) and the bookings
made in it (``bookings.py``): reservations, and jobs started through it.
"""

from bisect import bisect_right

from flux.resource.bookings import Booking, Bookings
from flux.resource.bounds import Bounds
from flux.resource.errors import InsufficientResources
from flux.resource.inventory import pairs, selected_ranks
from flux.resource.masks import members, popcount, take
from flux.resource.placement import slots_on
from flux.resource.profile import Need, Profile
from flux.resource.timeline import INFINITY


def length_of(request):
    """Duration of a request in seconds; infinity if it has none."""
    return request.duration if request.duration > 0 else INFINITY


class Plan:
    """Availability of a pool from now on, with reservations; see ``ResourcePool.plan()``.

    All times are seconds since the epoch.  A request counts with its least
    numbers of nodes and slots.  A job that ran past its end is taken to end
    now; a job without an end never does; ranks that are down are not available.
    A plan follows its pool: what changes there is seen at the next call, and
    the reservations stay.  As long as jobs are started through the plan, running
    jobs end in time and ranks stay up, every reservation can be kept.
    """

    #: Makes of the implementation that ``alloc()`` got what it answers with.
    wrap = staticmethod(lambda impl: impl)

    def __init__(self, pool):
        self._pool = pool
        self._reserved = {}  # job id to Booking
        self._started = []  # Bookings of jobs started since the profile was made
        self._profile = None
        self._seen = None  # generation of the pool that all this is true for
        self._bookings = None
        self._entered = 0  # bookings entered since they were last entered anew
        self._bounds = Bounds()
        self._changes = 0  # grows with every change of the bookings or the profile
        self._asked = self._answer = None  # the last question of _room()

    # -- questions ----------------------------------------------------------

    def earliest(self, request, after=None):
        """Earliest time at which a request fits for its whole duration.

        Args:
            after (float): not before this; default: now.

        Returns:
            The time, or None if it does not fit while running jobs last.
        """
        self._sync()
        now = self._now(None)
        start = now if after is None else max(now, after)
        shape = request.shape
        if not self._pool.countable(shape):
            found = self._search(request, start)
        else:
            family = (shape.match, Need.of(shape), shape.node_count is None)
            count = (shape.node_count or shape.slot_count).min
            length = length_of(request)
            start = max(start, self._bounds.least(family, count, length))
            found = self._search(request, start)
            if after is None or after <= now:
                self._bounds.learn(family, count, length, found)
        return None if found == INFINITY else found

    def windows(self, requests, horizon):
        """What could start now, and for how long.

        Args:
            requests: requests (of the pool's ``parse_resource_request()``).
            horizon (float): look no further than so many seconds ahead.

        Returns:
            For each request a dict: ``request``; ``fits``: whether it fits now
            for its whole duration; ``steps``: list of ``(count, until)``: how
            many nodes (slots, if it asks for no nodes) of the kind it wants are
            free together from now until a time, fewer for longer. The last
            ``until`` is now + horizon, or the end of the pool if that is earlier.
        """
        self._sync()
        now = self._now(None)
        limit = now + horizon
        if self._pool.expiration:
            limit = min(limit, max(now, self._pool.expiration))
        answer = []
        for request in requests:
            steps = []
            time = now
            while time < limit:
                time = min(self._bookings.starts.after(time), limit)
                count = self._count(request.shape, now, time)
                if steps and steps[-1][0] == count:
                    steps[-1] = (count, time)
                elif count:
                    steps.append((count, time))
                else:
                    break
            fits = self._fits(request, now, now + length_of(request))
            answer.append({"request": request, "fits": fits, "steps": steps})
        return answer

    def reservations(self):
        """Dict of job id to ``(start, end)`` of the reservations."""
        return {jobid: (one.start, one.end) for jobid, one in self._reserved.items()}

    def stale(self):
        """Jobs whose reservation cannot be kept any more.

        That is so when ranks went down or left, a running job got more time, or
        the pool was allocated from behind the plan's back.

        Returns:
            list of job ids, in the order of their reservations.
        """
        if self._started:
            self._seen = None  # have the profile made anew, with these jobs in it
        self._sync()
        profile = self._profile
        up = self._pool.eligible(None)
        base = profile.inventory.key_base
        stale = []
        for jobid, booking in self._reserved.items():
            for mask, key in booking.parts:
                room = profile.track(Need(key // base, key % base, False)).at(booking.start) & up
                if mask & ~room or any(
                    self._bookings.overdrawn(rank, booking.start)
                    for rank in members(mask & self._bookings.touched(booking.start, booking.end))
                ):
                    stale.append(jobid)
                    break
        return stale

    # -- changes ------------------------------------------------------------

    def reserve(self, jobid, request, start):
        """Promise resources to a job from a start time on, for its duration.

        A reservation that the job had is replaced.

        Raises:
            InsufficientResources: it does not fit then for its duration; the
                plan is as before.
        """
        before = self._withdraw(jobid)
        self._sync()
        start = max(start, self._now(None))
        end = start + length_of(request)
        parts = self._choose(request, start, end)
        if parts is None:
            self._restore(jobid, before)
            raise InsufficientResources("no room for the reservation of job %s" % jobid)
        self._restore(jobid, Booking(start, end, parts))

    def hold(self, jobid, request):
        """Keep resources for a job from now on, without end.

        For a job that has no earliest time because it waits for jobs without an
        end: what it will need is kept from others. Ranks that have room now are
        taken first, then those that have it soonest.

        Raises:
            InsufficientResources: it would not fit if every job ended: it waits
                for ranks that are down. The plan is as before.
        """
        before = self._withdraw(jobid)
        self._sync()
        parts = self._choose_ever(request)
        if parts is None:
            self._restore(jobid, before)
            raise InsufficientResources(lambda: self._pool.why_not(request))
        self._restore(jobid, Booking(self._now(None), INFINITY, parts))

    def alloc(self, jobid, request):
        """Allocate to a job now, if that delays no reservation but its own.

        Returns:
            As ``ResourcePool.alloc()``; the job's reservation is gone then.

        Raises:
            InsufficientResources: it does not fit now, or only at the expense
                of a reservation.
            InfeasibleRequest, ValueError: as ``ResourcePool.alloc()``.
        """
        before = self._withdraw(jobid)
        try:
            if self._reserved:
                self._sync()
                answer = self._alloc(jobid, request)
            else:
                answer = self._pool.alloc(jobid, request)
        except Exception:
            self._restore(jobid, before)
            raise
        self._enter_started(jobid)
        return self.wrap(answer)

    def note_started(self, jobid):
        """A job was started on the pool itself: its reservation is over."""
        self.cancel(jobid)
        self._enter_started(jobid)

    def cancel(self, jobid):
        """Drop a job's reservation, if it has one."""
        self._withdraw(jobid)

    # -- the state ----------------------------------------------------------

    def _now(self, after):
        now = max(self._pool.clock(), self._profile.times[0])
        return now if after is None else max(now, after)

    def _sync(self):
        """Take in what happened to the pool since the last call."""
        pool = self._pool
        if self._seen == pool.generation:
            return
        self._seen = pool.generation
        before = self._profile
        self._profile = Profile(
            pool._inventory, pool._index, pool.ends_in_order(), pool.held, pool.clock()
        )
        self._bounds = Bounds()
        self._changes += 1
        # Jobs started through the plan are in the profile now.
        started, self._started = self._started, []
        if before is None or before.inventory.ranks != self._profile.inventory.ranks:
            self._enter_all()
        elif self._entered > 1000 + 4 * len(self._reserved):
            self._enter_all()  # times long past have piled up
        elif all(self._bookings.remove(booking) for booking in started):
            self._bookings.rebase(self._profile)
        else:
            self._enter_all()

    def _enter_all(self):
        self._bookings = Bookings(self._profile)
        self._entered = 0
        for booking in self._started:
            self._enter(booking)
        for booking in self._reserved.values():
            self._enter(booking)

    def _enter(self, booking):
        self._bookings.enter(booking)
        self._entered += 1
        self._changes += 1

    def _withdraw(self, jobid):
        """Take a reservation out, and return it; None if there is none."""
        booking = self._reserved.pop(jobid, None)
        if booking is not None and self._bookings is not None:
            self._changes += 1
            if not self._bookings.remove(booking):
                self._enter_all()
            self._bounds.released(booking.start)
        return booking

    def _restore(self, jobid, booking):
        if booking is not None:
            self._reserved[jobid] = booking
            if self._bookings is not None:
                self._enter(booking)

    def _enter_started(self, jobid):
        """Count in a job that the pool has just started."""
        pool = self._pool
        if self._seen is None or pool.generation != self._seen + 1:
            return
        inventory = pool._inventory
        parts = [(mask, inventory.key(units)) for mask, units in pairs(pool.held(jobid))]
        booking = Booking(self._now(None), pool.end_of(jobid) or INFINITY, parts)
        self._started.append(booking)
        self._enter(booking)
        self._seen = pool.generation

    # -- the search ---------------------------------------------------------

    def _search(self, request, start):
        """First time from ``start`` on at which a request fits; infinity if none."""
        profile = self._profile
        length = length_of(request)
        shape = request.shape
        if self._pool.countable(shape):
            # Not before running jobs leave room on so many ranks, bookings or not.
            count = 1 if shape.node_count is None else shape.node_count.min
            ranks = self._pool.eligible(shape.match)
            need = Need.of(shape)
            start = profile.track(need).first(count, ranks, start)
            if shape.node_count is not None:
                return self._search_nodes(need, count, ranks, start, length)
        while start < INFINITY:
            if self._fits(request, start, start + length):
                return start
            start = min(self._bookings.ends.after(start), profile.next_end_after(start))
        return INFINITY

    def _search_nodes(self, need, count, ranks, start, length):
        """As ``_search()``, for so many of these ranks with room for a need."""
        if start == INFINITY:
            return start
        profile, leaving = self._profile, self._bookings.leaving
        track = profile.track(need)
        room = track.at(start) & ranks
        times = profile.times
        at = bisect_right(times, start)  # the next end of a running job, once swept over
        ends = self._bookings.ends.times
        place = bisect_right(ends, start)  # the next end of a booking
        while True:
            if popcount(room) >= count and popcount(leaving(room, need, start, start + length)) >= count:
                return start
            following = ends[place] if place < len(ends) else INFINITY
            if at < len(times) or profile.step():
                if times[at] <= following:
                    place += times[at] == following
                    start = times[at]
                    at += 1
                    room = track.at(start) & ranks
                    continue
            if following == INFINITY:
                return INFINITY
            start = following
            place += 1

    def _fits(self, request, start, end):
        shape = request.shape
        if not self._pool.countable(shape):
            return self._simulate(request, start, end) is not None
        return self._enough(shape, self._room(shape, start, end), start, end)

    def _enough(self, shape, room, start, end):
        """True if a mask of ranks with room holds a shape's nodes or slots."""
        if shape.node_count is not None:
            return popcount(room) >= shape.node_count.min
        needed = shape.slot_count.min
        # Each rank holds a slot at least.
        return popcount(room) >= needed or (
            room != 0 and needed > 1 and self._count(shape, start, end) >= needed
        )

    def _room(self, shape, start, end):
        """Mask of the ranks with room for one node's or slot's need all through a span."""
        asked = (shape, start, end, self._changes)
        if asked != self._asked:
            need = Need.of(shape)
            room = self._profile.track(need).at(start) & self._pool.eligible(shape.match)
            self._asked = asked
            self._answer = self._bookings.leaving(room, need, start, end)
        return self._answer

    def _count(self, shape, start, end):
        """How many nodes (slots where the shape has no node) fit in a span."""
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

    # -- choosing ranks -----------------------------------------------------

    def _choose(self, request, start, end):
        """Parts of a booking for a request, or None if it does not fit.

        Ranks that are busy now are taken first and, of the rest, the highest:
        they are the last that jobs which start earlier would want.
        """
        shape = request.shape
        if not self._pool.countable(shape):
            selection = self._simulate(request, start, end)
            return None if selection is None else self._whole(selected_ranks(selection))
        room = self._room(shape, start, end)
        if not self._enough(shape, room, start, end):
            return None
        now = self._profile.track(Need.of(shape)).at(self._now(None))
        if shape.node_count is None and shape.slot_count.min > 1:
            return self._choose_slots(shape, start, end, room & ~now, room & now)
        needed = 1 if shape.node_count is None else shape.node_count.min
        chosen = _highest(room & ~now, needed)
        missing = needed - popcount(chosen)
        if missing:
            chosen |= _highest(room & now, missing)
        return self._parts_of(chosen, shape)

    def _parts_of(self, ranks, shape):
        """Parts of a booking of one node's or slot's need on each rank of a mask."""
        if shape.exclusive:
            return self._whole(ranks)
        need = Need.of(shape)
        return [(ranks, need.cores * self._profile.inventory.key_base + need.gpus)]

    def _whole(self, ranks):
        """Parts of a booking of all that the ranks of a mask have."""
        inventory = self._profile.inventory
        return [
            (ranks & mask, inventory.keys[units])
            for units, mask in inventory.kinds.items()
            if ranks & mask
        ]

    def _choose_slots(self, shape, start, end, *preferred):
        base = self._profile.inventory.key_base
        left = shape.slot_count.min
        one = shape.slot_size * base + shape.gpu_per_slot
        parts = {}
        for mask in preferred:
            for rank in reversed(members(_highest(mask, left))):
                slots = min(left, slots_on(*self._bookings.least(rank, start, end), shape))
                if slots:
                    parts[slots * one] = parts.get(slots * one, 0) | 1 << rank
                    left -= slots
                if not left:
                    return [(ranks, key) for key, ranks in parts.items()]
        return None

    def _choose_ever(self, request):
        """Parts of a booking on ranks that are up, whatever runs on them."""
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
            return self._whole(selected_ranks(placed[0]))
        if shape.node_count is None:
            return [(mask, profile.inventory.key(units)) for mask, units in pairs(placed[0])]
        large = pool.match_mask(request) & apart
        chosen = self._come_together(large, shape.node_count.min)
        missing = shape.node_count.min - popcount(chosen)
        time = self._now(None)
        while missing:
            room = large & ~chosen
            if time != INFINITY:
                room &= profile.track(Need.of(shape)).at(time)
                time = profile.next_end_after(time)
            more = take(room, min(missing, popcount(room)))
            chosen |= more
            missing -= popcount(more)
        return self._parts_of(chosen, shape)

    def _come_together(self, large, most):
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

    # -- starting now -------------------------------------------------------

    def _alloc(self, jobid, request):
        """Allocate from the ranks, and of these the counts, that bookings leave."""
        pool = self._pool
        shape = request.shape
        now = self._now(None)
        end = now + length_of(request)
        if not pool.countable(shape):
            eligible = pool.eligible(shape.match) & ~self._bookings.booked(now, end)
            placed = pool.place_request(request, pool._index, eligible)
        else:
            room = self._room(shape, now, end)
            index = pool._index
            touched = 0 if _exact(shape) else room & self._bookings.touched(now, end)
            if touched:
                index = self._reduced(touched, now, end)
            placed = pool.place(index, shape, room)
        if placed is None:
            pool.check_feasibility(request)
            raise InsufficientResources(lambda: self._why(request))
        return pool.grant(jobid, request, *placed)

    def _why(self, request):
        counts = self._pool.explain(request)
        if counts["available"] < counts["needed"]:
            return counts["reason"]
        return "insufficient resources: would delay a job with a reservation"

    def _reduced(self, touched, start, end):
        """The pool's index without what bookings in a span need of some ranks."""
        index = self._pool._index.copy()
        inventory = index.inventory
        for rank in members(touched):
            cores, gpus = self._bookings.least(rank, start, end)
            free = index.free(rank)
            free_cores = free & inventory.core_mask
            free_gpus = free >> inventory.shift
            keep = take(free_cores, min(cores, popcount(free_cores)))
            keep |= take(free_gpus, min(gpus, popcount(free_gpus))) << inventory.shift
            if keep != free:
                index.take((rank, free ^ keep))
        return index

    def _simulate(self, request, start, end):
        """Selection that the pool's placement makes at a time to come, or None.

        For pools whose placement is not a matter of counts: ranks with any
        booking in the span are left out.
        """
        pool = self._pool
        eligible = pool.eligible(request.shape.match) & ~self._bookings.booked(start, end)
        placed = pool.place_request(request, self._profile.index_at(start), eligible)
        return None if placed is None else placed[0]


def _highest(mask, count):
    """The ``count`` highest members of a mask, or all of it."""
    excess = popcount(mask) - count
    return mask ^ take(mask, excess) if excess > 0 else mask


def _exact(shape):
    """True if room for one node's or slot's need is all that matters about a rank."""
    if shape.node_count is None:
        return shape.slot_count.max == 1
    return shape.slot_count.fixed
