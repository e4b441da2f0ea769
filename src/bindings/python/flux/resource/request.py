# SPDX-License-Identifier: LGPL-3.0-or-later
"""Resource requests of jobs: jobspec resources (RFC 14, RFC 25) as counts.

Jobs with equal requests share one ``Shape``, the key of a pool's results about a request; this also
keeps a long queue small. Tables keyed by shapes, or by text from jobspecs, are `Remembered`, with a
common limit in bytes.
"""

from __future__ import annotations

import json
import marshal
import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, fields
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar
from weakref import WeakValueDictionary, ref

from flux.resource.pool.constraint import Terms, also_on, parse_constraint
from flux.resource.pool.groups import GroupBinding
from flux.resource.pool.masks import quote
from flux.resource.ResourceCount import MAX_COUNT, ONE, CountProduct, ResourceCount, multiply

if TYPE_CHECKING:
    from typing_extensions import Self

#: Maximum number of vertices of a resource graph, and of its levels: the graphs of sites have a
#: dozen at most, from the cluster to a core.
MAX_VERTICES = 10000
MAX_LEVELS = 256


#: Bytes of memory per byte of ``marshal``, for short strings and small numbers, with their jobspec
#: text and parsed form.
BYTES_PER_BYTE = 16


Key = TypeVar("Key")
Value = TypeVar("Value")


class Remembered(dict[Key, Value]):
    """A dict that may be emptied whenever a request arrives.

    A table keyed by shapes keeps its keys alive, so a limit on the number of its entries does not
    limit memory. Beyond a common limit in bytes all tables are emptied; pending jobs keep their own
    shapes.

    A user adds the size of each new entry to `kept`, on this class.

    Attributes:
        kept (int): bytes that all tables together may keep, roughly, since they were emptied
        MAX_BYTES (int): their limit: a few thousand ordinary requests. Jobs come in series, so
            larger tables gain little
    """

    __slots__ = ("__weakref__",)
    kept: ClassVar[int] = 0
    MAX_BYTES: ClassVar[int] = 1 << 21

    def __init__(self, *args: dict[Key, Value]) -> None:
        super().__init__(*args)
        _tables.append(ref(self))
        if len(_tables) > 2 * _alive:
            _drop_dead()

    def copy(self) -> Remembered[Key, Value]:
        return Remembered(self)


# Plans make and drop tables all the time; a set of weak references would call back for each.
_tables: list[ref[Remembered[Any, Any]]] = []
_alive = 500  # a lower bound, as of the last look


def _drop_dead() -> None:
    global _alive
    _tables[:] = [one for one in _tables if one() is not None]
    _alive = max(500, len(_tables))


def make_room() -> None:
    """Empty all tables if they may keep more than `Remembered.MAX_BYTES`.

    To be called where requests arrive or passes begin, not while a plan relies on an entry that it
    just made.
    """
    if Remembered.kept > Remembered.MAX_BYTES:
        Remembered.kept = 0
        for one in _tables:
            table = one()
            if table is not None:
                table.clear()


