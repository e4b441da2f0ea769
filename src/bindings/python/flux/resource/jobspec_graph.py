"""Reading a jobspec (RFC 14, RFC 25): its resource graph, duration and constraint."""

import json
import math

from flux.resource.masks import quote
from flux.resource.ResourceCount import COUNT_LIMIT, ONE, ResourceCount, multiply

#: Levels and vertices of a resource graph; more is an error.
DEPTH_LIMIT = 64
VERTEX_LIMIT = 10000


def load_json(text, what):
    """Parse JSON text; what is wrong with it, its depth included, is a ValueError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(f"{what} is nested too deep") from None


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
