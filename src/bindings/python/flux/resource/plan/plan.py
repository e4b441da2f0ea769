# SPDX-License-Identifier: LGPL-3.0-or-later
"""Planning on a pool: when a request can start, beside what is promised already.

Theory
    A plan knows what running jobs give back when, and the promises that were made to jobs that
    wait. A *promise* is a request and a span of time. The question is never whether a job keeps off
    ranks that were once chosen for another one, but whether there is a way to keep all promises.
    There are two strategies to answer it.

    *Counting*: where any unit is as good as another (nodes of one kind whose jobs take whole nodes,
    or single cores), counts decide it exactly (``counted_profile.py``). Requests that may use the
    same ranks are counted together, others apart.

    *Binding*: as soon as one request asks for something else, or for ranks of which others want
    only some, all promises are bound to ranks (``rank_profile.py``). A binding proves that they can
    be kept. It is given up for another one whenever that lets a job start (``packing.py``).

    A plan counts at first, binds when it has to, and goes back to counting when no promise is left.

    Running jobs are taken to last until their ends, and one that ran past its end to end now. A job
    that ends earlier leaves room that promises may use: see ``Plan.advance()``.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, NoReturn

from flux.resource.errors import InsufficientResources
from flux.resource.plan.bound_strategy import BoundStrategy
from flux.resource.plan.counted_strategy import CountedStrategy
from flux.resource.plan.mask_timeline import INFINITY
from flux.resource.plan.promise import length_of
from flux.resource.pool.inventory import selected_ranks
from flux.resource.pool.jobid import job_text

if TYPE_CHECKING:
    from typing_extensions import Self

    from flux.resource.plan.promise import Promise
    from flux.resource.plan.strategy import Strategy
    from flux.resource.plan.tokens import TokenPlan
    from flux.resource.request import ResourceRequest
    from flux.resource.ResourcePool import ResourcePool
    from flux.resource.ResourcePoolImplementation import ResourcePoolImplementation


class Plan:
    """Availability of a pool from now on, with promises; see ``ResourcePool.plan()``.

    All times are seconds since the epoch. A request is planned with its least numbers of nodes and
    slots. A job that ran past its end is taken to end now; a job without an end never ends; ranks
    that are down are not available. A plan follows its pool: what changes there is seen at the next
    call, and the promises stay. As long as jobs are started through the plan, running jobs end in
    time and ranks stay up, every promise can be kept.

    Costs: the first call after a change of the pool looks at the jobs that came and went, or, where
    promises are bound to ranks, at all running jobs. Where promises are counted, a call is then a
    search over the times at which something starts or ends, 48 of them at once
    (``count_timeline.py``). Where they are bound, it costs masks as long as the cluster for each
    such time that is looked at, and on busy pools an attempt to bind promises differently, which
    takes milliseconds at most.

    Args:
        pool (ResourcePoolImplementation): the pool; it has a view.
    """

    #: Turns the implementation that ``alloc()`` got into what it returns, for the plan of a
    #: ResourcePool a pool of the same class.
    wrap: Callable[[ResourcePoolImplementation], Any] = staticmethod(lambda impl: impl)

    def __init__(self, pool: ResourcePoolImplementation) -> None:
        self._pool = pool
        # Kept while promises are bound, with what it knows of shapes, to go back to.
        self._counted = CountedStrategy(pool)
        self._strategy: Strategy = self._counted
        self._frozen = False  # promises stay on the ranks they are bound to
        #: tokens that requests may need beside resources; None: there are none
        self.tokens: TokenPlan | None = None

    def copy(self) -> Self:
        """An independent plan of the same pool with the same promises, to look ahead with.

        It never binds promises again to make a new one earlier: a forecast is not worth that time.
        O(promises + running jobs); where promises are bound to ranks, also O(ranks).
        """
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__, _frozen=True, _counted=self._counted.copy())
        counted = self._strategy is self._counted
        new._strategy = new._counted if counted else self._strategy.copy()
        if self.tokens is not None:
            new.tokens = self.tokens.copy()
        return new

    def on_copy(self, without: Container[int] = ()) -> Plan:
        """A plan of a copy of the pool, to try what would be if running jobs were gone.

        It has the promises of this one, as far as they can be kept. O(ranks + running jobs), and a
        search for each promise.

        Args:
            without: ids of jobs whose promises are left out
        """
        new = Plan(self._pool.copy())
        new.take_over(self, [jobid for jobid in self._strategy.promises if jobid not in without])
        return new

    @property
    def pool(self) -> ResourcePoolImplementation:
        """The pool that is planned."""
        return self._pool

    # -- the strategy -------------------------------------------------------

    @property
    def is_counted(self) -> bool:
        """Whether promises are counted; else they are bound to ranks. O(1)."""
        return self._strategy is self._counted

    def _in_step(self) -> Strategy:
        """The strategy, once it has seen what happened to the pool since the last call."""
        strategy = self._strategy
        return strategy if strategy.seen == self._pool.generation else self._follow()

    def _strategy_for(self, request: ResourceRequest) -> Strategy:
        """The strategy by which a request can be planned, in step with the pool."""
        strategy = self._strategy
        if strategy.seen != self._pool.generation:
            strategy = self._follow()
        return strategy if strategy.accepts(request) else self._bind_all()

    def _follow(self) -> Strategy:
        """See what happened to the pool."""
        strategy = self._strategy
        if not strategy.promises:
            strategy = self._strategy = self._counted
        return strategy if strategy.sync() else self._bind_all()

    def _bind_all(self) -> Strategy:
        """Counting is not enough any more: bind all promises to ranks.

        Together with ``_follow()``, which goes back to counting after a change of the pool if
        there is no promise left, this is all that ever changes the strategy.
        """
        seen = self._counted.seen
        self._strategy = BoundStrategy(self._pool, self._counted.give_up(), seen, self._frozen)
        return self._strategy

    # -- questions ----------------------------------------------------------

    def earliest(self, request: ResourceRequest, after: float | None = None) -> float | None:
        """Earliest time at which a request fits for its whole duration.

        What is found is remembered, and shortens the search for requests that want as much or more:
        a long queue of similar jobs is planned without starting each search from now.

        Args:
            after (float): not before this; default: now.

        Returns:
            The time, or None: it does not fit even when every job that has an end has ended.
        """
        strategy = self._strategy_for(request)
        now = self._pool.clock()
        start = now if after is None else max(now, after)
        found = strategy.earliest(request, start, now)
        if self.tokens is not None and request.tokens:
            # Nodes and tokens at the same time: each is asked from where the other one is.
            while found != INFINITY:
                there = self.tokens.earliest(request.tokens, found, length_of(request), now)
                if there == found:
                    break
                found = INFINITY if there == INFINITY else strategy.earliest(request, there, now)
        return None if found == INFINITY else found

    def fits(
        self, request: ResourceRequest, duration: float | None = None, jobid: int | None = None
    ) -> bool:
        """Whether a request could start now and keep all promises but a job's own.

        Where promises are counted that costs a search of the span, and changes nothing.

        Args:
            duration (float): for so many seconds, 0: without end; None: for the request's own
            jobid (int): the job whose promise does not count, since it would be over
        """
        strategy = self._strategy_for(request)
        now = self._pool.clock()
        end = now + (length_of(request) if duration is None else duration or INFINITY)
        return strategy.fits_without(jobid, request, now, end)

    def has_free(self, request: ResourceRequest) -> bool:
        """Whether a request would fit now if nothing were promised. O(1) where promises are
        counted, else as looking for a place."""
        return self._strategy_for(request).is_free(request)

    def windows(self, requests: Iterable[ResourceRequest], horizon: float) -> list[dict[str, Any]]:
        """What could start now, and for how long.

        Args:
            requests: from ``parse_resource_request()`` of the pool.
            horizon (float): how many seconds to look ahead.

        Returns:
            A dict for each request: ``request``; ``fits``: whether it fits now for its whole
            duration; ``steps``: list of ``(count, until)``: so many nodes (slots, if it asks for no
            nodes) of the kind it wants are free together from now until that time, fewer for
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
        return {jobid: (one.start, one.end) for jobid, one in self._strategy.promises.items()}

    def promised(self) -> list[int]:
        """Ids of the jobs that have a promise. O(promises)."""
        return list(self._strategy.promises)

    def has(self, jobid: int) -> bool:
        """Whether a job has a promise. O(1)."""
        return jobid in self._strategy.promises

    def ranks_of(self, jobid: int) -> int | None:
        """Mask of the ranks that a promise is bound to; None where ranks are not chosen yet. O(1).

        Raises:
            KeyError: the job has no promise.
        """
        return self._strategy.promises[jobid].ranks

    def would_get(self, request: ResourceRequest, start: float) -> int | None:
        """The ranks that a request would be given at a time at which it fits.

        Args:
            start (float): now, or what ``earliest()`` said.

        Returns:
            A mask; None where ranks are chosen only then.
        """
        strategy = self._strategy_for(request)
        now = self._pool.clock()
        if start > now:
            return strategy.ranks_at(request, start, start + length_of(request))
        placed = strategy.place(request, now, now + length_of(request))
        return None if placed is None else selected_ranks(placed[0])

    def stale(self) -> list[int]:
        """Jobs whose promise cannot be kept any more.

        The reason is that ranks went down or left, that a running job got more time, or that the
        pool was allocated from without the plan.

        O(promises), and for each the search that ``earliest()`` makes.

        Returns:
            list of job ids, in the order of their promises.
        """
        return self._in_step().stale(self._pool.clock())

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
        before = self._in_step().withdraw(jobid)
        strategy = self._strategy_for(request)
        if not strategy.reserve(jobid, request, start, start + length_of(request)):
            self._put_back(jobid, before)
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
        strategy = self._in_step()
        promise = strategy.promises[jobid]
        if promise.is_open:
            return promise.start
        now = self._pool.clock()
        if promise.end <= now or not strategy.keeps(jobid, now):
            raise InsufficientResources(lambda: _broken_promise(jobid))
        tokens = self.tokens
        if tokens is not None and jobid in tokens.promised:
            wanted, start, end = tokens.promised[jobid]
            if not tokens.fits(wanted, max(start, now), end, now, jobid):
                raise InsufficientResources(lambda: _broken_promise(jobid))
            if promise.start <= now:
                return promise.start
            return self._advance_with_tokens(jobid, promise)
        if promise.start <= now:
            return promise.start
        return strategy.advance(jobid, now)

    def _advance_with_tokens(self, jobid: int, promise: Promise) -> float:
        """As ``advance()``, for a promise of tokens as well, which is not due yet."""
        self.cancel(jobid)
        when = self.earliest(promise.request)
        start = promise.start if when is None else min(when, promise.start)
        self.reserve(jobid, promise.request, start)
        return start

    def hold(self, jobid: int, request: ResourceRequest) -> None:
        """Make an open promise: keep resources for a job from now on, without end.

        This is for a job that has no earliest time since it waits for jobs without an end: what it
        will need is kept from others. Ranks that have room now are taken first, then those that
        have it soonest.

        Raises:
            InsufficientResources: it would not fit even if every job ended, since it waits for
                ranks that are down. The plan is as before.
        """
        before = self._in_step().withdraw(jobid)
        self._forget_tokens(jobid)
        if not self._strategy_for(request).hold(jobid, request, self._pool.clock()):
            self._put_back(jobid, before)
            raise InsufficientResources(lambda: self._pool.why_not(request))

    def alloc(self, jobid: int, request: ResourceRequest) -> ResourcePool:
        """Allocate to a job now, if all promises to others can still be kept.

        Returns:
            As ``ResourcePool.alloc()``. The job's own promise is gone then.

        Raises:
            InsufficientResources: it does not fit now, or only if another job's promise is broken.
            InfeasibleRequest, ValueError: as ``ResourcePool.alloc()``.
        """
        strategy = self._strategy
        promises = strategy.promises
        if not promises or (len(promises) == 1 and jobid in promises):
            answer = self._pool.alloc(jobid, request)
            strategy.withdraw(jobid)
        else:
            strategy = self._strategy_for(request)
            if not strategy.may_start(request):
                self._refuse(request)
            before = strategy.withdraw(jobid)
            try:
                answer = self._start(jobid, request, before)
            except Exception:
                self._put_back(jobid, before)
                raise
        strategy.started(jobid)
        self._forget_tokens(jobid)
        granted: ResourcePool = self.wrap(answer)
        return granted

    def note_started(self, jobid: int) -> None:
        """Tell the plan that a job was started on the pool itself: its promise is over."""
        self._strategy.withdraw(jobid)
        self._strategy.started(jobid)
        self._forget_tokens(jobid)

    def cancel(self, jobid: int) -> None:
        """Drop a job's promise, if it has one; nothing else moves."""
        self._strategy.withdraw(jobid)
        self._forget_tokens(jobid)

    def _forget_tokens(self, jobid: int) -> None:
        """A job has no promise any more, or none of tokens."""
        if self.tokens is not None:
            self.tokens.promised.pop(jobid, None)

    def take_over(self, other: Plan, jobids: Iterable[int]) -> None:
        """Make the promises to jobs that they have in another plan of the pool, as far as they fit
        in this one."""
        self._in_step()
        for jobid in jobids:
            one = other._strategy.promises[jobid]
            self.cancel(jobid)
            strategy = self._strategy_for(one.request)
            if one.is_open:
                strategy.hold(jobid, one.request, self._pool.clock())
            else:
                strategy.reserve(jobid, one.request, one.start, one.end)

    def _put_back(self, jobid: int, promise: Promise | None) -> None:
        """Give a job the promise again that was withdrawn, if it had one."""
        if promise is not None:
            self._strategy.restore(jobid, promise)

    # -- starting now -------------------------------------------------------

    def _start(
        self, jobid: int, request: ResourceRequest, promise: Promise | None
    ) -> ResourcePoolImplementation:
        """Start a job, whose promise was withdrawn, where all other promises can still be kept."""
        now = self._pool.clock()
        end = now + length_of(request)
        overdue = False
        if promise is not None and not promise.is_open and promise.start <= now < promise.end:
            # It starts late because others ended late, and will end late. That delays the jobs that
            # were promised what comes after it as well, and must not keep it from starting.
            overdue = True
            end = promise.end
        placed = self._strategy.place(request, now, end, overdue)
        if placed is None:
            self._refuse(request)
        return self._pool.grant(jobid, request, *placed)

    def _refuse(self, request: ResourceRequest) -> NoReturn:
        self._pool.check_feasibility(request)
        raise InsufficientResources(lambda: self._why(request))

    def _why(self, request: ResourceRequest) -> str:
        reason = self._pool.explain(request)["reason"]
        if reason:
            return str(reason)
        return "insufficient resources: would delay a job that was promised a start"


def _no_promise(jobid: int) -> str:
    return f"insufficient resources: job {job_text(jobid)} does not fit from that time on"


def _broken_promise(jobid: int) -> str:
    return f"insufficient resources: the promise to job {job_text(jobid)} cannot be kept"


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
