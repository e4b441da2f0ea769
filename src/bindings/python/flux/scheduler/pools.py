# SPDX-License-Identifier: LGPL-3.0-or-later
"""The pool of a scheduler: selecting its class, making and updating it, parsing requests, and
caching the pool's answers on them."""

from __future__ import annotations

import importlib
import inspect
import marshal
import re
from math import inf
from typing import Any, Callable, TypeVar

from flux.hostlist import Hostlist
from flux.resource.pool.hosts import elements
from flux.resource.pool.masks import popcount, quote
from flux.resource.request import Remembered, make_room
from flux.resource.ResourcePool import ResourcePool
from flux.resource.ResourcePoolImplementation import ResourcePoolImplementation
from flux.resource.Rv1Pool import Rv1Pool
from flux.scheduler.misspelled import check_begun

#: A dotted name, optionally with a class. R is not always trusted, so nothing else is imported.
_URI = re.compile(r"[A-Za-z_][\w-]*(\.[A-Za-z_][\w-]*)*(:[A-Za-z_]\w*)?", re.ASCII)

#: Writer of an R without one (RFC 20); not a pool of the library.
DEFAULT_WRITER = "fluxion"


def find_pool_class(uri: Any) -> Any:
    """Find the pool class of a URI: ``module`` (its `pool_class`) or ``module:Class``. ``-`` reads
    as ``_``; a name without a dot is also looked up in `flux.resource`. Raises ValueError if there
    is none, or the module cannot be imported."""
    if not isinstance(uri, str) or len(uri) > 255 or not _URI.fullmatch(uri):
        raise ValueError("expected MODULE or MODULE:CLASS")
    name, _, attribute = uri.partition(":")
    name, attribute = name.replace("-", "_"), attribute or "pool_class"
    reason = f"no module {name}"
    for candidate in [name] if "." in name else [name, f"flux.resource.{name}"]:
        try:
            module = importlib.import_module(candidate)
        except (Exception, SystemExit) as exc:  # an import may fail in any way
            if not isinstance(exc, ModuleNotFoundError) or exc.name != candidate:
                reason = f"{candidate}: {type(exc).__name__}: {exc}"
            continue
        found = getattr(module, attribute, None)
        if found is not None:
            return found
        reason = f"the module {candidate} has no {attribute}"
    raise ValueError(reason)


def _pool_class_from_uri(uri: Any) -> Any:
    """Return the result of `find_pool_class`, or None."""
    try:
        return find_pool_class(uri)
    except ValueError:
        return None


def _pool_class_from_writer(writer: Any) -> type | None:
    """Find the pool class named by ``R.scheduling.writer``, a URI whose scheme names the scheduler
    that wrote R (RFC 20), or by R itself; None if there is none."""
    if isinstance(writer, dict):
        scheduling = writer.get("scheduling")
        writer = scheduling.get("writer") if isinstance(scheduling, dict) else None
    if writer is None:
        writer = DEFAULT_WRITER
    if not isinstance(writer, str):
        return None
    found = _pool_class_from_uri(writer)
    if found is None and ":" in writer:
        found = _pool_class_from_uri(writer.partition(":")[0])
    return found if is_pool_class(found) else None


def is_pool_class(found: Any) -> bool:
    """Whether `found` is a class from which a scheduler can make its pool."""
    return isinstance(found, type) and issubclass(found, ResourcePoolImplementation)


def check_pool_class(found: Any) -> Any:
    """Return `found`. Raises ValueError if it is not a pool class."""
    if not is_pool_class(found):
        raise ValueError(
            f"pool_class must be a ResourcePool or ResourcePoolImplementation subclass, got {found!r}"
        )
    return found


def choose(scheduler: Any, R: dict[str, Any]) -> Any:
    """Return the pool class for inventory `R`: the configured one, else that of R's writer, else
    the default."""
    if scheduler.pool_class is not None:
        return check_pool_class(scheduler.pool_class)
    scheduling = R.get("scheduling")
    if not isinstance(scheduling, dict):
        return ResourcePool
    writer = scheduling.get("writer")
    found = _pool_class_from_writer(writer)
    if found is None:
        if writer is not None and str(writer).partition(":")[0] != DEFAULT_WRITER:
            scheduler.log.info(
                f"R.scheduling.writer={writer!r}: no pool class of that name, using the default"
            )
        if "graph" in scheduling:
            scheduler.log.warning(
                "R.scheduling has a resource graph of Fluxion, which is copied into R of each job:"
                " 'From Fluxion' in the guide has a way out"
            )
        return ResourcePool
    return found


