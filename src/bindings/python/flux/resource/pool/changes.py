"""What the instance tells a pool: ranks up, down and gone, properties, times."""

from flux.resource.pool.answers import number
from flux.resource.pool.inventory import pairs, select, selected_ranks
from flux.resource.pool.masks import to_mask


class Changes:
    """Part of ``Rv1Pool``; the methods are those of ``ResourcePool``."""

    def _ranks(self, ids):
        ranks = self._inventory.ranks
        if isinstance(ids, str) and ids == "all":
            return ranks
        return to_mask(ids, ranks.bit_length()) & ranks

    def mark_up(self, ids):
        self._set_up(self._up | self._ranks(ids))

    def mark_down(self, ids):
        self._set_up(self._up & ~self._ranks(ids))

    def _set_up(self, up):
        if up != self._up:
            self._up = up
            self._eligible.clear()
            self._released()

    def remove_ranks(self, ranks):
        ranks = self._ranks(ranks)
        if not ranks:
            return
        self._gone |= ranks
        self._up &= ~ranks
        inventory = self._inventory.without(ranks)
        self._index.drop(ranks, inventory)
        for jobid, record in self._jobs.items():
            selection = record[1:]
            if selected_ranks(selection) & ranks:
                groups = {}
                for mask, units in pairs(selection):
                    groups[units] = groups.get(units, 0) | mask & ~ranks
                self._jobs[jobid] = (record[0],) + select(groups)
        self._set_inventory(inventory)

    def add_property(self, name, ranks):
        old = self._inventory.properties.get(name, 0)
        self._set_property(name, old, old | self._ranks(ranks))

    def remove_property(self, name, ranks):
        old = self._inventory.properties.get(name, 0)
        self._set_property(name, old, old & ~self._ranks(ranks))

    def _set_property(self, name, old, new):
        if old != new:
            self._set_inventory(self._inventory.with_property(name, new))

    def _set_inventory(self, inventory):
        self._inventory = inventory
        self._index.inventory = inventory
        self._eligible.clear()
        self._released()

    def set_expiration(self, expiration):
        self._expiration = number(expiration, "expiration")

    def set_starttime(self, starttime):
        self.starttime = number(starttime, "starttime")

    def update_expiration(self, jobid, expiration):
        record = self._jobs.get(jobid)
        if record is not None:
            end = number(expiration, "expiration")
            self._reorder(jobid, record[0], end)
            self._jobs[jobid] = (end,) + record[1:]
            self.generation += 1
