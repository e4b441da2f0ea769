# SPDX-License-Identifier: LGPL-3.0-or-later
"""The state of the resources: the inventory, and the ranks that may be used.

Bookkeeping only: no messages here. Sets of ranks are bounds (see `inventory`).
"""

from flux_engine.formats import hostlist, idset


class DrainTable:
    """The drained ranks of an inventory; sets of ranks are bounds (see `inventory`)."""

    def __init__(self):
        self._info = {}  # rank -> (timestamp, reason)

    @property
    def ranks(self):
        """The bounds of all drained ranks."""
        return idset.from_ids(self._info)

    def drain(self, bounds, timestamp, reason, overwrite=0):
        """Drain ranks. Those drained already get a missing reason; with `overwrite` 1 the new reason, with 2 the new time as well."""
        for rank in idset.members(bounds):
            when, why = self._info.get(rank, (timestamp, None))
            when = timestamp if overwrite > 1 else when
            self._info[rank] = (when, reason if overwrite or why is None else why)

    def undrain(self, bounds):
        """Undrain ranks; those that are not drained are ignored."""
        for rank in idset.members(idset.intersect(bounds, self.ranks)):
            del self._info[rank]

    def change(self, name, bounds, timestamp, reason, overwrite):
        """`drain` or `undrain` ranks, by the name of the event (RFC 44)."""
        if name == "undrain":
            self.undrain(bounds)
        else:
            self.drain(bounds, timestamp, reason, overwrite)

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


class ResourceState:
    """Inventory, drained, excluded and offline ranks of an instance.

    Args:
        size (int): broker ranks of the instance. Ranks of the inventory beyond have no broker and
            count as online.

    Attributes:
        base (Inventory): as defined
        view (Inventory): a scheduler's view: base without the ranks excluded at start
        drains (DrainTable)
        joined, forced_offline (list): broker ranks that are online; ranks taken offline by command
        excluded (list): by configuration at start
    """

    def __init__(self, size):
        self.size = size
        self.base = None
        self.view = None
        self.drains = DrainTable()
        self.joined = []
        self.forced_offline = []
        self.excluded = []

    def define(self, inventory, config):
        """Set a new inventory and apply the configuration to it. ValueError: unknown targets in ``resource.exclude``."""
        excluded = []
        table = config.get("resource", {})
        if isinstance(table, dict) and "exclude" in table:
            excluded = targets(table["exclude"], inventory, "resource.exclude: ")
        self.base = inventory
        self.excluded = excluded
        self._forget_ranks()

    def replace(self, inventory):
        """The same ranks, or fewer, with other properties or times."""
        self.base = inventory
        self._forget_ranks()

    def _forget_ranks(self):
        """Forget the ranks that are no longer in the inventory."""
        ranks = self.base.ranks
        self.drains.undrain(idset.difference(self.drains.ranks, ranks))
        self.excluded = idset.intersect(self.excluded, ranks)
        self.forced_offline = idset.intersect(self.forced_offline, ranks)
        self.view = self.base.without(self.excluded)

    @property
    def online(self):
        """Bounds of the inventory's ranks that are online."""
        there = idset.union(self.joined, [self.size, idset.MAX_ID + 1])
        return idset.difference(idset.intersect(self.base.ranks, there), self.forced_offline)

    @property
    def up(self):
        """Bounds of the ranks that may be used: online, not drained, not excluded."""
        return idset.difference(idset.difference(self.online, self.drains.ranks), self.excluded)


def targets(text, inventory, where=""):
    """Return the bounds of an idset or a hostlist of an inventory. ValueError: it is neither, or names others."""
    if not isinstance(text, str):
        raise ValueError(f"{where}expected an idset or a hostlist")
    try:
        bounds = idset.decode(text)
    except ValueError:
        try:
            return inventory.ranks_of_hosts(hostlist.decode(text))
        except ValueError as exc:
            raise ValueError(f"{where}invalid targets: {exc}") from None
    if not bounds:
        raise ValueError(f"{where}idset is empty")
    if idset.difference(bounds, inventory.ranks):
        raise ValueError(f"{where}idset is out of range")
    return bounds
