"""What a job asks of a pool: jobspec resources (RFC 14, RFC 25) as counts.

Jobs of one shape share one ``Shape``: a pool can remember by it what it found
out about a request, and a long queue holds few of them.
"""

import json
import math
from weakref import WeakValueDictionary

from flux.resource.pool.constraint import parse_constraint
from flux.resource.pool.masks import quote
from flux.resource.pool.rv1 import load_json
from flux.resource.ResourceCount import COUNT_LIMIT, ONE, CountProduct, ResourceCount, multiply

#: Levels and vertices of a resource graph; more is an error.
DEPTH_LIMIT = 64
VERTEX_LIMIT = 10000


def read_attributes(jobspec):
    """Duration in seconds and constraint, from ``attributes.system``."""
    attributes = jobspec.get("attributes")
    system = attributes.get("system") if isinstance(attributes, dict) else None
    required = jobspec.get("version") == 1
    if not isinstance(system, dict):
        if required:
            raise ValueError("getting duration: Object item not found: system")
        return 0.0, None
    if "duration" not in system:
        if required:
            raise ValueError("getting duration: Object item not found: duration")
        duration = 0.0
    else:
        duration = system["duration"]
        if isinstance(duration, bool) or not isinstance(duration, (int, float)):
            raise ValueError(f"duration: expected seconds, got {quote(duration)}")
        if isinstance(duration, int) and abs(duration) >= COUNT_LIMIT:
            raise ValueError(f"duration: {quote(duration)} is too large")
        if not math.isfinite(duration):
            raise ValueError(f"duration: expected a finite number, got {duration}")
        duration = max(0.0, float(duration))
    return duration, system.get("constraints")


class Graph:
    """One walk over the resource graph: counts above and inside the slot."""

    def __init__(self, resources, takes_containers):
        if not isinstance(resources, list) or not resources:
            raise ValueError("jobspec has no resources")
        self.takes_containers = takes_containers
        self.vertices = 0
        self.nodes = None  # count of nodes, over all levels above
        self.slots = None  # count of slots, in each node or over all
        self.slot_nodes = None  # count of nodes in each slot
        self.exclusive = False
        self.cores = 0
        self.gpus = 0
        self.container = None
        self.containers = 1
        for vertex in resources:
            self._above(vertex, ONE, None, False, 0)

    def _fields(self, vertex, depth):
        self.vertices += 1
        if depth > DEPTH_LIMIT:
            raise ValueError("resources are nested more than %d levels deep" % DEPTH_LIMIT)
        if self.vertices > VERTEX_LIMIT:
            raise ValueError("jobspec has more than %d resource vertices" % VERTEX_LIMIT)
        if not isinstance(vertex, dict) or not isinstance(vertex.get("type"), str):
            raise ValueError(f"resource vertex needs a type, got {quote(vertex)}")
        children = vertex.get("with", [])
        if not isinstance(children, list):
            raise ValueError(f"'with' must be an array, got {quote(children)}")
        if "count" not in vertex:
            raise ValueError("resource {} has no count".format(quote(vertex["type"])))
        count = ResourceCount.parse(vertex["count"])
        if count.max is None and count.operator != "+":
            raise ValueError(
                f"RFC 14 count: {count} has no max: operator {count.operator} needs one"
            )
        return vertex["type"], count, vertex.get("exclusive") is True, children

    def _above(self, vertex, outer, node, exclusive, depth):
        """A vertex outside any slot; ``node`` is the count of nodes once one is passed."""
        kind, count, marked, children = self._fields(vertex, depth)
        if kind == "slot":
            self._slot(count, outer, node, exclusive, marked, children, depth)
            return
        if kind in ("core", "gpu"):
            return  # outside a slot: nothing to do with the job
        if kind == "node":
            if node is not None:
                raise ValueError("resource node inside another node")
            node, outer, exclusive = multiply(outer, count), ONE, marked
        else:
            outer = multiply(outer, count)
        for child in children:
            self._above(child, outer, node, exclusive, depth + 1)

    def _slot(self, count, outer, node, exclusive, marked, children, depth):
        if self.slots is not None:
            raise ValueError("jobspec has more than one slot")
        self.slots = multiply(outer, count)
        self.nodes = node
        self.exclusive = exclusive or (marked and node is None)
        for child in children:
            self._inside(child, ONE, depth + 1, False)
        if self.slot_nodes is not None:
            self.nodes = multiply(self.slots, self.slot_nodes)
            self.slots = ONE
        elif self.nodes is None and self.exclusive:
            self.nodes, self.slots = self.slots, ONE

    def _inside(self, vertex, outer, depth, in_node):
        """A vertex of the slot; ``outer`` is the count above it in the slot or its node."""
        kind, count, marked, children = self._fields(vertex, depth)
        if kind == "slot":
            raise ValueError("jobspec has more than one slot")
        if kind in ("core", "gpu"):
            if self.slot_nodes is not None and not in_node:
                raise ValueError("cores or GPUs beside a node in a slot")
            if kind == "core":
                self.cores += outer.min * count.min
            else:
                self.gpus += outer.min * count.min
        elif kind == "node":
            if self.nodes is not None or self.slot_nodes is not None:
                raise ValueError("resource node inside or beside another node")
            if self.cores or self.gpus or self.container:
                raise ValueError("cores or GPUs beside a node in a slot")
            self.slot_nodes = multiply(outer, count)
            # RFC 14 takes a node of which nothing is named as a whole.
            self.exclusive = marked or (self.takes_containers and not children)
            outer, in_node = ONE, True
        elif marked and not children and self.takes_containers:
            if self.container is not None:
                raise ValueError(
                    f"slot of containers {quote(self.container)} and {quote(kind)}: only one is possible"
                )
            self.container = kind
            self.containers = outer.min * count.min
            if self.containers > COUNT_LIMIT:
                raise ValueError("slot of %d containers is too large" % self.containers)
        else:
            outer = multiply(outer, count)
        for child in children:
            self._inside(child, outer, depth + 1, in_node)

    def fields(self):
        """What was found, as arguments of ``Shape.of()`` but for the constraint."""
        if self.slots is None:
            raise ValueError("Unable to determine slot count")
        if not self.cores and self.container is None:
            # Whole nodes need no count of cores, but GPUs alone get none.
            whole = self.slot_nodes is not None and self.exclusive
            if not whole or (self.gpus and not self.takes_containers):
                raise ValueError("Unable to determine slot size")
        if self.cores > COUNT_LIMIT or self.gpus > COUNT_LIMIT:
            raise ValueError("slot of %d cores and %d GPUs is too large" % (self.cores, self.gpus))
        return {
            "node_count": self.nodes,
            "slot_count": self.slots,
            "slot_size": self.cores,
            "gpu_per_slot": self.gpus,
            "exclusive": self.exclusive,
            "nodes_per_slot": self.slot_nodes,
            "container_level": self.container,
            "containers_per_slot": self.containers,
        }