def known_options(cls: Any, version: Any) -> set[str]:
    """Return the keyword arguments that a pool of class `cls` accepts for this version of R."""
    known = cls.known_options
    if known is ResourcePool.known_options:  # none of its own: those of its implementation
        known = getattr(getattr(cls, "_impl_map", {}).get(version), "known_options", known)
    return set(known) | _named_by_constructor(cls)


def _named_by_constructor(cls: Any) -> set[str]:
    """Return the keywords of a class's constructor, without those of every pool."""
    if cls.__init__ in (ResourcePool.__init__, ResourcePoolImplementation.__init__):
        return set()
    parameters = list(inspect.signature(cls).parameters.values())[1:]
    return {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)} - {
        "version",
        "log",
    }


def make_pool(scheduler: Any, R: dict[str, Any]) -> ResourcePool:
    """Make the pool for inventory `R` (an R dict, RFC 20). Raises ValueError if the class cannot
    use this R; RuntimeError if it does not call ``super().__init__()``."""
    cls = choose(scheduler, R)
    known = known_options(cls, R.get("version"))
    options = {}
    if not isinstance(scheduler.pool_kwargs, dict):
        raise ValueError(f"pool_kwargs={scheduler.pool_kwargs!r}: expected a dict")
    for key, value in scheduler.pool_kwargs.items():
        if key in known:
            options[key] = value
        else:
            scheduler.log.warning(f"pool_kwargs: {cls.__name__} does not know {key!r}, ignored")
    for key in scheduler.pool_options:
        if key not in known:
            names = ", ".join(f"pool-{name.replace('_', '-')}" for name in sorted(known))
            raise ValueError(
                f"unknown argument 'pool-{key.replace('_', '-')}': {cls.__name__} has "
                f"{names or 'no options'}"
            )
    options.update(scheduler.pool_options)
    made = getattr(cls, "of_instance", cls)(R, log=scheduler.log, **options)
    bare = isinstance(made, ResourcePool) and type(made).mark_down is ResourcePool.mark_down
    if bare or isinstance(made, Rv1Pool):
        check_begun(made, "scheduling")
    placement = getattr(made, "placement", None)
    if isinstance(placement, type):
        raise ValueError(
            f"{cls.__name__}.placement: expected an object, {placement.__name__}(), not its class"
        )
    pool = made if isinstance(made, ResourcePool) else ResourcePool(made)
    pool.clock = scheduler.now
    return pool


#: Key of the response -> the pool's method that applies it, in order of application: down overrides
#: up, and shrink both. A table of properties takes a call for each.
STEPS = {
    "property-remove": "remove_property",
    "property-add": "add_property",
    "up": "mark_up",
    "down": "mark_down",
    "shrink": "remove_ranks",
    "expiration": "set_expiration",
}

#: Keys that may let blocked jobs start.
HELPFUL = frozenset(("property-remove", "property-add", "up", "shrink", "expiration"))


def apply_update(
    pool: ResourcePool, update: dict[str, Any], log: Any, warned: set[str]
) -> tuple[bool, list[tuple[str, Exception]]]:
    """Apply one response to `pool`, as a unit. A step that fails, or that the pool does not
    support, is reported, the latter once (`warned`), and the others are applied. Return whether a
    blocked job might start now, and the errors, as (key, exception)."""
    helpful = False
    errors = []
    for key, method in STEPS.items():
        value = update.get(key)
        if value is None or value == "":
            continue
        if not hasattr(pool, method):
            if method not in warned:
                warned.add(method)
                log.warning(f"resource update: this pool class has no {method}(): {key} is ignored")
            continue
        apply = getattr(pool, method)
        try:
            for arguments in value.items() if key.startswith("property") else [(value,)]:
                apply(*arguments)
        except Exception as exc:
            errors.append((key, exc))
        helpful = helpful or key in HELPFUL
    return helpful, errors


