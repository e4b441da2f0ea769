"""Planning on a pool: when a request can start, beside what is promised already.

A ``Plan`` is what running jobs will give back (``profile.py``) and the bookings
made in it: reservations, and jobs started through it.  Bookings are counts of
cores and GPUs on concrete ranks.  A booking that leaves no core of a rank is
kept in one timeline for all; for others each kind of need has a timeline of the
ranks where what is left is too little for it.
"""

from flux.resource.errors import InsufficientResources
from flux.resource.inventory import pairs, selected_ranks
from flux.resource.masks import members, popcount, take
from flux.resource.placement import slots_on
from flux.resource.profile import Need, Profile
from flux.resource.timeline import INFINITY, Timeline, Times


class Booking:
    """Counts promised on ranks for a span of time."""

    __slots__ = ("start", "end", "parts")

    def __init__(self, start, end, parts):
        self.start = start
        self.end = end
        self.parts = parts  # [(mask of ranks, key)]


class Plan:
    """Availability of a pool from now on, with reservations; see ``Rv1Pool.plan()``.

    All times are seconds since the epoch.  A request counts with its least
    numbers of nodes and slots.  A job that ran past its end is taken to end
    now; a job without an end never does; ranks that are down are not available.
    A plan follows its pool: what changes there is seen at the next call, and
    the reservations stay.
    """

    #: Makes of the implementation that ``alloc()`` got what it answers with.
    wrap = staticmethod(lambda impl: impl)

    def __init__(self, pool):
        self._pool = pool
        self._reserved = {}  # job id to Booking
        self._started = []  # Bookings of jobs started since the profile was made
        self._seen = None
        self._profile = None

    # -- questions ----------------------------------------------------------

    def earliest(self, request, after=None):
        """Earliest time at which a request fits for its whole duration.

        Args:
            after (float): not before this; default: now.

        Returns:
            The time, or None if it does not fit while running jobs last.
        """
        self._sync()
        start = self._now(after)
        shape = request.shape
        length = request.duration if request.duration > 0 else INFINITY
        hint = (shape, length)
        known = self._hints.get(hint)
        if known is not None and known[0] <= start:
            start = max(start, known[1])
        found = self._search(request, shape, start, length)
        # Bookings are only added: an equal request finds nothing before this.
        if known is None or known[0] <= self._now(after):
            self._hints[hint] = (self._now(after), found)
        return None if found == INFINITY else found

    def windows(self, requests, horizon):
        """What could start now, and for how long.

        Args:
            requests: requests (of the pool's ``parse_resource_request()``).
            horizon (float): look no further than so many seconds ahead.

        Returns:
            For each request a dict: ``request``; ``fits``: whether it fits now
            for its whole duration; ``steps``: list of ``(count, until)``, how
            many nodes (or slots) of the kind it wants are free together from
            now until a time, fewer for longer; the last ``until`` is now +
            horizon, or the end of the pool if that is earlier.
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
                time = min(self._starts.after(time), limit)
                count = self._count(request.shape, now, time)
                if steps and steps[-1][0] == count:
                    steps[-1] = (count, time)
                elif count:
                    steps.append((count, time))
                else:
                    break
            length = request.duration if request.duration > 0 else INFINITY
            fits = self._search(request, request.shape, now, length, only=True) == now
            answer.append({"request": request, "fits": fits, "steps": steps})
        return answer

    def reservations(self):
        """Dict of job id to ``(start, end)`` of the reservations."""
        return {jobid: (one.start, one.end) for jobid, one in self._reserved.items()}

    # -- changes ------------------------------------------------------------

    def reserve(self, jobid, request, start):
        """Promise resources to a job from a start time on, for its duration.

        A reservation that the job had is replaced.

        Raises:
            InsufficientResources: it does not fit then for its duration; the
                plan is as before.
        """
        self._sync()
        before = self._reserved.get(jobid)
        if before is not None:
            self.cancel(jobid)
            self._sync()
        shape = request.shape
        start = max(start, self._now(None))
        length = request.duration if request.duration > 0 else INFINITY
        parts = self._choose(request, shape, start, start + length)
        if parts is None:
            if before is not None:
                self._reserved[jobid] = before
                self._enter(before)
            raise InsufficientResources("no room for the reservation of job %s" % jobid)
        booking = Booking(start, start + length, parts)
        self._reserved[jobid] = booking
        self._enter(booking)

    def alloc(self, jobid, request):
        """Allocate to a job now, if that delays no reservation but its own.

        Returns:
            As ``ResourcePool.alloc()``; the job's reservation is gone then.

        Raises:
            InsufficientResources: it does not fit now, or only at the expense
                of a reservation.
            InfeasibleRequest, ValueError: as ``ResourcePool.alloc()``.
        """
        pool = self._pool
        before = self._reserved.get(jobid)
        if not self._reserved or (before is not None and len(self._reserved) == 1):
            answer = pool.alloc(jobid, request)
            if before is not None:
                self.cancel(jobid)
            self._enter_started(jobid)
            return self.wrap(answer)
        if before is not None:
            self.cancel(jobid)
        self._sync()
        try:
            answer = self._alloc(jobid, request)
        except Exception:
            if before is not None:
                self._reserved[jobid] = before
                self._enter(before)
            raise
        self._enter_started(jobid)
        return self.wrap(answer)

    def hold(self, jobid, request):
        """Keep resources for a job from now on, without end.

        For a job that has no earliest time because it waits for jobs without an
        end: what it will need is kept from others. Ranks that have room now are
        taken first, then those that have it soonest.

        Raises:
            InsufficientResources: it would not fit if every job ended: it waits
                for ranks that are down.
        """
        self.cancel(jobid)
        self._sync()
        parts = self._choose_ever(request)
        if parts is None:
            raise InsufficientResources(lambda: self._pool.explain(request)["reason"])
        booking = Booking(self._now(None), INFINITY, parts)
        self._reserved[jobid] = booking
        self._enter(booking)

    def _choose_ever(self, request):
        """Parts of a booking on ranks that are up, whatever runs on them."""
        pool, profile = self._pool, self._profile
        shape = request.shape
        inventory = profile.inventory
        up = pool.eligible(shape.match)
        placed = pool.place_request(request, inventory.unused(), up & self._unbooked())
        if placed is None:
            placed = pool.place_request(request, inventory.unused(), up)
        if placed is None:
            return None
        if shape.node_count is None or not pool.countable(shape):
            return [(mask, inventory.key(units)) for mask, units in pairs(placed[0])]
        need = Need.of(shape)
        count = shape.node_count.min
        large = pool.match_mask(request) & up & self._unbooked()
        if popcount(large) < count:
            large = pool.match_mask(request) & up
        chosen = 0
        time = self._now(None)
        while popcount(chosen) < count:
            room = large if time == INFINITY else large & profile.track(need).at(time)
            chosen |= take(room & ~chosen, min(count, popcount(room)) - popcount(chosen & room))
            time = profile.next_end_after(time)
        return self._parts_of(chosen, shape)

    def note_started(self, jobid):
        """A job was started on the pool itself: its reservation is over."""
        if jobid in self._reserved:
            self.cancel(jobid)
        if self._seen is not None and self._pool.generation == self._seen + 1:
            self._enter_started(jobid)

    def cancel(self, jobid):
        """Drop a job's reservation, if it has one."""
        if self._reserved.pop(jobid, None) is not None and self._profile is not None:
            self._rebook()

    # -- the state ----------------------------------------------------------

    def _now(self, after):
        now = max(self._pool.clock(), self._profile.times[0])
        return now if after is None else max(now, after)

    def _sync(self):
        """Take in what happened to the pool since the last call."""
        pool = self._pool
        if self._profile is not None and self._seen == pool.generation:
            return
        self._seen = pool.generation
        self._profile = Profile(
            pool._inventory, pool._index, pool.ends_in_order(), pool.held, pool.clock()
        )
        self._started = []
        self._rebook()

    def _rebook(self):
        self._hints = {}
        self._full = Timeline()  # ranks of which no core is left
        self._lacks = {}  # Need to [Timeline, number of parts seen]
        self._parts = []  # (mask, start, end) of bookings that leave some cores
        self._on_rank = {}  # rank to [(start, end, key)] of these
        self._times = Times()  # ends of bookings
        self._starts = Times()
        for booking in self._started:
            self._enter(booking)
        for booking in self._reserved.values():
            self._enter(booking)

    def _enter(self, booking):
        """Count a booking in."""
        inventory = self._profile.inventory
        base = inventory.key_base
        start, end = booking.start, booking.end
        self._starts.add(start)
        if end != INFINITY:
            self._times.add(end)
        for mask, key in booking.parts:
            for units, ranks in inventory.kinds.items():
                part = mask & ranks
                if not part:
                    continue
                if key // base >= inventory.keys[units] // base:
                    self._full.add(start, end, part)
                else:
                    self._parts.append((part, start, end))
                    for rank in members(part):
                        self._on_rank.setdefault(rank, []).append((start, end, key))

    def _enter_started(self, jobid):
        """Count in a job that the pool has just started."""
        pool = self._pool
        if self._profile is None or pool.generation != self._seen + 1:
            return
        inventory = pool._inventory
        end = pool.end_of(jobid) or INFINITY
        parts = [(mask, inventory.key(units)) for mask, units in pairs(pool.held(jobid))]
        booking = Booking(self._now(None), end, parts)
        self._started.append(booking)
        self._enter(booking)
        self._seen = pool.generation

    # -- the search ---------------------------------------------------------

    def _search(self, request, shape, start, length, only=False):
        """First time from ``start`` on at which a request fits; infinity if none."""
        profile = self._profile
        while start < INFINITY:
            if self._fits(request, shape, start, start + length):
                return start
            if only:
                break
            # Not next_end(): an earlier search may have swept over ends that lie ahead of this one.
            start = min(self._times.after(start), profile.next_end_after(start))
        return INFINITY

    def _fits(self, request, shape, start, end):
        pool = self._pool
        eligible = pool.eligible(shape.match)
        if not pool.countable(shape):
            return self._simulate(request, start, end) is not None
        room = self._profile.track(Need.of(shape)).at(start) & eligible
        if shape.node_count is not None:
            needed = shape.node_count.min
            if popcount(room) < needed:
                return False
            return popcount(self._free_of_bookings(room, shape, start, end)) >= needed
        needed = shape.slot_count.min
        if needed == 1:
            return room != 0 and self._free_of_bookings(room, shape, start, end) != 0
        if not room:
            return False
        return self._count(shape, start, end) >= needed

    def _free_of_bookings(self, room, shape, start, end):
        """The ranks of a mask on which bookings leave room all the time."""
        room &= ~self._full.union(start, end)
        if room and self._parts:
            room &= ~self._lack(Need.of(shape)).union(start, end)
        return room

    def _lack(self, need):
        """Timeline of the ranks where bookings leave too little for a need."""
        entry = self._lacks.get(need)
        if entry is None:
            entry = self._lacks[need] = [Timeline(), 0]
        timeline, seen = entry
        for mask, start, end in self._parts[seen:]:
            spans = {}
            for rank in members(mask):
                for span in self._lacking(rank, start, end, need):
                    spans.setdefault(span, []).append(rank)
            for (low, high), ranks in spans.items():
                timeline.add(low, high, sum([1 << rank for rank in ranks]))
        entry[1] = len(self._parts)
        return timeline

    def _lacking(self, rank, start, end, need):
        """Spans within a booking in which a rank has too little left for a need."""
        profile = self._profile
        booked = self._on_rank[rank]
        gains = profile.gains(rank, end)
        points = {start}
        for low, high, _ in booked:
            points.update(point for point in (low, high) if start < point < end)
        points.update(time for time, _ in gains if start < time < end)
        points = sorted(points) + [end]
        base = profile.inventory.key_base
        full = profile.inventory.keys[profile.inventory.full[rank]]
        for low, high in zip(points, points[1:]):
            left = self._left(rank, low)
            if (need.whole and left != full) or not need.fits(left, base):
                yield (low, high)

    def _left(self, rank, time):
        """What bookings leave of a rank at a time, as a key."""
        base = self._profile.inventory.key_base
        cores, gpus = divmod(self._profile.key_at(rank, time), base)
        for start, end, used in self._on_rank.get(rank, ()):
            if start <= time < end:
                # What is held for a job may be in use yet.
                cores = max(0, cores - used // base)
                gpus = max(0, gpus - used % base)
        return cores * base + gpus

    def _least(self, rank, start, end):
        """The least counts that a rank has left in a span: ``(cores, gpus)``."""
        points = [start]
        for low, _, _ in self._on_rank.get(rank, ()):
            if start < low < end:
                points.append(low)
        base = self._profile.inventory.key_base
        left = [divmod(self._left(rank, point), base) for point in points]
        return min(cores for cores, _ in left), min(gpus for _, gpus in left)

    def _room(self, shape, start, end):
        """Ranks with room for one node's or slot's need: ``(free of partial bookings
        by key, mask of the others)``."""
        need = Need.of(shape)
        room = self._profile.track(need).at(start) & self._pool.eligible(shape.match)
        room = self._free_of_bookings(room, shape, start, end)
        touched = 0
        for mask, low, high in self._parts:
            if low < end and high > start:
                touched |= mask
        return room & ~touched, room & touched

    def _count(self, shape, start, end):
        """How many nodes (slots where the shape has no node) fit in a span."""
        clear, touched = self._room(shape, start, end)
        if shape.node_count is not None:
            return popcount(clear) + popcount(touched)
        base = self._profile.inventory.key_base
        count = 0
        if clear:
            for key, mask in self._profile.groups_at(start).items():
                ranks = popcount(mask & clear)
                if ranks:
                    count += ranks * slots_on(key // base, key % base, shape)
        for rank in members(touched):
            count += slots_on(*self._least(rank, start, end), shape)
        return count

    def _choose(self, request, shape, start, end):
        """Parts of a booking for a request, or None if it does not fit.

        Ranks that are busy now are taken first and, of the rest, the highest:
        they are the last that jobs which start earlier would want.
        """
        pool = self._pool
        inventory = self._profile.inventory
        if not pool.countable(shape):
            selection = self._simulate(request, start, end)
            if selection is None:
                return None
            ranks = selected_ranks(selection)
            return [
                (ranks & mask, inventory.keys[units]) for units, mask in inventory.kinds.items()
            ]
        if not self._fits(request, shape, start, end):
            return None
        clear, touched = self._room(shape, start, end)
        room = clear | touched
        now = self._profile.track(Need.of(shape)).at(self._now(None))
        if shape.node_count is None and shape.slot_count.min > 1:
            return self._choose_slots(shape, start, end, room & ~now, room & now)
        needed = 1 if shape.node_count is None else shape.node_count.min
        chosen = self._highest(room & ~now, needed)
        missing = needed - popcount(chosen)
        if missing:
            chosen |= self._highest(room & now, missing)
        return self._parts_of(chosen, shape)

    def _parts_of(self, ranks, shape):
        """Parts of a booking of one node's or slot's need on each rank of a mask."""
        inventory = self._profile.inventory
        if not shape.exclusive:
            need = Need.of(shape)
            return [(ranks, need.cores * inventory.key_base + need.gpus)]
        return [
            (ranks & mask, inventory.keys[units])
            for units, mask in inventory.kinds.items()
            if ranks & mask
        ]

    @staticmethod
    def _highest(mask, count):
        excess = popcount(mask) - count
        return mask ^ take(mask, excess) if excess > 0 else mask

    def _choose_slots(self, shape, start, end, *preferred):
        base = self._profile.inventory.key_base
        left = shape.slot_count.min
        one = shape.slot_size * base + shape.gpu_per_slot
        parts = {}
        for mask in preferred:
            for rank in reversed(members(mask)):
                slots = min(left, slots_on(*self._least(rank, start, end), shape))
                parts[slots * one] = parts.get(slots * one, 0) | 1 << rank
                left -= slots
                if not left:
                    return [(ranks, key) for key, ranks in parts.items()]
        return None

    # -- starting now -------------------------------------------------------

    def _alloc(self, jobid, request):
        """Allocate from the ranks, and of these the counts, that bookings leave."""
        pool = self._pool
        shape = request.shape
        now = self._now(None)
        length = request.duration if request.duration > 0 else INFINITY
        if not pool.countable(shape):
            placed = self._simulate_now(request, now, now + length)
        else:
            clear, touched = self._room(shape, now, now + length)
            if touched and not _exact(shape):
                index = self._reduced(touched, now, now + length)
            else:
                index = pool._index
            placed = pool.place(index, shape, (clear | touched))
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
            cores, gpus = self._least(rank, start, end)
            free = index.free(rank)
            free_cores = free & inventory.core_mask
            free_gpus = free >> inventory.shift
            keep = take(free_cores, min(cores, popcount(free_cores)))
            keep |= take(free_gpus, min(gpus, popcount(free_gpus))) << inventory.shift
            if keep != free:
                index.take((rank, free ^ keep))
        return index

    # -- pools whose placement is not a matter of counts --------------------

    def _unbooked(self, start=-INFINITY, end=INFINITY):
        """Mask (of any ranks) without those that have a booking in a span."""
        mask = ~self._full.union(start, end)
        for part, low, high in self._parts:
            if low < end and high > start:
                mask &= ~part
        return mask

    def _simulate(self, request, start, end):
        """Selection that the pool's placement makes at a time to come, or None."""
        pool = self._pool
        eligible = pool.eligible(request.shape.match) & self._unbooked(start, end)
        placed = pool.place_request(request, self._profile.index_at(start), eligible)
        return None if placed is None else placed[0]

    def _simulate_now(self, request, start, end):
        pool = self._pool
        eligible = pool.eligible(request.shape.match) & self._unbooked(start, end)
        return pool.place_request(request, pool._index, eligible)


def _exact(shape):
    """True if room for one node's or slot's need is all that matters about a rank."""
    if shape.node_count is None:
        return shape.slot_count.max == 1
    return shape.slot_count.fixed