class Shape:
    """The part of a request that jobs have in common. Immutable; equal ones are one object.

    Attributes are those of :class:`ResourceRequest`, and ``match``, the parsed
    constraint.
    """

    __slots__ = (
        "node_count", "slot_count", "slot_size", "gpu_per_slot", "exclusive", "constraint",
        "nodes_per_slot", "container_level", "containers_per_slot", "match", "node_cores",
        "node_gpus", "__weakref__",
    )  # fmt: skip

    _known = WeakValueDictionary()

    @classmethod
    def of(
        cls, node_count, slot_count, slot_size, gpu_per_slot, exclusive, constraint,
        nodes_per_slot=None, container_level=None, containers_per_slot=1,
    ):  # fmt: skip
        """The shape with these fields: the one made before, if it still lives."""
        match = parse_constraint(constraint)
        key = (
            node_count and node_count._key(), slot_count._key(), slot_size, gpu_per_slot,
            exclusive, match, nodes_per_slot and nodes_per_slot._key(), container_level,
            containers_per_slot,
            containers_per_slot,
        )  # fmt: skip
        shape = cls._known.get(key)
        if shape is None:
            shape = cls.__new__(cls)
            shape.node_count = node_count
            shape.slot_count = slot_count
            shape.slot_size = slot_size
            shape.gpu_per_slot = gpu_per_slot
            shape.exclusive = exclusive
            shape.constraint = constraint
            shape.nodes_per_slot = nodes_per_slot
            shape.container_level = container_level
            shape.containers_per_slot = containers_per_slot
            shape.containers_per_slot = containers_per_slot
            shape.match = match
            slots = slot_count.min if node_count is not None else 1
            shape.node_cores = slots * slot_size
            shape.node_gpus = slots * gpu_per_slot
            cls._known[key] = shape
        return shape

    def replace(self, **changes):
        """The shape with some fields changed."""
        names = (
            "node_count", "slot_count", "slot_size", "gpu_per_slot", "exclusive", "constraint",
            "nodes_per_slot", "container_level", "containers_per_slot",
        )  # fmt: skip
        fields = {name: getattr(self, name) for name in names}
        fields.update(changes)
        return Shape.of(**fields)

    def slots_given(self, nodes, slots_on_node):
        """``nslots`` of an allocation of ``nodes`` nodes."""
        if self.nodes_per_slot is None:
            return nodes * slots_on_node
        if self.nodes_per_slot.fixed:
            return nodes // self.nodes_per_slot.min
        if type(self.node_count) is CountProduct:
            return self.node_count.split(nodes)[0]
        return self.node_count.min // self.nodes_per_slot.min


def _shared(name, doc):
    def get(self):
        return getattr(self.shape, name)

    def put(self, value):
        self.shape = self.shape.replace(**{name: value})

    return property(get, put, doc=doc)