def load_json(text: str | bytes, what: str) -> Any:
    """Parse JSON text.

    Raises:
        ValueError: it is not JSON, or too deeply nested.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(f"{what} is nested too deeply") from None


def read_attributes(jobspec: dict[str, Any]) -> tuple[float, Any]:
    """Return the duration in seconds and the constraint in ``attributes.system``."""
    attributes = jobspec.get("attributes")
    system = attributes.get("system") if isinstance(attributes, dict) else None
    if not isinstance(system, dict) or "duration" not in system:
        if jobspec.get("version") == 1:
            missing = "duration" if isinstance(system, dict) else "system"
            raise ValueError(f"getting duration: Object item not found: {missing}")
        return 0.0, system.get("constraints") if isinstance(system, dict) else None
    duration = system["duration"]
    if isinstance(duration, bool) or not isinstance(duration, (int, float)):
        raise ValueError(f"duration: expected seconds, got {quote(duration)}")
    if isinstance(duration, int) and abs(duration) >= MAX_COUNT:
        raise ValueError(f"duration: {quote(duration)} is too large")
    if not math.isfinite(duration):
        raise ValueError(f"duration: expected a finite number, got {duration}")
    return max(0.0, float(duration)), system.get("constraints")


class Graph:
    """The result of a walk over a resource graph: the counts above and inside the slot."""

    def __init__(self, resources: Any, takes_containers: bool) -> None:
        if not isinstance(resources, list) or not resources:
            raise ValueError("jobspec has no resources")
        self.takes_containers = takes_containers
        self.vertices = 0
        # Results, under their names in Shape.
        self.node_count: ResourceCount | None = None  # over all levels above
        self.slot_count: ResourceCount | None = None  # in each node, or over all
        self.nodes_per_slot: ResourceCount | None = None
        self.exclusive = False
        self.slot_size = 0
        self.gpu_per_slot = 0
        self.container_level: str | None = None
        self.containers_per_slot = 1
        self._above(resources, ONE, None, False)

    def _read(
        self, vertices: list[Any], level: int
    ) -> Iterator[tuple[str, ResourceCount, bool, list[Any]]]:
        """Yield type, count, whether it is exclusive, and children of each vertex."""
        if level > MAX_LEVELS:
            raise ValueError(f"jobspec has more than {MAX_LEVELS} levels of resource vertices")
        for vertex in vertices:
            yield self._fields(vertex)

    def _fields(self, vertex: Any) -> tuple[str, ResourceCount, bool, list[Any]]:
        self.vertices += 1
        if self.vertices > MAX_VERTICES:
            raise ValueError(f"jobspec has more than {MAX_VERTICES} resource vertices")
        if not isinstance(vertex, dict) or not isinstance(vertex.get("type"), str):
            raise ValueError(f"resource vertex needs a type, got {quote(vertex)}")
        children = vertex["with"] if "with" in vertex else []
        if not isinstance(children, list):
            raise ValueError(f"'with' must be an array, got {quote(children)}")
        if "count" not in vertex:
            raise ValueError(f"resource {quote(vertex['type'])} has no count")
        count = ResourceCount.parse(vertex["count"])
        if count.max is None and count.operator != "+":
            raise ValueError(
                f"RFC 14 count: {count} has no max: operator {count.operator} needs one"
            )
        return vertex["type"], count, vertex.get("exclusive") is True, children

    def _above(
        self,
        vertices: list[Any],
        outer: ResourceCount,
        node: ResourceCount | None,
        exclusive: bool,
        level: int = 1,
    ) -> None:
        """Walk vertices outside any slot; ``node`` is the count of nodes once one is passed."""
        for kind, count, marked, children in self._read(vertices, level):
            if kind == "slot":
                if self.slot_count is not None:
                    raise ValueError("jobspec has more than one slot")
                self.slot_count = multiply(outer, count)
                self.node_count = node
                self.exclusive = exclusive or (marked and node is None)
                self._inside(children, ONE, False, level + 1)
                if self.nodes_per_slot is not None:
                    self.node_count = multiply(self.slot_count, self.nodes_per_slot)
                    self.slot_count = ONE
                elif self.node_count is None and self.exclusive:
                    self.node_count, self.slot_count = self.slot_count, ONE
            elif kind == "node":
                if node is not None:
                    raise ValueError("resource node inside another node")
                self._above(children, ONE, multiply(outer, count), marked, level + 1)
            elif kind not in ("core", "gpu"):  # those outside a slot are not given to the job
                self._above(children, multiply(outer, count), node, exclusive, level + 1)

    def _inside(self, vertices: list[Any], outer: ResourceCount, in_node: bool, level: int) -> None:
        """Walk vertices of the slot; ``outer`` is the count above them in the slot or its node."""
        for kind, count, marked, children in self._read(vertices, level):
            above, is_in_node = outer, in_node  # of its children
            if kind == "slot":
                raise ValueError("jobspec has more than one slot")
            if kind in ("core", "gpu"):
                if self.nodes_per_slot is not None and not in_node:
                    raise ValueError("slot has cores or GPUs beside a node")
                if kind == "core":
                    self.slot_size += outer.min * count.min
                else:
                    self.gpu_per_slot += outer.min * count.min
            elif kind == "node":
                if self.node_count is not None or self.nodes_per_slot is not None:
                    raise ValueError("resource node inside or beside another node")
                if self.slot_size or self.gpu_per_slot or self.container_level:
                    raise ValueError("slot has cores or GPUs beside a node")
                self.nodes_per_slot = multiply(outer, count)
                # RFC 14: a node without named resources is taken whole
                self.exclusive = marked or (self.takes_containers and not children)
                above, is_in_node = ONE, True
            elif marked and not children and self.takes_containers:
                if self.container_level is not None:
                    raise ValueError(
                        f"slot of containers {quote(self.container_level)} and {quote(kind)}:"
                        " all must be of one name"
                    )
                self.container_level = kind
                self.containers_per_slot = outer.min * count.min
                if self.containers_per_slot > MAX_COUNT:
                    raise ValueError(f"slot of {self.containers_per_slot} containers is too large")
            else:
                above = multiply(outer, count)
            self._inside(children, above, is_in_node, level + 1)

    def shape(self, constraint: Any) -> Shape:
        """Return the shape of the request.

        Raises:
            ValueError: there is no slot, or it is empty.
        """
        if self.slot_count is None:
            raise ValueError("Unable to determine slot count")
        if not self.slot_size and self.container_level is None:
            # A request for whole nodes need not count cores; one for only GPUs would get no core.
            whole = self.nodes_per_slot is not None and self.exclusive
            if not whole or (self.gpu_per_slot and not self.takes_containers):
                raise ValueError("Unable to determine slot size")
        if self.slot_size > MAX_COUNT or self.gpu_per_slot > MAX_COUNT:
            raise ValueError(
                f"slot of {self.slot_size} cores and {self.gpu_per_slot} GPUs is too large"
            )
        own = {name: value for name, value in vars(self).items() if name in SHAPE_FIELDS}
        return Shape.from_fields(**own, constraint=constraint)


#: marshalled resources, constraint and `takes_containers` -> their shape
_known: Remembered[bytes, Shape] = Remembered()


def _shape_of(resources: Any, constraint: Any, takes_containers: bool) -> Shape:
    """Return the shape of a jobspec's resources, which many jobs of different durations share."""
    try:
        key = marshal.dumps((resources, constraint, takes_containers), 2)
    except ValueError:
        key = b""  # nested too deeply
    shape = _known.get(key)
    if shape is None:
        if constraint is not None:
            parse_constraint(constraint)
        shape = Graph(resources, takes_containers).shape(constraint)
        if key:
            _known[key] = shape
            Remembered.kept += 256 + len(key)
    return shape


