# SPDX-License-Identifier: LGPL-3.0-or-later
"""The plan through which a scheduler's jobs start, made when it is first needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Protocol

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.resource.ResourcePool import ResourcePool


class _Scheduler(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def log(self) -> Any: ...

    @property
    def resources(self) -> ResourcePool: ...


class Planning:
    """A scheduler's plan, with what admission rules keep from jobs, and with the promises made.

    It may be changed only by the policy and by admission rules; others copy it.

    Args:
        scheduler (PolicyScheduler): the scheduler
        stop: ends the scheduler
        made: is told of each plan that is made, before anything is in it
        void: is told that the plan is void
    """

    def __init__(
        self,
        scheduler: _Scheduler,
        stop: Callable[[], None],
        made: Callable[[Plan], None],
        void: Callable[[], None],
    ) -> None:
        self._scheduler = scheduler
        self._stop = stop
        self._made = made
        self._void = void
        self._plan: Plan | None = None
        self._missing: set[str] = set()  # operations that the pool lacks

    @property
    def _pool(self) -> ResourcePool:
        return self._scheduler.resources

    def pool_can(self, operation: str) -> bool:
        """Return whether the pool has an operation that the guide does not ask of every pool.

        Args:
            operation (str): name of a method, as ``"plan"``; that one is missing is logged once
        """
        if self._pool.can(operation):
            return True
        if operation not in self._missing:
            self._missing.add(operation)
            name = type(self._pool).__name__
            self._scheduler.log.warning(
                f"pool class {name} has no {operation}(): going on without it"
            )
        return False

    def current(self) -> Plan | None:
        """Return the plan; None if the pool cannot plan."""
        if self._plan is None and self.pool_can("plan"):
            self._plan = self._pool.plan()
            self._made(self._plan)
        return self._plan

    def require(self) -> Plan | None:
        """Return the plan, for a policy that can do nothing without one; None: the pool has none, which
        is logged, and the scheduler is ending."""
        plan = self.current()
        if plan is None:
            scheduler = self._scheduler
            scheduler.log.critical(
                f"{scheduler.name} needs a pool that can plan(), which {type(self._pool).__name__} "
                "cannot: it ends here"
            )
            self._stop()
        return plan

    def renew(self) -> None:
        """The plan, with all promises in it, is void: ranks were lost, or what an admission rule
        keeps from jobs cannot be kept beside the promises. The next pass makes a new one."""
        self._plan = None
        self._void()
