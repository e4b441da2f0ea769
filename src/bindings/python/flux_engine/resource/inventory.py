# SPDX-License-Identifier: LGPL-3.0-or-later
"""The resource inventory: a checked R (RFC 20) and the questions the resource service asks of it.

An Inventory is immutable; a change of the inventory makes a new one. Sets of ranks are lists
of bounds as in `flux_engine.formats.idset`.
"""

from flux.resource.pool.masks import members
from flux.resource.tree.topology import cut_children, entries_of, is_of_treepool
from flux_engine.formats import form, hostlist, idset
from flux_engine.formats.rset import RSet, check_property

#: The parts of R that are optional elsewhere, but required of an inventory.
_WHOLE = {"execution": {"R_lite": [{"children": {"core": str}}], "nodelist": list}}


class Inventory:
    """The resources of an instance.

    Args:
        R (dict): an RFC 20 resource set, version 1. It is kept, not copied.
        may_be_empty (bool): R is the rest of a whole one, and may be empty

    Attributes:
        R (dict): as given
        ranks (list): bounds of its ranks
        hosts (list of str): host of each rank, in rank order
        properties (dict): property name -> bounds

    Raises:
        ValueError: R is not valid; the text names the path of the first problem
    """

    def __init__(self, R, may_be_empty=False):
        self._set = RSet(R)
        if not may_be_empty:
            form.check(R, _WHOLE, "R")
            if not self._set.have:
                raise ValueError("R.execution.R_lite: no ranks")
        self.R = R
        self.ranks = idset.from_ids(self._set.have)
        self.hosts = self._set.host_names()
        self.properties = {
            name: idset.from_ids(members) for name, members in self._set.properties.items()
        }

    def __len__(self):
        return len(self.hosts)

    @property
    def expiration(self):
        """End of the whole resource set, seconds since the epoch; 0 if it has none."""
        return self.R["execution"].get("expiration", 0)

    def host(self, rank):
        """Return the host name of `rank`, which must be in the inventory."""
        return self._set.hosts[rank]

    def nodelist(self, bounds):
        """Return the hosts of some ranks as a hostlist, in rank order."""
        return hostlist.encode([self.host(rank) for rank in idset.members(bounds)])

    def ranks_of_hosts(self, names):
        """Return the bounds of all ranks on the hosts `names`. ValueError: all hosts that are unknown."""
        wanted = set(names)
        missing = wanted.difference(self.hosts)
        if missing:
            raise ValueError(
                "invalid hosts: " + hostlist.encode([n for n in names if n in missing])
            )
        return idset.from_ids(rank for rank, host in self._set.hosts.items() if host in wanted)

    def restrict(self, bounds):
        """Return an R with only those of `bounds` that are in the inventory, without ``scheduling``."""
        part = self._set.select(self._set.members(bounds))
        part.scheduling = None
        return part.to_dict()

    def without(self, bounds):
        """Return the Inventory without the ranks in `bounds`; it may be empty."""
        if not idset.intersect(bounds, self.ranks):
            return self
        R = self.restrict(idset.difference(self.ranks, bounds))
        if "scheduling" in self.R:
            R["scheduling"] = self._cut_scheduling(bounds)
        return Inventory(R, may_be_empty=True)

    def _cut_scheduling(self, bounds):
        """R's ``scheduling`` without the ranks in `bounds`: TreePool's names ranks, and is refused if they are not those of R.

        They may still be the enclosing instance's, so that only their order counts (RFC 49).
        """
        scheduling = self.R["scheduling"]
        if not is_of_treepool(scheduling):
            return scheduling
        try:
            entries = entries_of(scheduling)
        except (KeyError, TypeError, AttributeError, ValueError):
            return scheduling  # of an unknown form: its reader reports that
        named = 0
        for mask, _ in entries:
            named |= mask
        gone = set(idset.members(bounds))
        pairs = zip(members(named), idset.members(self.ranks))
        left = sum(1 << own for own, rank in pairs if rank not in gone)
        return cut_children(scheduling, entries, left)

    def with_property(self, name, bounds, add):
        """Return the Inventory in which these ranks have (or lack) property `name`. ValueError: no valid name."""
        check_property(name)
        former = self.properties.get(name, [])
        former = idset.union(former, bounds) if add else idset.difference(former, bounds)
        properties = {**self.properties, name: former}
        execution = {k: v for k, v in self.R["execution"].items() if k != "properties"}
        text = {name: idset.encode(b) for name, b in properties.items() if b}
        if text:
            execution["properties"] = text
        return Inventory({**self.R, "execution": execution}, may_be_empty=True)

    def with_expiration(self, expiration):
        """Return the Inventory that ends at `expiration`, seconds since the epoch (0: never). ValueError: it cannot."""
        return Inventory({**self.R, "execution": {**self.R["execution"], "expiration": expiration}})