def _usually(value: Any) -> Any:
    """Return a field with a default value but no class attribute.

    CPython would look at a class attribute first at each access.
    """
    return field(default_factory=lambda: value)


@dataclass(frozen=True, eq=False)
class Shape:
    """The part of a request shared by many jobs. It is immutable, and equal shapes are one object.

    Attributes:
        node_count (ResourceCount or None): nodes wanted; None if slots may go anywhere.
        slot_count (ResourceCount): slots on each node, or in total.
        slot_size (int): cores per slot (on each of its nodes).
        gpu_per_slot (int): GPUs per slot.
        exclusive (bool): nodes are taken whole.
        constraint (dict or None): RFC 31 constraint.
        nodes_per_slot (ResourceCount or None): nodes in one slot.
        container_level (str or None): containers that a slot takes whole (``socket``).
        containers_per_slot (int): number of these.
        within (GroupBinding or None): the groups of ranks that it is bound to (`pool.groups`).
        slot_amounts (tuple): steps of each of the pool's amounts per slot (`pool.amounts`); empty
            if the request has none.
        node_amounts (tuple): the same per node, in addition to its slots' amounts.
        attributes (int): a hash of the job's attributes, where the pool's choice may depend on them.
        match (Terms or None): the parsed constraint, and the ranks it is limited to (`on_ranks`).
        node_cores, node_gpus (int): minimum per node.
        need (tuple): minimum numbers of cores, GPUs and steps of each amount per node (per slot, in
            a request for slots anywhere). Amounts are left out if it asks for none.
        least_count (int): minimum number of nodes, or of slots if it asks for no nodes.
        kept_bytes (int): approximate size in memory.
    """

    # The only list of a request's fields. Counts and the constraint come first, since
    # ``_shared()`` treats them separately.
    node_count: ResourceCount | None = _usually(None)
    slot_count: ResourceCount = _usually(ONE)
    nodes_per_slot: ResourceCount | None = _usually(None)
    constraint: Any = _usually(None)
    slot_size: int = _usually(1)
    gpu_per_slot: int = _usually(0)
    exclusive: bool = _usually(False)
    container_level: str | None = _usually(None)
    containers_per_slot: int = _usually(1)
    within: GroupBinding | None = _usually(None)
    slot_amounts: tuple[int, ...] = _usually(())
    node_amounts: tuple[int, ...] = _usually(())
    attributes: int = _usually(0)
    match: Any = field(init=False)
    node_cores: int = field(init=False)
    node_gpus: int = field(init=False)
    need: tuple[int, ...] = field(init=False)
    least_count: int = field(init=False)
    kept_bytes: int = field(init=False)

    @classmethod
    def from_fields(cls, **given: Any) -> Shape:
        """Return the shape with these fields: the existing object, if it still lives."""
        values = {**SHAPE_FIELDS, **given}
        constraint = values["constraint"]
        match = None if constraint is None else parse_constraint(constraint, added=True)
        return cls._shared(match, *values.values())

    @classmethod
    def _shared(
        cls,
        match: Terms | None,
        nodes: ResourceCount | None,
        slots: ResourceCount,
        inside: ResourceCount | None,
        constraint: Any,
        *rest: Any,
    ) -> Shape:
        asked: Any = (
            nodes and nodes.canonical(),
            slots.canonical(),
            inside and inside.canonical(),
            match,
            rest,
        )
        shape = _shapes.get(asked)
        if shape is None:
            shape = _shapes[asked] = cls(nodes, slots, inside, constraint, *rest)
            count = slots.min if nodes is not None else 1
            size = 256 + BYTES_PER_BYTE * len(marshal.dumps((asked[:3], match and match[:]), 2))
            Remembered.kept += size
            amounts = zip(shape.node_amounts, shape.slot_amounts)
            cores, gpus = count * shape.slot_size, count * shape.gpu_per_slot
            shape.__dict__.update(
                match=match,
                node_cores=cores,
                node_gpus=gpus,
                need=(cores, gpus, *[once + count * each for once, each in amounts]),
                least_count=(nodes or slots).min,
                kept_bytes=size,
            )
        return shape

    def replace(self, **changes: Any) -> Shape:
        """Return the shape with some fields changed."""
        values = {**dict(zip(SHAPE_FIELDS, _VALUES(self))), **changes}
        if "constraint" in changes:
            return Shape.from_fields(**values)
        return Shape._shared(self.match, *values.values())

    def on_ranks(self, ranks: int) -> Shape:
        """Return the shape limited to some ranks (a mask); its constraint is still the user's."""
        return Shape._shared(also_on(self.match, ranks), *_VALUES(self))

    @property
    def nslots(self) -> int:
        """Minimum number of slots, in total."""
        if self.node_count is None:
            return self.slot_count.min
        return self.slots_given(self.node_count.min, self.slot_count.min)

    def slots_given(self, nodes: int, slots_on_node: int) -> int:
        """Return ``nslots`` of an allocation of ``nodes`` nodes."""
        if self.nodes_per_slot is None:
            return nodes * slots_on_node
        if self.nodes_per_slot.fixed:
            return nodes // self.nodes_per_slot.min
        assert self.node_count is not None
        if isinstance(self.node_count, CountProduct):
            chosen = self.node_count.split(nodes)
            assert chosen is not None
            return chosen[0]
        return self.node_count.min // self.nodes_per_slot.min


