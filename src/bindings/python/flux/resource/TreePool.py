# SPDX-License-Identifier: LGPL-3.0-or-later
"""TreePool: a pool that knows the position of cores and GPUs in a node.

It reads the topology in ``R.scheduling.children`` (RFC 49) and places slots with GPUs and cores in
the smallest domain that holds them. A scheduler uses it if loaded with ``pool-class=TreePool``, if
its ``pool_class`` is set so, or if ``scheduling.writer`` of R is ``TreePool``.

Where to look for the cause of a mistake:

- wrong cores or GPUs on the right node: ``TreePlacement.pick()`` (``tree/tree_placement.py``) asks
  the ``NodeType`` (``tree/node.py``, the rules), which uses its ``Layout`` (``tree/topology.py``);
- wrong node for slots: ``Placement`` (``pool/placement.py``), with best fit, on the ``RankIndex``
  (``pool/state.py``);
- wrong node for containers: ``TreePlacement.candidates()`` on the ``ContainerIndex``
  (``tree/tree_placement.py``);
- wrong reason: ``rooms()`` here, and ``pool/explain.py``, which writes the sentence;
- resources not freed, or allocated twice: ``PoolState`` (``pool/state.py``), held by ``Rv1Pool``;
- the topology itself: ``read_children()`` and ``Layout`` (``tree/topology.py``), and
  ``hwloc/amend.py`` for hwloc XML.
"""

from __future__ import annotations

from json import dumps
from typing import TYPE_CHECKING, Any

from flux.resource.hwloc.amend import amend
from flux.resource.pool.hooks import ids_of, mask_of_ids
from flux.resource.pool.inventory import Inventory
from flux.resource.pool.masks import idset_text
from flux.resource.request import ResourceRequest, Shape
from flux.resource.ResourcePool import ResourcePool
from flux.resource.Rv1Pool import Rv1Pool
from flux.resource.tree.node import NodeType, NodeTypes
from flux.resource.tree.topology import cut_children, entries_of, lacks_ranks, read_children
from flux.resource.tree.tree_placement import ContainerIndex, TreePlacement

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ("TreePool", "TreeResourceRequest", "amend", "pool_class")


class TreeResourceRequest(ResourceRequest):
    """A job's request, with containers and whole nodes (RFC 14 canonical jobspec).

    An exclusive vertex without children that is not node, slot, core or gpu requests whole
    containers of that name in each slot (``slot/socket{x}``): ``container_level`` is its type and
    ``slot_size`` 0, unless cores stand beside it: the minimum for the container. ``slot=N/node{x}``
    is N whole nodes; a core or GPU count is their minimum.

    Args:
        args, kwargs: those of ResourceRequest.
        container_level (str or None): name of the level.
    """

    __slots__ = ()

    takes_containers = True

    def __init__(self, *args: Any, container_level: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, container_level=container_level, **kwargs)

    @property
    def container_level(self) -> str | None:
        """Name of the containers that a slot takes whole, or None."""
        return self.shape.container_level


class _TreePoolV1(Rv1Pool):
    """The implementation for R version 1.

    Args:
        R (dict, str): R object or its JSON text, with ``scheduling.children``.
        log: logger; default: no logging.
        all_ranks (bool): whether R has all ranks that the topology names; see
            `TreePool.of_instance`.

    Raises:
        ValueError: R is malformed, has no topology, or one that does not name its ranks or names
            other ranks than 0 to n-1; the text names the entry.
    """

    name = "TreePool"
    placement: TreePlacement
    request_class = TreeResourceRequest
    index_class = ContainerIndex

    def __init__(
        self, R: Any = None, log: Any = None, all_ranks: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(R, log=log, **kwargs)
        own = [(mask, cores) for mask, cores, _ in self.entries()]
        self.scheduling, entries, topologies = read_children(self.scheduling, own, all_ranks)
        self._children = self.scheduling, entries
        self.placement = TreePlacement(_node_types(self._base, topologies, self.log))

    def _room(self, candidate: Any, shape: Shape) -> int:
        if shape.container_level is None:
            return super()._room(candidate, shape)
        rank, _, cores, gpus = candidate
        node = self.placement.types.of_rank(rank)
        return node.container_slots(mask_of_ids(cores) | mask_of_ids(gpus) << node.shift, shape)

    def _chosen(self, candidate: Any, shape: Shape, slots: int) -> Any:
        if shape.exclusive:
            return super()._chosen(candidate, shape, slots)
        rank, _, cores, gpus = candidate
        node = self.placement.types.of_rank(rank)
        free = mask_of_ids(cores) | mask_of_ids(gpus) << node.shift
        units = node.pick(free, shape, slots)
        return rank, ids_of(units & node.core_mask), ids_of(units >> node.shift)

    def countable(self, shape: Shape) -> bool:
        # A container must be free as a whole, which counts of free cores and GPUs do not show.
        return shape.container_level is None and super().countable(shape)

    def check(self) -> None:
        super().check()
        index = self.index
        assert isinstance(index, ContainerIndex)
        index.check_containers(self.placement.types)

    def remove_ranks(self, ranks: Any) -> None:
        before = self.inventory.ranks
        super().remove_ranks(ranks)
        gone = before & ~self.inventory.ranks
        if gone:
            self.scheduling = cut_children(self.scheduling, entries_of(self.scheduling), ~gone)
            entries = [(mask & ~gone, entry) for mask, entry in self._children[1]]
            self._children = self.scheduling, entries


def _node_types(inventory: Inventory, children: list[tuple[int, Any, str]], log: Any) -> NodeTypes:
    """Return the node types of an inventory: one for all ranks with the same topology and units."""
    types: dict[tuple[str, int], NodeType] = {}
    pairs: dict[tuple[str, int], int] = {}
    for mask, topo, where in children:
        for own, ranks in inventory.kinds.items():
            ranks &= mask
            if not ranks:
                continue
            units = own & inventory.compute_mask
            key = (dumps(topo), units)
            if key not in types:
                types[key] = node = NodeType(topo, units, inventory.shift, where)
                if node.layout.unlisted:
                    log.warning(
                        f"{where}: cores {idset_text(node.layout.unlisted)} of rank"
                        f" {idset_text(ranks)} are in no domain"
                    )
            pairs[key] = pairs.get(key, 0) | ranks
    return NodeTypes((mask, types[key]) for key, mask in pairs.items())


class TreePool(ResourcePool):
    """A pool with placement by node topology; dispatches on the version of R."""

    _impl_map = {1: _TreePoolV1}

    @classmethod
    def of_instance(cls, R: dict[str, Any], **kwargs: Any) -> Self:
        if lacks_ranks(R):
            kwargs["all_ranks"] = False
        return cls(R, **kwargs)


pool_class = TreePool
