# SPDX-License-Identifier: LGPL-3.0-or-later
"""Claims of running jobs on ranks: which jobs may not share a rank.

A running job may *claim* its ranks: until it ends, jobs of another key (a user or bank) may not
start there, whatever is free. A rank opens to them as a whole, when the last job that excludes them
ends. In a plan, a claim is part of a use and of a demand (``availability.py``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable

from flux.resource.pool.rank_counts import RankCounts
from flux.resource.request import Claimant


class _Keyed:
    """Jobs on ranks, by key.

    Attributes:
        by_key (dict): key to the number of its jobs on each rank
    """

    def __init__(self) -> None:
        self.by_key: dict[Hashable, RankCounts] = {}
        # masks of the ranks with jobs of a key, and of several
        self._any = self._several = 0

    def add(self, key: Hashable, ranks: int) -> None:
        """Add a job."""
        if key not in self.by_key:
            self.by_key[key] = RankCounts()
        counts = self.by_key[key]
        new = ranks & ~counts.ranks
        self._several |= new & self._any
        self._any |= new
        counts.add(ranks)

    def remove(self, key: Hashable, ranks: int) -> None:
        """Take a job off some ranks.  O(keys) masks if a rank has jobs of several."""
        counts = self.by_key[key]
        counts.remove(ranks)
        gone = ranks & ~counts.ranks
        if not counts.ranks:
            del self.by_key[key]
        self._any &= ~gone
        if gone & self._several:
            self._any = self._several = 0
            for on in self.by_key.values():
                self._several |= on.ranks & self._any
                self._any |= on.ranks

    def others(self, key: Hashable) -> int:
        """Return a mask of the ranks with a job of another key."""
        own = self.by_key[key].ranks if key in self.by_key else 0
        return self._any & ~own | self._several


class Claims:
    """The running jobs with their claims.

    Attributes:
        running (dict): job id to its claimant and the mask of its ranks
    """

    def __init__(self) -> None:
        self.running: dict[int, tuple[Claimant, int]] = {}
        #: by kind of claim, the jobs on the ranks that they claim, and on others
        self._claimed: defaultdict[int, _Keyed] = defaultdict(_Keyed)
        self._beside: defaultdict[int, _Keyed] = defaultdict(_Keyed)

    def enter(self, jobid: int, claimant: Claimant, ranks: int) -> None:
        """Add a job on some ranks."""
        if not ranks:
            return  # the last may be freed, or leave, before the job's final free
        self.running[jobid] = (claimant, ranks)
        for kind, (key, where) in enumerate(zip(*claimant)):
            if ranks & where:
                self._claimed[kind].add(key, ranks & where)
            if ranks & ~where:
                self._beside[kind].add(key, ranks & ~where)

    def leave(self, jobid: int, ranks: int) -> None:
        """Take a job off some of its ranks; forget it if it has no other."""
        claimant, held = self.running.pop(jobid)
        left = held & ranks
        if left != held:
            self.running[jobid] = (claimant, held & ~ranks)
        for kind, (key, where) in enumerate(zip(*claimant)):
            if left & where:
                self._claimed[kind].remove(key, left & where)
            if left & ~where:
                self._beside[kind].remove(key, left & ~where)

    def by_claimant(self) -> Iterable[tuple[Claimant, int]]:
        """Return each claimant with running jobs, and the mask of their ranks.  O(jobs)."""
        found: dict[Claimant, int] = {}
        for claimant, ranks in self.running.values():
            found[claimant] = found.get(claimant, 0) | ranks
        return found.items()

    def apart_from(self, claimant: Claimant) -> int:
        """Return a mask of the ranks closed to a job now: ranks claimed by others, and ranks in use
        by others that it would claim itself.  O(kinds of claim) masks."""
        ranks = 0
        for kind, (key, where) in enumerate(zip(*claimant)):
            if kind in self._claimed:
                ranks |= self._claimed[kind].others(key)
            if kind in self._beside:
                ranks |= where & self._beside[kind].others(key)
        return ranks

    def own(self, claimant: Claimant) -> int:
        """Return a mask of the ranks that jobs of the same keys claim.  O(kinds of claim) masks."""
        ranks = 0
        for kind, key in enumerate(claimant.keys):
            if kind in self._claimed and key in self._claimed[kind].by_key:
                ranks |= self._claimed[kind].by_key[key].ranks
        return ranks
