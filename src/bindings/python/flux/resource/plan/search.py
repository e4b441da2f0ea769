"""Whether a request fits in a span of time, and when it does first."""

from bisect import bisect_right

from flux.resource.plan.profile import Need
from flux.resource.plan.timeline import INFINITY
from flux.resource.pool.masks import members, popcount
from flux.resource.pool.placement import slots_on


def length_of(request):
    """Duration of a request in seconds; infinity if it has none."""
    return request.duration if request.duration > 0 else INFINITY


class Search:
    """Part of ``Plan``: questions to its profile and its bookings."""

    def _search(self, request, start):
        """First time from ``start`` on at which a request fits; infinity if none."""
        profile = self._profile
        length = length_of(request)
        shape = request.shape
        if self._pool.countable(shape):
            # Not before running jobs leave room on so many ranks, bookings or not.
            count = 1 if shape.node_count is None else shape.node_count.min
            ranks = self._pool.eligible(shape.match)
            need = Need.of(shape)
            start = profile.track(need).first(count, ranks, start)
            if shape.node_count is not None:
                return self._search_nodes(need, count, ranks, start, length)
        while start < INFINITY:
            if self._fits(request, start, start + length):
                return start
            start = min(self._bookings.ends.after(start), profile.next_end_after(start))
        return INFINITY

    def _search_nodes(self, need, count, ranks, start, length):
        """As ``_search()``, for so many of these ranks with room for a need."""
        if start == INFINITY:
            return start
        profile, leaving = self._profile, self._bookings.leaving
        track = profile.track(need)
        room = track.at(start) & ranks
        times = profile.times
        at = bisect_right(times, start)  # the next end of a running job, once swept over
        ends = self._bookings.ends.times
        place = bisect_right(ends, start)  # the next end of a booking
        while True:
            if (
                popcount(room) >= count
                and popcount(leaving(room, need, start, start + length)) >= count
            ):
                return start
            following = ends[place] if place < len(ends) else INFINITY
            if at < len(times) or profile.step():
                if times[at] <= following:
                    place += times[at] == following
                    start = times[at]
                    at += 1
                    room = track.at(start) & ranks
                    continue
            if following == INFINITY:
                return INFINITY
            start = following
            place += 1

    def _fits(self, request, start, end):
        shape = request.shape
        if not self._pool.countable(shape):
            return self._simulate(request, start, end) is not None
        return self._enough(shape, self._room(shape, start, end), start, end)

    def _enough(self, shape, room, start, end):
        """True if a mask of ranks with room holds a shape's nodes or slots."""
        if shape.node_count is not None:
            return popcount(room) >= shape.node_count.min
        needed = shape.slot_count.min
        # Each rank holds a slot at least.
        return popcount(room) >= needed or (
            room != 0 and needed > 1 and self._count(shape, start, end) >= needed
        )

    def _room(self, shape, start, end):
        """Mask of the ranks with room for one node's or slot's need all through a span."""
        asked = (shape, start, end, self._changes)
        if asked != self._asked:
            need = Need.of(shape)
            room = self._profile.track(need).at(start) & self._pool.eligible(shape.match)
            self._asked = asked
            self._answer = self._bookings.leaving(room, need, start, end)
        return self._answer

    def _count(self, shape, start, end):
        """How many nodes (slots where the shape has no node) fit in a span."""
        room = self._room(shape, start, end)
        if shape.node_count is not None:
            return popcount(room)
        touched = room & self._bookings.touched(start, end)
        clear = room ^ touched
        base = self._profile.inventory.key_base
        count = 0
        if clear:
            for key, mask in self._profile.groups_at(start).items():
                ranks = popcount(mask & clear)
                if ranks:
                    count += ranks * slots_on(key // base, key % base, shape)
        for rank in members(touched):
            count += slots_on(*self._bookings.least(rank, start, end), shape)
        return count

    def _simulate(self, request, start, end):
        """Selection that the pool's placement makes at a time to come, or None.

        For pools whose placement is not a matter of counts: ranks with any
        booking in the span are left out.
        """
        pool = self._pool
        eligible = pool.eligible(request.shape.match) & ~self._bookings.booked(start, end)
        placed = pool.place_request(request, self._profile.index_at(start), eligible)
        return None if placed is None else placed[0]
