# SPDX-License-Identifier: LGPL-3.0-or-later
"""Claims of running jobs on ranks: which jobs may not share a rank.

A running job may *claim* its ranks: until it ends, jobs of another key (a user or bank) may not
start there, whatever is free. A rank opens to them as a whole, when the last job that excludes them
ends. In a plan, a claim is part of a use and of a demand (``availability.py``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable

from flux.resource.pool.rank_counts import RankCounts
from flux.resource.request import Claimant


class Claims:
    """The running jobs with their claims.

    Attributes:
        running (dict): job id to its claimant and the mask of its ranks
    """

    def __init__(self) -> None:
        self.running: dict[int, tuple[Claimant, int]] = {}
        #: jobs of a key, by kind of claim, on each rank that they claim
        self._claimed: defaultdict[tuple[int, Hashable], RankCounts] = defaultdict(RankCounts)
        #: by kind of claim, masks of the ranks claimed by a key, and by several
        self._any: defaultdict[int, int] = defaultdict(int)
        self._several: defaultdict[int, int] = defaultdict(int)
        #: `Claimant.where` -> number of running jobs; and jobs of a claimant on each rank, once jobs
        #: have claimed on different ranks
        self._wheres: Counter[tuple[int, ...]] = Counter()
        self._on: defaultdict[Claimant, RankCounts] | None = None

    def enter(self, jobid: int, claimant: Claimant, ranks: int) -> None:
        """Add a job on some ranks."""
        if not ranks:
            return  # the last may be freed, or leave, before the job's final free
        self.running[jobid] = (claimant, ranks)
        self._wheres[claimant.where] += 1
        if self._on is not None:
            self._on[claimant].add(ranks)
        for kind, (key, where) in enumerate(zip(*claimant)):
            if ranks & where:
                claimed = self._claimed[kind, key]
                new = ranks & where & ~claimed.ranks
                self._several[kind] |= new & self._any[kind]
                self._any[kind] |= new
                claimed.add(ranks & where)

    def leave(self, jobid: int, ranks: int) -> None:
        """Take a job off some of its ranks; forget it if it has no other."""
        claimant, held = self.running.pop(jobid)
        left = held & ranks
        if self._on is not None:
            self._on[claimant].remove(left)
            if not self._on[claimant].ranks:
                del self._on[claimant]
        if left != held:
            self.running[jobid] = (claimant, held & ~ranks)
        elif self._wheres[claimant.where] > 1:
            self._wheres[claimant.where] -= 1
        else:
            del self._wheres[claimant.where]
        for kind, (key, where) in enumerate(zip(*claimant)):
            if left & where:
                claimed = self._claimed[kind, key]
                claimed.remove(left & where)
                gone = left & where & ~claimed.ranks
                if not claimed.ranks:
                    del self._claimed[kind, key]
                self._any[kind] &= ~gone
                if gone & self._several[kind]:
                    self._any[kind] = self._several[kind] = 0
                    for (other, _), on in self._claimed.items():
                        if other == kind:
                            self._several[kind] |= on.ranks & self._any[kind]
                            self._any[kind] |= on.ranks

    def by_claimant(self) -> Iterable[tuple[Claimant, int]]:
        """Return each claimant with running jobs, and the mask of their ranks.  O(jobs)."""
        found: dict[Claimant, int] = {}
        for claimant, ranks in self.running.values():
            found[claimant] = found.get(claimant, 0) | ranks
        return found.items()

    def apart_from(self, claimant: Claimant) -> int:
        """Return a mask of the ranks closed to a job now: those that others claim, and those with
        others that it would claim itself.  O(kinds of claim) masks if all jobs claim on the same
        ranks, else O(claimants)."""
        ranks, wheres = 0, self._wheres
        if not wheres:
            return 0
        if len(wheres) == 1 and claimant.where in wheres:
            for kind, key in enumerate(claimant.keys):
                own = self._claimed[kind, key].ranks if (kind, key) in self._claimed else 0
                ranks |= self._any[kind] & ~own | self._several[kind]
            return ranks
        if self._on is None:
            self._on = defaultdict(RankCounts)
            for other, held in self.running.values():
                self._on[other].add(held)
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