class ResourceRequest:
    """A job's request, as :class:`Rv1Pool` understands it.

    Args:
        node_count (ResourceCount, int or None): nodes wanted, counted over all
            levels above them; None if slots may go anywhere.
        slot_count (ResourceCount or int): slots on each node, or slots in all
            where ``node_count`` is None.
        slot_size (int): cores of a slot (on each of its nodes).
        gpu_per_slot (int): GPUs of a slot.
        duration (float): seconds; 0 is none.
        constraint (dict or None): RFC 31 constraint.
        exclusive (bool): whole nodes.
        jobspec: the jobspec, as object, as JSON text, or as a callable that
            returns either: what is not an object is parsed each time
            ``jobspec`` is read, which saves memory in a long queue.
        nodes_per_slot (ResourceCount or None): nodes inside one slot, for
            requests with the node below the slot.

    Raises:
        ValueError: a bad constraint or count.
    """

    __slots__ = ("shape", "duration", "_jobspec")

    #: Whether an exclusive vertex of another type is a request of its own.
    takes_containers = False

    def __init__(
        self, node_count=None, slot_count=ONE, slot_size=1, gpu_per_slot=0, duration=0.0,
        constraint=None, exclusive=False, jobspec=None, nodes_per_slot=None,
        container_level=None, containers_per_slot=1,
    ):  # fmt: skip
        if node_count is not None:
            node_count = ResourceCount.parse(node_count)
        self.shape = Shape.of(
            node_count, ResourceCount.parse(slot_count), slot_size, gpu_per_slot,
            bool(exclusive), constraint, nodes_per_slot, container_level, containers_per_slot,
        )  # fmt: skip
        self.duration = duration
        self._jobspec = jobspec

    node_count = _shared("node_count", "Accepted numbers of nodes, or None.")
    slot_count = _shared("slot_count", "Accepted numbers of slots, per node or in all.")
    slot_size = _shared("slot_size", "Cores of a slot.")
    gpu_per_slot = _shared("gpu_per_slot", "GPUs of a slot.")
    exclusive = _shared("exclusive", "True for whole nodes.")
    constraint = _shared("constraint", "RFC 31 constraint, or None.")
    nodes_per_slot = _shared("nodes_per_slot", "Nodes inside a slot, or None.")

    @property
    def jobspec(self):
        """The jobspec as an object."""
        jobspec = self._jobspec
        if callable(jobspec):
            jobspec = jobspec()
        return json.loads(jobspec) if isinstance(jobspec, (str, bytes)) else jobspec

    @jobspec.setter
    def jobspec(self, jobspec):
        self._jobspec = jobspec

    def with_jobspec(self, jobspec):
        """The same request with another jobspec, in one of the forms above."""
        new = object.__new__(type(self))
        new.shape = self.shape
        new.duration = self.duration
        new._jobspec = jobspec
        return new

    @property
    def nnodes(self):
        """Nodes needed at least; 0 where slots may go anywhere."""
        count = self.shape.node_count
        return 0 if count is None else count.min

    @property
    def nnodes_max(self):
        """Nodes wanted at most; None if unbounded, 0 as for ``nnodes``."""
        count = self.shape.node_count
        return 0 if count is None else count.max

    @property
    def nslots(self):
        """Slots needed at least, in all."""
        shape = self.shape
        if shape.node_count is None:
            return shape.slot_count.min
        return shape.slots_given(shape.node_count.min, shape.slot_count.min)

    @property
    def nslots_max(self):
        """Slots wanted at most, in all; None if unbounded."""
        shape = self.shape
        if shape.node_count is None:
            return shape.slot_count.max
        if shape.node_count.max is None or shape.slot_count.max is None:
            return None
        return shape.slots_given(shape.node_count.max, shape.slot_count.max)

    @property
    def ncores(self):
        """Cores needed at least, in all."""
        return self._total(self.shape.slot_size)

    @property
    def ngpus(self):
        """GPUs needed at least, in all."""
        return self._total(self.shape.gpu_per_slot)

    def _total(self, each):
        shape = self.shape
        nodes = 1 if shape.node_count is None else shape.node_count.min
        return nodes * shape.slot_count.min * each

    @classmethod
    def from_jobspec(cls, jobspec):
        """Read a jobspec.

        Args:
            jobspec (dict or str): version 1 or canonical jobspec.

        Raises:
            ValueError: it has no resources, no slot or no cores, a bad count,
                constraint or duration, or is nested too deep.
        """
        kept = jobspec
        if isinstance(jobspec, (str, bytes)):
            jobspec = load_json(jobspec, "jobspec")
        if not isinstance(jobspec, dict):
            raise ValueError(f"jobspec must be an object, got {quote(jobspec)}")
        duration, constraint = read_attributes(jobspec)
        graph = Graph(jobspec.get("resources"), cls.takes_containers)
        self = cls.__new__(cls)
        self.shape = Shape.of(constraint=constraint, **graph.fields())
        self.duration = duration
        self._jobspec = kept
        return self

    def __repr__(self):
        shape = self.shape
        return "{}(node_count={}, slot_count={}, slot_size={}, gpu_per_slot={}, duration={}{})".format(
            type(self).__name__, shape.node_count, shape.slot_count, shape.slot_size,
            shape.gpu_per_slot, self.duration, ", exclusive" if shape.exclusive else "",
        )  # fmt: skip
