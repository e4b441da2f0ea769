# SPDX-License-Identifier: LGPL-3.0-or-later
"""Which promises that are bound to ranks stay where they are, since they lack more than came free.

The earliest time at which running jobs leave room for a promise is cheap to find. If it could not
begin there, it lacked so many ranks that had room all through the time it takes, and all ranks
together had so many cores and GPUs to spare. Since then ranks may have come free, or are taken, each
for a span of time. As long as those that came free in its time are fewer than it lacks, and no more
is taken than was to spare, the same question has the same answer, and is not asked: after an end,
that is so for most of a thousand promises.

``settled.py`` does this where promises are counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flux.resource.plan.promise import BoundPromise

#: Changes that are remembered until promises are asked about. Of promises that were not asked about
#: since an earlier one nothing is known any more.
MAX_CHANGES = 128

#: ``(start, end, ranks, cores, gpus)``: on so many ranks at most something came free for a span, and so
#: many cores and GPUs were taken.
Change = tuple[float, float, int, int, int]


class _Lack:
    """What a promise lacked when it was looked at.

    Attributes:
        start (float): the earliest time at which running jobs left room for it
        until (float): what comes free, or is taken, from then on does not matter
        ranks (int): it lacked at least so many ranks, less those that came free since
        cores, gpus (int): so many all ranks together had to spare, less those taken since
        seen (int): how many changes were taken into account
    """

    __slots__ = ("start", "until", "ranks", "cores", "gpus", "seen")

    def __init__(
        self, start: float, until: float, ranks: int, cores: int, gpus: int, seen: int
    ) -> None:
        self.start = start
        self.until = until
        self.ranks = ranks
        self.cores = cores
        self.gpus = gpus
        self.seen = seen


class Lacks:
    """What promises lack to begin earlier."""

    def __init__(self) -> None:
        self._known: dict[BoundPromise, _Lack] = {}
        self._changes: list[Change] = []
        self._dropped = 0  # changes that are not remembered any more

    def forget(self) -> None:
        """Nothing is known any more."""
        self._known.clear()
        self._changes.clear()
        self._dropped = 0

    def note(
        self, promise: BoundPromise, start: float, until: float, ranks: int, cores: int, gpus: int
    ) -> None:
        """A promise that was looked at lacks ranks; see `_Lack`."""
        seen = self._dropped + len(self._changes)
        self._known[promise] = _Lack(start, until, ranks, cores, gpus, seen)

    def gone(self, promise: BoundPromise) -> None:
        """A promise is no longer kept."""
        self._known.pop(promise, None)

    def freed(self, start: float, end: float, ranks: int) -> None:
        """On so many ranks something came free for a span (seconds since the epoch)."""
        self._note_change((start, end, ranks, 0, 0))

    def taken(self, start: float, end: float, cores: int, gpus: int) -> None:
        """So many cores and GPUs are taken for a span (seconds since the epoch)."""
        self._note_change((start, end, 0, cores, gpus))

    def _note_change(self, change: Change) -> None:
        if self._known:
            self._changes.append(change)
            if len(self._changes) > MAX_CHANGES:
                half = len(self._changes) // 2
                del self._changes[:half]
                self._dropped += half

    def stays(self, promise: BoundPromise, start: float) -> bool:
        """Whether it is known that a promise cannot begin at a time, the earliest at which running jobs
        leave room for it. O(changes since this was asked)."""
        lack = self._known.get(promise)
        if lack is None or lack.start != start:
            return False
        first = lack.seen - self._dropped
        if first < 0:
            return False
        changes = self._changes
        if first < len(changes):
            until = lack.until
            for low, high, ranks, cores, gpus in changes[first:]:
                if low < until and high > start:
                    lack.ranks -= ranks
                    lack.cores -= cores
                    lack.gpus -= gpus
            lack.seen = self._dropped + len(changes)
        return lack.ranks > 0 and lack.cores >= 0 and lack.gpus >= 0
