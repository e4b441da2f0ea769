# SPDX-License-Identifier: LGPL-3.0-or-later
"""A pool that fills one rack before it opens the next; racks are ranks 0-3, 4-7 and so on.

flux module load sched-fifo pool-class=rackpool
"""

from flux.resource import ResourcePool, Rv1Pool

RACK = 4


class _RackV1(Rv1Pool):
    def _sort_candidates(self, candidates):
        free = {}
        for rank, _, cores, _ in candidates:
            free[rank // RACK] = free.get(rank // RACK, 0) + len(cores)
        return sorted(
            candidates, key=lambda one: (free[one[0] // RACK], one[0] // RACK, -len(one[2]), one[0])
        )


class RackPool(ResourcePool):
    _impl_map = {1: _RackV1}


pool_class = RackPool
