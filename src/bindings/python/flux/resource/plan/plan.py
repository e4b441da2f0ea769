# SPDX-License-Identifier: LGPL-3.0-or-later
"""Planning on a pool: the start of a request beside the promises already made.

Theory
    A plan knows the ends of running jobs, and the promises made to waiting jobs. A *promise* is a
    request and a span of time. It does not matter whether a job avoids the ranks once chosen for
    another, only whether all promises can be kept. Two strategies decide this.

    *Counting*: where units are interchangeable (nodes of one kind whose jobs take whole nodes, or
    single cores), counts decide exactly (``counted_strategy.py``). Requests that may use the same
    ranks are counted together.

    *Binding*: as soon as a request asks for something else, or for ranks that others may use only
    in part, all promises are bound to ranks (``availability.py``). A binding proves that they can
    be kept, and is replaced by another if that lets a job start.

    A plan counts at first, binds when it must, and counts again after a change of the pool once no
    promise is left, unless ranks are reserved or claimed by jobs.

    Running jobs are assumed to last until their ends, and those past their ends to end now. A job
    that ends earlier leaves room that promises may use: see ``Plan.advance()``.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, Callable, NoReturn, Optional, Tuple, Union

from flux.resource.errors import InsufficientResources
from flux.resource.plan.bound_strategy import BoundStrategy
from flux.resource.plan.claims import Claims
from flux.resource.plan.counted_strategy import CountedStrategy
from flux.resource.plan.strategy import Promise
from flux.resource.plan.tokens import PromisedTokens, TokenPlan
from flux.resource.pool.jobid import job_text
from flux.resource.pool.placement import RoomCounts
from flux.resource.pool.view import PoolWithView
from flux.resource.request import ResourceRequest, length_of

Strategy = Union[CountedStrategy, BoundStrategy]

#: A withdrawn promise of a job, and the tokens promised to it, with their start and end; None: none.
Suspended = Tuple[Optional[Promise], Optional[PromisedTokens]]


class StrategyInForce:
    """The strategies of a plan; the one in force has the promises.

    Attributes:
        pool, claims, tokens, stays_bound: as of `Plan`
    """

    stays_bound = False

    _frozen = False  # whether promises stay on the ranks that they are bound to
    _bound: BoundStrategy | None = None
    _original: BoundStrategy | None = None  # a copy's bindings, until it makes its own

    def __init__(self, pool: PoolWithView) -> None:
        #: the planned pool
        self.pool = pool
        self.claims: Claims | None = None
        self.tokens: TokenPlan | None = None
        self._state = pool.pool_state
        # Each strategy keeps its view of the pool.
        self._counted = CountedStrategy(pool, RoomCounts(pool))
        self._current: Strategy = self._counted  # the strategy in force, as of the last call

    @property
    def is_counted(self) -> bool:
        """Whether promises are counted; else they are bound to ranks. O(1)."""
        return self._current is self._counted

    def _synced(self) -> Strategy:
        """Return the strategy in force, up to date with the pool."""
        strategy = self._current
        if strategy.seen == self._state.generation:
            return strategy
        if not strategy.promises and not self.stays_bound and self.claims is None:
            strategy = self._current = self._counted
        return strategy if strategy.sync() else self._bind_all()

    def _strategy_for(self, request: ResourceRequest) -> Strategy:
        """Return the strategy in force once it has the request, up to date with the pool: counting,
        as long as this request can be counted, too."""
        strategy = self._current
        if strategy.seen != self._state.generation:
            strategy = self._synced()
        counted = self._counted
        if strategy is counted and (
            request.claimant is not None
            or not (request.shape in counted.found or counted.accepts(request))
        ):
            return self._bind_all()
        return strategy

    def _bind_all(self) -> Strategy:
        """Bind all promises to ranks, since counting no longer suffices."""
        bound = self._bound
        if bound is None:
            original = self._original
            bound = (
                original.copy()
                if original
                else BoundStrategy(self.pool, self._current.counts, self.claims)
            )
            bound.frozen = self._frozen
            bound.clear()
            self._bound, self._original = bound, None
        bound.adopt(self._counted.give_up())
        self._current = bound
        return bound

    def _put_back(self, jobid: int, promise: Promise | None) -> None:
        """Restore the withdrawn promise of a job, if any."""
        if promise is not None:
            self._current.restore(jobid, promise)

    def _drop_tokens(self, jobid: int) -> PromisedTokens | None:
        """Drop a job's promise of tokens, if any, and return it."""
        return None if self.tokens is None else self.tokens.leave(jobid)

    def suspend(self, jobids: Iterable[int]) -> dict[int, Suspended]:
        """Withdraw the promises of some jobs, if any; return an argument of `resume`."""
        strategy = self._synced()
        return {jobid: (strategy.withdraw(jobid), self._drop_tokens(jobid)) for jobid in jobids}

    def resume(self, suspended: Mapping[int, Suspended]) -> None:
        """Restore suspended promises, on their ranks if the pool is as before."""
        for jobid, (promise, tokens) in suspended.items():
            if tokens is not None and self.tokens is not None:
                self.tokens.enter(jobid, *tokens)
            if promise is not None and self.is_counted:
                self._strategy_for(promise.request)  # its units may have to be counted again
            self._put_back(jobid, promise)

    def withdraw(self, jobids: Iterable[int]) -> Callable[[], None]:
        """Withdraw the promises of some jobs; return a function that restores them, and takes back
        what others have moved since: to be called when the pool is as before. O(ranks) if promises
        are bound."""
        strategy = self._synced()
        take_back, suspended = strategy.trial(), self.suspend(jobids)

        def restore() -> None:
            if strategy is self._bound:
                self._current = strategy  # without promises, counting sufficed
            self.resume(suspended)
            take_back()

        return restore


