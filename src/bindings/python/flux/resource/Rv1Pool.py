# SPDX-License-Identifier: LGPL-3.0-or-later
"""The pool of R version 1 (RFC 20): allocation by worst fit.

It implements the contract (``pool/contract.py``) with the parts in ``pool``, which lists them;
doc/guide/pools.rst tells what a pool with another policy overrides.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from flux.resource.errors import InsufficientResources
from flux.resource.pool.amounts import read_table, with_amounts_asked, with_amounts_recorded
from flux.resource.pool.contract import NO_LOG, JobRecord
from flux.resource.pool.hooks import Hooks, hash_of_attributes
from flux.resource.pool.inventory import (
    Entry,
    Inventory,
    Selection,
    make_inventory,
    pairs,
    select,
    selected_ranks,
)
from flux.resource.pool.jobid import job_text
from flux.resource.pool.masks import idset_text, popcount, quote, to_mask
from flux.resource.pool.rv1 import object_of, read_lite, read_names, read_time, seconds, units_of
from flux.resource.pool.state import PoolState, RankIndex
from flux.resource.request import ResourceRequest
from flux.resource.tree.topology import cut_children, is_of_treepool, read_children, record_cores

__all__ = ("ResourceRequest", "Rv1Pool")

#: Limit of core numbers.
CORE_LIMIT = 1 << 16

#: In place of a number in `cores_per_gpu`, a node's cores divided by its GPUs.
SHARE = "share"

#: Attributes that a copy or an allocation does not inherit from its pool.
NOT_INHERITED = ("pool_state", "_shared_plan")


class Rv1Pool(Hooks):
    """A pool of ranks with cores and GPUs.

    A pool made from R has all ranks up and free.

    Args:
        R (dict, str): R object or its JSON text; None for an empty pool.
        log: logger; default: no logging.
        system_cores: core ids (an idset), on each rank, that no job gets; ignored in the R of a
            running job.
        cores_per_gpu: minimum number of cores per GPU of a job without whole nodes: a number, or
            ``"share"``, the cores of a node divided by its GPUs.
        amounts (dict): counted amounts on nodes other than cores and GPUs, such as memory
            (`flux.resource.pool.amounts.read_table()`);
            None: none.
        kwargs: further options of ``known_options``.

    Raises:
        ValueError: R is malformed or not of version 1, or an option is invalid; the text says
            where.
    """

    known_options = frozenset(("system_cores", "cores_per_gpu", "amounts"))

    version = 1
    name = "Rv1Pool"
    request_class = ResourceRequest
    has_view = True
    #: Class of its index; a policy that needs more than counts of free units has a subclass.
    index_class = RankIndex

    #: Whether this is the pool of an allocation, whose R omits properties local to the instance.
    _granted = False
    #: The units of ``_base`` in the pool of an allocation, until its state is made.
    _selection: Selection = ()

    def __init__(
        self,
        R: Any = None,
        log: Any = None,
        system_cores: Any = None,
        cores_per_gpu: Any = None,
        amounts: Any = None,
        **kwargs: Any,
    ) -> None:
        if R is None:
            R = {"version": 1, "execution": {"R_lite": []}}
        R = object_of(R)
        if R.get("version") != self.version or isinstance(R["version"], bool):
            raise ValueError(
                f"R version {quote(R.get('version'))} not supported by {type(self).__name__}"
            )
        if log is not None:
            self.log = log
        entries, self._system_cores = _without_system_cores(read_lite(R), system_cores)
        self._cores_per_gpu = _least_cores_per_gpu(entries, cores_per_gpu)
        self._read_from = (entries, *read_names(R, entries))
        execution = R["execution"]
        self.starttime = read_time(execution, "starttime")
        self._expiration = read_time(execution, "expiration")
        if 0 < self._expiration <= self.starttime:
            raise ValueError("R: execution.expiration must be after starttime")
        self.nslots = execution.get("nslots")
        if self.nslots is not None and (type(self.nslots) is not int or self.nslots < 1):
            raise ValueError(f"R: execution.nslots: expected a count, got {quote(self.nslots)}")
        self.scheduling = R.get("scheduling")
        if amounts is not None:
            self.count_amounts(amounts)

    # Inventory and state are made on demand: the pool of an allocation is usually written as R and
    # dropped, and a pool made of a job's R is read once.

    @cached_property
    def _base(self) -> Inventory:
        return make_inventory(*self._read_from)

    @cached_property
    def pool_state(self) -> PoolState:
        inventory = self._base.part(self._selection) if self._granted else self._base
        return PoolState(inventory, self.index_class(inventory))

    def _sibling(self, **own: Any) -> Any:
        """Return a pool of the same class and attributes, with some of its own, without the
        state."""
        attributes = self.__dict__.copy()
        for name in NOT_INHERITED:
            attributes.pop(name, None)
        attributes.update(own)
        new = object.__new__(type(self))
        new.__dict__ = attributes
        return new

    def count_amounts(self, table: Any) -> None:
        state = self.pool_state
        if state.jobs:
            raise ValueError("amounts cannot change while jobs have resources")
        amounts = read_table(table, self.scheduling, state.inventory)
        self._base = state.inventory.with_amounts(amounts)
        state.recount(self._base, self.index_class(self._base))

    # -- the view -----------------------------------------------------------

    @property
    def generation(self) -> int:  # type: ignore[override]
        return self.pool_state.generation

    @property
    def releases(self) -> int:  # type: ignore[override]
        return self.pool_state.releases

    @property
    def inventory(self) -> Inventory:
        # For a pool that is only read, the state, with an entry per rank, is not made.
        if "pool_state" in self.__dict__ or self._granted:
            return self.pool_state.inventory
        return self._base

    @property
    def index(self) -> RankIndex:
        return self.pool_state.index

    def eligible(self, match: Any) -> int:
        """See ``ResourcePoolImplementation.eligible()``; O(1) for a constraint seen before."""
        return self.pool_state.eligible(match)

    def held(self, jobid: int) -> Selection:
        return self.pool_state.jobs[jobid][1:]

    def records_now(self) -> dict[int, JobRecord]:
        return self.pool_state.jobs.copy()

    def changes_since(self, generation: int) -> dict[int, JobRecord | None] | None:
        return self.pool_state.changes_since(generation)

    def job_end(self, jobid: int) -> float:
        end: float = self.pool_state.jobs[jobid][0]
        return end

    def job_end_times(self) -> list[tuple[int, float]]:
        return [(jobid, record[0]) for jobid, record in self.pool_state.jobs.items()]

    # -- requests -----------------------------------------------------------

    def parse_resource_request(self, jobspec: Any) -> ResourceRequest:
        request = self.request_class.from_jobspec(jobspec)
        if self.sees_requests:
            request.shape = request.shape.replace(attributes=hash_of_attributes(request.jobspec))
        shape = request.shape
        least = shape.gpu_per_slot * self._cores_per_gpu
        if shape.slot_size < least and not (shape.exclusive or shape.container_level):
            request.shape = shape.replace(slot_size=least)
        counted = self.inventory.amounts
        if counted:
            request.shape = with_amounts_asked(
                request.shape, request.jobspec, tuple([one.kind for one in counted])
            )
        return request

    def place_request(
        self, request: ResourceRequest, index: RankIndex, eligible: int
    ) -> tuple[Selection, int] | None:
        """Find resources with the hooks if the class overrides one, else with ``place_shape()``."""
        if self.hooked:
            return self.place_by_hooks(request, index, eligible)
        return self.place_shape(index, request.shape, eligible)

    # -- allocations --------------------------------------------------------

    def alloc(self, jobid: int, request: ResourceRequest) -> Rv1Pool:
        """See ``ResourcePoolImplementation.alloc()``.

        O(different counts of free cores and GPUs) for a request that one rank satisfies,
        independent of the number of ranks; O(1) for a shape that has failed since resources were
        last freed. With a hook that chooses, O(ranks).

        Raises:
            ValueError: also if a hook chose resources that are not free.
        """
        state = self.pool_state
        if jobid in state.jobs:
            raise ValueError(f"job {job_text(jobid)} already has an allocation")
        shape = request.shape
        if shape not in state.blocked:
            placed = self.place_request(request, state.index, state.eligible(shape.match))
            if placed is not None:
                return self.grant(jobid, request, *placed)
        self.check_feasibility(request)
        if not self.hooked:
            state.blocked[shape] = True
        raise InsufficientResources(lambda: self.why_not(request))

    def grant(
        self, jobid: int, request: ResourceRequest, selection: Selection, nslots: int
    ) -> Rv1Pool:
        if request.duration > 0:
            end = self.clock() + request.duration
        else:
            end = self._expiration
        state = self.pool_state
        state.enter(jobid, end, selection)
        granted: Rv1Pool = self._sibling(
            _granted=True,
            _base=state.inventory,
            _selection=selection,
            nslots=nslots,
            starttime=0.0,
            _expiration=0.0,
            scheduling=self.scheduling_of(selection),
        )
        amounts = state.inventory.amounts and state.inventory.amounts_of(selection)
        if amounts:
            granted.scheduling = {**(granted.scheduling or {}), "amounts": amounts}
        return granted

    @cached_property
    def _children(self) -> tuple[Any, list[tuple[int, Any]]]:
        """``scheduling`` and its entries by ranks, if TreePool wrote it (RFC 49)."""
        scheduling = self.scheduling
        if is_of_treepool(scheduling):
            own = [(mask, cores) for mask, cores, _ in self.entries()]
            try:
                return read_children(scheduling, own)[:2]
            except ValueError as exc:
                self.log.warning(f"{exc}: jobs get R.scheduling as it is")
        return scheduling, []

    def scheduling_of(self, selection: Selection) -> Any:
        """Return ``scheduling`` for the R of an allocation: that of the pool's R; of a topology the
        entries of its ranks, since an instance in the job may place by it."""
        scheduling, entries = self._children
        if not entries:
            return self.scheduling
        scheduling = cut_children(scheduling, entries, selected_ranks(selection))
        cores = record_cores(selection, self.pool_state.inventory.core_mask)
        if cores:
            scheduling["cores"] = cores
        return scheduling

    def free(self, jobid: int, R: Any = None, final: bool = False) -> None:
        """See ``ResourcePoolImplementation.free()``; O(ranks freed), O(1) for whole nodes."""
        state = self.pool_state
        if jobid not in state.jobs:
            return
        held, inventory = state.jobs[jobid][1:], state.inventory
        if R is None or (final and _is_lite(R, inventory.lite(held))):
            state.give_back(jobid, held, None)
        else:
            units = units_of(R, inventory, self._system_cores, held if inventory.amounts else ())
            state.give_back(jobid, *state.split(jobid, units, final))

    def register_alloc(self, jobid: int, R: Any) -> None:
        state = self.pool_state
        if jobid in state.jobs:
            raise ValueError(f"job {job_text(jobid)} already has an allocation")
        if isinstance(R, (str, bytes)):
            R = object_of(R)
        inventory = state.inventory
        missing = 0
        groups: dict[int, int] = {}
        for mask, units in units_of(R, inventory, self._system_cores):
            missing |= mask & ~inventory.ranks
            groups[units] = groups.get(units, 0) | mask
        if missing:
            raise ValueError(
                f"allocation contains ranks not in resource pool: [{idset_text(missing)}]"
            )
        if inventory.amounts:
            groups = with_amounts_recorded(state.index, object_of(R).get("scheduling"), groups)
        selection = select(groups)
        if not state.index.is_free(selection):
            raise ValueError(
                f"job {job_text(jobid)}: {inventory.dumps(selection)} is not in the resource pool,"
                " or is allocated to another job"
            )
        if isinstance(R, dict):
            end = read_time(R["execution"], "expiration")
        else:
            end = float(getattr(R, "expiration", 0.0) or 0.0)
        state.enter(jobid, end, selection)

    # -- reports of the instance --------------------------------------------

    def _known_ranks(self, ids: Any) -> int:
        """Return the mask of those ranks of an idset, or of ``"all"``, that are in the pool."""
        ranks = self.pool_state.inventory.ranks
        if isinstance(ids, str) and ids == "all":
            return ranks
        return to_mask(ids, ranks.bit_length()) & ranks

    def mark_up(self, ids: Any) -> None:
        self.pool_state.set_up(self.pool_state.up | self._known_ranks(ids))

    def mark_down(self, ids: Any) -> None:
        self.pool_state.set_up(self.pool_state.up & ~self._known_ranks(ids))

    def remove_ranks(self, ranks: Any) -> None:
        mask = self._known_ranks(ranks)
        if mask:
            self.pool_state.remove(mask)

    def add_property(self, name: str, ranks: Any) -> None:
        old = self.pool_state.inventory.properties.get(name, 0)
        self.pool_state.set_property(name, old | self._known_ranks(ranks))

    def remove_property(self, name: str, ranks: Any) -> None:
        old = self.pool_state.inventory.properties.get(name, 0)
        self.pool_state.set_property(name, old & ~self._known_ranks(ranks))

    @property
    def expiration(self) -> float:
        return self._expiration

    def set_expiration(self, expiration: float) -> None:
        self._expiration = seconds(expiration, "expiration")

    def set_starttime(self, starttime: float) -> None:
        self.starttime = seconds(starttime, "starttime")

    def update_expiration(self, jobid: int, expiration: float) -> None:
        if jobid in self.pool_state.jobs:
            self.pool_state.set_end(jobid, seconds(expiration, "expiration"))

    # -- R and copies -------------------------------------------------------

    def copy(self) -> Rv1Pool:
        state = self.__dict__.get("pool_state")
        own = {} if state is None else {"pool_state": state.copy()}
        new: Rv1Pool = self._sibling(log=NO_LOG, **own)
        return new

    def _contents(self) -> tuple[Inventory, Selection]:
        """Return the pool's contents: an inventory, and a selection of it."""
        if "pool_state" in self.__dict__:
            inventory = self.pool_state.inventory
            return inventory, inventory.whole()
        base = self._base
        return base, self._selection if self._granted else base.whole()

    def entries(self) -> list[Entry]:
        if "_base" not in self.__dict__:
            return self._read_from[0]
        base, selection = self._contents()
        return [
            (mask, units & base.core_mask, base.gpus(units)) for mask, units in pairs(selection)
        ]

    def to_dict(self) -> dict[str, Any]:
        base, selection = self._contents()
        execution = base.execution(
            selection, self.starttime, self._expiration, local=not self._granted
        )
        R = {"version": 1, "execution": execution}
        if self.nslots is not None:
            execution["nslots"] = self.nslots
        if base.hosts.named or self._granted:
            execution["nodelist"] = [base.hosts.hostlist(selected_ranks(selection))]
        if self.scheduling is not None:
            R["scheduling"] = self.scheduling
        return R

    def dumps(self) -> str:
        base, selection = self._contents()
        return base.dumps(selection)

    # -- tests --------------------------------------------------------------

    def check(self) -> None:
        """Check all invariants. Raises AssertionError, with the pool's state, if one is
        violated."""
        try:
            self.pool_state.check()
        except AssertionError as exc:
            raise AssertionError(f"{exc}\n{self.pool_state.text()}") from None