def ending_with_instance(
    pool: ResourcePool, before: float, has_no_limit: Callable[[int], bool]
) -> list[int]:
    """Return the running jobs that end with the instance, whose end was `before` until now (seconds
    since the epoch; 0: none). The job manager moves their ends without asking the scheduler, unlike
    those of jobs whose duration changes."""
    ends = pool.job_end_times()
    return [jobid for jobid, end in ends if end == before or has_no_limit(jobid)]


def status_of(pool: ResourcePool) -> dict[str, Any]:
    """Return the answer to ``sched.resource-status``: R objects (RFC 20) of all, allocated and down
    resources."""
    jobs = pool
    placeholders = pool.placeholders()
    if placeholders:  # they are not jobs
        jobs = pool.copy()
        for jobid in placeholders:
            jobs.free(jobid)
    allocated = jobs.allocated_to_dict()
    return {"all": pool.to_dict(), "allocated": allocated, "down": pool.down_to_dict()}


#: Approximate bytes of a cached request in addition to its shape, or of a jobspec kept by the
#: pool's request.
CACHE_ENTRY_BYTES = 256


class Unread:
    """Placeholder for a jobspec that was not parsed."""

    def __init__(self, reason: str) -> None:
        self.reason = reason  # the reason, for its user


#: Names in a jobspec that are keys of tables, and their maximum length in characters.
NAMES = ("queue", "bank", "reservation")
MAX_NAME = 256


def _system_names(jobspec: dict[str, Any]) -> frozenset[str]:
    """Return the names of a jobspec's system attributes. Raises ValueError if a value of `NAMES` is
    too long."""
    try:
        attributes = jobspec["attributes"]["system"]
        values = [(name, attributes[name]) for name in NAMES if name in attributes]
        names = frozenset(attributes)
    except (KeyError, TypeError):
        return frozenset()  # it has none
    for name, value in values:
        if isinstance(value, str) and len(value) > MAX_NAME:
            raise ValueError(
                f"{name}: a name of {len(value)} characters, at most {MAX_NAME} are read"
            )
    return names


class PoolBug(ValueError):
    """The pool failed on a jobspec through no fault of the jobspec; ``__cause__`` is the
    exception."""


class RequestParser:
    """Parses jobspecs, once for all jobs with the same request.

    Its cache is bounded (`flux.resource.request`). It has requests without their jobspecs,
    unless they need these.
    """

    def __init__(self, pool: ResourcePool) -> None:
        self.pool = pool  # the pool; its ``parse_resource_request()`` does the work
        #: applies admission rules' changes to the request of a job that is not submitted: (request,
        #: jobspec) -> request
        self.as_queued: Callable[[Any, Any], Any] = lambda request, jobspec: request
        #: marshalled jobspec -> its request, whether that lacks the jobspec, and the names of its
        #: system attributes
        self._known: Remembered[bytes, tuple[Any, bool, frozenset[str]]] = Remembered()

    def parse(self, jobspec: Any, read: Callable[[], dict[str, Any]] | None = None) -> Any:
        """Return the pool's request for `jobspec` (a dict, or one marshalled). Treat as read-only.
        Costs about a microsecond per hundred bytes of a dict that was parsed before.

        `read` returns the jobspec again (a dict); if given, the request need not keep it, which saves most
        of the memory of a pending job. Raises ValueError if the jobspec is invalid; the text says
        why. PoolBug, one of these, means that the pool failed in another way.
        """
        if type(jobspec) is bytes:
            text = jobspec
        elif type(jobspec) is dict:
            try:
                # Version 2 of the format has no back references, so equal objects give equal bytes.
                text = marshal.dumps(jobspec, 2)
            except ValueError:
                raise ValueError("jobspec is nested too deeply") from None
        elif isinstance(jobspec, Unread):
            raise ValueError(jobspec.reason)
        else:
            raise ValueError(f"jobspec must be an object, not {type(jobspec).__name__}")
        found = self._known.get(text)
        if found is None:
            make_room()
            packed = type(jobspec) is bytes
            if packed:
                jobspec = marshal.loads(text)
            names = _system_names(jobspec)
            request = self._parse(jobspec)
            # A marshalled jobspec is kept anyway: jobs of one share the request.
            bare = not packed and hasattr(request, "with_jobspec")
            request = request.with_jobspec(None) if bare else request
            found = self._known[text] = request, bare, names
            Remembered.kept += CACHE_ENTRY_BYTES + len(text) * (1 if bare else 2)
        request, bare, _ = found
        return request.with_jobspec(read or jobspec) if bare else request

    def system_names(self, jobspec: bytes) -> frozenset[str]:
        """Return the names of the system attributes of a marshalled jobspec that can be parsed."""
        if jobspec not in self._known:
            self.parse(jobspec)
        return self._known[jobspec][2]

    def parse_unsubmitted(self, jobspec: Any) -> Any:
        """Return the request for the jobspec of a job that is not, or not yet, submitted. Raises as
        `parse`, and ValueError if such a job can never run."""
        return self.as_queued(self.parse(jobspec), jobspec)

    def _parse(self, jobspec: dict[str, Any]) -> Any:
        try:
            request = self.pool.parse_resource_request(jobspec)
        except ValueError:
            raise
        except KeyError as exc:
            raise ValueError(f"missing key {exc}") from exc
        except RecursionError:
            raise ValueError("jobspec is nested too deeply") from None
        except (Exception, SystemExit) as exc:  # a jobspec comes from a user
            raise PoolBug(f"{type(exc).__name__}: {exc}") from exc
        if request is None or type(request).__hash__ is None:
            raise PoolBug(
                f"parse_resource_request() returned {quote(request)}: expected a request that can be hashed"
            )
        return request


