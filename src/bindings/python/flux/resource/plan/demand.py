# SPDX-License-Identifier: LGPL-3.0-or-later
"""What a request is where units are counted (see ``counted_profile.py``): so many of a kind."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from typing_extensions import Self

    from flux.resource.pool.view import PoolWithView
    from flux.resource.request import ResourceRequest


class UnitKind:
    """Units that are counted together. Equal ones are one object, made by `UnitKind.of()`.

    Attributes:
        ranks (int): mask of the ranks that the units are on.
        whole (bool): whole nodes, any of ``ranks``; else single cores, anywhere on them.
    """

    __slots__ = ("ranks", "whole", "__weakref__")

    def __init__(self, ranks: int, whole: bool) -> None:
        self.ranks = ranks
        self.whole = whole

    @classmethod
    def of(cls, ranks: int, whole: bool) -> UnitKind:
        """The kind with these attributes: the one made before, if it still lives.

        Each call of a plan looks a kind up. As one object it is found by its identity, while a mask
        of ranks is as long as the cluster and would be hashed each time.
        """
        kind = _kinds.get((ranks, whole))
        if kind is None:
            kind = _kinds[ranks, whole] = cls(ranks, whole)
        return kind


_kinds: WeakValueDictionary[tuple[int, bool], UnitKind] = WeakValueDictionary()


class CountedDemand:
    """What a shape asks for, in units.

    Attributes:
        kind (UnitKind): which units.
        count (int): how many at least.
    """

    __slots__ = ("kind", "count")

    def __init__(self, kind: UnitKind, count: int) -> None:
        self.kind = kind
        self.count = count

    @classmethod
    def of(cls, pool: PoolWithView, request: ResourceRequest) -> Self | None:
        """That of a request; None if it asks for other things than whole nodes or single cores."""
        shape = request.shape
        if not pool.countable(shape):
            return None
        inventory = pool.inventory
        ranks = pool.match_mask(request) & pool.eligible(shape.match)
        base = inventory.key_base
        sizes = {inventory.keys[units] // base for units, m in inventory.kinds.items() if m & ranks}
        if shape.node_count is not None:
            if shape.exclusive or sizes == {shape.node_cores}:
                return cls(UnitKind.of(ranks, True), shape.node_count.min)
        elif not shape.exclusive and shape.slot_size:
            if sizes == {shape.slot_size}:
                return cls(UnitKind.of(ranks, True), shape.slot_count.min)
            if shape.slot_size == 1 and not any(shape.need[1:]):
                return cls(UnitKind.of(ranks, False), shape.slot_count.min)
        return None
