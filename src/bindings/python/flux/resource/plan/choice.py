"""Which ranks a reservation is made on."""

from flux.resource.plan.profile import Need
from flux.resource.plan.timeline import INFINITY
from flux.resource.pool.inventory import pairs, selected_ranks
from flux.resource.pool.masks import members, popcount, take
from flux.resource.pool.placement import slots_on


class Choice:
    """Part of ``Plan``: parts of bookings (see ``bookings.py``) for requests."""

    def _choose(self, request, start, end):
        """Parts of a booking for a request, or None if it does not fit.

        Ranks that are busy now are taken first and, of the rest, the highest:
        they are the last that jobs which start earlier would want.
        """
        shape = request.shape
        if not self._pool.countable(shape):
            selection = self._simulate(request, start, end)
            return None if selection is None else self._whole(selected_ranks(selection))
        room = self._room(shape, start, end)
        if not self._enough(shape, room, start, end):
            return None
        now = self._profile.track(Need.of(shape)).at(self._now(None))
        if shape.node_count is None and shape.slot_count.min > 1:
            return self._choose_slots(shape, start, end, room & ~now, room & now)
        needed = 1 if shape.node_count is None else shape.node_count.min
        chosen = _highest(room & ~now, needed)
        missing = needed - popcount(chosen)
        if missing:
            chosen |= _highest(room & now, missing)
        return self._parts_of(chosen, shape)

    def _parts_of(self, ranks, shape):
        """Parts of a booking of one node's or slot's need on each rank of a mask."""
        if shape.exclusive:
            return self._whole(ranks)
        need = Need.of(shape)
        return [(ranks, need.cores * self._profile.inventory.key_base + need.gpus)]

    def _whole(self, ranks):
        """Parts of a booking of all that the ranks of a mask have."""
        inventory = self._profile.inventory
        return [
            (ranks & mask, inventory.keys[units])
            for units, mask in inventory.kinds.items()
            if ranks & mask
        ]

    def _choose_slots(self, shape, start, end, *preferred):
        base = self._profile.inventory.key_base
        left = shape.slot_count.min
        one = shape.slot_size * base + shape.gpu_per_slot
        parts = {}
        for mask in preferred:
            for rank in reversed(members(_highest(mask, left))):
                slots = min(left, slots_on(*self._bookings.least(rank, start, end), shape))
                if slots:
                    parts[slots * one] = parts.get(slots * one, 0) | 1 << rank
                    left -= slots
                if not left:
                    return [(ranks, key) for key, ranks in parts.items()]
        return None

    def _choose_ever(self, request):
        """Parts of a booking on ranks that are up, whatever runs on them."""
        pool, profile = self._pool, self._profile
        shape = request.shape
        unused = profile.inventory.unused()
        up = pool.eligible(shape.match)
        apart = up & ~self._bookings.booked()
        placed = pool.place_request(request, unused, apart)
        if placed is None:
            apart = up
            placed = pool.place_request(request, unused, up)
        if placed is None:
            return None
        if not pool.countable(shape):
            return self._whole(selected_ranks(placed[0]))
        if shape.node_count is None:
            return [(mask, profile.inventory.key(units)) for mask, units in pairs(placed[0])]
        large = pool.match_mask(request) & apart
        chosen = self._come_together(large, shape.node_count.min)
        missing = shape.node_count.min - popcount(chosen)
        time = self._now(None)
        while missing and time != INFINITY:
            room = large & ~chosen & profile.track(Need.of(shape)).at(time)
            more = take(room, min(missing, popcount(room)))
            chosen |= more
            missing -= popcount(more)
            time = profile.next_end_after(time)
        room = large & ~chosen
        return self._parts_of(chosen | take(room, min(missing, popcount(room))), shape)

    def _come_together(self, large, most):
        """At most so many ranks of a mask that come free at once when one job ends.

        Those of the only job without an end, where there is just one: with them, less has to be
        kept of what is free now.
        """
        pool = self._pool
        endless = busy = 0
        for jobid, end in pool.job_end_times():
            ranks = selected_ranks(pool.held(jobid)) & large
            if end:
                busy |= ranks
            elif ranks and endless:
                return 0
            else:
                endless |= ranks
        ranks = endless & ~busy
        return take(ranks, min(most, popcount(ranks)))


def _highest(mask, count):
    """The ``count`` highest members of a mask, or all of it."""
    excess = popcount(mask) - count
    return mask ^ take(mask, excess) if excess > 0 else mask
