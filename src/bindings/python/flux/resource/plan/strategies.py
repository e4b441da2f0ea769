# SPDX-License-Identifier: LGPL-3.0-or-later
"""The two strategies of a plan, and the switch between them.

A plan counts at first, binds promises to ranks as soon as counts do not decide, and counts again
after a change of the pool if no promise is left, no ranks are reserved (`stays_bound`) and no jobs
claim ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

from flux.resource.plan.bound_strategy import BoundStrategy
from flux.resource.plan.counted_strategy import CountedStrategy
from flux.resource.pool.placement import RoomCounts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Self

    from flux.resource.plan.claims import Claims
    from flux.resource.plan.strategy import Promise, Strategy
    from flux.resource.pool.view import PoolWithView
    from flux.resource.request import ResourceRequest


class Strategies:
    """The strategies of a plan.

    Args:
        pool (PoolWithView): the pool, with a view

    Attributes:
        current (Strategy): the strategy in force, as of the last call
        stays_bound (bool): whether promises that are bound to ranks stay bound
        claims (Claims): claims of running jobs on ranks, or None
    """

    def __init__(self, pool: PoolWithView) -> None:
        self._pool, self._state = pool, pool.pool_state
        # each keeps its view of the pool
        self._counted = CountedStrategy(pool, RoomCounts(pool))
        self._bound: BoundStrategy | None = None
        self._frozen = False  # promises stay on the ranks that they are bound to
        self._original: BoundStrategy | None = None  # a copy's bindings, until it makes its own
        self.current: Strategy = self._counted
        self.stays_bound = False
        self.claims: Claims | None = None

    def copy(self) -> Self:
        """Return an independent copy with the same promises, which stay on their ranks."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__, _frozen=True, _counted=self._counted.copy())
        new.current, new._bound, new._original = new._counted, None, self._bound or self._original
        if self._bound is not None and self.current is self._bound:
            new.current = new._bound = self._bound.copy()
        return new

    def in_step(self) -> Strategy:
        """Return the strategy in force, after taking in changes of the pool."""
        strategy = self.current
        if strategy.seen == self._state.generation:
            return strategy
        if not strategy.promises and not self.stays_bound and self.claims is None:
            strategy = self.current = self._counted
        return strategy if strategy.sync() else self._bind_all()

    def accepting(self, request: ResourceRequest) -> Strategy:
        """Return the strategy for a request, in step with the pool."""
        strategy = self.current
        if strategy.seen != self._state.generation:
            strategy = self.in_step()
        counted = self._counted
        if strategy is counted and (
            request.claimant is not None
            or not (request.shape in counted.found or counted.accepts(request))
        ):
            return self._bind_all()
        return strategy

    def put_back(self, jobid: int, promise: Promise | None) -> None:
        """Restore the withdrawn promise of a job, if any."""
        if promise is not None:
            self.current.restore(jobid, promise)

    def withdraw(self, jobids: Iterable[int]) -> Callable[[], None]:
        """Withdraw the promises of some jobs; return a function that restores them."""
        strategy = self.in_step()
        withdrawn = {jobid: strategy.withdraw(jobid) for jobid in jobids}

        def restore() -> None:
            if strategy is self._bound:
                self.current = strategy  # without promises, counting sufficed
            for jobid, promise in withdrawn.items():
                if promise is not None and self.current.is_counted:
                    self.accepting(promise.request)  # its units may have to be counted again
                self.put_back(jobid, promise)

        return restore

    def trial(self, without: Iterable[int]) -> Callable[[], None]:
        """Begin a trial without the promises of some jobs; return a function that restores all
        promises, to be called when the pool is as before."""
        take_back = self.in_step().trial()
        restore = self.withdraw(without)

        def end() -> None:
            restore()
            take_back()

        return end

    def _bind_all(self) -> Strategy:
        """Bind all promises to ranks, since counting no longer suffices."""
        bound = self._bound
        if bound is None:
            original = self._original
            bound = (
                original.copy()
                if original
                else BoundStrategy(self._pool, self.current.counts, self.claims)
            )
            bound.frozen = self._frozen
            bound.clear()
            self._bound, self._original = bound, None
        bound.adopt(self._counted.give_up())
        self.current = bound
        return bound
