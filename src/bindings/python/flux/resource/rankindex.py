"""Which units are free on which ranks, indexed for placement.

The state is four things, all of integers:

``idle``
    mask of the ranks that are wholly free;
``partial``
    for each rank that is partly free, its free units; a rank that is neither
    idle nor in here has nothing free;
``groups``
    key to mask of the ranks that have so many cores and GPUs free, idle ones
    included, those with nothing free left out.  A key is
    ``cores * inventory.key_base + gpus``;
``keys``
    the keys of ``groups`` in ascending order: worst fit reads it from the end,
    best fit from the start.

So "the ranks of a set with at least four free cores, fewest first" is an AND
per group, whole nodes are taken and given back without looking at any of them,
and ``copy()`` copies two dicts and a list of integers.

Units, selections and inventories are explained in ``inventory.py``.  Whether a
rank is up, or meets a constraint, is not known here: callers pass masks.
"""

from bisect import bisect_left, insort

from flux.resource.masks import members, popcount, take


class RankIndex:
    """Free units of the ranks of an inventory; all are free at first."""

    __slots__ = ("inventory", "idle", "partial", "groups", "keys")

    def __init__(self, inventory):
        self.inventory = inventory
        self.idle = inventory.ranks
        self.partial = {}
        self.groups = {}
        for units, mask in inventory.kinds.items():
            key = inventory.keys[units]
            self.groups[key] = self.groups.get(key, 0) | mask
        self.keys = sorted(self.groups)

    def copy(self):
        """An independent index in the same state."""
        new = RankIndex.__new__(RankIndex)
        new.inventory = self.inventory
        new.idle = self.idle
        new.partial = self.partial.copy()
        new.groups = self.groups.copy()
        new.keys = self.keys[:]
        return new

    def free(self, rank):
        """Free units of a rank of the inventory."""
        units = self.partial.get(rank)
        if units is None:
            return self.inventory.full[rank] if self.idle >> rank & 1 else 0
        return units

    def is_free(self, selection):
        """True if all units of a selection are free; its ranks are in the inventory."""
        at = iter(selection)
        for ranks in at:
            units = next(at)
            if ranks >= 0:
                if units & ~self.free(ranks):
                    return False
                continue
            mask = ~ranks
            idle = mask & self.idle
            for kind, kind_mask in self.inventory.kinds.items():
                if units & ~kind and idle & kind_mask:
                    return False
            partial = self.partial
            for rank in members(mask ^ idle):
                if units & ~partial.get(rank, 0):
                    return False
        return True

    def take(self, selection):
        """Mark the units of a selection, all free until now, as taken."""
        at = iter(selection)
        for ranks in at:
            units = next(at)
            if ranks >= 0:
                self._take_one(ranks, units)
            else:
                self._take_many(~ranks, units)

    def _take_one(self, rank, units):
        partial = self.partial
        key = self.inventory.key
        bit = 1 << rank
        free = partial.get(rank)
        if free is None:
            free = self.inventory.full[rank]
            self.idle ^= bit
        left = free ^ units
        if left:
            partial[rank] = left
            self._move(bit, key(free), key(left))
        else:
            partial.pop(rank, None)
            self._leave(bit, key(free))

    def _take_many(self, mask, units):
        inventory = self.inventory
        idle = mask & self.idle
        if idle:
            self.idle ^= idle
            for kind, kind_mask in inventory.kinds.items():
                part = idle & kind_mask
                if not part:
                    continue
                left = kind ^ units
                if left:
                    self.partial.update(dict.fromkeys(members(part), left))
                    self._move(part, inventory.keys[kind], inventory.key(left))
                else:
                    self._leave(part, inventory.keys[kind])
        for rank in members(mask ^ idle):
            self._take_one(rank, units)

    def give(self, selection):
        """Mark the units of a selection, all taken until now, as free."""
        at = iter(selection)
        for ranks in at:
            units = next(at)
            if ranks >= 0:
                self._give_one(ranks, units)
            else:
                self._give_many(~ranks, units)

    def _give_one(self, rank, units):
        inventory = self.inventory
        bit = 1 << rank
        free = self.partial.get(rank, 0)
        more = free | units
        if more == inventory.full[rank]:
            self.idle |= bit
            if free:
                del self.partial[rank]
        else:
            self.partial[rank] = more
        if free:
            self._move(bit, inventory.key(free), inventory.key(more))
        else:
            self._enter(bit, inventory.key(more))

    def _give_many(self, mask, units):
        inventory = self.inventory
        kind_mask = inventory.kinds.get(units, 0)
        whole = mask & kind_mask
        if whole:
            # All of these had nothing free: a rank's units are taken once.
            self.idle |= whole
            self._enter(whole, inventory.keys[units])
        for rank in members(mask ^ whole):
            self._give_one(rank, units)

    def _move(self, mask, old, new):
        if old != new:
            self._leave(mask, old)
            self._enter(mask, new)

    def _leave(self, mask, key):
        rest = self.groups[key] ^ mask
        if rest:
            self.groups[key] = rest
        else:
            del self.groups[key]
            del self.keys[bisect_left(self.keys, key)]

    def _enter(self, mask, key):
        there = self.groups.get(key)
        if there is None:
            self.groups[key] = mask
            insort(self.keys, key)
        else:
            self.groups[key] = there | mask

    def drop(self, ranks, inventory):
        """Forget a mask of ranks; ``inventory`` is the one without them."""
        self.inventory = inventory
        self.idle &= ~ranks
        for rank in members(ranks):
            self.partial.pop(rank, None)
        for key in self.keys[:]:
            gone = self.groups[key] & ranks
            if gone:
                self._leave(gone, key)

    def fitting(self, cores, gpus, ranks):
        """Groups that can hold a request, most free first.

        Args:
            cores, gpus (int): least free number.
            ranks (int): mask of the ranks to look at.

        Returns:
            list of ``(free cores, free GPUs, mask of ranks)``, no mask empty.
        """
        base = self.inventory.key_base
        groups = self.groups
        least = cores * base + gpus
        found = []
        for key in reversed(self.keys):
            if key < least:
                break
            free_gpus = key % base
            if free_gpus >= gpus:
                mask = groups[key] & ranks
                if mask:
                    found.append((key // base, free_gpus, mask))
        return found

    def pick(self, ranks, cores, gpus, into):
        """Choose the lowest free ids on each of a mask of ranks that have enough.

        Args:
            into (dict): units to mask of ranks: what is chosen is added to it.
        """
        inventory = self.inventory
        core_mask = inventory.core_mask
        shift = inventory.shift
        idle = ranks & self.idle
        if idle:
            for kind, kind_mask in inventory.kinds.items():
                part = idle & kind_mask
                if part:
                    units = take(kind & core_mask, cores)
                    if gpus:
                        units |= take(kind >> shift, gpus) << shift
                    into[units] = into.get(units, 0) | part
        if idle != ranks:
            partial = self.partial
            for rank in members(ranks ^ idle):
                free = partial[rank]
                units = take(free & core_mask, cores)
                if gpus:
                    units |= take(free >> shift, gpus) << shift
                into[units] = into.get(units, 0) | 1 << rank

    def check(self):
        """Every invariant of the index; the first one broken is an AssertionError."""
        inventory = self.inventory
        groups = {}
        for rank in members(inventory.ranks):
            if self.idle >> rank & 1:
                units = inventory.full[rank]
                assert rank not in self.partial, "rank %d is idle and partial" % rank
            else:
                units = self.partial.get(rank, 0)
                assert rank not in self.partial or units, "rank %d: empty partial" % rank
                assert units != inventory.full[rank], "rank %d is free but not idle" % rank
                assert not units & ~inventory.full[rank], "rank %d: foreign units" % rank
            if units:
                key = inventory.key(units)
                groups[key] = groups.get(key, 0) | 1 << rank
        assert not self.idle & ~inventory.ranks, "idle ranks that are not there"
        assert all(inventory.ranks >> r & 1 for r in self.partial), "partial rank not there"
        assert self.groups == groups, "groups %r, expected %r" % (self.groups, groups)
        assert self.keys == sorted(groups), "keys %r, expected %r" % (self.keys, sorted(groups))


def count_ranks(groups):
    """Number of ranks of what ``fitting()`` returned."""
    return sum([popcount(mask) for _, _, mask in groups])
