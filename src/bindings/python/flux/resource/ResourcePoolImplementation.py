# SPDX-License-Identifier: LGPL-3.0-or-later
"""The contract that a pool implementation keeps with its ``ResourcePool``, schedulers and plans."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Callable, cast

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.resource.plan.believed_ends import PoolWithBelievedEnds
from flux.resource.plan.plan import Plan
from flux.resource.pool import explain
from flux.resource.pool.constraint import parse_constraint
from flux.resource.pool.groups import Groups, Rooms, choose_nodes, packed
from flux.resource.pool.inventory import (
    Entry,
    Inventory,
    Selection,
    pairs,
    select,
    selected_ranks,
)
from flux.resource.pool.jobid import job_text
from flux.resource.pool.masks import idset_text, mask_of, members, popcount
from flux.resource.pool.placement import WORST_FIT, Placement, slots_on, with_amounts
from flux.resource.pool.rank_index import RankIndex, enough
from flux.resource.pool.rv1 import read_lite
from flux.resource.request import ResourceRequest, Shape


class NoLog:
    """A logger that drops everything: the log of pools that were given none."""

    def _drop(self, *args: Any, **kwargs: Any) -> None:
        pass

    debug = info = notice = warning = error = critical = alert = emerg = _drop


NO_LOG = NoLog()

#: ``(end, *selection)``: when a job ends, in seconds since the epoch (0: not known), and what it
#: holds.
JobRecord = tuple[Any, ...]


class ResourcePoolImplementation:
    """Base class of pool implementations, of which there is one for each version of R.

    It has three groups of methods:

    - *What every pool must have*: requests, allocations, what the instance reports, and R. These
      raise ``NotImplementedError`` here. A scheduler that does not plan needs no more.
    - *The view*: ``inventory``, ``index``, ``eligible()``, ``held()`` and ``grant()`` show what
      there is, what is free and which job holds what. A pool that defines ``inventory`` has to
      define all five.
    - *What follows from the view*: ranks and jobs, allocations on given ranks, plans, estimates and
      explanations. They are written here on the view alone, so every pool with a view has them. It
      may override any of them, where its policy gives other answers.

    :class:`~flux.resource.Rv1Pool.Rv1Pool` is the one to derive from, unless the state is to be
    kept in another way.

    Attributes:
        version (int): the version of R it reads.
        name (str): what the scheduler's ready line calls it.
        known_options (frozenset): keyword arguments its constructor understands.
        generation (int): grows with every change of the pool.
        releases (int): grows whenever a request that did not fit may fit: something was freed, came
            up, or properties changed.
        log: object with ``debug()``, ``info()`` and so on; the scheduler's.
        clock: callable that tells the time, in seconds since the epoch.
        nslots (int or None): of the pool of an allocation, how many slots it has
        packing (tuple): levels of groups that requests are packed by; see `pack_by()`
        placement (Placement): the policy, for ``place_shape()``.
    """

    version: Any = None
    name = "ResourcePool"
    known_options: frozenset[str] = frozenset()
    generation: int = 0
    releases: int = 0
    log: Any = NO_LOG
    clock: Callable[[], float] = staticmethod(time.time)
    placement: Placement = WORST_FIT
    nslots: int | None = None
    packing: tuple[Groups, ...] = ()

    InsufficientResources = InsufficientResources
    InfeasibleRequest = InfeasibleRequest

    def __init__(self, R: Any = None, log: Any = None, **kwargs: Any) -> None:
        """Make an implementation of R; its ``ResourcePool`` has looked at the version only.

        Args:
            R (dict or str): R object or JSON text; None for an empty pool.
            log: logger; None: the class's.
            kwargs: options of ``known_options``.
        """
        if log is not None:
            self.log = log

    def _missing(self, what: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__}.{what}")

    # -- what every pool must have: requests and allocations ----------------

    def parse_resource_request(self, jobspec: Any) -> Any:
        """Read what a job asks for. Done once for each job; O(vertices of its resource graph).

        Args:
            jobspec (dict): the jobspec (RFC 14, RFC 25).

        Returns:
            A request object for the other methods. Those that follow from the view need a
            :class:`~flux.resource.request.ResourceRequest`: they read its ``shape`` and
            ``duration``.

        Raises:
            ValueError: the jobspec cannot be understood.
        """
        raise self._missing("parse_resource_request")

    def check_feasibility(self, request: Any) -> None:
        """Check whether a request could be satisfied if every rank were up and free.

        With a view: O(kinds of rank) the first time a shape is seen, then O(1).

        Raises:
            InfeasibleRequest: it could not; the text says what there is too little of.
        """
        reason = self.verdict(request.shape)
        if reason is not None:
            raise InfeasibleRequest(reason)

    def alloc(self, jobid: int, request: Any) -> ResourcePoolImplementation:
        """Allocate resources to a job (RFC 27).

        Args:
            jobid (int): the job; it must not hold an allocation.
            request: from ``parse_resource_request()``.

        Returns:
            An implementation of just the resources given.

        Raises:
            InsufficientResources: it does not fit now.
            InfeasibleRequest: it can never fit.
            ValueError: the job holds an allocation.
        """
        raise self._missing("alloc")

    def free(self, jobid: int, R: Any = None, final: bool = False) -> None:
        """Take back resources of a job.

        Args:
            jobid (int): the job. For one that holds nothing, nothing happens.
            R: what is released: a pool, R object or JSON text; None for all that it holds. Ranks
                that left the pool are passed over.
            final (bool): nothing of the job remains.

        Raises:
            ValueError: the job does not hold what R names, or ``final`` does not match. Nothing is
                changed.
        """
        raise self._missing("free")

    def register_alloc(self, jobid: int, R: Any) -> None:
        """Record an allocation that was made earlier, of a job found running (RFC 27 hello).

        Args:
            jobid (int): the job.
            R: the job's resources: a pool, R object or JSON text. Its expiration is the job's end.

        Raises:
            ValueError: the pool lacks some of R, another job holds some, or the job is known.
                Nothing is changed.
        """
        raise self._missing("register_alloc")

    # -- what every pool must have: what the instance reports ---------------

    def mark_up(self, ids: Any) -> None:
        """Make ranks available: an idset or ``"all"``; unknown ranks are ignored.

        Raises:
            ValueError: not an idset.
        """
        raise self._missing("mark_up")

    def mark_down(self, ids: Any) -> None:
        """Make ranks unavailable for new jobs; as ``mark_up()``. Jobs keep theirs."""
        raise self._missing("mark_down")

    def remove_ranks(self, ranks: Any) -> None:
        """Remove ranks for good (RFC 28 shrink), and what jobs hold on them.

        Args:
            ranks: idset text, ``IDset`` or iterable of ranks; unknown ones are ignored.
        """
        raise self._missing("remove_ranks")

    def add_property(self, name: str, ranks: Any) -> None:
        """Give ranks (an idset) a property (RFC 28 property-add)."""
        raise self._missing("add_property")

    def remove_property(self, name: str, ranks: Any) -> None:
        """Take a property from ranks (RFC 28 property-remove)."""
        raise self._missing("remove_property")

    @property
    def expiration(self) -> float:
        """End of validity of the resources, in seconds since the epoch; 0: none."""
        raise self._missing("expiration")

    def set_expiration(self, expiration: float) -> None:
        """Set the end of validity (seconds since the epoch, 0: none).

        Raises:
            ValueError: not a time.
        """
        raise self._missing("set_expiration")

    def set_starttime(self, starttime: float) -> None:
        """Set the start of validity; as ``set_expiration()``."""
        raise self._missing("set_starttime")

    def update_expiration(self, jobid: int, expiration: float) -> None:
        """Set the end of a running job (seconds since the epoch, 0: none).

        For a job that holds nothing, nothing happens.

        Raises:
            ValueError: not a time.
        """
        raise self._missing("update_expiration")

    def job_end_times(self) -> list[tuple[int, float]]:
        """List of ``(jobid, end)`` of all jobs, in seconds since the epoch, 0: none. O(jobs)."""
        raise self._missing("job_end_times")

    # -- what every pool must have: R and copies ----------------------------

    def copy(self) -> ResourcePoolImplementation:
        """An independent copy with all allocations, which logs nothing. O(ranks + jobs)."""
        raise self._missing("copy")

    def to_dict(self) -> dict[str, Any]:
        """The resources as an R object (RFC 20)."""
        raise self._missing("to_dict")

    def to_resource_set(self) -> Any:
        """The resources as a ``flux.resource.ResourceSet``."""
        return resource_set(self.to_dict())

    def entries(self) -> list[Entry]:
        """All that is in the pool, as a list of ``(rank mask, core mask, GPU mask)``."""
        return read_lite(self.to_dict())

    def dumps(self) -> str:
        """The resources as short text, ``rank[0-1]/core[0-3],gpu0``."""
        inventory = self.inventory
        return inventory.dumps(inventory.whole())

    def copy_allocated(self) -> Any:
        """ResourceSet of what jobs hold. O(ranks)."""
        return resource_set(self._part(self._allocated()))

    def copy_down(self) -> Any:
        """ResourceSet of what is on ranks that are down. O(kinds of rank)."""
        return resource_set(self._part(self._down()))

    def allocated_to_dict(self) -> dict[str, Any]:
        """What jobs hold as an R object (RFC 20). O(ranks); a ResourceSet takes several times as
        long."""
        if type(self).copy_allocated is not ResourcePoolImplementation.copy_allocated:
            found: dict[str, Any] = self.copy_allocated().to_dict()
            return found
        return self._part(self._allocated())

    def held_to_dict(self, jobid: int) -> dict[str, Any]:
        """What a job holds; see ``ResourcePool.held_to_dict()``."""
        return self._part(self.held(jobid))

    def down_to_dict(self) -> dict[str, Any]:
        """What is on ranks that are down, as ``allocated_to_dict()``."""
        if type(self).copy_down is not ResourcePoolImplementation.copy_down:
            found: dict[str, Any] = self.copy_down().to_dict()
            return found
        return self._part(self._down())

    def _allocated(self) -> Selection:
        index = self.index
        inventory = self.inventory
        full = inventory.full
        groups = {units: mask & ~index.idle for units, mask in inventory.kinds.items()}
        # Ranks by what they have and what of it is free: a mask is as long as the cluster, so one is made
        # for all ranks of a kind and state together.
        alike: dict[tuple[int, int], list[int]] = {}
        for rank, free in enumerate(index.partial):
            if free:
                alike.setdefault((full[rank], free), []).append(rank)
        for (units, free), ranks in alike.items():
            mask = mask_of(ranks)
            groups[units] ^= mask
            groups[units ^ free] = groups.get(units ^ free, 0) | mask
        return select(groups)

    def _down(self) -> Selection:
        inventory = self.inventory
        down = inventory.ranks & ~self.eligible(None)
        return select({units: mask & down for units, mask in inventory.kinds.items()})

    def _part(self, selection: Selection) -> dict[str, Any]:
        return {"version": 1, "execution": self.inventory.execution(selection)}

    # -- the view -----------------------------------------------------------

    @property
    def has_view(self) -> bool:
        """Whether the pool has a view, and so can plan, look ahead and explain."""
        return type(self).inventory is not ResourcePoolImplementation.inventory

    def can(self, operation: str) -> bool:
        """Whether the pool has an operation that follows from the view; see ``ResourcePool.can()``.

        It has them all if it has a view; otherwise those that it overrides.
        """
        own = getattr(type(self), operation, None)
        if own is not None and own is getattr(ResourcePoolImplementation, operation, None):
            return self.has_view
        return own is not None

    @property
    def inventory(self) -> Inventory:
        """What there is: ranks, what each has, hosts and properties.

        It never changes. When ranks leave or properties change, the pool has another one.
        """
        raise self._missing("inventory")

    @property
    def index(self) -> RankIndex:
        """What is free of ``inventory`` now, up or not. Only the pool itself may change it."""
        raise self._missing("index")

    def eligible(self, match: Any) -> int:
        """Mask of the ranks that are up and meet a parsed constraint (``shape.match``; None: no
        constraint).
        """
        raise self._missing("eligible")

    def held(self, jobid: int) -> Selection:
        """The selection that a job holds. O(1).

        Raises:
            KeyError: the job holds no allocation.
        """
        raise self._missing("held")

    def records_now(self) -> dict[int, JobRecord]:
        """Dict of job id to ``(end, *selection)``: when a job ends, 0: not known, and what it holds
        now; whatever happens later. O(jobs)."""
        return {jobid: (end, *self.held(jobid)) for jobid, end in self.job_end_times()}

    def changes_since(self, generation: int) -> dict[int, JobRecord | None] | None:
        """The jobs that came or went, gave something back, or got another end since a generation of
        the pool: job id to what ``records_now()`` has, None: it is gone. May have others as well.

        None: not known, as for every generation where this is not overridden; whoever asks looks at
        all jobs then.
        """
        return None

    def grant(
        self, jobid: int, request: Any, selection: Selection, nslots: int
    ) -> ResourcePoolImplementation:
        """Allocate a selection, all of which is free, to a job.

        Args:
            jobid (int): the job; it holds no allocation.
            request: what was placed. The job ends ``request.duration`` seconds from now, or with
                the pool if that is 0.
            selection, nslots: what ``place_request()`` returned.

        Returns:
            As ``alloc()``.
        """
        raise self._missing("grant")

    # -- what follows from the view: ranks ----------------------------------

    @property
    def ranks(self) -> int:
        """Mask of all ranks of the pool; see ``ResourcePool.ranks``."""
        return self.inventory.ranks

    @property
    def idle_ranks(self) -> int:
        """Mask of the ranks of which nothing is in use; see ``ResourcePool.idle_ranks``."""
        return self.index.idle

    def eligible_ranks(self, request: Any = None) -> int:
        """Mask of the ranks that a request may use now; see ``ResourcePool.eligible_ranks()``."""
        return self.eligible(None if request is None else request.shape.match)

    def ranks_matching(self, constraint: dict[str, Any]) -> int:
        """Mask of the ranks that meet a constraint; see ``ResourcePool.ranks_matching()``."""
        return self.inventory.matching(parse_constraint(constraint))

    def held_ranks(self, jobid: int) -> int:
        """Mask of the ranks on which a job holds something; see ``ResourcePool.held_ranks()``."""
        return selected_ranks(self.held(jobid))

    def held_kinds(self, jobid: int) -> list[tuple[int, int, int]]:
        """What a job holds; see ``ResourcePool.held_kinds()``."""
        inventory = self.inventory
        return [
            (*inventory.cores_and_gpus(units), mask)
            for mask, units in pairs(self.held(jobid))
            if mask
        ]

    def node_kinds(self) -> list[tuple[int, int, int]]:
        """Ranks by what they have in all; see ``ResourcePool.node_kinds()``."""
        inventory = self.inventory
        kinds: dict[tuple[int, int], int] = {}
        for units, mask in inventory.kinds.items():
            key = inventory.cores_and_gpus(units)
            kinds[key] = kinds.get(key, 0) | mask
        return [(*key, mask) for key, mask in sorted(kinds.items(), reverse=True)]

    def slots_by_rank(self, shape: Shape) -> list[tuple[int, int]]:
        """How many slots a rank can hold; see ``ResourcePool.slots_by_rank()``."""
        inventory = self.inventory
        return [
            (slots_on(inventory.counts_of(units), shape), ranks)
            for units, ranks in inventory.kinds.items()
        ]

    def free_cores(self, ranks: int) -> int:
        """Cores that are free on some ranks; see ``ResourcePool.free_cores()``."""
        base = self.inventory.key_base
        return sum(key // base * popcount(mask & ranks) for key, mask in self.index.groups.items())

    # -- what follows from the view: jobs -----------------------------------

    def job_end(self, jobid: int) -> float:
        """When a job ends; see ``ResourcePool.job_end()``. O(jobs), unless overridden."""
        return dict(self.job_end_times())[jobid]

    def ends_by_job(self) -> dict[int, float]:
        """Dict of job id to end; see ``ResourcePool.ends_by_job()``."""
        return dict(self.job_end_times())

    def placeholders(self) -> list[int]:
        """The ids of the placeholders; see ``ResourcePool.placeholders()``."""
        return [jobid for jobid in self.ends_by_job() if jobid < 0]

    def endless_jobs(self) -> list[int]:
        """The ids of the jobs without an end; see ``ResourcePool.endless_jobs()``."""
        return [jobid for jobid, end in self.ends_by_job().items() if not end]

    def jobs_by_end(self) -> list[tuple[float, int]]:
        """Jobs in the order of their ends; see ``ResourcePool.jobs_by_end()``.

        O(jobs log jobs), unless overridden.
        """
        return sorted((end, jobid) for jobid, end in self.job_end_times() if end)

    # -- what follows from the view: allocations on given ranks -------------

    def alloc_on(self, jobid: int, request: Any, ranks: int) -> ResourcePoolImplementation:
        """``alloc()`` on given ranks only; see ``ResourcePool.alloc_on()``."""
        self._expect_new(jobid)
        eligible = self.eligible_ranks(request) & ranks
        placed = self.place_request(request, self.index, eligible)
        if placed is None:
            self.check_feasibility(request)
            raise InsufficientResources(lambda: _no_room_on(eligible))
        return self.grant(jobid, request, *placed)

    def fits_on(self, request: Any, ranks: int, ignoring: int | None = None) -> bool:
        """Whether ``alloc_on()`` would succeed; see ``ResourcePool.fits_on()``."""
        index = self.index
        if ignoring is not None:
            index = index.copy()
            index.give(self.held(ignoring))
        eligible = self.eligible_ranks(request) & ranks
        return self.place_request(request, index, eligible) is not None

    def hold_free(self, jobid: int, ranks: int, until: float) -> int:
        """Allocate what is free on given ranks to no job; see ``ResourcePool.hold_free()``."""
        self._expect_new(jobid)
        free = self._free_on(ranks)
        if free:
            # grant() reads nothing but the duration, of which 0 would mean that there is no end.
            request = ResourceRequest(duration=max(1.0, until - self.clock()))
            self.grant(jobid, request, free, 0)
            self.update_expiration(jobid, until)
        return selected_ranks(free)

    def _free_on(self, ranks: int) -> Selection:
        """All that is free on those of some ranks that are up."""
        inventory, index = self.inventory, self.index
        up = self.eligible(None) & ranks
        idle = up & index.idle
        groups = {units: mask & idle for units, mask in inventory.kinds.items()}
        for rank in members(up ^ idle):
            units = index.free(rank)
            if units:
                groups[units] = groups.get(units, 0) | 1 << rank
        return select(groups)

    def _expect_new(self, jobid: int) -> None:
        """ValueError if a job holds an allocation."""
        try:
            self.held(jobid)
        except KeyError:
            return
        raise ValueError(f"job {job_text(jobid)} already has an allocation")

    # -- what follows from the view: placing --------------------------------

    def place_shape(
        self, index: RankIndex, shape: Shape, eligible: int
    ) -> tuple[Selection, int] | None:
        """Find resources for a shape on an index; see ``Placement.place()``.

        The index may be the pool's own, one of an empty pool (to check feasibility) or of a time to
        come (to plan). The answer must therefore depend on the arguments alone, and nothing is
        changed.

        Returns:
            ``(selection, nslots)``, or None if it does not fit.
        """
        if self.packing or shape.within is not None:
            eligible = self.in_groups(index, shape, eligible)
        placed = self.placement.place(index, shape, eligible)
        return with_amounts(index, shape, placed) if index.inventory.amounts else placed

    def count_amounts(self, table: Any) -> None:
        """Count amounts on nodes beside cores and GPUs; see ``ResourcePool.count_amounts()``."""
        raise self._missing("count_amounts")

    def amounts_in_use(self) -> list[dict[str, Any]]:
        """What jobs have of amounts; see ``ResourcePool.amounts_in_use()``."""
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

    def pack_by(self, levels: Iterable[Groups]) -> None:
        """Place each request in as few groups as it can be; see ``ResourcePool.pack_by()``."""
        self.packing = tuple(levels)

    def choose_nodes(self, ranks: int, count: int, idle: int, beside: int = 0) -> int:
        """Choose so many of some ranks, in as few groups as can be; see
        ``ResourcePool.choose_nodes()``."""
        return choose_nodes(self.packing, idle, ranks, count, beside)

    def rooms(self, index: RankIndex, shape: Shape, eligible: int) -> Rooms:
        """Ranks by how many slots of a shape they have room for; where it asks for nodes, those
        with room for one node's share, as 1.

        O(different counts of free cores and GPUs).
        """
        if shape.node_count is None:
            found = index.fitting(shape.need, eligible, self.placement.best_fit)
            return [(slots_on(free, shape), mask) for free, mask in found]
        if shape.exclusive:
            eligible &= index.idle
        ranks = index.having(shape.need, eligible)
        return [(1, ranks)] if ranks else []

    def in_groups(self, index: RankIndex, shape: Shape, eligible: int) -> int:
        """The ranks of some eligible ones that a shape is placed on, because it has to be together,
        or to keep whole groups free; 0: there are no such.  O(groups)."""
        rooms = self.rooms(index, shape, eligible)
        if shape.within is None:
            return eligible & (packed(self.packing, index, shape, rooms) or -1)
        count = shape.node_count or shape.slot_count
        return eligible & shape.within.choose(rooms, count, index.idle)

    def place_request(
        self, request: Any, index: RankIndex, eligible: int
    ) -> tuple[Selection, int] | None:
        """Find resources for a request, as ``place_shape()`` does for its shape.

        To be overridden where more than the shape decides, such as attributes of the jobspec.
        """
        return self.place_shape(index, request.shape, eligible)

    def countable(self, shape: Shape) -> bool:
        """Whether a shape fits wherever the counts of free cores and GPUs suffice.

        If so, plans work with counts. Where ``place_shape()`` may refuse for other reasons, plans
        have to call it for each time in question, which is slower.
        """
        return shape.within is None

    def check_shape(self, shape: Shape) -> str | None:
        """Why a shape could not be placed if every rank were up and free: a sentence, or None."""
        inventory = self.inventory
        if self.place_shape(inventory.unused(), shape, inventory.matching(shape.match)) is None:
            return explain.infeasible_in_groups(self, shape) or explain.infeasible(inventory, shape)
        return None

    def verdict(self, shape: Shape) -> str | None:
        """What ``check_shape()`` said, remembered until ranks leave or properties change.

        O(1) if it was asked before.
        """
        inventory = self.inventory
        asked = (shape, self.placement)
        try:
            return inventory.verdicts[asked]
        except KeyError:
            reason = inventory.verdicts[asked] = self.check_shape(shape)
            return reason

    def match_mask(self, request: Any) -> int:
        """Mask of the ranks that a request could use; see ``ResourcePool.match_mask()``."""
        shape = request.shape
        inventory = self.inventory
        mask = 0
        for units, ranks in inventory.kinds.items():
            have = inventory.counts_of(units)
            if enough(have, shape.need) if shape.node_count is not None else slots_on(have, shape):
                mask |= ranks
        if shape.within is not None:
            mask &= shape.within.groups.ranks
        return mask & inventory.matching(shape.match)

    def waits_for_ranks(self, request: Any) -> bool:
        """Whether a request would not fit on the ranks that are up if all of them were idle.

        O(kinds of rank) for nodes where counts decide, otherwise as placing it.
        """
        shape: Shape = request.shape
        if shape.node_count is not None and self.countable(shape):
            return popcount(self.match_mask(request) & self.eligible(None)) < shape.node_count.min
        up = self.eligible(shape.match)
        return self.place_request(request, self.inventory.unused(), up) is None

    # -- what follows from the view: looking ahead --------------------------

    def explain(self, request: Any) -> dict[str, Any]:
        """How far a request is from being satisfied now; see ``ResourcePool.explain()``."""
        return explain.explain(self, request.shape)

    def why_not(self, request: Any) -> str:
        """One sentence for a request that does not fit now; see ``ResourcePool.why_not()``."""
        # Enough is free, so the numbers give no reason: the pool's own placement refuses.
        return (
            str(self.explain(request)["reason"])
            or f"insufficient resources: enough is free, but {self.name} finds no place for it"
        )

    def plan(self, ends: Callable[[int], float | None] | None = None) -> Plan:
        """A new :class:`~flux.resource.plan.plan.Plan` of the pool, without promises; see
        ``ResourcePool.plan()``.

        Raises:
            NotImplementedError: the pool has no view.
        """
        if not self.has_view:
            raise self._missing("inventory")
        if ends is None:
            return Plan(self)
        return Plan(cast("ResourcePoolImplementation", PoolWithBelievedEnds(self, ends)))

    def earliest(self, request: Any, after: float | None = None) -> float | None:
        """First time at which a request fits as running jobs end; see ``Plan.earliest()``."""
        return self._own_plan().earliest(request, after)

    def windows(self, requests: Iterable[Any], horizon: float) -> list[dict[str, Any]]:
        """What could start now, and how long it could run; see ``Plan.windows()``."""
        return self._own_plan().windows(requests, horizon)

    def _own_plan(self) -> Plan:
        """The pool's own plan, which answers questions and never has a promise."""
        plan: Plan | None = self.__dict__.get("_shared_plan")
        if plan is None:
            plan = self.__dict__["_shared_plan"] = self.plan()
        return plan

    # -- tests --------------------------------------------------------------

    def check(self) -> None:
        """Check the pool's invariants; AssertionError with its state if one is broken."""


def _no_room_on(ranks: int) -> str:
    """Sentence for a request that does not fit on given ranks, of which these are eligible."""
    if not ranks:
        return "insufficient resources: none of the given ranks is up and matches the constraint"
    return f"insufficient resources: too little is free on ranks {idset_text(ranks)}"


def resource_set(R: dict[str, Any]) -> Any:
    """R as a ``flux.resource.ResourceSet``; of R without ranks, an empty one."""
    # Not at the top: the host's module imports names of this package.
    from flux.resource.ResourceSet import ResourceSet

    return ResourceSet(R) if R["execution"]["R_lite"] else ResourceSet()
