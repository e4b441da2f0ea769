# SPDX-License-Identifier: LGPL-3.0-or-later
"""Which ranks are drained, since when and why."""

from flux_embedded.formats import idset

#: What the ``overwrite`` of a drain event does to ranks that are drained already.
KEEP, REASON, ALL = 0, 1, 2


class DrainTable:
    """The drained ranks of an inventory; sets of ranks are bounds (see `inventory`).

    Attributes:
        ranks (list): bounds of all drained ranks
    """

    def __init__(self):
        self.ranks = []
        self._info = {}  # rank -> (timestamp, reason)

    def drain(self, bounds, timestamp, reason, overwrite=KEEP):
        """Drain ranks.

        Arguments: bounds; timestamp (seconds since the epoch); reason (str or None); overwrite, for
        ranks that are drained already: KEEP leaves them as they are, but for a reason that was not
        given yet, REASON replaces the reason, ALL the time too.
        """
        for rank in idset.members(bounds):
            former = self._info.get(rank)
            if former is None or overwrite == ALL:
                self._info[rank] = (timestamp, reason)
            elif overwrite == REASON or former[1] is None:
                self._info[rank] = (former[0], reason)
        self.ranks = idset.union(self.ranks, bounds)

    def undrain(self, bounds):
        """Undrain ranks; those that are not drained are ignored."""
        for rank in idset.members(idset.intersect(bounds, self.ranks)):
            del self._info[rank]
        self.ranks = idset.difference(self.ranks, bounds)

    def explained(self):
        """The bounds of the ranks drained with a reason."""
        return idset.from_ids(rank for rank, (_, reason) in self._info.items() if reason)

    def status(self):
        """Return ``{IDSET: {"timestamp", "reason"}}``, ranks drained alike in one entry."""
        groups = {}
        for rank in sorted(self._info):
            groups.setdefault(self._info[rank], []).append(rank)
        return {
            idset.text(ranks): {"timestamp": timestamp, "reason": reason or ""}
            for (timestamp, reason), ranks in groups.items()
        }
