"""The invariants of a pool; tests check them after every step."""

from flux.resource.pool.inventory import pairs
from flux.resource.pool.masks import idset_text, members


class Check:
    """Part of ``Rv1Pool``."""

    def _check(self):
        """Check every invariant; AssertionError with the pool's state if one is broken."""
        try:
            self._check_books()
        except AssertionError as exc:
            raise AssertionError(f"{exc}\n{self._state()}") from None

    def _check_books(self):
        inventory, index = self._inventory, self._index
        index.check()
        assert index.inventory is inventory, "the index is of another inventory"
        assert not self._up & ~inventory.ranks, "ranks are up that are not there"
        assert not self._gone & inventory.ranks, "ranks are both there and gone"
        taken = {}
        for record in self._jobs.values():
            for mask, units in pairs(record[1:]):
                for rank in members(mask):
                    assert not taken.get(rank, 0) & units, "rank %d given twice" % rank
                    taken[rank] = taken.get(rank, 0) | units
        for rank in members(inventory.ranks):
            assert index.free(rank) ^ taken.pop(rank, 0) == inventory.full[rank], (
                "rank %d: free and held are not all of it" % rank
            )
        assert not taken, f"jobs hold ranks that are not there: {sorted(taken)}"
        for match, mask in self._eligible.items():
            assert mask == self._up & inventory.matching(match), f"stale constraint {match!r}"
        if self._order is not None:
            ends = sorted([(record[0], jobid) for jobid, record in self._jobs.items() if record[0]])
            assert self._order == ends, f"order of ends is {self._order!r}"

    def _state(self):
        dumps = self._inventory.dumps
        lines = [f"pool: {dumps(self._inventory.whole())} up: {idset_text(self._up)}"]
        for jobid, record in self._jobs.items():
            lines.append(f"job {jobid}: {dumps(record[1:])} end {record[0]}")
        for rank, units in enumerate(self._index.partial):
            if units:
                lines.append("rank %d: free units %s" % (rank, bin(units)))
        lines.append(f"idle: {idset_text(self._index.idle)}")
        return "\n".join(lines)
