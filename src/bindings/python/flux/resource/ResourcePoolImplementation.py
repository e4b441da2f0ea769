# SPDX-License-Identifier: LGPL-3.0-or-later
"""The base class of pools: the contract, and the operations derived from it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Callable, cast

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.resource.plan.plan import Plan
from flux.resource.pool import explain
from flux.resource.pool.constraint import parse_constraint
from flux.resource.pool.contract import JobRecord
from flux.resource.pool.inventory import Selection, pairs, select, selected_ranks
from flux.resource.pool.jobid import job_text
from flux.resource.pool.masks import idset_text, popcount, quote, ranks_in
from flux.resource.pool.placement import PlacingPool
from flux.resource.pool.state import unused
from flux.resource.request import ResourceRequest, Shape

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ("JobRecord", "ResourcePoolImplementation")


class ResourcePoolImplementation(PlacingPool):
    """Base class of pools. A pool with a view inherits all operations that are based on the view:
    on ranks and jobs, allocations on given ranks, plans, estimates and explanations.

    A pool overrides operations for which its policy has other results. Derive from
    :class:`~flux.resource.Rv1Pool.Rv1Pool`, unless the state is to be kept in another way.
    `ResourcePool` makes pools of R.

    Costs are those of ``Rv1Pool`` and ``TreePool``. An operation on sets of ranks counts as O(1): a
    set is an integer, and takes a few microseconds at most with 16,384 nodes.

    Attributes:
        hooked (bool): whether the class overrides hooks to choose resources (``pool/hooks.py``).
    """

    hooked = False

    def can(self, operation: str) -> bool:
        """Return whether the pool has an optional operation. O(1).

        A pool with a view (see ``PoolContract``) has all operations of this class; a pool without
        one has its own, and the operations that need no view.

        Args:
            operation (str): name of a method or property of this class, such as ``"plan"``.
        """
        own = getattr(type(self), operation, None)
        given = getattr(ResourcePoolImplementation, operation, None)
        return self.has_view if own is given is not None else own is not None

    # -- ranks ----------------------------------

    @property
    def ranks(self) -> int:
        """Mask of all ranks of the pool (bit *r* is rank *r*), up or down. O(1)."""
        return self.inventory.ranks

    @property
    def idle_ranks(self) -> int:
        """Mask of the ranks that are wholly free, up or down. O(1)."""
        return self.index.idle

    @property
    def ranks_with_room(self) -> int:
        """Mask of the ranks with a free core or GPU, up or down. O(different free counts)."""
        found = 0
        for mask in self.index.groups.values():
            found |= mask
        return found

    def eligible_ranks(self, request: Any = None) -> int:
        """Return the mask of ranks that are up and meet a request's constraint, in use or not.

        O(1), unless the constraint is new since ranks last went up or down.

        Args:
            request: from ``parse_resource_request()``; None: all ranks that are up.
        """
        return self.eligible(None if request is None else request.shape.match)

    def ranks_matching(self, constraint: dict[str, Any]) -> int:
        """Return the mask of ranks that meet a constraint, up or down, in use or not.

        O(terms of the constraint) operations on masks; O(length of its text) if it was seen before.

        Args:
            constraint (dict): as in a jobspec (RFC 31); ``{}`` is met by all.

        Raises:
            ValueError: it is not a constraint; the text has the operator and value.
        """
        return self.inventory.matching(parse_constraint(constraint))

    def held_ranks(self, jobid: int) -> int:
        """Return the mask of ranks on which a job holds resources. O(ranks of the job).

        Raises:
            KeyError: the job has no allocation.
        """
        return selected_ranks(self.held(jobid))

    def held_counts(self, jobid: int) -> tuple[int, int, int, int]:
        """Return the mask of ranks on which a job holds resources, and its numbers of nodes, cores
        and GPUs. O(kinds of holdings per rank).

        Raises:
            KeyError: the job has no allocation.
        """
        inventory = self.inventory
        ranks = nodes = cores = gpus = 0
        for mask, units in pairs(self.held(jobid)):
            count, (own_cores, own_gpus) = popcount(mask), inventory.cores_and_gpus(units)
            ranks |= mask
            nodes += count
            cores += count * own_cores
            gpus += count * own_gpus
        return ranks, nodes, cores, gpus

    def node_kinds(self) -> list[tuple[int, int, int]]:
        """Return all ranks by their cores and GPUs, up or down, in use or not. O(kinds of rank).

        Returns:
            list of ``(cores, GPUs, mask of ranks)``, most cores first and then most GPUs; the masks
            are disjoint.
        """
        inventory = self.inventory
        kinds: dict[tuple[int, int], int] = {}
        for units, mask in inventory.kinds.items():
            key = inventory.cores_and_gpus(units)
            kinds[key] = kinds.get(key, 0) | mask
        return [(*key, mask) for key, mask in sorted(kinds.items(), reverse=True)]

    def slots_by_rank(self, shape: Shape) -> list[tuple[int, int]]:
        """Return the number of slots of a shape that each rank holds when idle.

        Returns:
            list of ``(slots, mask of ranks)``: slots per rank; ranks without slots may be missing.
        """
        inventory = self.inventory
        return list(self.placement.candidates(unused(inventory), shape, inventory.ranks))

    def free_cores(self, ranks: int) -> int:
        """Return the number of free cores on some ranks (a mask), up or not. O(kinds of free ranks)."""
        base = self.inventory.key_base
        return sum(key // base * popcount(mask & ranks) for key, mask in self.index.groups.items())

    # -- jobs -----------------------------------

    def job_end(self, jobid: int) -> float:
        """Return the end of a job in seconds since the epoch; 0 if unknown. O(1).

        Raises:
            KeyError: the job has no allocation.
        """
        return dict(self.job_end_times())[jobid]

    def placeholders(self) -> list[int]:
        """Return the ids of placeholders (`hold_free()`), which are negative. O(jobs)."""
        return [jobid for jobid, _ in self.job_end_times() if jobid < 0]

    def jobs_by_end(self) -> list[tuple[float, int]]:
        """Return the ascending list of ``(end, jobid)`` of the jobs with an end (seconds since the
        epoch). O(jobs log jobs).
        """
        return sorted((end, jobid) for jobid, end in self.job_end_times() if end)

    # -- allocations on given ranks -------------

    def alloc_on(self, jobid: int, request: Any, ranks: int) -> Self:
        """Allocate resources to a job as ``alloc()``, but only on given ranks.

        Args:
            jobid (int): the job; it must not have an allocation.
            request: from ``parse_resource_request()``.
            ranks (int): mask of usable ranks. Those that are up and meet the request's constraint
                are used.

        Returns:
            As ``alloc()``, with the same end.

        Raises:
            InsufficientResources: it does not fit on these ranks now.
            InfeasibleRequest: it can never fit in the pool, on any ranks.
            ValueError: the job has an allocation, or a hook of the pool chose resources that are
                not free.
            NotImplementedError: the pool has no view (see ``can()``).
        """
        _expect_new(self, jobid)
        eligible = self.eligible_ranks(request) & ranks
        placed = self.place_request(request, self.index, eligible)
        if placed is None:
            self.check_feasibility(request)
            raise InsufficientResources(
                lambda: (
                    f"insufficient resources: too little is free on ranks {idset_text(eligible)}"
                    if eligible
                    else "insufficient resources: none of the given ranks is up and matches the"
                    " constraint"
                )
            )
        return self.grant(jobid, request, *placed)

    def fits_on(self, request: Any, ranks: int) -> bool:
        """Return whether ``alloc_on()`` would find resources now. Has no effect. Costs as
        ``alloc()``.

        Args:
            request: from ``parse_resource_request()``.
            ranks (int): mask of usable ranks.
        """
        eligible = self.eligible_ranks(request) & ranks
        return self.place_request(request, self.index, eligible) is not None

    def hold_free(self, jobid: int, ranks: int, until: float, of: Selection | None = None) -> int:
        """Allocate all free resources on given ranks to a placeholder.

        A placeholder is an allocation that belongs to no job. ``job_end_times()``, ``held_ranks()``
        and plans include it; ``free()`` frees it.

        O(kinds of rank), and O(1) per partly used rank.

        Args:
            jobid (int): an id that no job has and without allocation, negative by convention.
            ranks (int): mask of ranks; all free units of the ranks that are up are allocated.
            until (float): end of the placeholder, seconds since the epoch. Plans expect its
                resources back then; it stays until ``free()`` is called.
            of: a selection to which the allocation is limited; None: any units.

        Returns:
            int: mask of the placeholder's ranks. 0: nothing was free, and there is no placeholder.

        Raises:
            ValueError: the id has an allocation.
        """
        _expect_new(self, jobid)
        up, groups = self.eligible(None) & ranks, dict[int, int]()
        for mask, wanted in ((up, -1),) if of is None else pairs(of):
            for units, some in self.index.states(mask & up):
                if units & wanted:
                    groups[units & wanted] = groups.get(units & wanted, 0) | some
        free = select(groups)
        if free:
            # grant() reads only the duration; 0 would mean no end.
            request = ResourceRequest(duration=max(1.0, until - self.clock()))
            self.grant(jobid, request, free, 0)
            self.update_expiration(jobid, until)
        return selected_ranks(free)

    def check_feasibility(self, request: Any) -> None:
        """Raise an exception if a request could not be satisfied with all ranks up and free.

        O(kinds of rank) for a new shape, then O(1). A pool without a view leaves that to ``alloc()``.

        Raises:
            InfeasibleRequest: the text names the scarce resource.
            ValueError: the pool's own check returned something.
        """
        answer = self._check_feasibility(request)  # type: ignore[func-returns-value]
        if answer is not None:
            raise ValueError(
                f"{type(self)._check_feasibility.__qualname__}() returned {quote(answer)}:"
                " expected nothing, or an InfeasibleRequest that is raised"
            )

    def _check_feasibility(self, request: Any) -> None:
        """Hook behind `check_feasibility()`."""
        reason = self.verdict(request.shape) if self.has_view else None
        if reason is not None:
            raise InfeasibleRequest(reason)

    # -- placing --------------------------------

    def count_amounts(self, table: Any) -> None:
        """Count amounts on nodes other than cores and GPUs, such as memory, from now on.

        A job takes the amounts in ``attributes.system.memory`` and ``attributes.system.amounts``; a
        request parsed before takes none. R of an allocation lists them in ``scheduling.amounts``.

        Args:
            table (dict or str): ``[amounts]`` of the configuration
                (`flux.resource.pool.amounts.read_table()`); empty: count none

        Raises:
            ValueError: it is malformed, or jobs hold resources
        """
        raise self._missing("count_amounts")

    def amounts_in_use(self) -> list[dict[str, Any]]:
        """Return the total and the used part of each counted amount. O(kinds of rank + different
        counts of free units).

        Returns:
            list of dict: ``amount`` (name), ``in_use``, ``total`` and ``largest`` (of a single
            node); bytes as text with a unit (``"64G"``)
        """
        inventory, index = self.inventory, self.index
        found = []
        for at, (kind, *_) in enumerate(inventory.amounts, 2):
            total = free = 0
            for units, mask in inventory.kinds.items():
                total += inventory.counts_of(units)[at] * popcount(mask)
            for key, mask in index.groups.items():
                free += inventory.counts(key)[at] * popcount(mask)
            found.append(
                {
                    "amount": kind.name,
                    "in_use": kind.value(total - free),
                    "total": kind.value(total),
                    "largest": kind.value(kind.most),
                }
            )
        return found

    def countable(self, shape: Shape) -> bool:
        """Return whether a shape fits wherever the counts of free cores and GPUs suffice.

        If so, plans work with counts; otherwise they call ``place_shape()`` for each time, which is
        slower.
        """
        return shape.within is None and not self.hooked

    def check_shape(self, shape: Shape) -> str | None:
        """Return a sentence if a shape could not be placed with all ranks up and free, else
        None."""
        inventory = self.inventory
        if self.place_shape(unused(inventory), shape, inventory.matching(shape.match)) is None:
            return explain.infeasible_in_groups(self, shape) or explain.infeasible(self, shape)
        return None

    def verdict(self, shape: Shape) -> str | None:
        """Return the result of ``check_shape()``, cached until ranks leave or properties change.

        O(1) for a shape checked before.
        """
        inventory = self.inventory
        asked = (shape, self.placement)
        try:
            return inventory.verdicts[asked]
        except KeyError:
            reason = inventory.verdicts[asked] = self.check_shape(shape)
            return reason

    def match_mask(self, request: Any) -> int:
        """Return the ranks that a request could use, up or down, in use or not. O(kinds of rank).

        Returns:
            int: mask of the ranks that meet the constraint and, when idle, hold a slot (or a node's
                share) of the request.
        """
        shape = request.shape
        inventory = self.inventory
        mask = ranks_in(self.rooms(unused(inventory), shape, inventory.matching(shape.match)))
        return mask if shape.within is None else mask & shape.within.groups.ranks

    def waits_for_ranks(self, request: Any) -> bool:
        """Return whether a request would not fit on the ranks that are up if all were idle.

        O(kinds of rank) for nodes if counts suffice, otherwise as placing it.
        """
        shape: Shape = request.shape
        if shape.node_count is not None and self.countable(shape):
            return popcount(self.match_mask(request) & self.eligible(None)) < shape.node_count.min
        up = self.eligible(shape.match)
        return self.place_request(request, unused(self.inventory), up) is None

    # -- looking ahead --------------------------

    def explain(self, request: Any) -> dict[str, Any]:
        """Return the shortage that keeps a request from starting now, in numbers and a sentence.

        O(kinds of rank + different counts of free cores and GPUs).

        Returns:
            dict: numbers of ranks: ``total`` in the pool, ``matching`` the constraint; of these
                ``large_enough`` for a slot (or a node's share) when idle, ``up``, and up and
                ``free`` for one; then ``available`` and the minimum ``needed`` in ``unit``
                (``nodes`` or ``slots``), and ``reason``, a sentence for the user, empty if enough
                is free.
        """
        return explain.explain(self, request.shape)

    def why_not(self, request: Any) -> str:
        """Return why a request does not fit now, in a sentence.

        It is the ``reason`` of ``explain()`` or, if enough is free, that the pool's own placement
        refuses. Costs as ``explain()``.
        """
        return (
            str(self.explain(request)["reason"])
            or f"insufficient resources: enough is free, but {self.name} finds no place for it"
        )

    def plan(self, ends: Callable[[int], float | None] | None = None) -> Plan:
        """Return a new :class:`~flux.resource.plan.plan.Plan` of the pool, without promises. O(1).

        Args:
            ends: maps the id of a running job to its believed end (seconds since the epoch; None:
                the pool's end). The plan calls it for all running jobs at its first use after each
                change of the pool. Its promises only hold if the beliefs do. Default: the pool's
                ends, which are limits.

        Raises:
            NotImplementedError: the pool has no view.
        """
        if not self.has_view:
            raise self._missing("inventory")
        if ends is None:
            return Plan(self)
        return Plan(cast("ResourcePoolImplementation", PoolWithBelievedEnds(self, ends)))

    def earliest(self, request: Any, after: float | None = None) -> float | None:
        """Return the earliest start of a request if running jobs end at their limits.

        O(running jobs) after a change of the pool; see :class:`~flux.resource.plan.plan.Plan`.

        Args:
            after (float): earliest time; default: now.

        Returns:
            Seconds since the epoch, or None if it does not fit even after the end of all jobs that
            have one.
        """
        return self._own_plan().earliest(request, after)

    def windows(self, requests: Iterable[Any], horizon: float) -> list[dict[str, Any]]:
        """Return backfill windows: the requests that could start now, and for how long; see
        ``Plan.windows()``."""
        return self._own_plan().windows(requests, horizon)

    def _own_plan(self) -> Plan:
        """Return the pool's own plan, which answers queries and never has promises."""
        plan: Plan | None = self.__dict__.get("_shared_plan")
        if plan is None:
            plan = self.__dict__["_shared_plan"] = self.plan()
        return plan

    # -- tests --------------------------------------------------------------

    def check(self) -> None:
        """Check the pool's invariants. Raises AssertionError, with its state, if one is
        violated."""


class PoolWithBelievedEnds:
    """A pool with other ends of its jobs, for a `Plan`; else itself. Arguments are those of
    `ResourcePoolImplementation.plan`."""

    def __init__(
        self, pool: ResourcePoolImplementation, ends: Callable[[int], float | None]
    ) -> None:
        self._pool = pool
        self._ends = ends

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def job_end(self, jobid: int) -> float:
        """Return the believed end of a job, in seconds since the epoch; 0: unknown."""
        believed = self._ends(jobid)
        return self._pool.job_end(jobid) if believed is None else believed

    def changes_since(self, generation: int) -> None:
        """Return None, unknown: beliefs change without a change of the pool."""
        return None

    def job_end_times(self) -> list[tuple[int, float]]:
        """Return ``(job id, believed end)`` of each job; the end is 0 if it is unknown."""
        return [(jobid, self.job_end(jobid)) for jobid, _ in self._pool.job_end_times()]

    def jobs_by_end(self) -> list[tuple[float, int]]:
        """Return ``(believed end, job id)``, sorted. O(jobs log jobs)."""
        return sorted((end, jobid) for jobid, end in self.job_end_times() if end)


def _expect_new(pool: ResourcePoolImplementation, jobid: int) -> None:
    """Raise ValueError if a job has an allocation."""
    try:
        pool.held(jobid)
    except KeyError:
        return
    raise ValueError(f"job {job_text(jobid)} already has an allocation")