def _is_lite(R: Any, lite: list[dict[str, Any]]) -> bool:
    """Return whether R is an object with just this ``R_lite``, and so needs no parsing."""
    execution = R.get("execution") if type(R) is dict else None
    return type(execution) is dict and execution.get("R_lite") == lite


def _without_system_cores(entries: list[Entry], value: Any) -> tuple[list[Entry], int]:
    """Return entries of R without the cores kept for the system, and a mask of these. `value`: their
    idset, on each node; None: none.

    Raises:
        ValueError: it is not an idset, or leaves a rank without cores
    """
    if value is None:
        return entries, 0
    try:
        kept = to_mask(value, CORE_LIMIT)
    except (TypeError, ValueError) as exc:
        raise ValueError(
            f"system_cores={quote(value)}: expected core ids, such as 0 or 0-1: {exc}"
        ) from None
    left = [(ranks, cores & ~kept, gpus) for ranks, cores, gpus in entries]
    for (ranks, cores, _), (_, before, _) in zip(left, entries):
        if before and not cores:
            raise ValueError(
                f"system_cores={quote(value)}: no core is left on rank {idset_text(ranks)}"
            )
    return left, kept


def _least_cores_per_gpu(entries: list[Entry], value: Any) -> int:
    """Return the minimum number of cores that come with a GPU: 0 for None, for `SHARE` the cores per GPU
    of the node with the fewest, else the given number, as text too.

    Raises:
        ValueError: it is none of these, or some node has too few cores
    """
    shares = [(popcount(cores) // popcount(gpus), ranks) for ranks, cores, gpus in entries if gpus]
    if value is None:
        return 0
    if value == SHARE:
        share, ranks = min(shares, default=(0, 0))
        if shares and not share:
            raise ValueError(
                f"cores_per_gpu={value}: rank {idset_text(ranks)} has more GPUs than cores"
            )
        return share
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if type(value) is not int or value < 1:
        raise ValueError(
            f"cores_per_gpu={quote(value)}: expected a number, 1 or more, or {SHARE!r}"
        )
    for share, ranks in shares:
        if share < value:
            raise ValueError(
                f"cores_per_gpu={value}: rank {idset_text(ranks)} has {share} cores for each GPU"
            )
    return value


pool_class = Rv1Pool
