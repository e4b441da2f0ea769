# SPDX-License-Identifier: LGPL-3.0-or-later
"""Claims of running jobs on ranks: which jobs may not share a rank.

A running job may *claim* its ranks, which excludes jobs of another key (a user or bank) until it
ends, however much of the rank is free. To these, a rank opens at the latest end of the jobs that
exclude them, not core by core: in a plan, a claim is part of a use and of a demand
(``availability.py``).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING

from flux.resource.pool.rank_counts import RankCounts
from flux.resource.pool.remembered import Remembered

if TYPE_CHECKING:
    from flux.resource.request import Claimant


class _Owners:
    """Ranks with a job of a key, and with a job of other keys."""

    __slots__ = ("_by_key", "_keys")

    def __init__(self) -> None:
        self._by_key: dict[Hashable, RankCounts] = {}  # jobs of the key on each rank
        self._keys = RankCounts()  # keys on each rank

    def enter(self, key: Hashable, ranks: int) -> None:
        """Put a job of a key on some ranks."""
        jobs = self._by_key.get(key)
        if jobs is None:
            jobs = self._by_key[key] = RankCounts()
        new = ranks & ~jobs.ranks
        jobs.add(ranks)
        if new:
            self._keys.add(new)

    def leave(self, key: Hashable, ranks: int) -> None:
        """Take a job of a key off some ranks."""
        jobs = self._by_key[key]
        before = jobs.ranks
        jobs.remove(ranks)
        if before != jobs.ranks:
            self._keys.remove(before & ~jobs.ranks)
            if not jobs.ranks:
                del self._by_key[key]

    def ranks_of(self, key: Hashable) -> int:
        """Return a mask of the ranks with a job of a key.  O(1)."""
        jobs = self._by_key.get(key)
        return 0 if jobs is None else jobs.ranks

    def ranks_of_others(self, key: Hashable) -> int:
        """Return a mask of the ranks with a job of another key.  O(1) masks."""
        keys = self._keys
        if not keys.ranks:
            return 0
        return keys.ranks & ~self.ranks_of(key) | keys.several


class Claims:
    """The running jobs with their claims.

    Jobs are counted by key as they come and go, so that the cost of a query does not grow with the
    number of keys.

    Attributes:
        running (dict): job id to its claimant and the mask of its ranks
        changes (int): grows with each change
    """

    def __init__(self) -> None:
        self.running: dict[int, tuple[Claimant, int]] = {}
        self.changes = 0
        #: for each kind of claim, the ranks with jobs, and the claimed ranks
        self._on: list[_Owners] = []
        self._claimed: list[_Owners] = []
        #: by claimant, results of `apart_from` since the last change
        self._apart: Remembered[Claimant, int] = Remembered()

    def enter(self, jobid: int, claimant: Claimant, ranks: int) -> None:
        """Add a job on some ranks."""
        if not ranks:
            return  # the last may be freed, or leave, before the job's final free
        if not self._on:
            self._on = [_Owners() for _ in claimant.keys]
            self._claimed = [_Owners() for _ in claimant.keys]
        self.running[jobid] = (claimant, ranks)
        for key, where, on, claimed in zip(*claimant, self._on, self._claimed):
            on.enter(key, ranks)
            if ranks & where:
                claimed.enter(key, ranks & where)
        self._changed()

    def leave(self, jobid: int, ranks: int) -> None:
        """Take a job off some of its ranks; forget it if it has no other."""
        claimant, held = self.running[jobid]
        left = held & ranks
        for key, where, on, claimed in zip(*claimant, self._on, self._claimed):
            if left:
                on.leave(key, left)
            if left & where:
                claimed.leave(key, left & where)
        if held & ~ranks:
            self.running[jobid] = (claimant, held & ~ranks)
        else:
            del self.running[jobid]
        self._changed()

    def _changed(self) -> None:
        self.changes += 1
        self._apart.clear()

    def by_claimant(self) -> Iterator[tuple[Claimant, int]]:
        """Yield each claimant with running jobs, and the mask of their ranks. O(running jobs)."""
        found: dict[Claimant, int] = {}
        for claimant, on in self.running.values():
            found[claimant] = found.get(claimant, 0) | on
        yield from found.items()

    def apart_from(self, claimant: Claimant) -> int:
        """Return a mask of the ranks closed to a job now: those that others claim, and those with
        others that it would claim itself.  O(kinds of claim) masks."""
        ranks = self._apart.get(claimant)
        if ranks is None:
            ranks = 0
            for key, where, on, claimed in zip(*claimant, self._on, self._claimed):
                if where:
                    ranks |= where & on.ranks_of_others(key)
                ranks |= claimed.ranks_of_others(key)
            self._apart[claimant] = ranks
        return ranks

    def own(self, claimant: Claimant) -> int:
        """Return a mask of the ranks that jobs of the same keys claim.  O(kinds of claim) masks."""
        ranks = 0
        for key, claimed in zip(claimant.keys, self._claimed):
            ranks |= claimed.ranks_of(key)
        return ranks
