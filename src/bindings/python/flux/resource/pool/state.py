# SPDX-License-Identifier: LGPL-3.0-or-later
"""The state of a pool: free units, jobs with their units and ends, and ranks that are up.

Everything mutable in a pool is here, listed once, and copied by ``copy()``. Nothing is chosen here:
a placement finds a selection for a request, and ``enter()`` gives it to the job.
"""

from __future__ import annotations

from typing import Any

from flux.resource.pool.inventory import (
    Inventory,
    Selection,
    matching_ranks,
    pairs,
    select,
    selected_ranks,
)
from flux.resource.pool.jobid import job_text
from flux.resource.pool.masks import idset_text, members
from flux.resource.pool.rank_index import RankIndex
from flux.resource.pool.remembered import Remembered

#: Number of changes for which the changed job is kept; at most twice as many.
CHANGES_KEPT = 1024


class PoolState:
    """The state of a pool. At first, all ranks are up and free.

    Args:
        inventory (Inventory): ranks with their resources.
        index (RankIndex): index of the inventory, of the class that the pool's policy needs.

    Attributes:
        inventory (Inventory): present ranks, with properties; replaced when they change.
        index (RankIndex): free units, on ranks up or not.
        up (int): mask of the ranks that are up.
        gone (int): mask of the removed ranks.
        jobs (dict): job id to ``(end, *selection)``: its end in seconds since the epoch (0:
            unknown), and its units.
        blocked (dict): shapes that did not fit; emptied when ``releases`` grows.
        generation (int): grows with every change.
        releases (int): grows whenever a request that did not fit may fit.
    """

    def __init__(self, inventory: Inventory, index: RankIndex) -> None:
        self.inventory = inventory
        self.index = index
        self.up = inventory.ranks
        self.gone = 0
        self.jobs: dict[int, tuple[Any, ...]] = {}
        self.blocked: Remembered[Any, bool] = Remembered()
        self.generation = 0
        self.releases = 0
        # The job of each change since a generation (None for other changes); None until a plan
        # asks.
        self._changed: list[int | None] | None = None
        self._changed_since = 0

    def copy(self) -> PoolState:
        """Return an independent copy. O(ranks + jobs): copies two lists and three dicts."""
        new = PoolState.__new__(PoolState)
        new.__dict__.update(
            self.__dict__,
            index=self.index.copy(),
            jobs=self.jobs.copy(),
            blocked=self.blocked.copy(),
            _changed=None,
        )
        return new

    # -- answers ------------------------------------------------------------

    def eligible(self, match: Any) -> int:
        """Return a mask of the ranks that are up and meet a parsed constraint; one operation if it
        is known."""
        return self.up if match is None else self.up & self.inventory.matching(match)

    def held(self, jobid: int) -> Selection:
        """Return the units of a job."""
        return self.jobs[jobid][1:]

    def changes_since(self, generation: int) -> dict[int, tuple[Any, ...] | None] | None:
        """See ``ResourcePoolImplementation.changes_since()``."""
        if self._changed is None:
            self._changed, self._changed_since = [], self.generation
        if not self._changed_since <= generation <= self.generation:
            return None
        jobs = self._changed[generation - self._changed_since :]
        return {jobid: self.jobs.get(jobid) for jobid in jobs if jobid is not None}

    def _note_change(self, jobid: int | None) -> None:
        """Increase the generation for a change of a job, or another change (None)."""
        self.generation += 1
        changed = self._changed
        if changed is not None:
            changed.append(jobid)
            if self.generation - self._changed_since > 2 * CHANGES_KEPT:
                del changed[:CHANGES_KEPT]
                self._changed_since += CHANGES_KEPT

    # -- jobs ---------------------------------------------------------------

    def enter(self, jobid: int, end: float, selection: Selection) -> None:
        """Give a free selection to a job, until `end` (seconds since the epoch, 0: unknown)."""
        self.index.take(selection)
        self.jobs[jobid] = (end, *selection)
        self._note_change(jobid)

    def give_back(self, jobid: int, given: Selection, left: Selection | None) -> None:
        """Take back some or all of a job's units.

        Args:
            jobid (int): the job.
            given (tuple): the returned selection.
            left (tuple or None): the units that the job keeps; None if it ended.
        """
        self.index.release(given)
        if left is None:
            del self.jobs[jobid]
        else:
            self.jobs[jobid] = (self.jobs[jobid][0], *left)
        self._reconsider(jobid)

    def set_end(self, jobid: int, end: float) -> None:
        """Change a job's end."""
        self.jobs[jobid] = (end, *self.jobs[jobid][1:])
        self._note_change(jobid)

    def split(
        self, jobid: int, entries: list[tuple[int, int]], final: bool
    ) -> tuple[Selection, Selection | None]:
        """Divide a job's units into the returned part and the rest.

        Args:
            jobid (int): the job.
            entries (list): ``(rank mask, units)`` returned; removed ranks are ignored.
            final (bool): the job returns all that it holds.

        Raises:
            ValueError: the job does not hold the units in the entries, or would keep some when it
                ends.
        """
        held = self.jobs[jobid][1:]
        if held and not held[2:]:
            ranks, own = held
            if entries == [(1 << ranks if ranks >= 0 else ~ranks, own)]:
                return held, None if final else ()  # an ending job returns all it has
        kept: dict[int, int] = {}
        for mask, units in pairs(held):
            kept[units] = kept.get(units, 0) | mask
        given: dict[int, int] = {}
        strange = 0
        here = ~self.gone | self.inventory.ranks
        for mask, units in entries:
            mask &= here
            for own in list(kept):
                common = kept[own] & mask
                if not common:
                    continue
                if units & ~own:
                    self._mismatch(jobid, select({units: common}), select({own: common}))
                mask ^= common
                kept[own] ^= common
                given[units] = given.get(units, 0) | common
                if own != units:
                    kept[own ^ units] = kept.get(own ^ units, 0) | common
            strange |= mask
        if strange:
            raise ValueError(
                f"free: {job_text(jobid)}: R contains ranks not in job allocation:"
                f" {{{idset_text(strange)}}}"
            )
        left = select(kept)
        if final and left:
            self._mismatch(jobid, select(given), held)
        return select(given), None if final else left

    def _mismatch(self, jobid: int, got: Selection, expected: Selection) -> None:
        dumps = self.inventory.dumps
        raise ValueError(
            f"free: {job_text(jobid)}: R mismatch: got {dumps(got)}, expected {dumps(expected)}"
        )

    # -- reports of the instance --------------------------------------------

    def set_up(self, up: int) -> None:
        """Set the mask of ranks that are up."""
        if up != self.up:
            self.up = up
            self.reconsider()

    def set_property(self, name: str, ranks: int) -> None:
        """Give a property to just these ranks (a mask)."""
        if self.inventory.properties.get(name, 0) != ranks:
            self._replace(self.inventory.with_property(name, ranks))

    def recount(self, inventory: Inventory, index: RankIndex) -> None:
        """Replace the amounts of the ranks, while no job holds anything."""
        self.index = index
        self._replace(inventory)

    def remove(self, ranks: int) -> None:
        """Remove present ranks, with the jobs' units on them; O(jobs)."""
        self.gone |= ranks
        self.up &= ~ranks
        inventory = self.inventory.without(ranks)
        self.index.drop(ranks, inventory)
        for jobid, record in self.jobs.items():
            selection = record[1:]
            if selected_ranks(selection) & ranks:
                groups: dict[int, int] = {}
                for mask, units in pairs(selection):
                    groups[units] = groups.get(units, 0) | mask & ~ranks
                self.jobs[jobid] = (record[0], *select(groups))
        self._replace(inventory)

    def _replace(self, inventory: Inventory) -> None:
        self.inventory = inventory
        self.index.inventory = inventory
        self.reconsider()

    def reconsider(self) -> None:
        """Note a change: requests that did not fit are to be tried again."""
        self._reconsider(None)

    def _reconsider(self, jobid: int | None) -> None:
        """Note that a job released something, or another change (None)."""
        self._note_change(jobid)
        self.releases += 1
        if self.blocked:
            self.blocked.clear()

    # -- invariants ---------------------------------------------------------

    def check(self) -> None:
        """Check every invariant; raise AssertionError if one is broken. O(ranks + jobs)."""
        inventory, index = self.inventory, self.index
        index.check()
        assert index.inventory is inventory, "the index is of another inventory"
        assert not self.up & ~inventory.ranks, "ranks are up that are not there"
        assert not self.gone & inventory.ranks, "ranks are both there and gone"
        taken: dict[int, int] = {}
        for record in self.jobs.values():
            for mask, units in pairs(record[1:]):
                for rank in members(mask):
                    assert not taken.get(rank, 0) & units, f"rank {rank} given twice"
                    taken[rank] = taken.get(rank, 0) | units
        for rank in members(inventory.ranks):
            assert index.free(rank) ^ taken.pop(rank, 0) == inventory.full[rank], (
                f"rank {rank}: free and held are not all of it"
            )
        assert not taken, f"jobs hold ranks that are not there: {sorted(taken)}"
        for match, mask in inventory.matches.items():
            assert mask == matching_ranks(match, inventory), f"stale constraint {match!r}"

    def text(self) -> str:
        """Return the state as text, a line per job and per rank in parts, for test failures."""
        dumps = self.inventory.dumps
        lines = [f"pool: {dumps(self.inventory.whole())} up: {idset_text(self.up)}"]
        for jobid, record in self.jobs.items():
            lines.append(f"job {jobid}: {dumps(record[1:])} end {record[0]}")
        for rank, units in enumerate(self.index.partial):
            if units:
                lines.append(f"rank {rank}: free units {units:#b}")
        lines.append(f"idle: {idset_text(self.index.idle)}")
        return "\n".join(lines)
