"""Planning on a pool: when a request can start, beside what is promised already.

Theory
    A plan is what running jobs give back, and the promises made to jobs that wait.  A *promise* is
    a request and a span of time.  What is decided here is never whether a job keeps off ranks that
    were once chosen, but whether there is a way to keep all promises.

    Where any unit is as good as another (nodes of one kind whose jobs take whole nodes, or single
    cores), counts decide that exactly: see ``counted_profile.py``.  Sets of ranks without a rank in common
    are counted apart.  As soon as one request in play asks for something else, or for ranks of
    which others want only some, all promises are bound to ranks (``rank_profile.py``): a binding proves
    that they can be kept, and is given up for another one whenever that lets a job start
    (``packing.py``).  The plan goes back to counting when it has no promise any more.

    Running jobs are taken to last until their ends, a job that ran past its end to end now.  A job
    that ends earlier leaves room that promises may use: see ``Plan.advance()``.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, NoReturn

from flux.resource.errors import InsufficientResources
from flux.resource.plan.counted_profile import CountedDemand, CountedProfile
from flux.resource.plan.mask_timeline import INFINITY
from flux.resource.plan.promise import Part, Promise, length_of
from flux.resource.plan.rank_profile import RankProfile
from flux.resource.pool.inventory import selected_ranks
from flux.resource.pool.masks import popcount, take
from flux.resource.ResourceCount import ResourceCount

if TYPE_CHECKING:
    from typing_extensions import Self

    from flux.resource.plan.count_timeline import CountTimeline
    from flux.resource.pool.inventory import Inventory, Selection
    from flux.resource.request import ResourceRequest, Shape
    from flux.resource.ResourcePool import ResourcePool
    from flux.resource.ResourcePoolImplementation import ResourcePoolImplementation

#: Shapes of which a plan remembers the CountedDemand. A queue holds a few hundred different ones; the
#: limit keeps a plan that lives for months from growing with every odd request.
MAX_REMEMBERED_SHAPES = 4096

#: Where a request is counted, and how many units it asks for at least.
Counted = tuple[CountedProfile, int]


class Plan:
    """Availability of a pool from now on, with promises; see ``ResourcePool.plan()``.

    All times are seconds since the epoch.  A request counts with its least
    numbers of nodes and slots.  A job that ran past its end is taken to end
    now; a job without an end never does; ranks that are down are not available.
    A plan follows its pool: what changes there is seen at the next call, and
    the promises stay.  As long as jobs are started through the plan, running
    jobs end in time and ranks stay up, every promise can be kept.

    Costs: the first call after a change of the pool looks at the jobs that came and went, or, where
    promises are bound to ranks, at all running jobs.  Where promises are counted, a call is then a
    search over the times at which something starts or ends (``plan/count_timeline.py``: 48 of them a step);
    where they are bound, it costs masks as long as the cluster for each such time that is looked at,
    and on busy pools an attempt to bind promises differently, of milliseconds at most.

    Args:
        pool (ResourcePoolImplementation): with a view
    """

    #: Makes of the implementation that ``alloc()`` got what it answers with.
    wrap: Callable[[ResourcePoolImplementation], Any] = staticmethod(lambda impl: impl)

    def __init__(self, pool: ResourcePoolImplementation) -> None:
        self._pool = pool
        self._promises: dict[int, Promise] = {}
        # By CountedDemand.which, no rank in two of them.
        self._counts: dict[tuple[int, bool], CountedProfile] = {}
        self._ranks: RankProfile | None = None  # where promises are bound; then nothing is counted
        self._units: dict[Shape, CountedDemand | None] = {}  # None: cannot be counted
        self._seen: int | None = None  # generation of the pool that all this is true for
        self._ends: list[tuple[float, int]] = []  # the pool's jobs by end, then
        self._inventory: Inventory | None = None  # the pool's, then
        self._up = 0  # mask of the ranks that were up then
        self._frozen = False  # promises stay on the ranks they are bound to

    def copy(self) -> Self:
        """An independent plan of the same pool with the same promises, for a forecast.

        It makes new promises no earlier by binding others again.  Few steps where promises are
        counted, else O(promises).
        """
        new = object.__new__(type(self))
        state = self.__dict__.copy()
        state["_promises"] = promises = self._promises.copy()
        if self._ranks is not None:
            for jobid, promise in promises.items():
                promises[jobid] = promise.replace()
            state["_ranks"] = RankProfile(self._pool, promises, frozen=True)
        state["_counts"] = {key: counts.copy() for key, counts in self._counts.items()}
        state["_units"] = self._units.copy()
        state["_ends"] = self._ends[:]
        state["_frozen"] = True
        new.__dict__ = state
        return new

    # -- questions ----------------------------------------------------------

    def earliest(self, request: ResourceRequest, after: float | None = None) -> float | None:
        """Earliest time at which a request fits for its whole duration.

        What is found bounds the search for others that want as much: a long queue of like jobs is
        planned without starting each search from now.

        Args:
            after (float): not before this; default: now.

        Returns:
            The time, or None if it does not fit while running jobs last.
        """
        self._sync()
        counted = self._counted(request)
        now = self._now()
        start = now if after is None else max(now, after)
        if counted is not None:
            counts, count = counted
            length = length_of(request)
            found = counts.earliest(count, length, start, from_now=start <= now)
        else:
            found = self._bound.earliest(request, start)
        return None if found == INFINITY else found

    def fits(
        self, request: ResourceRequest, duration: float | None = None, jobid: int | None = None
    ) -> bool:
        """Whether a request could start now and keep all promises but a job's own.

        Two searches of the span where promises are counted; nothing is changed.

        Args:
            duration (float): for so many seconds, 0: without end; None: for the request's own
            jobid (int): the job whose promise does not count, since it would be over
        """
        self._sync()
        counted = self._counted(request)
        now = self._now()
        length = length_of(request) if duration is None else duration or INFINITY
        end = now + length
        own = None if jobid is None else self._promises.get(jobid)
        if counted is not None:
            counts, count = counted
            if counts.free < count:
                return False
            if own is None or own.start >= end:
                return counts.room(now, end) >= count
            if (
                own.units is not None
                and not own.held
                and own.units.which == (counts.ranks, counts.whole)
            ):
                # Up to its own promise without it, and from there with what that keeps.
                if own.start > now and counts.room(now, own.start) < count:
                    return False
                least = counts.room(max(own.start, now), min(end, own.end))
                if least + own.units.count < count:
                    return False
                return end <= own.end or counts.room(own.end, end) >= count
        before = None if jobid is None else self._withdraw(jobid)
        try:
            return self._place(request, counted, now, end) is not None
        finally:
            if jobid is not None:
                self._restore(jobid, before)

    def has_free(self, request: ResourceRequest) -> bool:
        """Whether a request would fit now if nothing were promised. O(1) where promises are counted, else
        as ``ResourcePool.explain()``."""
        self._sync()
        counted = self._counted(request)
        if counted is not None:
            return counted[0].free >= counted[1]
        pool = self._pool
        return pool.place_request(request, pool.index, pool.eligible_ranks(request)) is not None

    def windows(self, requests: Iterable[ResourceRequest], horizon: float) -> list[dict[str, Any]]:
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
        answer = []
        for request in requests:
            counted = self._counted(request)
            now = self._now()
            end = now + length_of(request)
            limit = now + horizon
            if self._pool.expiration:
                limit = min(limit, max(now, self._pool.expiration))
            if counted is not None:
                counts, count = counted
                fits = counts.room(now, end) >= count
                steps = _steps(partial(counts.room, now), counts.next_change, now, limit)
            else:
                ranks = self._bound
                fits = ranks.fits(request, now, end)
                room = partial(ranks.count, request.shape, now)
                steps = _steps(room, ranks.next_change, now, limit)
            answer.append({"request": request, "fits": fits, "steps": steps})
        return answer

    def promises(self) -> dict[int, tuple[float, float]]:
        """Dict of job id to ``(start, end)`` of the promises.  O(promises)."""
        return {jobid: (one.start, one.end) for jobid, one in self._promises.items()}

    def has(self, jobid: int) -> bool:
        """Whether a job has a promise.  O(1)."""
        return jobid in self._promises

    def ranks_of(self, jobid: int) -> int | None:
        """Mask of the ranks that a promise is bound to; None where ranks are not chosen yet.  O(1)."""
        return _mask_of(self._promises[jobid].parts)

    def would_get(self, request: ResourceRequest, start: float) -> int | None:
        """The ranks that a request would be given at a time at which it fits.

        Args:
            start (float): now, or what ``earliest()`` said.

        Returns:
            A mask; None where ranks are chosen only then.
        """
        self._sync()
        counted = self._counted(request)
        now = self._now()
        if start <= now:
            placed = self._place(request, counted, now, now + length_of(request))
            return None if placed is None else selected_ranks(placed[0])
        if counted is not None:
            return None
        return _mask_of(self._bound.bind(request, start, start + length_of(request)))

    def stale(self) -> list[int]:
        """Jobs whose promise cannot be kept any more.

        That is so when ranks went down or left, a running job got more time, or
        the pool was allocated from behind the plan's back.

        O(promises), each with a search as above.

        Returns:
            list of job ids, in the order of their promises.
        """
        self._sync()
        ranks = self._ranks
        if ranks is not None:
            ranks.renew_profile()
            return [jobid for jobid, one in self._promises.items() if ranks.lost(one, 0.0)]
        lines: dict[tuple[int, bool], CountTimeline] = {}
        stale = []
        for jobid, promise in self._promises.items():
            units = promise.units
            assert units is not None
            if promise.held:
                if units.count > self._counts[units.which].total:
                    stale.append(jobid)
                continue
            line = lines.get(units.which)
            if line is None:
                fresh = CountedProfile.of(self._pool, units, self._now())
                assert fresh is not None
                line = lines[units.which] = fresh.line
            if line.least(promise.start, promise.end) < units.count:
                stale.append(jobid)
            else:
                line.add(promise.start, promise.end, -units.count)
        return stale

    # -- changes ------------------------------------------------------------

    def reserve(self, jobid: int, request: ResourceRequest, start: float) -> None:
        """Promise resources to a job from a start time on, for its duration.

        A promise that the job had is replaced.

        Raises:
            InsufficientResources: it does not fit then for its duration; the
                plan is as before.
        """
        self._sync()
        before = self._withdraw(jobid)
        counted = self._counted(request)
        start = max(start, self._now())
        promise = Promise(start, start + length_of(request), request)
        if counted is not None:
            counts, count = counted
            promise.units = self._units_of(request)
            fits = counts.room(start, promise.end) >= count
        else:
            promise.parts = self._bound.bind(request, start, promise.end)
            fits = promise.parts is not None
        if not fits:
            self._restore(jobid, before)
            raise InsufficientResources(f"no room for the promise to job {jobid}")
        self._restore(jobid, promise)

    def advance(self, jobid: int) -> float:
        """Move the promise of a job to the earliest time that keeps all others.

        Returns:
            When it starts now; no later than before.

        Raises:
            KeyError: the job has no promise
            InsufficientResources: the promise cannot be kept: a running job got more time or ended
                late, or ranks were lost. It stays as it was.
        """
        self._sync()  # may put another promise in the place of this one
        promise = self._promises[jobid]
        now = self._now()
        before = promise.start
        if promise.held:
            return before
        if promise.end <= now or not self._keeps(promise, now):
            raise InsufficientResources(f"the promise to job {jobid} cannot be kept")
        if before <= now:
            return before
        if promise.units is not None:
            units = promise.units
            counts = self._counts[units.which]
            # What it keeps itself would be free: a span that reaches its start is long enough.
            start = counts.earliest(units.count, promise.end - before, now, before)
            if start >= before:
                return before
            self._withdraw(jobid)
            end = start + length_of(promise.request)
            self._restore(jobid, promise.replace(start=start, end=end))
            return start
        request = promise.request
        ranks = self._bound
        if ranks.soonest(request, now) >= before:
            return before
        self._withdraw(jobid)
        start = ranks.earliest(request, now)
        if start < before:
            end = start + length_of(request)
            promise = Promise(start, end, request, parts=ranks.bind(request, start, end))
        self._restore(jobid, promise)
        return promise.start

    def _keeps(self, promise: Promise, now: float) -> bool:
        """Whether a promise can be kept, if all that were made can be kept that come before it."""
        start = max(promise.start, now)
        if promise.units is not None:
            return not self._counts[promise.units.which].overdrawn(start, promise.end)
        return not self._bound.lost(promise, now)

    def hold(self, jobid: int, request: ResourceRequest) -> None:
        """Keep resources for a job from now on, without end.

        For a job that has no earliest time because it waits for jobs without an
        end: what it will need is kept from others. Ranks that have room now are
        taken first, then those that have it soonest.

        Raises:
            InsufficientResources: it would not fit if every job ended: it waits
                for ranks that are down. The plan is as before.
        """
        self._sync()
        before = self._withdraw(jobid)
        counted = self._counted(request)
        promise = Promise(self._now(), INFINITY, request, held=True)
        if counted is not None:
            counts, count = counted
            promise.units = self._units_of(request)
            fits = count <= counts.total
        else:
            promise.parts = self._bound.bind_ever(request)
            fits = promise.parts is not None
        if not fits:
            self._restore(jobid, before)
            raise InsufficientResources(lambda: self._pool.why_not(request))
        self._restore(jobid, promise)

    def alloc(self, jobid: int, request: ResourceRequest) -> ResourcePool:
        """Allocate to a job now, if that delays no promise but its own.

        Returns:
            As ``ResourcePool.alloc()``; the job's promise is gone then.

        Raises:
            InsufficientResources: it does not fit now, or only at the expense
                of a promise.
            InfeasibleRequest, ValueError: as ``ResourcePool.alloc()``.
        """
        promises = self._promises
        if not promises or (len(promises) == 1 and jobid in promises):
            answer = self._pool.alloc(jobid, request)
            self._withdraw(jobid)
        else:
            self._sync()
            counted = self._counted(request)
            if counted is None or counted[0].free >= counted[1]:
                before = self._withdraw(jobid)
                try:
                    answer = self._alloc(jobid, request, counted, before)
                except Exception:
                    self._restore(jobid, before)
                    raise
            else:
                self._refuse(request)
        self._enter_started(jobid)
        granted: ResourcePool = self.wrap(answer)
        return granted

    def note_started(self, jobid: int) -> None:
        """A job was started on the pool itself: its promise is over."""
        self._withdraw(jobid)
        self._enter_started(jobid)

    def cancel(self, jobid: int) -> None:
        """Drop a job's promise, if it has one; nothing else moves."""
        self._withdraw(jobid)

    # -- the state ----------------------------------------------------------

    def _now(self) -> float:
        return self._pool.clock()

    def _sync(self) -> None:
        """Take in what happened to the pool since the last call."""
        pool = self._pool
        if self._seen != pool.generation:
            self._seen = pool.generation
            ends = pool.jobs_by_end()
            inventory, up = pool.inventory, pool.eligible(None)
            if inventory is not self._inventory or up != self._up:
                self._inventory, self._up = inventory, up
                self._units.clear()
                self._count_anew()
            elif self._ranks is not None:
                if not self._promises:
                    self._ranks = None
            elif self._counts:
                now = self._now()
                before, after = set(self._ends), set(ends)
                gone, come = before - after, after - before
                if not all(c.follow(pool, gone, come, now) for c in self._counts.values()):
                    self._count_anew()
            self._ends = ends
        if self._ranks is not None:
            self._ranks.sync()

    def _count_anew(self) -> None:
        """Forget what was counted, and count it again; promises that are bound to ranks stay so."""
        self._counts = {}
        if self._ranks is not None and not self._promises:
            self._ranks = None
        if self._ranks is not None:
            return
        for jobid, promise in list(self._promises.items()):
            counted = self._counted(promise.request)
            if counted is None:
                return  # all are bound now
            promise = promise.replace(units=self._units_of(promise.request))
            self._promises[jobid] = promise
            self._enter(jobid, promise)
            counted[0].short = True  # it may no longer fit

    def _units_of(self, request: ResourceRequest) -> CountedDemand | None:
        """Units that a request asks for; None if it cannot be counted."""
        shape = request.shape
        try:
            return self._units[shape]
        except KeyError:
            if len(self._units) >= MAX_REMEMBERED_SHAPES:
                self._units.clear()
            units = self._units[shape] = CountedDemand.of(self._pool, request)
            return units

    def _counted(self, request: ResourceRequest) -> Counted | None:
        """Where a request is counted; None if promises are, from now on, bound to ranks."""
        if self._ranks is not None:
            return None
        units = self._units_of(request)
        if units is not None:
            counts = self._counts.get(units.which)
            if counts is None:
                counts = self._new_counts(units)
            if counts is not None:
                return counts, units.count
        self._bind_all()
        return None

    @property
    def _bound(self) -> RankProfile:
        """The RankProfile that promises are bound to, where ``_counted()`` said so."""
        assert self._ranks is not None
        return self._ranks

    def _new_counts(self, units: CountedDemand) -> CountedProfile | None:
        for which, other in list(self._counts.items()):
            if other.ranks & units.ranks:
                if other.promises or other.held:
                    return None
                del self._counts[which]
        counts = CountedProfile.of(self._pool, units, self._now())
        if counts is not None:
            self._counts[units.which] = counts
        return counts

    def _bind_all(self) -> None:
        """Bind all promises to ranks, in the order of their starts, which always succeeds if they
        can be kept."""
        self._counts = {}
        unbound = sorted(self._promises.items(), key=lambda one: one[1].start)
        self._promises = {
            jobid: promise.replace(units=None, parts=None)
            for jobid, promise in self._promises.items()
        }
        self._ranks = ranks = RankProfile(self._pool, self._promises, self._frozen)
        for jobid, _ in unbound:
            promise = self._promises[jobid]
            promise.parts = self._parts_for(promise)
            ranks.enter(promise)

    def _parts_for(self, promise: Promise) -> list[Part]:
        parts = None
        if not promise.held:
            parts = self._bound.bind(promise.request, promise.start, promise.end)
        # What cannot be kept any more stays a promise, for its job to be told.
        return parts or self._bound.bind_ever(promise.request) or []

    def _enter(self, jobid: int, promise: Promise) -> None:
        """Count a promise in."""
        if promise.units is None:
            self._bound.enter(promise)
            return
        counts = self._counts[promise.units.which]
        if promise.held:
            counts.held[jobid] = counts.to_hold(self._pool, promise.units.count)
        else:
            counts.enter(promise.start, promise.end, promise.units.count)

    def _withdraw(self, jobid: int) -> Promise | None:
        """Take a promise out, and return it; None if there is none."""
        promise = self._promises.pop(jobid, None)
        if promise is None:
            return None
        if promise.units is None:
            self._bound.remove(promise)
        else:
            counts = self._counts[promise.units.which]
            if promise.held:
                counts.held.pop(jobid, None)
            else:
                counts.remove(promise.start, promise.end, promise.units.count, self._now())
        return promise

    def _restore(self, jobid: int, promise: Promise | None) -> None:
        """Count in a promise of a job that has none."""
        if promise is None:
            return
        if self._ranks is not None and promise.units is not None:
            # Meanwhile all others were bound.
            promise = promise.replace(units=None)
            promise.parts = self._parts_for(promise)
        self._promises[jobid] = promise
        self._enter(jobid, promise)

    def _enter_started(self, jobid: int) -> None:
        """Count in a job that the pool has just started."""
        pool = self._pool
        if self._seen is None or pool.generation != self._seen + 1:
            return
        now = self._now()
        end = pool.job_end(jobid)
        if self._ranks is not None:
            self._ranks.started(jobid, now)
        for counts in self._counts.values():
            if not counts.started(pool, jobid, now, end or INFINITY):
                return  # the next call counts anew
        if end:
            insort(self._ends, (end, jobid))
        self._seen = pool.generation

    # -- starting now -------------------------------------------------------

    def _alloc(
        self,
        jobid: int,
        request: ResourceRequest,
        counted: Counted | None,
        promise: Promise | None,
    ) -> ResourcePoolImplementation:
        now = self._now()
        end = now + length_of(request)
        if promise is not None and not promise.held and promise.start <= now < promise.end:
            # It starts late because others ended late. That delays those who were promised what
            # comes after it, too, and must not keep it from starting.
            end = promise.end
            if counted is not None:
                counted[0].short = True
        placed = self._place(request, counted, now, end)
        if placed is None:
            self._refuse(request)
        return self._pool.grant(jobid, request, *placed)

    def _place(
        self, request: ResourceRequest, counted: Counted | None, now: float, end: float
    ) -> tuple[Selection, int] | None:
        """Where a request would be placed now, as ``place_request()`` of the pool; None: nowhere."""
        if counted is None:
            return self._bound.place_now(request, now, end)
        counts, count = counted
        room = counts.room(now, end)
        if room >= count:
            return self._place_counted(request, counts, room)
        return None

    def _place_counted(
        self, request: ResourceRequest, counts: CountedProfile, room: int
    ) -> tuple[Selection, int] | None:
        """Place a request on any of the ranks, if it accepts more units, on ``room`` at most."""
        pool = self._pool
        shape = request.shape
        ranks = counts.ranks
        if counts.whole:
            if not (shape.node_count or shape.slot_count).fixed:
                free = ranks & pool.index.idle
                ranks = take(free, min(room, popcount(free)))
        elif not shape.slot_count.fixed:
            most = shape.slot_count.floor(min(room, counts.free))
            shape = shape.replace(slot_count=ResourceCount.parse(most))
        return pool.place_shape(pool.index, shape, ranks)

    def _refuse(self, request: ResourceRequest) -> NoReturn:
        self._pool.check_feasibility(request)
        raise InsufficientResources(lambda: self._why(request))

    def _why(self, request: ResourceRequest) -> str:
        counts = self._pool.explain(request)
        if counts["available"] < counts["needed"]:
            return str(counts["reason"])
        return "insufficient resources: would delay a job with a promise"


def _steps(
    room: Callable[[float], int], change: Callable[[float], float], now: float, limit: float
) -> list[tuple[int, float]]:
    """``steps`` of ``Plan.windows()``.

    Args:
        room: tells how many are free from now until a time.
        change: tells the next moment after a time at which that may change.
        now, limit (float): where to begin and to end, in seconds since the epoch.
    """
    steps: list[tuple[int, float]] = []
    time = now
    while time < limit:
        time = min(change(time), limit)
        count = room(time)
        if steps and steps[-1][0] == count:
            steps[-1] = (count, time)
        elif count > 0:
            steps.append((count, time))
        else:
            break
    return steps


def _mask_of(parts: list[Part] | None) -> int | None:
    """The ranks of the parts of a promise; None of none."""
    if parts is None:
        return None
    ranks = 0
    for mask, _ in parts:
        ranks |= mask
    return ranks
