# SPDX-License-Identifier: LGPL-3.0-or-later
"""A pool that keeps jobs within a rack, and supports jobs that require one.

    flux module load sched-fifo pool-class=rackaware

Racks come from R, ``{"scheduling": {"racks": [{"name": "r0", "ranks": "0-15"}, ...]}}``. A job that
fits in one rack gets the fitting rack with least room; a larger one starts in the rack with most
room. A job with the attribute ``system.one-rack`` runs in one rack or not at all.
"""

from flux.idset import IDset
from flux.resource import InfeasibleRequest, ResourcePool, Rv1Pool


def wants_one_rack(request):
    return bool(request.jobspec["attributes"]["system"].get("one-rack"))


class RackAware(Rv1Pool):
    name = "RackAware"

    def __init__(self, R, log=None, **kwargs):
        super().__init__(R, log=log, **kwargs)
        racks = (self.scheduling or {}).get("racks", [])
        self.racks = [set(IDset(rack["ranks"])) for rack in racks]
        self.log.debug(f"rackaware: {len(self.racks)} racks")

    def _select_resources(self, candidates, request):
        racks = [[one for one in candidates if one[0] in rack] for rack in self.racks]
        racks.sort(key=lambda rack: sum(len(cores) for _, _, cores, _ in rack))
        for rack in racks:
            selected, nslots = super()._select_resources(rack, request)
            if selected:
                return selected, nslots
        if wants_one_rack(request):
            return [], 0
        # Rack after rack, the emptiest first.
        return super()._select_resources([one for rack in reversed(racks) for one in rack], request)

    def _check_feasibility(self, request):
        super()._check_feasibility(request)
        if wants_one_rack(request) and not any(
            self.could_hold(rack, request) for rack in self.racks
        ):
            raise InfeasibleRequest(
                "unsatisfiable request: no rack is large enough, and it must be one rack"
            )

    def could_hold(self, rack, request):
        """Whether a rack would suffice if all of it were up and free."""
        part = self.copy()
        part.remove_ranks([rank for one in self.racks if one is not rack for rank in one])
        try:
            super(RackAware, part)._check_feasibility(request)
        except InfeasibleRequest:
            return False
        return True


class RackAwarePool(ResourcePool):
    _impl_map = {1: RackAware}


pool_class = RackAwarePool
