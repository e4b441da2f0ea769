"""The resource service's view: which ranks are online, drained, excluded."""

from flux.idset import IDset
from flux.resource.list import SchedResourceList
from flux.resource.ResourceSet import ResourceSet
from flux_embedded.kernel.composite import WaitAllFuture
from flux_embedded.kernel.future import RPC

__all__ = ["DrainInfo", "ResourceStatus", "resource_status"]


class DrainInfo:
    """Ranks that were drained together.

    Args:
        ranks (IDset): the ranks
        timestamp (float): when, in seconds since the epoch
        reason (str): why
    """

    def __init__(self, ranks, timestamp, reason):
        self.ranks = ranks
        self.timestamp = timestamp
        self.reason = reason


class ResourceStatus:
    """State of all ranks; sets of ranks are IDsets.

    Args:
        status (dict): response of ``resource.status``
        allocated (ResourceSet): what jobs hold

    Attributes:
        rset (ResourceSet): the inventory
        all, online, offline, exclude, torpid: as reported
        drained: drained ranks without a job
        draining: drained ranks with a job
        allocated: ranks that have a job
        avail: ranks that are neither drained nor excluded
        drain_info (list of DrainInfo): drained ranks with time and reason
        nodelist (Hostlist): hosts in rank order
    """

    def __init__(self, status, allocated=None):
        self.rset = ResourceSet(status.get("R"))
        self.nodelist = self.rset.nodelist
        self.all = self.rset.ranks
        self.online = IDset(status.get("online", ""))
        self.offline = IDset(status.get("offline", ""))
        self.exclude = IDset(status.get("exclude", ""))
        self.torpid = IDset(status.get("torpid", ""))
        self.allocated = IDset() if allocated is None else allocated.ranks
        self.drain_info = []
        drain = IDset()
        for ranks, info in status.get("drain", {}).items():
            info = DrainInfo(IDset(ranks), info["timestamp"], info.get("reason", ""))
            self.drain_info.append(info)
            drain.add(info.ranks)
        self.draining = drain & self.allocated
        self.drained = drain - self.allocated
        self.avail = self.all - drain - self.exclude

    def get_drain_info(self, rank):
        """The DrainInfo of a rank, or None if it is not drained."""
        for info in self.drain_info:
            if rank in info.ranks:
                return info
        return None

    def get_nodelist(self, ranks):
        """The hosts of some ranks, a Hostlist."""
        return self.rset.copy_ranks(ranks).nodelist


class ResourceStatusRPC:
    """The answers to `resource_status`."""

    def __init__(self, h):
        self._rpcs = [RPC(h, topic, "{}") for topic in ("resource.status", "resource.sched-status")]

    def get(self):
        """Wait for the answers and return a ResourceStatus."""
        WaitAllFuture(self._rpcs).get()
        status, sched = (rpc.get() for rpc in self._rpcs)
        return ResourceStatus(status, SchedResourceList(sched).allocated)


def resource_status(h):
    """Request the state of all ranks; returns an object with ``get()``."""
    return ResourceStatusRPC(h)
