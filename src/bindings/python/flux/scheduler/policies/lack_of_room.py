# SPDX-License-Identifier: LGPL-3.0-or-later
"""Blocked jobs that need not be examined as long as the pool has too little free for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flux.resource.plan.room_counts import RoomCounts, room_kind

if TYPE_CHECKING:
    from flux.resource.plan.room_counts import RoomKind
    from flux.resource.request import Shape
    from flux.resource.ResourcePoolImplementation import ResourcePoolImplementation


class _Waiting:
    """Who waits for room of one kind.

    Attributes:
        shape (Shape): one that asks for it
        counts (dict): signature of jobs to how many nodes or slots they need
        least (int): the least of these
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.counts: dict[Any, int] = {}
        self.least = 0


class LackOfRoom:
    """Signatures of jobs for which too little is free, whatever is promised.

    Which of them a change of the pool concerns is found by counting: once for each kind of room that
    somebody waits for, however many signatures and jobs there are.
    """

    def __init__(self) -> None:
        self._kinds: dict[RoomKind, _Waiting] = {}
        self._kind_of: dict[Any, RoomKind] = {}  # by signature
        self._counts: RoomCounts | None = None  # of the pool as of a generation
        self._generation = -1
        self._releases = -1  # of the pool, when it was last asked who has room

    def __contains__(self, signature: object) -> bool:
        return signature in self._kind_of

    def __len__(self) -> int:
        return len(self._kind_of)

    def _count(self, pool: ResourcePoolImplementation, shape: Shape) -> int:
        """How many nodes or slots of a shape there is room for now."""
        if self._counts is None or self._generation != pool.generation:
            self._counts, self._generation = RoomCounts(pool), pool.generation
        return self._counts.of(shape)

    def note(self, signature: Any, shape: Shape, pool: ResourcePoolImplementation) -> bool:
        """Whether jobs of a signature cannot start for lack of room; if so, that is noted.

        False also where nothing can be said, since a place is not found by counts.
        """
        if not pool.countable(shape) or self._count(pool, shape) >= shape.least_count:
            return False
        kind, count = room_kind(shape), shape.least_count
        waiting = self._kinds.get(kind)
        if waiting is None:
            waiting = self._kinds[kind] = _Waiting(shape)
        waiting.least = min(waiting.least, count) if waiting.counts else count
        waiting.counts[signature] = count
        self._kind_of[signature] = kind
        return True

    def drop(self, signature: Any) -> None:
        """Nothing is noted of a signature any more."""
        kind = self._kind_of.pop(signature, None)
        if kind is not None:
            waiting = self._kinds[kind]
            del waiting.counts[signature]
            if not waiting.counts:
                del self._kinds[kind]

    def relieved(self, pool: ResourcePoolImplementation) -> list[Any]:
        """The signatures for which there is room now; they are dropped. O(1) if nothing was released
        since the last call, else O(kinds of room) and those that are returned."""
        if self._releases == pool.releases:
            return []
        self._releases = pool.releases
        found = []
        for waiting in self._kinds.values():
            count = self._count(pool, waiting.shape)
            if count >= waiting.least:
                found += [one for one, needed in waiting.counts.items() if needed <= count]
                waiting.least = min(
                    [needed for needed in waiting.counts.values() if needed > count], default=0
                )
        for signature in found:
            self.drop(signature)
        return found

    def clear(self) -> None:
        """Forget all."""
        self._kinds.clear()
        self._kind_of.clear()