class Plan(StrategyInForce):
    """Availability of a pool from now on, with promises; see ``ResourcePool.plan()``.

    All times are seconds since the epoch. A request is planned with its least numbers of nodes and
    slots. A job that ran past its end is assumed to end now; a job without an end never ends; ranks
    that are down are not available. A plan notices changes of its pool at the next call, and keeps
    its promises. As long as jobs are started through the plan, running jobs end in time and ranks
    stay up, every promise can be kept.

    Costs: the first call after a change of the pool examines the jobs that came and went. If
    promises are counted, a call is then a search over starts and ends, 48 at once
    (``timeline.py``). If they are bound, it examines the ranks in question and the uses of
    each: 10 to 100 nanoseconds per rank, compiled. Bound promises keep their times until their jobs
    can start at once; a start may then be later than the earliest possible, but no promise is
    broken.

    Args:
        pool (PoolWithView): the pool, with a view.

    Attributes:
        claims (Claims): claims of running jobs on ranks, or None: all jobs may share all ranks. To be
            set before the first request
        tokens (TokenPlan): tokens that requests may need beside resources, or None
        stays_bound (bool): whether promises, once bound to ranks, stay bound
    """

    _jobs_may_leave = False  # whether jobs may be removed from the pool, a copy, for a trial

    def copy(self) -> Plan:
        """Return an independent plan of the same pool with the same promises, for looking ahead.

        The copy never moves bound promises to make a new one earlier: a forecast is not worth the
        time. O(promises + running jobs); if promises are bound, also O(ranks): the data of each
        rank is shared until one of the plans changes it.
        """
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__, _frozen=True, _counted=self._counted.copy())
        new._current, new._bound, new._original = new._counted, None, self._bound or self._original
        if self._bound is not None and self._current is self._bound:
            new._current = new._bound = self._bound.copy()
        if self.tokens is not None:
            new.tokens = self.tokens.copy()
        return new

    def on_copy(self, without: Container[int] = ()) -> Plan:
        """Return a plan of a copy of the pool, to try the removal of running jobs.

        It has the promises of this plan. O(ranks + running jobs + promises).

        Args:
            without: ids of jobs whose promises are left out
        """
        new = Plan(self.pool.copy())
        new.claims, new._jobs_may_leave = self.claims, True
        new._current = copy = self._synced().on_copy(new.pool, new._counted.counts)
        if isinstance(copy, CountedStrategy):
            new._counted = copy
        else:
            new._bound = copy
        for jobid in [jobid for jobid in copy.promises if jobid in without]:
            new.cancel(jobid)
        return new

    @property
    def is_short(self) -> bool:
        """Whether ranks are kept (`keep_free`) that are in use, since too few have room. O(1)."""
        return self._current.is_short

    # -- questions ----------------------------------------------------------

    def earliest(self, request: ResourceRequest, after: float | None = None) -> float | None:
        """Return the earliest time at which a request fits for its whole duration.

        Args:
            after (float): earliest start; default: now.

        Returns:
            The time, or None if it does not fit even when every job with an end has ended.
        """
        now = self.pool.clock()
        start = now if after is None else max(now, after)
        found = self._earliest(self._strategy_for(request), request, request.tokens, start, now)
        return None if found == inf else found

    def _earliest(
        self, strategy: Strategy, request: ResourceRequest, wanted: Any, start: float, now: float
    ) -> float:
        """Return the earliest time, or infinity, with the tokens `wanted`."""
        tokens = self.tokens
        if tokens is None or not wanted:
            return strategy.earliest(request, start, now)
        # Resources and tokens together: search each from the time found for the other.
        length, found, there = length_of(request), start, -inf
        while found != there:
            there = tokens.earliest(wanted, found, length, now)
            found = inf if there == inf else strategy.earliest(request, there, now)
            if found == inf:
                return inf
        return found

    def fits(
        self, request: ResourceRequest, duration: float | None = None, jobid: int | None = None
    ) -> bool:
        """Return whether a request could start now and keep all promises but its own job's.

        If promises are counted, costs a search of the span. Changes nothing.

        Args:
            duration (float): seconds, 0: without end; None: the request's own
            jobid (int): job whose promise is ignored, since it would be over
        """
        strategy = self._strategy_for(request)
        now = self.pool.clock()
        end = now + (length_of(request) if duration is None else duration or inf)
        if self.tokens is not None and not self._tokens_fit(request, now, end, (jobid,)):
            return False
        return strategy.fits_without(jobid, request, now, end)

    def _tokens_fit(
        self, request: ResourceRequest, start: float, end: float, without: Iterable[int | None]
    ) -> bool:
        """Return whether the tokens of a request are available throughout a span, beside all
        promises except to the jobs in `without`."""
        tokens = self.tokens
        if tokens is None or not request.tokens:
            return True
        return tokens.fits(request.tokens, start, end, self.pool.clock(), without)

    def has_tokens(
        self,
        jobid: int,
        request: ResourceRequest,
        end: float | None = None,
        beside_open: bool = True,
    ) -> bool:
        """Return whether the tokens of a request are available from now to `end` (None: the end of
        the job), beside all promises but the job's own and, without ``beside_open``, the open
        ones."""
        tokens = self.tokens
        if tokens is None or not request.tokens:
            return True
        now = self.pool.clock()
        if end is None:
            end = self._current.end_of_start(jobid, request, now)
        without = {jobid}
        if not beside_open:
            without.update(self.open_ids())
        return tokens.fits(request.tokens, now, end, now, without)

    def counts(self, request: ResourceRequest) -> bool:
        """Return whether a promise of a request would be counted; else all are bound to ranks now."""
        return self._strategy_for(request) is self._counted

    def closed_now(self, request: ResourceRequest) -> int:
        """Return a mask of the ranks on which a job may not start now, regardless of promises: jobs
        of others have claimed them."""
        return self._strategy_for(request).closed(request) if request.claimant else 0

    def has_free(self, request: ResourceRequest) -> bool:
        """Return whether a request would fit now without promises. O(1) if promises are counted,
        else the cost of a placement."""
        if self.tokens is not None and request.tokens:
            if not self.tokens.are_free(request.tokens, self.pool.clock()):
                return False
        return self._strategy_for(request).is_free(request)

    def room(self, request: ResourceRequest) -> float:
        """Return the number of nodes or slots of a request with room now, in any groups of ranks and
        regardless of promises; infinity if counts do not decide placement."""
        return self._synced().room(request)

    def too_long(self, request: ResourceRequest, limit: float = inf) -> float:
        """Return a duration, in seconds, that is too long for a request that starts now to keep all
        promises: 0 if it does not fit at all, infinity if none is known.

        If promises are counted, costs a search up to that time. Otherwise costs a check of the free
        resources and of the total left by promises on all ranks; then shorter times may be too
        long, too.

        Args:
            limit (float): a duration for which more than that check is made; it costs as `fits`
        """
        return self._strategy_for(request).too_long(request, self.pool.clock(), limit)

    def too_long_until_dropped(self, request: ResourceRequest) -> tuple[float, float]:
        """Return a number and a duration: as `too_long`, for all requests of this kind for more
        nodes or slots, until a promise is dropped, or made anew for a later time. Both are infinite
        if that is unknown."""
        return self._strategy_for(request).beside_promise(request, self.pool.clock())

    def windows(self, requests: Iterable[ResourceRequest], horizon: float) -> list[dict[str, Any]]:
        """Return the free windows: resources free for jobs that start now, and for how long.

        Args:
            requests: from ``parse_resource_request()`` of the pool.
            horizon (float): seconds to look ahead.

        Returns:
            A dict per request: ``request``; ``fits``, whether it fits now for its whole duration;
            ``steps``, a list of ``(count, until)``: the number of nodes (slots, if it asks for no
            nodes) of its kind that are free together from now until then, fewer for longer. The
            last ``until`` is now + horizon, or the end of the pool if that is earlier.
        """
        answer = []
        for request in requests:
            strategy = self._strategy_for(request)
            now = self.pool.clock()
            limit = now + horizon
            if self.pool.expiration:
                limit = min(limit, max(now, self.pool.expiration))
            fits = strategy.fits_without(None, request, now, now + length_of(request))
            steps: list[tuple[int, float]] = []
            starts = {one.start for one in strategy.promises.values()}  # only these take room away
            ends = sorted([time for time in starts if now < time < limit])
            for time in [*ends, limit] if now < limit else ():
                count = max(0, strategy.count(request, now, time))  # promises may lack room
                if steps and steps[-1][0] == count:
                    steps[-1] = (count, time)
                elif count:
                    steps.append((count, time))
                else:
                    break
            answer.append({"request": request, "fits": fits, "steps": steps})
        return answer

    def promises(self, with_open: bool = True) -> dict[int, tuple[float, float]]:
        """Return a dict of job id to ``(start, end)`` of its promise. O(promises).

        Args:
            with_open (bool): whether open promises are included, whose start is unknown
        """
        promises = self._current.promises.items()
        return {id: (one.start, one.end) for id, one in promises if with_open or not one.is_open}

    def __iter__(self) -> Iterator[int]:
        """Iterate over the ids of the jobs with promises."""
        return iter(self._current.promises)

    def has(self, jobid: int) -> bool:
        """Return whether a job has a promise. O(1)."""
        return jobid in self._current.promises

    def start_of(self, jobid: int) -> float:
        """Return the start of a promise, in seconds since the epoch; of an open one its beginning.
        O(1).

        Raises:
            KeyError: the job has no promise.
        """
        return self._current.promises[jobid].start

    def due(self, now: float) -> tuple[list[int], float]:
        """Return the jobs whose promised start is `now` or earlier, in any order, and the first
        later start (infinity if none). Open promises are left out. O(promises)."""
        return self._current.due(now)

    def ranks_of(self, jobid: int) -> int | None:
        """Return a mask of the ranks of a job's promise; None while ranks are not chosen. O(ranks)."""
        return self._current.ranks_of(jobid)

    def stale(self) -> list[int]:
        """Return the jobs whose promise can no longer be kept.

        The reasons: ranks went down or left, a running job got more time, the pool was allocated
        from without the plan, or a job with which the promise's job may not share ranks is on them.

        O(promises), with a search like that of ``earliest()`` for each.

        Returns:
            list of job ids, in the order of the promises.
        """
        return self._synced().stale(self.pool.clock())

    def open_ids(self) -> list[int]:
        """Return the jobs with open promises (`hold`). O(promises)."""
        return [jobid for jobid, one in self._synced().promises.items() if one.is_open]

    def breaks_a_promise(self) -> bool:
        """Return whether some job's promise of a time can no longer be kept. Open promises, which
        give way to those ahead, and ids below 0, which no job has, are ignored. Costs as much as
        ``stale()``."""
        open_ids = self.open_ids()
        restore = self.withdraw(open_ids) if open_ids else None
        lost = self.stale()
        if restore is not None:
            restore()
        return any(jobid >= 0 for jobid in lost)

    # -- changes ------------------------------------------------------------

    def reserve(self, jobid: int, request: ResourceRequest, start: float) -> None:
        """Promise resources to a job from a start on, for its duration.

        This replaces the job's earlier promise.

        Raises:
            InsufficientResources: it does not fit then for its duration; the plan is unchanged.
        """
        start = max(start, self.pool.clock())
        if not self._tokens_fit(request, start, start + length_of(request), (jobid,)):
            raise InsufficientResources(lambda: _no_promise(jobid))
        before = self._synced().withdraw(jobid)
        strategy = self._strategy_for(request)
        if not strategy.reserve(jobid, request, start, start + length_of(request)):
            self._put_back(jobid, before)
            raise InsufficientResources(lambda: _no_promise(jobid))
        self.keep_tokens(jobid, request, start, start + length_of(request))

    def advance(self, jobid: int, may_move: bool = True) -> float:
        """Move the promise of a job, if it may, to the earliest time that keeps all others. A promise
        bound to ranks stays: it gives way when its job starts.

        Returns:
            The new start, no later than before; now, if a job with a promise bound to ranks can
            start.

        Raises:
            KeyError: the job has no promise.
            InsufficientResources: the promise cannot be kept, since a running job got more time or
                ended late, or ranks were lost. It is unchanged.
        """
        strategy = self._synced()
        promise = strategy.promises[jobid]
        if promise.is_open:
            return promise.start
        now = self.pool.clock()
        request, start, tokens = promise.request, promise.start, self.tokens
        has_tokens = tokens is not None and jobid in tokens.promised
        is_counted = self.is_counted
        if start > now and not is_counted and may_move:
            if self.has_tokens(jobid, request) and strategy.advance(jobid, now) <= now:
                return now
        if promise.end <= now or not strategy.can_keep(jobid, now):
            raise InsufficientResources(lambda: _broken_promise(jobid))
        if tokens is not None and has_tokens:
            wanted, begin, end = tokens.promised[jobid]
            if not tokens.fits(wanted, max(begin, now), end, now, (jobid,)):
                raise InsufficientResources(lambda: _broken_promise(jobid))
        if start <= now or not is_counted or not may_move:
            return start
        if not has_tokens:
            return strategy.advance(jobid, now)
        self.cancel(jobid)
        when = self.earliest(request)
        start = start if when is None else min(when, start)
        self.reserve(jobid, request, start)
        return start

    def advance_in_turn(self, jobids: Sequence[int]) -> tuple[int, list[int], float]:
        """Move the promises of several jobs, one after another, like ``advance()``, as long as they
        can surely be kept.

        If promises are counted, most of a long row are known to stay, for the cost of a lookup. If
        they are bound, the row ends where a single check cannot show that a promise stays. If some
        need more than resources, none is examined.

        Args:
            jobids: jobs with promises

        Returns:
            The number of jobs examined, from the first on; the indices of those for which
            ``advance()`` gives an earlier start; and the earliest of these, seconds since the
            epoch, or infinity. The row ends with a job that can start now, or before a promise that
            is open, may be broken, was to start now already, or takes a search.
        """
        strategy = self._synced()
        if self.tokens is not None and self.tokens.promised:
            return 0, [], inf
        return strategy.advance_in_turn(jobids, self.pool.clock())

    @property
    def moves_per_turn(self) -> int:
        """The maximum number of jobs for `advance_in_turn()` in one reactor turn. O(1)."""
        return self._current.moves_per_turn

    def keep_free(self, key: int, request: ResourceRequest, start: float) -> bool:
        """Keep resources from a start on, for the request's duration, whatever is in use then: for
        no job, under an id below 0. Return whether they are free then, beside all but open promises;
        if not, promises to jobs may be broken.

        Where ranks are chosen and too few have room, those are kept that others than promised jobs
        use for the shortest time; each `stale()` chooses anew.
        """
        self.cancel(key)
        start = max(start, self.pool.clock())
        return self._strategy_for(request).keep_free(
            key, request, start, start + length_of(request)
        )

    def share_rules(self, other: Plan) -> None:
        """Copy the tokens and claims of another plan of the pool, without its promises."""
        self.claims, self.tokens = other.claims, None
        if other.tokens is not None:
            self.tokens = other.tokens.blank()

    def hold(self, jobid: int, request: ResourceRequest) -> None:
        """Make an open promise: keep resources for a job, without an end.

        This is for a job without an earliest time, since it waits for jobs without an end. They are
        kept from the first time at which it could start if those that run had ended, or else from
        when the first of the others is to begin. Ranks with room now are taken first, then the ranks
        with the earliest room.

        Raises:
            InsufficientResources: it would not fit even if every job ended, since it waits for
                ranks that are down. The plan is unchanged.
        """
        before = self._synced().withdraw(jobid)
        strategy, now = self._strategy_for(request), self.pool.clock()
        start = self._start_of_open(strategy, request, now)
        if not strategy.hold(jobid, request, start):
            self._put_back(jobid, before)
            raise InsufficientResources(lambda: self.pool.why_not(request))
        self.keep_tokens(jobid, request, start, inf)

    def _start_of_open(self, strategy: Strategy, request: ResourceRequest, now: float) -> float:
        """Return when an open promise begins: the first time at which the request would fit if all
        running jobs without an end had ended, or else the first start of the promises without an
        end in its way."""
        tokens, wanted, found = self.tokens, request.tokens, inf

        def search() -> float:
            nonlocal found
            free = tokens.without_endless(wanted) if tokens and wanted else wanted
            found = self._earliest(strategy, request, free, now, now)
            return found

        start = strategy.since(request, search, now)
        if found == inf and tokens and wanted:
            start = min(start, tokens.endless_since(wanted, now))
        return start if start < inf else now

    def keep_tokens(self, jobid: int, request: ResourceRequest, start: float, end: float) -> None:
        """Promise the tokens of a request, if any, from a start to an end. This replaces the job's
        earlier promise of tokens."""
        self._drop_tokens(jobid)
        if self.tokens is not None and request.tokens:
            self.tokens.enter(jobid, request.tokens, start, end)

    def alloc(self, jobid: int, request: ResourceRequest, may_move: bool = True) -> Any:
        """Allocate to a job now, if all promises to other jobs can still be kept.

        Args:
            may_move (bool): whether promises may move to other ranks for it

        Returns:
            As ``ResourcePool.alloc()``. The job's own promise is then gone.

        Raises:
            InsufficientResources: it does not fit now, or only by breaking another job's promise.
            InfeasibleRequest, ValueError: as ``ResourcePool.alloc()``.
        """
        if self.tokens is not None and not self.has_tokens(jobid, request):
            _refuse(self.pool, request)
        claims = self.claims
        # On a copy, jobs that still have claims may have been removed.
        is_known = request.claimant is None or not self._jobs_may_leave
        current = self._current
        promises = current.promises
        if is_known and (not promises or promises.keys() == {jobid}):
            answer = _alloc_alone(self.pool, claims, jobid, request)
            if promises:
                self.cancel(jobid)
            if not current.is_blank:
                current.started(jobid, request.claimant)
            return answer
        strategy = self._strategy_for(request)
        if not strategy.may_start(request):
            _refuse(self.pool, request)
        if claims is not None and request.claimant is not None:
            # Beside jobs of the same key, if it fits there.
            own = claims.own(request.claimant)
            if own and self.pool.fits_on(request, own):
                try:
                    return self._alloc(strategy, jobid, request.on_ranks(own), may_move)
                except (OSError, ValueError):
                    pass  # some of these ranks are promised to others, or missing
        return self._alloc(strategy, jobid, request, may_move)

    def _alloc(
        self, strategy: Strategy, jobid: int, request: ResourceRequest, may_move: bool
    ) -> Any:
        """Allocate resources beside promises; as ``alloc()``."""
        now = self.pool.clock()
        end = strategy.end_of_start(jobid, request, now)
        before = strategy.withdraw(jobid) if jobid in strategy.promises else None
        try:
            overdue = before is not None and before.is_overdue(now)
            placed = strategy.place(request, now, end, overdue, may_move)
            if placed is None:
                _refuse(self.pool, request)
            answer = self.pool.grant(jobid, request, *placed)
        except (Exception, SystemExit):
            self._put_back(jobid, before)
            raise
        strategy.started(jobid, request.claimant)
        self._drop_tokens(jobid)
        return answer

    def contains(self, jobid: int, running: Iterable[int]) -> bool:
        """Return whether the units of some running jobs together are part of a job's promise: of
        the same counted kind, or on its ranks.  O(ranks of the jobs).

        Raises:
            KeyError: the job has no promise.
        """
        return self._synced().contains(jobid, [self.pool.held(one) for one in running])

    def pin(self, jobid: int, stays: bool = True) -> None:
        """Keep the promise of a job, if any, on its ranks; with ``stays`` false, no longer."""
        strategy = self._synced()
        if jobid in strategy.promises:
            strategy.pin(jobid, stays)

    def note_started(
        self, jobid: int, request: ResourceRequest | None = None, planned_end: float | None = None
    ) -> None:
        """Note that a job was started on the pool itself, which ends its promise. Its request is
        needed if it has a claimant; `planned_end`: its end as planned without a promise, in seconds
        since the epoch, which a start that is a little late leaves unchanged."""
        self.cancel(jobid)
        claimant = request.claimant if request else None
        self._current.started(jobid, claimant, planned_end)

    def cancel(self, jobid: int) -> None:
        """Drop a job's promise, if any; nothing else moves."""
        self._current.withdraw(jobid)
        self._drop_tokens(jobid)

    def take_over(self, other: Plan, jobids: Iterable[int]) -> None:
        """Give jobs the promises that they have in another plan of the pool, as far as they fit
        here."""
        self._synced()
        for jobid in jobids:
            one = other._current.promises[jobid]
            self.cancel(jobid)
            strategy = self._strategy_for(one.request)
            if one.is_open:
                strategy.hold(jobid, one.request, max(one.start, self.pool.clock()))
            elif jobid < 0:
                strategy.keep_free(jobid, one.request, one.start, one.end)
            else:
                strategy.reserve(jobid, one.request, one.start, one.end)


def _alloc_alone(
    pool: PoolWithView, claims: Claims | None, jobid: int, request: ResourceRequest
) -> Any:
    """Allocate resources where no other job has a promise; as ``Plan.alloc()``."""
    if claims is None or request.claimant is None:
        return pool.alloc(jobid, request)
    index, eligible = pool.index, pool.eligible(request.shape.match)
    eligible &= ~claims.apart_from(request.claimant)
    placed = pool.place_request(request, index, eligible)
    if placed is None:
        _refuse(pool, request)
    # Beside jobs of the same key, if it fits there.
    own = eligible & claims.own(request.claimant)
    if own:
        placed = pool.place_request(request, index, own) or placed
    return pool.grant(jobid, request, *placed)


def _refuse(pool: PoolWithView, request: ResourceRequest) -> NoReturn:
    pool.check_feasibility(request)
    raise InsufficientResources(
        lambda: (
            pool.explain(request)["reason"]
            or "insufficient resources: would delay a job that was promised a start"
        )
    )


def _no_promise(jobid: int) -> str:
    return f"insufficient resources: job {job_text(jobid)} does not fit from that time on"


def _broken_promise(jobid: int) -> str:
    return f"insufficient resources: the promise to job {job_text(jobid)} cannot be kept"
