"""Planning on a pool: when a request can start, beside what is promised already.

A ``Plan`` is what running jobs will give back (``profile.py``) and the bookings
made in it (``bookings.py``): reservations, and jobs started through it.
"""

from flux.resource.errors import InsufficientResources
from flux.resource.plan.bookings import Booking, Bookings
from flux.resource.plan.bounds import Bounds
from flux.resource.plan.choice import Choice
from flux.resource.plan.profile import Need, Profile
from flux.resource.plan.search import Search, length_of
from flux.resource.plan.timeline import INFINITY
from flux.resource.pool.inventory import pairs
from flux.resource.pool.masks import members, popcount, take


class Plan(Search, Choice):
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
        return [jobid for jobid, booking in self._reserved.items() if self._lost(booking)]

    def _lost(self, booking):
        """True if the ranks of a booking will not have what it needs when it starts."""
        pool, profile, bookings = self._pool, self._profile, self._bookings
        start = booking.start
        if booking.held:
            up = pool.eligible(None)
            return any(mask & ~up for mask, _ in booking.parts)
        if booking.request is not None:
            eligible = pool.eligible(booking.request.shape.match)
            ranks = 0
            for mask, _ in booking.parts:
                ranks |= mask & eligible
            return pool.place_request(booking.request, profile.index_at(start), ranks) is None
        up = pool.eligible(None)
        base = profile.inventory.key_base
        for mask, key in booking.parts:
            room = profile.track(Need(key // base, key % base, False)).at(start) & up
            if mask & ~room or any(
                bookings.overdrawn(rank, start)
                for rank in members(mask & bookings.touched(start, booking.end))
            ):
                return True
        return False

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
            raise InsufficientResources(f"no room for the reservation of job {jobid}")
        counted = self._pool.countable(request.shape)
        self._restore(jobid, Booking(start, end, parts, None if counted else request))

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
        self._restore(jobid, Booking(self._now(None), INFINITY, parts, held=True))

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
            pool.inventory, pool.index, pool.jobs_by_end(), pool.held, pool.clock()
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
        inventory = pool.inventory
        parts = [(mask, inventory.key(units)) for mask, units in pairs(pool.held(jobid))]
        booking = Booking(self._now(None), pool.end_of(jobid) or INFINITY, parts)
        self._started.append(booking)
        self._enter(booking)
        self._seen = pool.generation

    # -- starting now -------------------------------------------------------

    def _alloc(self, jobid, request):
        """Allocate from the ranks, and of these the counts, that bookings leave."""
        pool = self._pool
        shape = request.shape
        now = self._now(None)
        end = now + length_of(request)
        if not pool.countable(shape):
            eligible = pool.eligible(shape.match) & ~self._bookings.booked(now, end)
            placed = pool.place_request(request, pool.index, eligible)
        else:
            room = self._room(shape, now, end)
            index = pool.index
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
        index = self._pool.index.copy()
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


def _exact(shape):
    """True if room for one node's or slot's need is all that matters about a rank."""
    if shape.node_count is None:
        return shape.slot_count.max == 1
    return shape.slot_count.fixed
