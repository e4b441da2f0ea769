# SPDX-License-Identifier: LGPL-3.0-or-later
"""Planning on a pool: when a request can start, beside the promises already made.

Theory
    A plan knows when running jobs free their resources, and the promises made to jobs that wait. A
    *promise* is a request and a span of time. The question is never whether a job avoids the ranks
    once chosen for another one, but whether all promises can be kept. Two strategies answer it.

    *Counting*: where units are interchangeable (nodes of one kind whose jobs take whole nodes, or
    single cores), counts decide it exactly (``counted_profile.py``). Requests that may use the same
    ranks are counted together, others apart.

    *Binding*: as soon as one request asks for something else, or for ranks of which others could
    use only some, all promises are bound to ranks (``availability.py``). A binding proves that they
    can be kept. It is replaced by another where that lets a job start.

    ``strategies.py`` has the switch between the two.

    Running jobs are taken to last until their ends, and one that ran past its end to end now. A job
    that ends earlier leaves room that promises may use: see ``Plan.advance()``.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Callable, NoReturn

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.resource.plan.claims import LAST
from flux.resource.plan.promise import length_of
from flux.resource.plan.strategies import Strategies
from flux.resource.pool.jobid import job_text

if TYPE_CHECKING:
    from typing_extensions import Self

    from flux.resource.plan.claims import ClaimPlan
    from flux.resource.plan.promise import Promise
    from flux.resource.plan.strategy import Strategy
    from flux.resource.plan.tokens import TokenPlan
    from flux.resource.pool.view import PoolWithView
    from flux.resource.request import ResourceRequest

#: More than the relative error of a sum of two floats.
ROUNDING = 1e-15


class Plan:
    """Availability of a pool from now on, with promises; see ``ResourcePool.plan()``.

    All times are seconds since the epoch. A request is planned with its least numbers of nodes and
    slots. A job that ran past its end is taken to end now; a job without an end never ends; ranks
    that are down are not available. A plan follows its pool: changes are seen at the next call, and
    the promises stay. As long as jobs are started through the plan, running jobs end in time and
    ranks stay up, every promise can be kept.

    Costs: the first call after a change of the pool examines the jobs that came and went. Where
    promises are counted, a call is then a search over starts and ends, 48 of them at once
    (``count_timeline.py``). Where they are bound, it examines the ranks in question and the uses of
    each: 10 to 100 nanoseconds for each rank, compiled. Promises that are bound stay at their times
    until their jobs can start at once; a start may then be later than the earliest possible, and no
    promise is broken.

    Args:
        pool (PoolWithView): the pool; it has a view.
    """

    def __init__(self, pool: PoolWithView) -> None:
        self._pool = pool
        self._strategies = Strategies(pool)
        #: tokens that requests may need beside resources; None: there are none
        self.tokens: TokenPlan | None = None
        #: the claims on ranks that some jobs may not share; None: all jobs may share all ranks
        self.claims: ClaimPlan | None = None

    def copy(self) -> Self:
        """An independent plan of the same pool with the same promises, to look ahead with.

        It never binds promises again to make a new one earlier: a forecast is not worth that time.
        O(promises + running jobs); where promises are bound to ranks, also O(ranks): they share the
        data of each rank until one of them changes it.
        """
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__, _strategies=self._strategies.copy())
        if self.tokens is not None:
            new.tokens = self.tokens.copy()
        if self.claims is not None:
            new.claims = self.claims.copy()
        return new

    def on_copy(self, without: Container[int] = ()) -> Plan:
        """A plan of a copy of the pool, to try the removal of running jobs.

        It has the promises of this one, as far as they can be kept. O(ranks + running jobs), and a
        search for each promise.

        Args:
            without: ids of jobs whose promises are left out
        """
        new = Plan(self._pool.copy())
        if self.claims is not None:
            new.claims = self.claims.copy(new.pool)
        new.take_over(self, [jobid for jobid in self._strategies.promises if jobid not in without])
        return new

    @property
    def pool(self) -> PoolWithView:
        """The pool that is planned."""
        return self._pool

    @property
    def is_counted(self) -> bool:
        """Whether promises are counted; else they are bound to ranks. O(1)."""
        return self._strategies.is_counted

    def _strategy_for(self, request: ResourceRequest) -> Strategy:
        """The strategy by which a request can be planned, in step with the pool."""
        return self._strategies.accepting(request, self._is_claimed(request))

    def _is_claimed(self, request: ResourceRequest) -> bool:
        """Whether there are jobs with which that of a request may not share a rank."""
        return self.claims is not None and request.claimant is not None

    # -- questions ----------------------------------------------------------

    def earliest(self, request: ResourceRequest, after: float | None = None) -> float | None:
        """Earliest time at which a request fits for its whole duration.

        Results are remembered, and shorten the search for requests of the same size or larger: a
        long queue of similar jobs is planned without starting each search from now.

        Args:
            after (float): not before this; default: now.

        Returns:
            The time, or None: it does not fit even when every job that has an end has ended.
        """
        now = self._pool.clock()
        start = now if after is None else max(now, after)
        if self.claims is not None and request.claimant is not None:
            promises = self._strategies.in_step().promises
            found = self.claims.earliest(request, start, now, promises, self._earliest)
        else:
            found = self._earliest(request, start, now)
        return None if found == inf else found

    def _earliest(
        self, request: ResourceRequest, start: float, now: float, until: float = inf
    ) -> float:
        """As ``earliest()``, without claims; infinity: it does not fit, or perhaps not before
        ``until``."""
        strategy = self._strategy_for(request)
        if self.tokens is None or not request.tokens:
            return strategy.earliest(request, start, now, until)
        # Resources and tokens at the same time: each is searched from the time found for the other.
        length, found = length_of(request), start
        while True:
            there = self.tokens.earliest(request.tokens, found, length, now)
            if there == inf or there >= until:
                return inf
            found = strategy.earliest(request, there, now, until)
            if found in (there, inf):
                return found

    def fits(
        self, request: ResourceRequest, duration: float | None = None, jobid: int | None = None
    ) -> bool:
        """Whether a request could start now and keep all promises but a job's own.

        Where promises are counted that costs a search of the span, and changes nothing.

        Args:
            duration (float): seconds, 0: without end; None: the request's own
            jobid (int): the job whose promise does not count, since it would be over
        """
        strategy = self._strategy_for(request)
        now = self._pool.clock()
        end = now + (length_of(request) if duration is None else duration or inf)
        limited: ResourceRequest | None = request
        if self.claims is not None and request.claimant is not None:
            limited = self.claims.beside(request, self.closed_now(jobid, request))
        return limited is not None and strategy.fits_without(jobid, limited, now, end)

    def closed_now(self, jobid: int | None, request: ResourceRequest) -> int:
        """Mask of the ranks on which a job may not start now, since others have claimed them or are
        promised them while it would run; its own promise does not count."""
        claims = self.claims
        if claims is None or request.claimant is None:
            return 0
        promises = self._strategies.in_step().promises
        now = self._pool.clock()
        end = now + length_of(request)
        own = None if jobid is None else promises.get(jobid)
        if own is not None and not own.is_open and own.start <= now < own.end:
            end = own.end  # it is late, and so will be the jobs promised the time after it
        return claims.closed_now(request.claimant, end, now, promises, jobid)

    def has_free(self, request: ResourceRequest, for_anyone: bool = False) -> bool:
        """Whether a request would fit now if nothing were promised. O(1) where promises are
        counted, else the cost of a placement.

        Args:
            for_anyone (bool): also on ranks with claims that exclude this job
        """
        strategy, claims = self._strategy_for(request), self.claims
        limited: ResourceRequest | None = request
        if claims is not None and request.claimant is not None and not for_anyone:
            now = self._pool.clock()
            limited = claims.beside(request, claims.closed_now(request.claimant, now, now, {}))
        return limited is not None and strategy.is_free(limited)

    def too_long(self, request: ResourceRequest) -> float:
        """A duration, in seconds, that is too long for a request to start now and keep all
        promises: 0 if it does not fit for any time, infinity if none is known.

        Where promises are counted that costs a search up to that time; else a check of the free
        resources, and of the total that promises leave on all ranks, so that a shorter time may be
        too long, too.
        """
        strategy = self._strategy_for(request)
        now = self._pool.clock()
        end = strategy.room_ends(request, now)
        # The sum of now and a duration is rounded: a duration that ends with the room may fit.
        return 0.0 if end <= now else (end - now) * (1 + ROUNDING) + now * ROUNDING

    def windows(self, requests: Iterable[ResourceRequest], horizon: float) -> list[dict[str, Any]]:
        """The free windows: resources free for jobs that start now, and for how long.

        Args:
            requests: from ``parse_resource_request()`` of the pool.
            horizon (float): seconds to look ahead.

        Returns:
            A dict for each request: ``request``; ``fits``: whether it fits now for its whole
            duration; ``steps``: list of ``(count, until)``: the number of nodes (slots, if it asks
            for no nodes) of its kind that are free together from now until that time, fewer for
            longer. The last ``until`` is now + horizon, or the end of the pool if that is earlier.
        """
        answer = []
        for request in requests:
            strategy = self._strategy_for(request)
            now = self._pool.clock()
            limit = now + horizon
            if self._pool.expiration:
                limit = min(limit, max(now, self._pool.expiration))
            fits = strategy.fits(request, now, now + length_of(request))
            count = partial(strategy.count, request, now)
            steps = _steps(count, partial(strategy.next_change, request), now, limit)
            answer.append({"request": request, "fits": fits, "steps": steps})
        return answer

    def promises(self) -> dict[int, tuple[float, float]]:
        """Dict of job id to ``(start, end)`` of the promises. O(promises)."""
        return {jobid: (one.start, one.end) for jobid, one in self._strategies.promises.items()}

    def has(self, jobid: int) -> bool:
        """Whether a job has a promise. O(1)."""
        return jobid in self._strategies.promises

    def start_of(self, jobid: int) -> float:
        """When a promise begins, in seconds since the epoch; that of an open one is past. O(1).

        Raises:
            KeyError: the job has no promise.
        """
        return self._strategies.promises[jobid].start

    def due(self, now: float) -> tuple[list[int], float]:
        """Return the ids of the jobs whose promised starts have come by a time, open promises aside, in
        any order; and the first start after it, seconds since the epoch, or infinity. O(promises)."""
        return self._strategies.current.due(now)

    def ranks_of(self, jobid: int) -> int | None:
        """Mask of the ranks that a promise is bound to; None where ranks are not chosen yet. O(1).

        Raises:
            KeyError: the job has no promise.
        """
        return self._strategies.promises[jobid].ranks

    def stale(self) -> list[int]:
        """Jobs whose promise cannot be kept any more.

        The reason is that ranks went down or left, that a running job got more time, or that the
        pool was allocated from without the plan; or that its ranks have a job with which its own
        may not share them.

        O(promises), and for each the search that ``earliest()`` makes.

        Returns:
            list of job ids, in the order of their promises.
        """
        strategy, now, claims = self._strategies.in_step(), self._pool.clock(), self.claims
        lost = strategy.stale(now)
        if claims is None or not claims.promised:
            return lost
        lost += claims.broken(strategy.promises, now)
        return [jobid for jobid in strategy.promises if jobid in lost] if lost else lost

    def breaks_a_promise(self) -> bool:
        """Whether some job's promise cannot be kept any more. Promises under ids below 0, which are
        no job's, do not count. Costs as much as ``stale()``."""
        return any(jobid >= 0 for jobid in self.stale())

    def would_break(self, change: Callable[[], None], undo: Callable[[], None]) -> bool:
        """Whether a promise that can be kept now could not be kept after a change of the pool, which
        is made and taken back. Costs as much as ``stale()``, twice.

        It is tried on the pool itself: a copy of the plan may have to leave out promises, or bind
        them to other ranks.

        Args:
            change: makes the change
            undo: takes it back
        """
        take_back = self._strategies.in_step().trial()
        before = self.stale()
        change()
        broken = not set(self.stale()).issubset(before)
        undo()
        take_back()
        return broken

    # -- changes ------------------------------------------------------------

    def reserve(self, jobid: int, request: ResourceRequest, start: float) -> None:
        """Promise resources to a job from a start time on, for its duration.

        A promise that the job had is replaced.

        Raises:
            InsufficientResources: it does not fit then for its duration; the plan is as before.
        """
        now = self._pool.clock()
        start = max(start, now)
        tokens = self.tokens
        if tokens is not None and request.tokens:
            if not tokens.fits(request.tokens, start, start + length_of(request), now, jobid):
                raise InsufficientResources(lambda: _no_promise(jobid))
        before = self._strategies.in_step().withdraw(jobid)
        strategy = self._strategy_for(request)
        end = start + length_of(request)
        if self.claims is not None and request.claimant is not None:
            kept = self.claims.reserve(strategy, jobid, request, start, end)
        else:
            kept = strategy.reserve(jobid, request, start, end)
        if not kept:
            self._strategies.put_back(jobid, before)
            raise InsufficientResources(lambda: _no_promise(jobid))
        if tokens is not None:
            tokens.promised.pop(jobid, None)
            if request.tokens:
                tokens.promised[jobid] = (request.tokens, start, start + length_of(request))

    def advance(self, jobid: int) -> float:
        """Move the promise of a job to the earliest time that keeps all others.

        Returns:
            When it starts now; no later than before.

        Raises:
            KeyError: the job has no promise.
            InsufficientResources: the promise cannot be kept, since a running job got more time or
                ended late, or ranks were lost. It stays as it was.
        """
        strategy = self._strategies.in_step()
        promise = strategy.promises[jobid]
        if promise.is_open:
            return promise.start
        now = self._pool.clock()
        if promise.end <= now or not strategy.keeps(jobid, now):
            raise InsufficientResources(lambda: _broken_promise(jobid))
        request, tokens, claims = promise.request, self.tokens, self.claims
        needs_more = False
        if tokens is not None and jobid in tokens.promised:
            needs_more = True
            wanted, start, end = tokens.promised[jobid]
            if not tokens.fits(wanted, max(start, now), end, now, jobid):
                raise InsufficientResources(lambda: _broken_promise(jobid))
        if claims is not None and jobid in claims.promised:
            needs_more = True
            request = claims.promised[jobid]  # the promise itself is limited to open ranks
            assert request.claimant is not None, "the others are not kept there"
            closed = claims.closed(
                request.claimant, max(promise.start, now), promise.end, strategy.promises, jobid
            )
            if (promise.ranks or 0) & closed:
                raise InsufficientResources(lambda: _broken_promise(jobid))
        if promise.start <= now:
            return promise.start
        if needs_more:
            return self._advance_anew(jobid, promise, request)
        return strategy.advance(jobid, now)

    def advance_in_turn(self, jobids: Iterable[int]) -> tuple[int, list[int], float]:
        """Move the promises of several jobs, one after another, as ``advance()`` does, as long as
        they can surely be kept.

        Where promises are counted most of a long row are known to stay where they are, and cost a
        lookup. Where they are bound to ranks a row is of those that stay by a single check. Where
        some need more than resources, none is examined here.

        Args:
            jobids: of jobs with promises

        Returns:
            The number of jobs, from the first on, that were examined; the places in the row of
            those that moved; and the first start of these, seconds since the epoch, or infinity.
            The row ends with a promise that is for now, and before one that is open, may be broken,
            was for now already or takes a search.
        """
        strategy = self._strategies.in_step()
        tokens, claims = self.tokens, self.claims
        if (tokens is not None and tokens.promised) or (claims is not None and claims.promised):
            return 0, [], inf
        return strategy.advance_in_turn(jobids, self._pool.clock())

    @property
    def moves_per_turn(self) -> int:
        """The maximum number of jobs for `advance_in_turn()` in one reactor turn: more could take
        too long. O(1)."""
        return self._strategies.current.moves_per_turn

    def _advance_anew(self, jobid: int, promise: Promise, request: ResourceRequest) -> float:
        """As ``advance()``, for a promise of more than resources, which is not due yet."""
        if not self.is_counted:
            now, tokens = self._pool.clock(), self.tokens
            has_tokens = (
                tokens is None
                or (not request.tokens)
                or tokens.fits(request.tokens, now, now + length_of(request), now, jobid)
            )
            if not has_tokens or not self.fits(request, jobid=jobid):
                return promise.start  # promises on ranks move only to now
        self.cancel(jobid)
        when = self.earliest(request)
        start = promise.start if when is None else min(when, promise.start)
        self.reserve(jobid, request, start)
        return start

    def share_rules(self, other: Plan) -> None:
        """Plan the tokens and claims of another plan of the pool, without its promises."""
        if other.tokens is not None:
            self.tokens = other.tokens.copy()
            self.tokens.promised.clear()
        if other.claims is not None:
            self.claims = other.claims.copy()
            self.claims.promised.clear()

    def hold(self, jobid: int, request: ResourceRequest) -> None:
        """Make an open promise: keep resources for a job from now on, without end.

        This is for a job that has no earliest time since it waits for jobs without an end: its
        resources are kept from others. Ranks that have room now are taken first, then those that
        have it soonest.

        Raises:
            InsufficientResources: it would not fit even if every job ended, since it waits for
                ranks that are down. The plan is as before.
        """
        before = self._strategies.in_step().withdraw(jobid)
        strategy, now, claims = self._strategy_for(request), self._pool.clock(), self.claims
        kept = False
        if claims is not None and request.claimant is not None:
            # Prefer ranks without jobs that never end.
            closed = claims.closed(request.claimant, LAST, inf, strategy.promises, jobid)
            limited = claims.beside(request, closed)
            kept = limited is not None and strategy.hold(jobid, limited, now)
        if not kept and not strategy.hold(jobid, request, now):
            self._strategies.put_back(jobid, before)
            raise InsufficientResources(lambda: self._pool.why_not(request))
        self._forget_more(jobid)
        if claims is not None and request.claimant is not None:
            claims.promised[jobid] = request
        if self.tokens is not None and request.tokens:
            self.tokens.promised[jobid] = (request.tokens, now, inf)

    def alloc(self, jobid: int, request: ResourceRequest) -> Any:
        """Allocate to a job now, if all promises to others can still be kept.

        Returns:
            As ``ResourcePool.alloc()``. The job's own promise is gone then.

        Raises:
            InsufficientResources: it does not fit now, or only if another job's promise is broken.
            InfeasibleRequest, ValueError: as ``ResourcePool.alloc()``.
        """
        if self.claims is None or request.claimant is None:
            return self._alloc(jobid, request)
        closed = self.closed_now(jobid, request)
        # A check whether it fits there at all costs less than a request for these ranks.
        if self._pool.fits_on(request, ~closed):
            if self._keeps_nothing_from(jobid):
                answer = self._pool.alloc_on(jobid, request, ~closed)
                self.note_started(jobid)
                return answer
            limited = self.claims.beside(request, closed)
            assert limited is not None, "it fits there"
            try:
                return self._alloc(jobid, limited)
            except InfeasibleRequest:
                pass  # not on the ranks where it may be now
        self._refuse(request)

    def _alloc(self, jobid: int, request: ResourceRequest) -> Any:
        """As ``alloc()``, without claims."""
        if self._keeps_nothing_from(jobid):
            answer = self._pool.alloc(jobid, request)
            self.note_started(jobid)
            return answer
        strategy = self._strategy_for(request)
        if not strategy.may_start(request):
            self._refuse(request)
        before = strategy.withdraw(jobid)
        try:
            now = self._pool.clock()
            end = now + length_of(request)
            overdue = before is not None and not before.is_open and before.start <= now < before.end
            if overdue:
                # It starts late because others ended late, and will end late. That delays the jobs
                # promised the time after it as well, and must not keep it from starting.
                assert before is not None
                end = before.end
            placed = strategy.place(request, now, end, overdue)
            if placed is None:
                self._refuse(request)
            answer = self._pool.grant(jobid, request, *placed)
        except Exception:
            self._strategies.put_back(jobid, before)
            raise
        strategy.started(jobid)
        self._forget_more(jobid)
        return answer

    def alloc_within(
        self, jobid: int, request: ResourceRequest, taker: int, beside: Iterable[int]
    ) -> Any:
        """Allocate to a job now, up to the start of another's promise (``taker``), if its units with those of some
        running jobs are a part of those of the promise and all promises can still be kept. The caller tells the
        pool that it ends then.

        A promise that is bound to ranks stays on these (`pin`).

        Returns:
            As ``ResourcePool.alloc()``.

        Raises:
            InsufficientResources: it does not fit so.
            KeyError: ``taker`` has no promise.
        """
        if self._is_claimed(request):
            self._refuse(request)
        strategy = self._strategy_for(request)
        promise = strategy.promises[taker]
        limited, now = request, self._pool.clock()
        if promise.ranks is not None:
            matching = self._pool.match_mask(request) & promise.ranks
            if not matching or (self.claims is not None and taker in self.claims.promised):
                self._refuse(request)
            limited = request.on_ranks(matching)
        before = strategy.withdraw(jobid)
        placed = None
        if strategy.may_start(limited):
            placed = strategy.place(limited, now, promise.start)
        held = [self._pool.held(one) for one in beside]
        if placed is None or not strategy.contains(taker, [placed[0], *held]):
            self._strategies.put_back(jobid, before)
            self._refuse(request)
        self._forget_more(jobid)
        return self._pool.grant(jobid, request, *placed)

    def contains(self, jobid: int, running: int) -> bool:
        """Whether the units of a running job are a part of those of another's promise: of one kind that is
        counted, or on the ranks that it is bound to.  O(ranks of the job).

        Raises:
            KeyError: the job has no promise.
        """
        return self._strategies.in_step().contains(jobid, [self._pool.held(running)])

    def pin(self, jobid: int, stays: bool = True) -> None:
        """Keep the promise of a job, if it has one, on the ranks that it is bound to, or (``stays``
        false) no longer."""
        strategy = self._strategies.in_step()
        if jobid in strategy.promises:
            strategy.pin(jobid, stays)

    def _keeps_nothing_from(self, jobid: int) -> bool:
        """Whether no other job has a promise."""
        promises = self._strategies.promises
        return not promises or (len(promises) == 1 and jobid in promises)

    def note_started(self, jobid: int) -> None:
        """Tell the plan that a job was started on the pool itself: its promise is over."""
        self._strategies.current.withdraw(jobid)
        self._strategies.current.started(jobid)
        self._forget_more(jobid)

    def cancel(self, jobid: int) -> None:
        """Drop a job's promise, if it has one; nothing else moves."""
        self._strategies.current.withdraw(jobid)
        self._forget_more(jobid)

    def _forget_more(self, jobid: int) -> None:
        """Remove the promises of a job beyond resources: tokens and claims."""
        if self.tokens is not None:
            self.tokens.promised.pop(jobid, None)
        if self.claims is not None:
            self.claims.promised.pop(jobid, None)

    def take_over(self, other: Plan, jobids: Iterable[int]) -> None:
        """Make the promises to jobs that they have in another plan of the pool, as far as they fit
        in this one."""
        self._strategies.in_step()
        for jobid in jobids:
            one = other._strategies.promises[jobid]
            self.cancel(jobid)
            strategy = self._strategy_for(one.request)
            if one.is_open:
                strategy.hold(jobid, one.request, self._pool.clock())
            else:
                strategy.reserve(jobid, one.request, one.start, one.end)
            if self.claims is not None and other.claims is not None:
                if jobid in other.claims.promised and self.has(jobid):
                    self.claims.promised[jobid] = other.claims.promised[jobid]

    def _refuse(self, request: ResourceRequest) -> NoReturn:
        self._pool.check_feasibility(request)
        raise InsufficientResources(
            lambda: (
                self._pool.explain(request)["reason"]
                or "insufficient resources: would delay a job that was promised a start"
            )
        )


def _no_promise(jobid: int) -> str:
    return f"insufficient resources: job {job_text(jobid)} does not fit from that time on"


def _broken_promise(jobid: int) -> str:
    return f"insufficient resources: the promise to job {job_text(jobid)} cannot be kept"


def _steps(
    room: Callable[[float], int], change: Callable[[float], float], now: float, limit: float
) -> list[tuple[int, float]]:
    """``steps`` of ``Plan.windows()``.

    Args:
        room: gives the number that is free from now until a time.
        change: gives the next moment after a time at which that may change.
        now, limit (float): begin and end, in seconds since the epoch.
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