#: Maximum number of hosts looked for one by one, at 10 microseconds each.
MOST_MISSING_HOSTS = 20_000


def missing_hosts(pool: ResourcePool, hosts: str) -> str:
    """Return the hosts of a hostlist (RFC 29) that are not in the pool, as a hostlist: all of it,
    if it is too long to look for each."""
    found = popcount(pool.ranks_matching({"hostlist": [hosts]}))
    if sum(high - low + 1 for _, _, low, high, _ in elements(hosts)) > found + MOST_MISSING_HOSTS:
        return hosts
    names = Hostlist(hosts)
    if found == len(set(names)):
        return ""
    missing = [name for name in names if not pool.ranks_matching({"hostlist": [name]})]
    return str(Hostlist(missing).encode()) if missing else ""


Answer = TypeVar("Answer")


class RequestFacts:
    """The pool's answers about requests of pending jobs.

    Jobs come in series with equal requests, so answers are cached by shape. Each method costs a
    look-up for all jobs of a shape but the first.
    """

    def __init__(self, pool: Callable[[], ResourcePool]) -> None:
        self.pool = pool  # returns the pool
        self._matching: Remembered[Any, int] = Remembered()
        self._down: Remembered[Any, bool] = Remembered()
        self._leasts: Remembered[Any, tuple[int, int, int]] = Remembered()
        self._fewest: Remembered[Any, int] = Remembered()
        self._numbers: Remembered[Any, dict[str, Any]] = Remembered()
        self._generation = -1  # the pool's generation when `_numbers` were computed

    def __len__(self) -> int:
        """Return the number of shapes in the largest table."""
        return max(len(self._matching), len(self._down), len(self._numbers))

    def ranks_of(self, request: Any) -> int:
        """Return the mask of ranks that a request could use, up and free or not."""
        try:  # several times for each job
            return self._matching[request.shape]
        except (AttributeError, KeyError):
            return self._cached(self._matching, request, "match_mask")

    def least_of(self, request: Any) -> tuple[int, int, int]:
        """Return the minimum numbers of nodes, cores and GPUs that a request takes, regardless of
        the free ones; the number of nodes is 0 if it may share them with other jobs."""
        shape = getattr(request, "shape", None)
        least = self._leasts.get(shape)
        if least is None:
            nodes, cores, gpus = 0, getattr(request, "ncores", 0), getattr(request, "ngpus", 0)
            if shape is not None and shape.exclusive and shape.node_count is not None:
                nodes, ranks = shape.node_count.min, self.ranks_of(request)
                kinds = [kind for kind in self.pool().node_kinds() if kind[2] & ranks]
                # it takes all cores and GPUs of each node
                cores = max(cores, nodes * min([kind[0] for kind in kinds], default=0))
                gpus = max(gpus, nodes * min([kind[1] for kind in kinds], default=0))
            least = nodes, cores, gpus
            if shape is not None:
                self._leasts[shape] = least
        return least

    def fewest_nodes(self, request: Any) -> int:
        """Return the minimum number of nodes that a request takes, which it may share with other
        jobs: slots that may go anywhere take nodes that hold the most of them."""
        shape, pool = getattr(request, "shape", None), self.pool()
        if shape is None or shape.node_count is not None or not pool.can("slots_by_rank"):
            return max(1, getattr(request, "nnodes", 1))
        nodes = self._fewest.get(shape)
        if nodes is None:
            ranks, left, nodes = self.ranks_of(request), shape.slot_count.min, 0
            for slots, mask in sorted(pool.slots_by_rank(shape), reverse=True):
                if slots and left > 0:
                    some = min(popcount(mask & ranks), -(-left // slots))
                    nodes, left = nodes + some, left - some * slots
            self._fewest[shape] = nodes
        return nodes

    def takes_least(self, request: Any) -> bool:
        """Whether a request takes `least_of` on any ranks, and no more."""
        shape = getattr(request, "shape", None)
        if shape is None or not shape.exclusive or shape.node_count is None:
            return False
        return bool(shape.node_count.fixed and not any(self.unlike_nodes(request)))

    @staticmethod
    def most_nodes(request: Any) -> float:
        """Return the maximum number of nodes that a request takes; infinity if there is none."""
        shape = getattr(request, "shape", None)
        count = None if shape is None else shape.node_count or shape.slot_count
        return inf if count is None or count.max is None else count.max

    def unlike_nodes(self, request: Any) -> tuple[bool, bool]:
        """Return whether the numbers of cores, and of GPUs, that a request takes depend on the
        ranks, as they do for whole nodes of several kinds."""
        shape = getattr(request, "shape", None)
        if shape is None or not shape.exclusive:
            return False, False
        ranks = self.ranks_of(request)
        kinds = [kind for kind in self.pool().node_kinds() if kind[2] & ranks]
        cores, gpus = ({kind[at] for kind in kinds} for at in (0, 1))
        return len(cores) > 1, len(gpus) > 1

    def waits_for_down_ranks(self, request: Any) -> bool:
        """Whether the ranks that are up could not satisfy a request even if all jobs had ended."""
        return self._cached(self._down, request, "waits_for_ranks")

    def explain(self, request: Any) -> dict[str, Any]:
        """Return the result of ``ResourcePool.explain()``, cached until the pool changes."""
        generation = self.pool().generation
        if generation != self._generation:
            self._generation = generation
            self._numbers.clear()
        return self._cached(self._numbers, request, "explain")

    def _cached(self, table: Remembered[Any, Answer], request: Any, method: str) -> Answer:
        shape = getattr(request, "shape", request)  # a request of a site's own pool has none
        if shape not in table:
            table[shape] = getattr(self.pool(), method)(request)
        return table[shape]

    def explained(self) -> int:
        """Return the number of shapes cached by `explain`."""
        return len(self._numbers)

    def clear(self) -> None:
        """Clear the caches: ranks came up, went down, left or changed."""
        self._matching.clear()
        self._down.clear()
        self._leasts.clear()
        self._fewest.clear()


#: A string, a bracket, or the start of a number.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]|[0-9]+')


def id_of_unread_payload(text: str) -> int | None:
    """Return the top-level ``id`` of a JSON object that is nested too deeply for the parser, or too
    long; None if there is none. Reads only that far."""
    depth = 0
    key = None
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token in "{[":
            depth += 1
        elif token in "}]":
            depth -= 1
        elif depth == 1 and token[0] == '"':
            key = token
        elif depth == 1 and key == '"id"':
            return int(token)
    return None
