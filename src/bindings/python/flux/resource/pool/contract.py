# SPDX-License-Identifier: LGPL-3.0-or-later
"""The contract between resource pools and their schedulers and plans."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Callable

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.resource.pool.inventory import Entry, Inventory, Selection, select
from flux.resource.pool.rv1 import read_lite
from flux.resource.pool.state import RankIndex

if TYPE_CHECKING:
    from typing_extensions import Self


class NoLog:
    """A logger that drops everything, for pools without a log."""

    def _drop(self, *args: Any, **kwargs: Any) -> None:
        pass

    debug = info = notice = warning = error = critical = alert = emerg = _drop


NO_LOG = NoLog()

#: ``(end, *selection)`` of a job; the end is in seconds since the epoch (0: unknown).
JobRecord = tuple[Any, ...]


class PoolContract:
    """A pool of resources for allocation to jobs, as seen by a scheduler.

    It has two groups of methods:

    - *Required*: requests, allocations, reports of the instance, and R. These raise
      ``NotImplementedError`` here. They suffice for a scheduler that does not plan.
    - *The view*: ``inventory``, ``index``, ``eligible()``, ``held()`` and ``grant()`` show the
      inventory, the free resources and the jobs' holdings. A pool that defines ``inventory`` must
      define all five.

    Attributes:
        version (int): the version of R that it reads.
        name (str): its name in the scheduler's ready line.
        known_options (frozenset): names of the constructor's options.
        generation (int): grows with every change of the pool.
        releases (int): grows whenever a request that did not fit may fit: something was freed, came
            up, or changed its properties.
        log: object with ``debug()``, ``info()`` and so on; the scheduler's.
        clock: callable that returns the time, in seconds since the epoch.
        nslots (int or None): number of slots, for the pool of an allocation
    """

    version: Any = None
    name = "ResourcePool"
    known_options: frozenset[str] = frozenset()
    generation: int = 0
    releases: int = 0
    log: Any = NO_LOG
    clock: Callable[[], float] = staticmethod(time.time)
    nslots: int | None = None

    InsufficientResources = InsufficientResources
    InfeasibleRequest = InfeasibleRequest

    def __init__(self, R: Any = None, log: Any = None, **kwargs: Any) -> None:
        """Make a pool from R; `ResourcePool` has only read its version.

        Args:
            R (dict or str): R object or JSON text; None for an empty pool.
            log: logger; None: the class's.
            kwargs: options in ``known_options``.
        """
        if log is not None:
            self.log = log

    def _missing(self, what: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__}.{what}")

    # -- required: requests and allocations ---------------------------------

    def parse_resource_request(self, jobspec: Any) -> Any:
        """Parse a jobspec; called once per job. O(vertices of its resource graph).

        Args:
            jobspec (dict): the jobspec (RFC 14, RFC 25).

        Returns:
            A request for the other methods; ``request.jobspec`` is the jobspec, the rest is the
            pool's. The view's operations read its ``shape`` and ``duration``
            (:class:`~flux.resource.request.ResourceRequest`).

        Raises:
            ValueError: the jobspec is not understood.
        """
        raise self._missing("parse_resource_request")

    def alloc(self, jobid: int, request: Any) -> Self:
        """Allocate resources to a job (RFC 27).

        Args:
            jobid (int): the job, which must not hold an allocation.
            request: from ``parse_resource_request()``.

        Returns:
            A pool of just the allocated resources. Its ``to_dict()`` is R (RFC 20), with
            ``starttime`` and ``expiration`` 0 until they are set.

        Raises:
            InsufficientResources: it does not fit now.
            InfeasibleRequest: it never fits.
            ValueError: the job holds an allocation, or a hook of the pool chose resources that are
                not free.
        """
        raise self._missing("alloc")

    def free(self, jobid: int, R: Any = None, final: bool = False) -> None:
        """Take resources back from a job.

        Args:
            jobid (int): the job; one that holds nothing is ignored.
            R: the released resources: a pool, R object or JSON text; None: all of the job. Ranks
                that left the pool are ignored.
            final (bool): the job ends, and R must be all that it still holds.

        Raises:
            ValueError: the job does not hold R, or ``final`` does not match. Nothing is changed.
        """
        raise self._missing("free")

    def register_alloc(self, jobid: int, R: Any) -> None:
        """Record an earlier allocation of a job found running (RFC 27 hello).

        Args:
            jobid (int): the job.
            R: the job's resources: a pool, R object or JSON text. Its expiration is the job's end.

        Raises:
            ValueError: the pool lacks part of R, another job holds part of it, or the job is known.
                Nothing is changed.
        """
        raise self._missing("register_alloc")

    # -- required: reports of the instance -----------------------------------

    def mark_up(self, ids: Any) -> None:
        """Make ranks (an idset or ``"all"``) available; unknown ranks are ignored.

        Raises:
            ValueError: it is not an idset.
        """
        raise self._missing("mark_up")

    def mark_down(self, ids: Any) -> None:
        """Make ranks unavailable to new jobs; as ``mark_up()``. Running jobs keep them."""
        raise self._missing("mark_down")

    def remove_ranks(self, ranks: Any) -> None:
        """Remove ranks for good (RFC 28 shrink), with the jobs' holdings on them.

        Args:
            ranks: idset text, ``IDset`` or iterable of ranks; unknown ranks are ignored.
        """
        raise self._missing("remove_ranks")

    def add_property(self, name: str, ranks: Any) -> None:
        """Add a property to ranks, an idset (RFC 28 property-add)."""
        raise self._missing("add_property")

    def remove_property(self, name: str, ranks: Any) -> None:
        """Remove a property from ranks (RFC 28 property-remove)."""
        raise self._missing("remove_property")

    @property
    def expiration(self) -> float:
        """End of validity of the resources, in seconds since the epoch; 0: none."""
        raise self._missing("expiration")

    def set_expiration(self, expiration: float) -> None:
        """Set the end of validity (seconds since the epoch, 0: none).

        Raises:
            ValueError: it is not a time.
        """
        raise self._missing("set_expiration")

    def set_starttime(self, starttime: float) -> None:
        """Set the start of validity; as ``set_expiration()``."""
        raise self._missing("set_starttime")

    def update_expiration(self, jobid: int, expiration: float) -> None:
        """Set the end of a running job (seconds since the epoch; 0: none).

        A job that holds nothing is ignored.

        Raises:
            ValueError: it is not a time.
        """
        raise self._missing("update_expiration")

    def job_end_times(self) -> list[tuple[int, float]]:
        """Return ``(jobid, end)`` of all jobs; ends in seconds since the epoch, 0: none.
        O(jobs)."""
        raise self._missing("job_end_times")

    # -- required: R and copies ----------------------------------------------

    def copy(self) -> Self:
        """Return an independent copy with all allocations, which logs nothing. O(ranks + jobs)."""
        raise self._missing("copy")

    def to_dict(self) -> dict[str, Any]:
        """Return the resources as an R object (RFC 20)."""
        raise self._missing("to_dict")

    def to_resource_set(self) -> Any:
        """Return the resources as a ``flux.resource.ResourceSet``."""
        return resource_set(self.to_dict())

    def entries(self) -> list[Entry]:
        """Return all resources of the pool, as a list of ``(rank mask, core mask, GPU mask)``."""
        return read_lite(self.to_dict())

    def dumps(self) -> str:
        """Return the resources as short text, ``rank[0-1]/core[0-3],gpu0``."""
        inventory = self.inventory
        return inventory.dumps(inventory.whole())

    def __str__(self) -> str:
        return self.dumps()

    def copy_allocated(self) -> Any:
        """Return the allocated resources as a ResourceSet. O(ranks)."""
        return resource_set(self._part(self._allocated()))

    def copy_down(self) -> Any:
        """Return the resources of ranks that are down as a ResourceSet. O(kinds of rank)."""
        return resource_set(self._part(self._down()))

    def allocated_to_dict(self) -> dict[str, Any]:
        """Return the allocated resources as an R object (RFC 20). O(ranks); faster than a
        ResourceSet."""
        if type(self).copy_allocated is not PoolContract.copy_allocated:
            found: dict[str, Any] = self.copy_allocated().to_dict()
            return found
        return self._part(self._allocated())

    def held_to_dict(self, jobid: int) -> dict[str, Any]:
        """Return the resources of a job as an R object (RFC 20) without times. O(ranks of the job).

        Raises:
            KeyError: the job holds no allocation.
        """
        return self._part(self.held(jobid))

    def down_to_dict(self) -> dict[str, Any]:
        """Return the resources of ranks that are down; as ``allocated_to_dict()``."""
        if type(self).copy_down is not PoolContract.copy_down:
            found: dict[str, Any] = self.copy_down().to_dict()
            return found
        return self._part(self._down())

    def _allocated(self) -> Selection:
        groups: dict[int, int] = {}
        for full, mask in self.inventory.kinds.items():
            for free, ranks in self.index.states(mask):
                if free != full:
                    groups[full ^ free] = groups.get(full ^ free, 0) | ranks
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
        return type(self).inventory is not PoolContract.inventory

    @property
    def pool_state(self) -> Any:
        """The object with ``generation``, ``inventory``, ``index`` and ``held()`` of this pool, always
        up to date: the pool itself, unless they are kept elsewhere."""
        return self

    @property
    def inventory(self) -> Inventory:
        """The ranks with their units, hosts and properties.

        It is immutable, and replaced when ranks leave or properties change.
        """
        raise self._missing("inventory")

    @property
    def index(self) -> RankIndex:
        """The free units of ``inventory``, up or not. Only the pool changes it."""
        raise self._missing("index")

    def eligible(self, match: Any) -> int:
        """Return a mask of the ranks that are up and meet a parsed constraint (``shape.match``;
        None: no constraint).
        """
        raise self._missing("eligible")

    def held(self, jobid: int) -> Selection:
        """Return the selection that a job holds. O(1).

        Raises:
            KeyError: the job holds no allocation.
        """
        raise self._missing("held")

    def records_now(self) -> dict[int, JobRecord]:
        """Return a snapshot: job id to `JobRecord`. O(jobs)."""
        return {jobid: (end, *self.held(jobid)) for jobid, end in self.job_end_times()}

    def changes_since(self, generation: int) -> dict[int, JobRecord | None] | None:
        """Return the jobs that started, ended, released resources or got another end since a
        generation of the pool: job id to `JobRecord`, or to None if it ended. May include other
        jobs.

        None (the default) if unknown; the caller must then read all jobs.
        """
        return None

    def grant(self, jobid: int, request: Any, selection: Selection, nslots: int) -> Self:
        """Allocate a selection, which is free, to a job.

        Args:
            jobid (int): the job, which holds no allocation.
            request: the request. The job ends ``request.duration`` seconds from now; if that is 0,
                with the pool.
            selection, nslots: from ``place_request()``.

        Returns:
            As ``alloc()``.
        """
        raise self._missing("grant")


def resource_set(R: dict[str, Any]) -> Any:
    """Return R as a ``flux.resource.ResourceSet``, empty for R without ranks."""
    # Not imported above: the host's module imports names of this package.
    from flux.resource.ResourceSet import ResourceSet

    return ResourceSet(R) if R["execution"]["R_lite"] else ResourceSet()
