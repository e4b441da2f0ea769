# SPDX-License-Identifier: LGPL-3.0-or-later
"""The public pool class: one interface over the implementations of R versions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Callable

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.resource.plan.plan import Plan
from flux.resource.pool.masks import quote
from flux.resource.pool.rv1 import load_json
from flux.resource.ResourcePoolImplementation import ResourcePoolImplementation
from flux.resource.Rv1Pool import Rv1Pool

if TYPE_CHECKING:
    from typing_extensions import Self

    from flux.resource.pool.groups import Groups
    from flux.resource.request import Shape

__all__ = ("ResourcePool", "InfeasibleRequest", "InsufficientResources")


class ResourcePool:
    """A pool of resources that jobs are allocated from, by whichever version of R it was made of.

    Args:
        arg: an R object (dict) or its JSON text, an implementation to wrap, or None for an empty
            pool.
        version (int): version of R of an empty pool.
        log: logger for the implementation; default: nothing is logged.
        kwargs: options for the implementation (its ``known_options``).

    Raises:
        ValueError: R is of an unknown version, or malformed; the text says where.
        TypeError: ``arg`` is none of the above.

    The costs given are those of ``Rv1Pool`` and ``TreePool``. An operation on sets of ranks counts
    as O(1): a set is one integer, and with 16,384 nodes it takes a few microseconds at most.

    A subclass lists its implementations in ``_impl_map``, by version of R. ``alloc()``,
    ``alloc_on()`` and ``copy()`` return an object of the subclass with the same attributes around
    another implementation; its ``__init__`` is not called for that.
    """

    impl: ResourcePoolImplementation

    _impl_map: dict[Any, type[ResourcePoolImplementation]] = {1: Rv1Pool}

    InsufficientResources = InsufficientResources
    InfeasibleRequest = InfeasibleRequest

    def __init__(self, arg: Any = None, version: Any = 1, log: Any = None, **kwargs: Any) -> None:
        if isinstance(arg, ResourcePoolImplementation):
            if log is not None:
                arg.log = log
            self.impl = arg
            return
        if isinstance(arg, (str, bytes)):
            arg = load_json(arg, "R")
            if not isinstance(arg, dict):
                raise ValueError(f"R must be an object, got {quote(arg)}")
        if isinstance(arg, dict):
            version = arg.get("version")
        elif arg is not None:
            raise TypeError(f"ResourcePool: expected R, got {type(arg).__name__}")
        try:
            impl_class = None if isinstance(version, bool) else self._impl_map.get(version)
        except TypeError:
            impl_class = None
        if impl_class is None:
            raise ValueError(f"R version {quote(version)} not supported by {type(self).__name__}")
        self.impl = impl_class(arg, log=log, **kwargs)

    def _with(self, impl: ResourcePoolImplementation) -> Self:
        """A wrapper like this one around another implementation."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        new.impl = impl
        return new

    # -- requests -----------------------------------------------------------

    def parse_resource_request(self, jobspec: Any) -> Any:
        """Read what a job asks for. Done once for each job; O(vertices of its resource graph).

        Args:
            jobspec (dict): the jobspec (RFC 14, RFC 25).

        Returns:
            A request object for the methods below; ``request.jobspec`` is the jobspec, the rest is
            the implementation's.

        Raises:
            ValueError: the jobspec cannot be understood.
        """
        return self.impl.parse_resource_request(jobspec)

    def check_feasibility(self, request: Any) -> None:
        """Check whether a request could be satisfied if every rank were up and free.

        O(1) if a request of the same shape was checked before.

        Raises:
            InfeasibleRequest: it could not; the text says what there is too little of.
        """
        self.impl.check_feasibility(request)

    def alloc(self, jobid: int, request: Any) -> Self:
        """Allocate resources to a job (RFC 27).

        O(different counts of free cores and GPUs), and O(1) for each node given in part; O(1) for a
        request of a shape that was tried in vain since something was last released.

        Args:
            jobid (int): the job; it must not hold an allocation.
            request: from ``parse_resource_request()``.

        Returns:
            A pool of just the resources given. Its ``to_dict()`` is R (RFC 20), with ``starttime``
            and ``expiration`` 0 until they are set.

        Raises:
            InsufficientResources: it does not fit now.
            InfeasibleRequest: it can never fit.
            ValueError: the job holds an allocation, or a hook of the pool chose what it may not.
        """
        return self._with(self.impl.alloc(jobid, request))

    def alloc_on(self, jobid: int, request: Any, ranks: int) -> Self:
        """Allocate resources to a job as ``alloc()`` does, but on given ranks only.

        Args:
            jobid (int): the job; it must not hold an allocation.
            request: from ``parse_resource_request()``.
            ranks (int): mask of the ranks that may be used. Of these, those that are up and meet
                the request's constraint are.

        Returns:
            As ``alloc()``. The job ends when ``alloc()`` would have it end.

        Raises:
            InsufficientResources: it does not fit on these ranks now.
            InfeasibleRequest: it can never fit in the pool, on whatever ranks.
            ValueError: the job holds an allocation, or a hook of the pool chose what it may not.
            NotImplementedError: the pool has no view (see ``can()``).
        """
        return self._with(self.impl.alloc_on(jobid, request, ranks))

    def fits_on(self, request: Any, ranks: int, ignoring: int | None = None) -> bool:
        """Whether ``alloc_on()`` would find resources now. Nothing changes.

        It costs what ``alloc()`` does; with ``ignoring``, also a copy of one list of all ranks.

        Args:
            request: from ``parse_resource_request()``.
            ranks (int): mask of the ranks that may be used.
            ignoring (int): a job, or a placeholder of ``hold_free()``, whose resources count as
                free; default: none.

        Raises:
            KeyError: the job in ``ignoring`` holds nothing.
        """
        return self.impl.fits_on(request, ranks, ignoring)

    def hold_free(self, jobid: int, ranks: int, until: float) -> int:
        """Allocate everything that is free on given ranks to a placeholder.

        A placeholder is an allocation that belongs to no job. It is among what ``job_end_times()``,
        ``held_ranks()`` and plans show, and is given back with ``free()``.

        O(kinds of rank), and O(1) for each of the ranks that is in use in part.

        Args:
            jobid (int): an id that is no job's and holds nothing: by convention a negative number.
            ranks (int): mask of ranks; what is free of those that are up is allocated.
            until (float): when the placeholder ends, in seconds since the epoch. Plans expect its
                resources back then; it stays until ``free()`` is called.

        Returns:
            int: mask of the ranks on which it holds something. 0: nothing was free, and there is no
            placeholder.

        Raises:
            ValueError: the id holds an allocation.
        """
        return self.impl.hold_free(jobid, ranks, until)

    def free(self, jobid: int, R: Any = None, final: bool = False) -> None:
        """Take back resources of a job; O(1) for whole nodes, and for each node given in part.

        Args:
            jobid (int): the job. For one that holds nothing, nothing happens.
            R: what is released: a pool, R object or JSON text with some ranks of the job; None for
                all that it holds. Ranks that left the pool are passed over.
            final (bool): nothing of the job remains. R must then be all that the job still held.

        Raises:
            ValueError: the job does not hold what R names, or ``final`` does not match. Nothing is
                changed.
        """
        self.impl.free(jobid, R, final)

    def register_alloc(self, jobid: int, R: Any) -> None:
        """Record an allocation that was made earlier, of a job found running (RFC 27 hello).

        O(ranks of R).

        Args:
            jobid (int): the job.
            R: the job's resources: a pool, R object or JSON text. Its expiration is the job's end.

        Raises:
            ValueError: the pool lacks some of R, another job holds some, or the job is known.
                Nothing is changed.
        """
        self.impl.register_alloc(jobid, R)

    # -- what the instance reports ------------------------------------------

    def mark_up(self, ids: Any) -> None:
        """Make ranks available: an idset or ``"all"``; unknown ranks are ignored.

        Raises:
            ValueError: not an idset.
        """
        self.impl.mark_up(ids)

    def mark_down(self, ids: Any) -> None:
        """Make ranks unavailable for new jobs; as ``mark_up()``. Jobs keep theirs."""
        self.impl.mark_down(ids)

    def remove_ranks(self, ranks: Any) -> None:
        """Remove ranks for good (RFC 28 shrink); O(ranks + jobs).

        Args:
            ranks: idset text, ``IDset`` or iterable of ranks; unknown ones are ignored. What jobs
                hold on them is forgotten.
        """
        self.impl.remove_ranks(ranks)

    def add_property(self, name: str, ranks: Any) -> None:
        """Give ranks (an idset) a property (RFC 28 property-add)."""
        self.impl.add_property(name, ranks)

    def remove_property(self, name: str, ranks: Any) -> None:
        """Take a property from ranks (RFC 28 property-remove)."""
        self.impl.remove_property(name, ranks)

    @property
    def expiration(self) -> float:
        """End of validity of the resources, seconds since the epoch; 0: none."""
        return self.impl.expiration

    def set_expiration(self, expiration: float) -> None:
        """Set the end of validity (seconds since the epoch, 0: none)."""
        self.impl.set_expiration(expiration)

    def set_starttime(self, starttime: float) -> None:
        """Set the start of validity (seconds since the epoch)."""
        self.impl.set_starttime(starttime)

    def update_expiration(self, jobid: int, expiration: float) -> None:
        """Set the end of a running job (seconds since the epoch, 0: none)."""
        self.impl.update_expiration(jobid, expiration)

    # -- answers ------------------------------------------------------------

    @property
    def generation(self) -> int:
        """Number that grows with every change of the pool."""
        return self.impl.generation

    @property
    def releases(self) -> int:
        """Number that grows whenever a request that did not fit may fit now."""
        return self.impl.releases

    @property
    def version(self) -> Any:
        """Version of R that the implementation reads."""
        return self.impl.version

    @property
    def name(self) -> str:
        """What the log calls a pool of this class."""
        return getattr(self.impl, "name", None) or type(self).__name__

    @property
    def known_options(self) -> frozenset[str]:
        """Names of the options that the implementation takes."""
        return self.impl.known_options

    @property
    def log(self) -> Any:
        """The implementation's logger."""
        return self.impl.log

    @log.setter
    def log(self, log: Any) -> None:
        self.impl.log = log

    @property
    def clock(self) -> Callable[[], float]:
        """Callable that tells the time, in seconds since the epoch."""
        return self.impl.clock

    @clock.setter
    def clock(self, clock: Callable[[], float]) -> None:
        self.impl.clock = clock

    def can(self, operation: str) -> bool:
        """Whether the pool has an operation that not every pool has. O(1).

        An implementation with a view (see ``ResourcePoolImplementation``) has all operations of
        this class; one without has those that need none, and those that it defines itself.

        Args:
            operation (str): name of a method or property of this class, such as ``"plan"``.
        """
        return self.impl.can(operation)

    @property
    def ranks(self) -> int:
        """Mask of all ranks of the pool (bit *r* is rank *r*), up or not. O(1)."""
        return self.impl.ranks

    @property
    def idle_ranks(self) -> int:
        """Mask of the ranks of which nothing is in use, up or not. O(1)."""
        return self.impl.idle_ranks

    def eligible_ranks(self, request: Any = None) -> int:
        """Mask of the ranks that are up and meet a request's constraint, in use or not.

        O(1) once the constraint was seen since ranks last went up or down.

        Args:
            request: from ``parse_resource_request()``; None: all ranks that are up.
        """
        return self.impl.eligible_ranks(request)

    def ranks_matching(self, constraint: dict[str, Any]) -> int:
        """Mask of the ranks that meet a constraint, up or not, in use or not.

        O(terms of the constraint) operations on masks, and once it was seen O(length of its text).

        Args:
            constraint (dict): as in a jobspec (RFC 31); ``{}`` is met by all.

        Raises:
            ValueError: not a constraint; the text names the operator and value.
        """
        return self.impl.ranks_matching(constraint)

    def held_ranks(self, jobid: int) -> int:
        """Mask of the ranks on which a job holds something. O(ranks of the job).

        Raises:
            KeyError: the job holds no allocation.
        """
        return self.impl.held_ranks(jobid)

    def held_kinds(self, jobid: int) -> list[tuple[int, int, int]]:
        """What a job holds. O(kinds of what it holds on a rank).

        Returns:
            list of ``(cores, GPUs, mask of ranks)``: so many on each of these ranks; no rank is in
            two of them.

        Raises:
            KeyError: the job holds no allocation.
        """
        return self.impl.held_kinds(jobid)

    def node_kinds(self) -> list[tuple[int, int, int]]:
        """Ranks by what they have in all, up or not, in use or not. O(kinds of rank).

        Returns:
            list of ``(cores, GPUs, mask of ranks)``, most cores first and then most GPUs; no rank
            is in two of them.
        """
        return self.impl.node_kinds()

    def slots_by_rank(self, shape: Shape) -> list[tuple[int, int]]:
        """How many slots of a shape ranks can hold if nothing else is there.

        Returns:
            list of ``(slots, mask of ranks)``: so many on each of these ranks; those that hold none
            may be left out.
        """
        return self.impl.slots_by_rank(shape)

    def free_cores(self, ranks: int) -> int:
        """Cores that are free on some ranks (a mask), up or not. O(kinds of what is free)."""
        return self.impl.free_cores(ranks)

    def job_end(self, jobid: int) -> float:
        """When a job ends, in seconds since the epoch; 0: not known. O(1).

        Raises:
            KeyError: the job holds no allocation.
        """
        return self.impl.job_end(jobid)

    def job_end_times(self) -> list[tuple[int, float]]:
        """List of ``(jobid, end)`` of all jobs, in seconds since the epoch, 0: none. O(jobs)."""
        return self.impl.job_end_times()

    def endless_jobs(self) -> list[int]:
        """The ids of the jobs without an end. O(jobs), mostly O(1)."""
        return self.impl.endless_jobs()

    def ends_by_job(self) -> dict[int, float]:
        """Dict of job id to end of all jobs, as ``job_end_times()`` has them. O(jobs), in a quarter of
        its time: no object is made for a job."""
        return self.impl.ends_by_job()

    def placeholders(self) -> list[int]:
        """The ids of the allocations that belong to no job, see ``hold_free()``; they are below zero.
        O(jobs)."""
        return self.impl.placeholders()

    def jobs_by_end(self) -> list[tuple[float, int]]:
        """Ascending list of ``(end, jobid)`` of the jobs that have an end (seconds since the
        epoch).

        O(jobs): a copy of a list that is kept in order.
        """
        return self.impl.jobs_by_end()

    def copy(self) -> Self:
        """An independent copy with all allocations, which logs nothing. O(ranks + jobs)."""
        return self._with(self.impl.copy())

    def to_dict(self) -> dict[str, Any]:
        """The resources as an R object (RFC 20); O(length of its text)."""
        return self.impl.to_dict()

    def to_resource_set(self) -> Any:
        """The resources as a ``flux.resource.ResourceSet``."""
        return self.impl.to_resource_set()

    def copy_allocated(self) -> Any:
        """ResourceSet of what jobs hold. O(ranks)."""
        return self.impl.copy_allocated()

    def copy_down(self) -> Any:
        """ResourceSet of what is on ranks that are down. O(kinds of rank)."""
        return self.impl.copy_down()

    def allocated_to_dict(self) -> dict[str, Any]:
        """What jobs hold as an R object (RFC 20). O(ranks); a ResourceSet takes several times as
        long."""
        return self.impl.allocated_to_dict()

    def held_to_dict(self, jobid: int) -> dict[str, Any]:
        """What a job holds as an R object (RFC 20), without times. O(ranks of the job).

        Raises:
            KeyError: the job holds no allocation.
        """
        return self.impl.held_to_dict(jobid)

    def down_to_dict(self) -> dict[str, Any]:
        """What is on ranks that are down, as ``allocated_to_dict()``."""
        return self.impl.down_to_dict()

    def dumps(self) -> str:
        """The resources as short text, ``rank[0-1]/core[0-3],gpu0``; O(its length)."""
        return self.impl.dumps()

    def __str__(self) -> str:
        return self.dumps()

    def count_amounts(self, table: Any) -> None:
        """Count amounts on nodes beside cores and GPUs, such as memory, from now on.

        A job takes what ``attributes.system.memory`` and ``attributes.system.amounts`` say; requests that
        were read before take none. R of an allocation has them in ``scheduling.amounts``.

        Args:
            table (dict or str): as ``[amounts]`` of the configuration
                (`flux.resource.pool.amounts.read_table()`); empty: none are counted

        Raises:
            ValueError: it is malformed, or jobs hold resources
        """
        self.impl.count_amounts(table)

    def amounts_in_use(self) -> list[dict[str, Any]]:
        """What there is of each amount that is counted, and how much of it jobs have; O(kinds of
        rank + different counts of what is free).

        Returns:
            list of dict: ``amount`` (name), ``in_use``, ``total`` and ``largest`` (of the node that has
            most); bytes as text with a unit (``"64G"``)
        """
        return self.impl.amounts_in_use()

    def pack_by(self, levels: Iterable[Groups]) -> None:
        """From now on, place each request in as few groups of ranks as it can be, and among groups in
        the fullest, so that whole groups stay free. It is never refused on that account.

        Costs a mask and a count for each group when something is placed.

        Args:
            levels: groups such as racks and blocks, the largest first; empty: as it was
        """
        self.impl.pack_by(levels)

    @property
    def packing(self) -> tuple[Groups, ...]:
        """Levels of groups that requests are packed by, as given to `pack_by()`; empty: they are not."""
        return self.impl.packing

    def choose_nodes(self, ranks: int, count: int, idle: int, beside: int = 0) -> int:
        """Choose so many nodes by the rule of `pack_by()`: those of the fewest groups, among as few
        groups the fullest; the lowest ranks where that makes no difference.

        O(groups). Nothing is allocated.

        Args:
            ranks (int): mask of the ranks to choose from.
            count (int): how many; fewer are returned if there are not so many.
            idle (int): mask of the ranks that count as not in use: groups that are wholly so are
                taken last.
            beside (int): mask of ranks that what is chosen is to be together with: their groups
                come first.

        Returns:
            int: mask.
        """
        return self.impl.choose_nodes(ranks, count, idle, beside)

    # -- looking ahead ------------------------------------------------------

    def explain(self, request: Any) -> dict[str, Any]:
        """How far a request is from being satisfied now, in numbers and in a sentence.

        O(kinds of rank + different counts of free cores and GPUs).

        Returns:
            dict of numbers of ranks: ``total`` in the pool, ``matching`` the constraint; of these
            ``large_enough`` for one slot (or one node's share) when idle, ``up``, and up and
            ``free`` for one; then ``available`` and ``needed`` at least in ``unit`` (``nodes`` or
            ``slots``), and ``reason``, a sentence for the user, empty if enough is free.
        """
        return self.impl.explain(request)

    def why_not(self, request: Any) -> str:
        """One sentence that says why a request does not fit now.

        The ``reason`` of ``explain()``; where that finds enough free, that the pool's own policy
        finds no place for the request. It costs what ``explain()`` does.
        """
        return self.impl.why_not(request)

    def earliest(self, request: Any, after: float | None = None) -> float | None:
        """First time at which a request fits, if running jobs end when they should.

        O(running jobs) after a change of the pool; see :class:`~flux.resource.plan.plan.Plan`.

        Args:
            after (float): no earlier than this; default: now.

        Returns:
            Seconds since the epoch, or None if it does not fit even when every job that has an end
            has ended.
        """
        return self.impl.earliest(request, after)

    def windows(self, requests: Iterable[Any], horizon: float) -> list[dict[str, Any]]:
        """What could start now, and how long it could run.

        See :meth:`flux.resource.plan.plan.Plan.windows`.
        """
        return self.impl.windows(requests, horizon)

    def match_mask(self, request: Any) -> int:
        """Ranks that a request could use, up or not, in use or not. O(kinds of rank).

        Returns:
            int: a mask with bit *r* set if rank *r* meets the constraint and has in all what one
            slot (or one node's share) of the request needs.
        """
        return self.impl.match_mask(request)

    def waits_for_ranks(self, request: Any) -> bool:
        """Whether a request would not fit on the ranks that are up if all of them were idle."""
        return self.impl.waits_for_ranks(request)

    def plan(self, ends: Callable[[int], float | None] | None = None) -> Plan:
        """A new :class:`~flux.resource.plan.plan.Plan` of the pool, without promises. O(1).

        Args:
            ends: function giving, for a job id, when that running job is believed to end (seconds
                since the epoch); None: when the pool says. The plan asks for all running jobs at
                the first call after each change of the pool. Promises in it hold only if the
                beliefs do. Default: the pool's ends, which are limits.
        """
        plan = self.impl.plan() if ends is None else self.impl.plan(ends)
        plan.wrap = self._with
        return plan

    def check(self) -> None:
        """Check every invariant of the pool; AssertionError with its state if one is broken.

        O(ranks + jobs).
        """
        self.impl.check()

    _check = check
