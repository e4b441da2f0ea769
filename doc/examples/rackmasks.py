# SPDX-License-Identifier: LGPL-3.0-or-later
"""Racks again, on the pool's own structures: as fast with 10,000 nodes as with ten.

flux module load sched-fifo pool-class=rackmasks
"""

from flux.resource import ResourcePool, Rv1Pool
from flux.resource.pool.masks import parse_idset, popcount
from flux.resource.pool.placement import Placement


class RackPlacement(Placement):
    """Worst fit within the rack that has fewest free nodes and still holds the job."""

    def __init__(self, racks):
        self.racks = racks  # a mask of ranks each

    def place(self, index, shape, eligible):
        for rack in sorted(self.racks, key=lambda rack: popcount(index.idle & rack)):
            placed = super().place(index, shape, eligible & rack)
            if placed is not None:
                return placed
        return super().place(index, shape, eligible)


class RackMasks(Rv1Pool):
    name = "RackMasks"

    def __init__(self, R, log=None, **kwargs):
        super().__init__(R, log=log, **kwargs)
        racks = (self.scheduling or {}).get("racks", [])
        self.placement = RackPlacement([parse_idset(rack["ranks"]) for rack in racks])


class RackMasksPool(ResourcePool):
    _impl_map = {1: RackMasks}


pool_class = RackMasksPool
