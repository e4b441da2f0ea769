"""What is promised on a pool's ranks, and what that leaves of them.

A booking takes counts of cores and GPUs on concrete ranks for a span of time.
One that leaves no core of a rank is kept in a timeline of masks, the same for
every request.  For the others, each kind of need has a timeline of the ranks
where what is left is too little for it, made when it is first asked for.
"""

from flux.resource.masks import members
from flux.resource.timeline import INFINITY, Timeline, Times


class Booking:
    """Counts promised on ranks for a span of time.

    Attributes:
        start, end (float): seconds since the epoch.
        parts (list): ``(mask of ranks, key)``: so many cores and GPUs on each.
    """

    __slots__ = ("start", "end", "parts")

    def __init__(self, start, end, parts):
        self.start = start
        self.end = end
        self.parts = parts


class Bookings:
    """Bookings beside what running jobs leave (a Profile)."""

    def __init__(self, profile):
        self.profile = profile
        self.ends = Times()
        self.starts = Times()
        self._full = Timeline()  # ranks of which no core is left
        self._overlap = False  # some rank is in it twice at a time
        self._touched = Timeline()  # ranks with other bookings; removed ones stay in
        self._parts = []  # (mask, start, end) of these bookings; None once removed
        self._on_rank = {}  # rank to [(start, end, key)] of these
        self._lacks = {}  # Need to [Timeline, number of parts it has seen]

    def rebase(self, profile):
        """Go on with another profile of the same ranks."""
        self.profile = profile
        self._lacks = {}

    def _split(self, booking):
        """Iterate over ``(mask, key, True if no core is left)``."""
        inventory = self.profile.inventory
        base = inventory.key_base
        for mask, key in booking.parts:
            for units, ranks in inventory.kinds.items():
                if mask & ranks:
                    yield mask & ranks, key, key // base >= inventory.keys[units] // base

    def enter(self, booking):
        """Count a booking in."""
        start, end = booking.start, booking.end
        self.starts.add(start)
        if end != INFINITY:
            self.ends.add(end)
        for mask, key, full in self._split(booking):
            if full:
                self._overlap = self._overlap or bool(self._full.union(start, end) & mask)
                self._full.add(start, end, mask)
            else:
                self._touched.add(start, end, mask)
                self._parts.append((mask, start, end))
                for rank in members(mask):
                    self._on_rank.setdefault(rank, []).append((start, end, key))

    def remove(self, booking):
        """Count a booking out again.

        Returns:
            False if that cannot be done: then all must be entered anew.
        """
        if self._overlap:
            return False
        start, end = booking.start, booking.end
        for mask, key, full in self._split(booking):
            if full:
                self._full.remove(start, end, mask)
                continue
            self._parts[self._parts.index((mask, start, end))] = None
            for rank in members(mask):
                booked = self._on_rank[rank]
                booked.remove((start, end, key))
                for need, (timeline, _) in self._lacks.items():
                    timeline.remove(start, end, 1 << rank)
                    for low, high, _ in booked:
                        if low < end and high > start:
                            for span in self._lacking(rank, max(low, start), min(high, end), need):
                                timeline.add(span[0], span[1], 1 << rank)
        return True

    def leaving(self, room, need, start, end):
        """The ranks of a mask on which bookings leave enough for a need all through a span.

        The mask is of ranks that would have enough without any booking.
        """
        room &= ~self._full.union(start, end)
        if room and self._parts:
            room &= ~self._lack(need).union(start, end)
        return room

    def touched(self, start, end):
        """Mask of ranks that may have a booking in a span that leaves some cores."""
        return self._touched.union(start, end)

    def booked(self, start=-INFINITY, end=INFINITY):
        """Mask of the ranks that have any booking in a span."""
        mask = self._full.union(start, end)
        for part in self._parts:
            if part is not None and part[1] < end and part[2] > start:
                mask |= part[0]
        return mask

    def least(self, rank, start, end):
        """The least counts that a rank has left in a span: ``(cores, gpus)``."""
        left = [self.left(rank, start)]
        for low, _, _ in self._on_rank.get(rank, ()):
            if start < low < end:
                left.append(self.left(rank, low))
        return min([cores for cores, _ in left]), min([gpus for _, gpus in left])

    def left(self, rank, time):
        """What bookings leave of a rank at a time: ``(cores, gpus)``.

        Bookings that leave no core do not count here.
        """
        cores, gpus = self.balance(rank, time)
        # What is held for a job may be in use yet.
        return max(0, cores), max(0, gpus)

    def balance(self, rank, time):
        """The same, below 0 if more is booked than there is."""
        base = self.profile.inventory.key_base
        cores, gpus = divmod(self.profile.key_at(rank, time), base)
        for start, end, used in self._on_rank.get(rank, ()):
            if start <= time < end:
                cores -= used // base
                gpus -= used % base
        return cores, gpus

    def _lack(self, need):
        """Timeline of the ranks where bookings leave too little for a need."""
        entry = self._lacks.get(need)
        if entry is None:
            entry = self._lacks[need] = [Timeline(), 0]
        timeline, seen = entry
        for part in self._parts[seen:]:
            if part is None:
                continue
            mask, start, end = part
            spans = {}
            for rank in members(mask):
                for span in self._lacking(rank, start, end, need):
                    spans.setdefault(span, []).append(rank)
            for (low, high), ranks in spans.items():
                timeline.add(low, high, sum([1 << rank for rank in ranks]))
        entry[1] = len(self._parts)
        return timeline

    def _lacking(self, rank, start, end, need):
        """Spans, within a span, in which a rank has too little left for a need."""
        profile = self.profile
        points = {start}
        for low, high, _ in self._on_rank[rank]:
            if start < low < end:
                points.add(low)
            if start < high < end:
                points.add(high)
        for time, _ in profile.gains(rank, end):
            if start < time < end:
                points.add(time)
        points = sorted(points)
        points.append(end)
        full = divmod(profile.inventory.keys[profile.inventory.full[rank]], profile.inventory.key_base)
        for low, high in zip(points, points[1:]):
            left = self.left(rank, low)
            if left[0] < need.cores or left[1] < need.gpus or (need.whole and left != full):
                yield (low, high)
