# SPDX-License-Identifier: LGPL-3.0-or-later
"""Claims of running jobs on ranks: which jobs may not share a rank.

A running job may *claim* its ranks: until it ends, jobs of another key (a user or bank) may not
start there, whatever is free. A rank opens to them as a whole, when the last job that excludes them
ends. In a plan, a claim is part of a use and of a demand (``availability.py``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator

from flux.resource.pool.rank_counts import RankCounts
from flux.resource.request import Claimant


class Claims:
    """The running jobs with their claims.

    Attributes:
        running (dict): job id to its claimant and the mask of its ranks
    """

    def __init__(self) -> None:
        self.running: dict[int, tuple[Claimant, int]] = {}
        #: jobs of a claimant on each rank; of a key, by kind of claim, on each rank that they claim
        self._on: defaultdict[Claimant, RankCounts] = defaultdict(RankCounts)
        self._claimed: defaultdict[tuple[int, Hashable], RankCounts] = defaultdict(RankCounts)
        #: by kind of claim, the keys that claim each rank
        self._keys: defaultdict[int, RankCounts] = defaultdict(RankCounts)
        #: `Claimant.where` -> number of claimants in `_on`; and the only one, if there is one
        self._wheres: Counter[tuple[int, ...]] = Counter()
        self._only_where: tuple[int, ...] | None = None

    def enter(self, jobid: int, claimant: Claimant, ranks: int) -> None:
        """Add a job on some ranks."""
        if not ranks:
            return  # the last may be freed, or leave, before the job's final free
        self.running[jobid] = (claimant, ranks)
        if claimant not in self._on:
            self._count_where(claimant.where, 1)
        self._on[claimant].add(ranks)
        for kind, (key, where) in enumerate(zip(*claimant)):
            if ranks & where:
                claimed = self._claimed[kind, key]
                self._keys[kind].add(ranks & where & ~claimed.ranks)
                claimed.add(ranks & where)

    def leave(self, jobid: int, ranks: int) -> None:
        """Take a job off some of its ranks; forget it if it has no other."""
        claimant, held = self.running.pop(jobid)
        left = held & ranks
        if left != held:
            self.running[jobid] = (claimant, held & ~ranks)
        on = self._on[claimant]
        on.remove(left)
        if not on.ranks:
            del self._on[claimant]
            self._count_where(claimant.where, -1)
        for kind, (key, where) in enumerate(zip(*claimant)):
            if left & where:
                claimed = self._claimed[kind, key]
                claimed.remove(left & where)
                self._keys[kind].remove(left & where & ~claimed.ranks)
                if not claimed.ranks:
                    del self._claimed[kind, key]

    def _count_where(self, where: tuple[int, ...], more: int) -> None:
        wheres = self._wheres
        wheres[where] += more
        if not wheres[where]:
            del wheres[where]
        self._only_where = next(iter(wheres)) if len(wheres) == 1 else None

    def by_claimant(self) -> Iterator[tuple[Claimant, int]]:
        """Yield each claimant with running jobs, and the mask of their ranks."""
        for claimant, on in self._on.items():
            yield claimant, on.ranks

    def apart_from(self, claimant: Claimant) -> int:
        """Return a mask of the ranks closed to a job now: those that others claim, and those with
        others that it would claim itself.  O(kinds of claim) masks if all jobs claim on the same
        ranks, else O(claimants)."""
        ranks = 0
        if claimant.where == self._only_where:
            for kind, key in enumerate(claimant.keys):
                own = self._claimed[kind, key].ranks if (kind, key) in self._claimed else 0
                ranks |= self._keys[kind].ranks & ~own | self._keys[kind].several
            return ranks
        for other, on in self._on.items():
            ranks |= on.ranks & claimant.apart_from(other)
        return ranks

    def own(self, claimant: Claimant) -> int:
        """Return a mask of the ranks that jobs of the same keys claim.  O(kinds of claim) masks."""
        ranks = 0
        for key in enumerate(claimant.keys):
            if key in self._claimed:
                ranks |= self._claimed[key].ranks
        return ranks