#: The fields of a shape, with their defaults.
SHAPE_FIELDS: dict[str, Any] = {
    one.name: one.default_factory()  # type: ignore[operator]
    for one in fields(Shape)
    if one.init
}
_VALUES = attrgetter(*SHAPE_FIELDS)
_shapes: WeakValueDictionary[Any, Shape] = WeakValueDictionary()


class Claimant(NamedTuple):
    """The fields by which jobs may or may not share a rank.

    Attributes:
        keys (tuple): the job's owner, one key for each kind of claim
        where (tuple): for each kind, a mask of the ranks that the job claims while it is on them
    """

    keys: tuple[Hashable, ...]
    where: tuple[int, ...]

    def apart_from(self, other: Claimant) -> int:
        """Return a mask of the ranks that jobs of the two claimants may not share."""
        ranks = 0
        for own_key, other_key, own, others in zip(self.keys, other.keys, self.where, other.where):
            if own_key != other_key:
                ranks |= own | others
        return ranks


def _shared(name: str, doc: str) -> Any:
    def get(self: ResourceRequest) -> Any:
        return getattr(self.shape, name)

    def put(self: ResourceRequest, value: Any) -> None:
        self.shape = self.shape.replace(**{name: value})

    return property(get, put, doc=doc)


class ResourceRequest:
    """A job's request, as used by :class:`Rv1Pool`.

    Args:
        node_count (ResourceCount, int or None): nodes wanted, over all levels above them; None if
            slots may go anywhere.
        slot_count (ResourceCount or int): slots on each node, or in total if ``node_count`` is
            None.
        slot_size (int): cores per slot (on each of its nodes).
        gpu_per_slot (int): GPUs per slot.
        duration (float): seconds; 0: no limit.
        constraint (dict or None): RFC 31 constraint.
        exclusive (bool): take nodes whole.
        jobspec: the jobspec, as an object, as JSON text, or as a callable that returns either. Text
            is parsed each time ``jobspec`` is read, which saves memory in a long queue.
        more: other fields of a :class:`Shape`: ``nodes_per_slot``, for requests with the node below
            the slot, and the containers of a slot.

    Raises:
        ValueError: a bad constraint or count.
    """

    __slots__ = ("shape", "duration", "tokens", "claimant", "_jobspec")

    #: Whether an exclusive vertex of another type is a request of its own.
    takes_containers = False

    shape: Shape
    duration: float
    #: Tokens that a plan must find beside resources, or None (see `flux.resource.plan.tokens`).
    tokens: dict[str, int] | None
    #: The job's claim on shared ranks, or None (see `flux.resource.plan.claims`).
    claimant: Claimant | None
    _jobspec: Any

    def __init__(
        self,
        node_count: Any = None,
        slot_count: Any = ONE,
        slot_size: int = 1,
        gpu_per_slot: int = 0,
        duration: float = 0.0,
        constraint: Any = None,
        exclusive: bool = False,
        jobspec: Any = None,
        **more: Any,
    ) -> None:
        if Remembered.kept > Remembered.MAX_BYTES:
            make_room()
        self.shape = Shape.from_fields(
            node_count=None if node_count is None else ResourceCount.parse(node_count),
            slot_count=ResourceCount.parse(slot_count),
            slot_size=slot_size,
            gpu_per_slot=gpu_per_slot,
            exclusive=bool(exclusive),
            constraint=constraint,
            **more,
        )
        self.duration = duration
        self.tokens = None
        self.claimant = None
        self._jobspec = jobspec

    node_count = _shared("node_count", "Accepted numbers of nodes, or None.")
    slot_count = _shared("slot_count", "Accepted numbers of slots, per node or in all.")
    slot_size = _shared("slot_size", "Cores of a slot.")
    gpu_per_slot = _shared("gpu_per_slot", "GPUs of a slot.")
    exclusive = _shared("exclusive", "True for whole nodes.")
    constraint = _shared("constraint", "RFC 31 constraint, or None.")
    nodes_per_slot = _shared("nodes_per_slot", "Nodes inside a slot, or None.")

    @property
    def jobspec(self) -> Any:
        """The jobspec as an object."""
        jobspec = self._jobspec
        if callable(jobspec):
            jobspec = jobspec()
        return json.loads(jobspec) if isinstance(jobspec, (str, bytes)) else jobspec

    @jobspec.setter
    def jobspec(self, jobspec: Any) -> None:
        self._jobspec = jobspec

    def with_jobspec(self, jobspec: Any) -> Self:
        """Return the request with another jobspec, in one of the forms above."""
        new = object.__new__(type(self))
        new.shape = self.shape
        new.duration = self.duration
        new.tokens = self.tokens
        new.claimant = self.claimant
        new._jobspec = jobspec
        return new

    def with_shape(self, shape: Shape) -> Self:
        """Return the request with another shape."""
        new = self.with_jobspec(self._jobspec)
        new.shape = shape
        return new

    def on_ranks(self, ranks: int) -> Self:
        """Return the request limited to some ranks (a mask)."""
        return self.with_shape(self.shape.on_ranks(ranks))

    def with_tokens(self, tokens: dict[str, int] | None) -> Self:
        """Return the request with tokens that a plan must find beside resources."""
        new = self.with_jobspec(self._jobspec)
        new.tokens = tokens
        return new

    def with_claimant(self, claimant: Claimant | None) -> Self:
        """Return the request of a job that may not share ranks with every other."""
        new = self.with_jobspec(self._jobspec)
        new.claimant = claimant
        return new

    @property
    def nnodes(self) -> int:
        """Minimum number of nodes; 0 if slots may go anywhere."""
        count = self.shape.node_count
        return 0 if count is None else count.min

    @property
    def nnodes_max(self) -> int | None:
        """Maximum number of nodes; None if unbounded, 0 if slots may go anywhere."""
        count = self.shape.node_count
        return 0 if count is None else count.max

    @property
    def nslots(self) -> int:
        """Minimum number of slots, in total."""
        return self.shape.nslots

    @property
    def nslots_max(self) -> int | None:
        """Maximum number of slots, in total; None if unbounded."""
        shape = self.shape
        if shape.node_count is None:
            return shape.slot_count.max
        if shape.node_count.max is None or shape.slot_count.max is None:
            return None
        return shape.slots_given(shape.node_count.max, shape.slot_count.max)

    @property
    def ncores(self) -> int:
        """Minimum number of cores, in total."""
        return self.shape.least_count * self.shape.need[0]

    @property
    def ngpus(self) -> int:
        """Minimum number of GPUs, in total."""
        return self.shape.least_count * self.shape.need[1]

    @classmethod
    def from_jobspec(cls, jobspec: Any) -> Self:
        """Read a jobspec.

        Args:
            jobspec (dict or str): version 1 or canonical jobspec.

        Raises:
            ValueError: it has no resources, no slot, no cores, a bad count, constraint or duration,
                or is too deeply nested.
        """
        kept = jobspec
        if isinstance(jobspec, (str, bytes)):
            jobspec = load_json(jobspec, "jobspec")
        if not isinstance(jobspec, dict):
            raise ValueError(f"jobspec must be an object, got {quote(jobspec)}")
        duration, constraint = read_attributes(jobspec)
        if Remembered.kept > Remembered.MAX_BYTES:
            make_room()
        self = cls.__new__(cls)
        self.shape = _shape_of(jobspec.get("resources"), constraint, cls.takes_containers)
        self.duration = duration
        self.tokens = self.claimant = None
        self._jobspec = kept
        return self

    def __repr__(self) -> str:
        shape = self.shape
        return (
            f"{type(self).__name__}(node_count={shape.node_count}, slot_count={shape.slot_count},"
            f" slot_size={shape.slot_size}, gpu_per_slot={shape.gpu_per_slot},"
            f" duration={self.duration}{', exclusive' if shape.exclusive else ''})"
        )


def length_of(request: ResourceRequest) -> float:
    """Return the duration of a request in seconds; infinity if it has none."""
    return request.duration if request.duration > 0 else inf
