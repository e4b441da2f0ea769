"""TreePool: a pool that knows where in a node a core or GPU lies.

It reads the topology in ``R.scheduling.children`` (RFC 49) and places slots with GPUs and cores in
the finest domain that holds them; see ``tree/node.py`` for the rules. Chosen by
``pool-class=TreePool``, by a scheduler's ``pool_class``, or by R itself, whose ``scheduling.writer`` is
``TreePool``.
"""

from json import dumps

from flux.resource.hwloc.amend import amend
from flux.resource.pool.inventory import selected_ranks
from flux.resource.pool.masks import parse_idset
from flux.resource.request import ResourceRequest, load_json
from flux.resource.ResourcePool import ResourcePool
from flux.resource.Rv1Pool import Rv1Pool
from flux.resource.tree.explain import able, explain_boxes, no_boxes
from flux.resource.tree.hooks import TreeHooks
from flux.resource.tree.node import NodeType
from flux.resource.tree.placement import Kinds, TreePlacement
from flux.resource.tree.rooms import BoxIndex
from flux.resource.tree.topology import cut_children, entries_of, read_children

__all__ = ("TreePool", "TreeResourceRequest", "amend", "pool_class")


class TreeResourceRequest(ResourceRequest):
    """A job's request, with containers and whole nodes (RFC 14 canonical jobspec).

    An exclusive vertex without children that is not node, slot, core or gpu asks for whole
    containers of that name in each slot (``slot/socket{x}``): ``container_level`` is its type and
    ``slot_size`` 0, unless cores stand beside it, which the container must then have at least.
    ``slot=N/node{x}`` is N whole nodes; a core or GPU count is a minimum they must have.

    Args:
        args, kwargs: those of ResourceRequest.
        container_level (str or None): name of the level.
    """

    __slots__ = ()

    takes_containers = True

    def __init__(self, *args, container_level=None, **kwargs):
        super().__init__(*args, container_level=container_level, **kwargs)

    @property
    def container_level(self):
        """Name of the containers that a slot takes whole, or None."""
        return self.shape.container_level


class _TreePoolV1(TreeHooks, Rv1Pool):
    """The implementation for R version 1.

    Args:
        R (dict, str): R object or its JSON text, with ``scheduling.children``.
        log: logger; none if not given.

    Raises:
        ValueError: R has something wrong in it, no topology, one that does not name its ranks, or
            ranks other than 0 to n-1; the text names the entry.
    """

    name = "TreePool"
    request_class = TreeResourceRequest
    index_class = BoxIndex

    def __init__(self, R=None, log=None, **kwargs):
        if isinstance(R, (str, bytes)):
            R = load_json(R, "R")
        super().__init__(R, log=log, **kwargs)
        ranks = 0
        for entry in (R or {}).get("execution", {}).get("R_lite", ()):
            ranks |= parse_idset(entry["rank"])
        self.scheduling, self._entries, kinds = read_children(self.scheduling, ranks)
        self.placement = TreePlacement(_read_kinds(self._base, kinds))

    def countable(self, shape):
        # Containers must be free as a whole, which counts do not tell.
        return shape.container_level is None and super().countable(shape)

    def check_shape(self, shape):
        if shape.container_level is None:
            return super().check_shape(shape)
        inventory = self._inventory
        eligible = inventory.matching(shape.match)
        if self.place(inventory.unused(), shape, eligible) is None:
            return no_boxes(self.placement, inventory, shape, eligible)
        return None

    def match_mask(self, request):
        shape = request.shape
        if shape.container_level is None:
            return super().match_mask(request)
        inventory = self._inventory
        return able(self.placement, inventory.unused(), shape, inventory.matching(shape.match))

    def explain(self, request):
        if request.shape.container_level is None:
            return super().explain(request)
        return explain_boxes(self, request.shape)

    def _check_books(self):
        super()._check_books()
        self._index.check_boxes(self.placement.kinds)

    def scheduling_of(self, selection):
        return cut_children(self.scheduling, self._entries, selected_ranks(selection))

    def remove_ranks(self, ranks):
        before = self._inventory.ranks
        super().remove_ranks(ranks)
        gone = before & ~self._inventory.ranks
        if gone:
            self.scheduling = cut_children(self.scheduling, entries_of(self.scheduling), ~gone)
            self._entries = [(mask & ~gone, entry) for mask, entry in self._entries]


def _read_kinds(inventory, children):
    """The node types of an inventory: its kinds of ranks, by topology."""
    types = {}
    pairs = {}
    for mask, topo, where in children:
        for units, ranks in inventory.kinds.items():
            ranks &= mask
            if not ranks:
                continue
            key = (dumps(topo), units)
            if key not in types:
                types[key] = NodeType(topo, units, inventory.shift, where)
            pairs[key] = pairs.get(key, 0) | ranks
    return Kinds((mask, types[key]) for key, mask in pairs.items())


class TreePool(ResourcePool):
    """Pool with placement by node topology; dispatches on the version of R."""

    _impl_map = {1: _TreePoolV1}


pool_class = TreePool
