"""The resource service's view: which ranks are online, drained, excluded."""

import collections

from flux.idset import IDset
from flux.resource.list import SchedResourceList, named_ranks
from flux.resource.ResourceSet import ResourceSet
from flux_embedded.kernel.composite import WaitAllFuture
from flux_embedded.kernel.future import RPC

__all__ = ["DrainInfo", "ResourceStatus", "resource_status"]

#: Ranks (IDset) that were drained together, when (seconds since the epoch) and why.
DrainInfo = collections.namedtuple("DrainInfo", "ranks timestamp reason")

#: The states of ranks that the service reports, besides R and drains.
REPORTED = ("online", "offline", "exclude", "torpid")
TOPICS = ("resource.status", "resource.sched-status", "job-manager.stats-get")


class ResourceStatus:
    """State of all ranks; sets of ranks are IDsets, ``status["online"]`` is ``status.online``.

    Args:
        rstatus (dict): response of ``resource.status``, None for one of nothing
        allocated_ranks (IDset): ranks that have a job
        housekeeping_ranks (IDset): ranks in housekeeping

    Attributes:
        rset (ResourceSet): the inventory
        nodelist (Hostlist): hosts in rank order
        all, online, offline, exclude, torpid: as reported
        allocated, housekeeping: as given
        drained: drained ranks without a job
        draining: drained ranks with a job
        avail: ranks that are neither drained, excluded nor torpid
        drain_info (list of DrainInfo): drained ranks with time and reason
    """

    def __init__(self, rstatus=None, allocated_ranks=None, housekeeping_ranks=None):
        self.rstatus = rstatus or {}
        self.allocated_ranks = IDset() if allocated_ranks is None else allocated_ranks
        self.housekeeping_ranks = IDset() if housekeeping_ranks is None else housekeeping_ranks
        self.rset = ResourceSet(self.rstatus.get("R"))
        self.nodelist = self.rset.nodelist
        self._show(self.rset.ranks)

    def _show(self, ranks):
        """Work out what is told of some of the ranks."""
        self.all = self.rset.ranks & ranks
        for state in REPORTED:
            setattr(self, state, IDset(self.rstatus.get(state, "")) & ranks)
        self.allocated = self.allocated_ranks & ranks
        self.housekeeping = self.housekeeping_ranks
        drains = [
            DrainInfo(IDset(text) & ranks, info["timestamp"], info.get("reason", ""))
            for text, info in self.rstatus.get("drain", {}).items()
        ]
        self.drain_info = drains
        drain = IDset().union(*[info.ranks for info in drains])
        self.draining = drain & self.allocated
        self.drained = drain - self.allocated
        self.avail = self.all - self.get_idset("drained", "draining", "exclude", "torpid")

    def __getitem__(self, state):
        return getattr(self, state)

    def filter(self, include):
        """Tell of some ranks only.

        Args:
            include: ranks (IDset or its text), or hosts (Hostlist or its text)
        """
        self._show(named_ranks(self.rset, include))

    def get_idset(self, *states):
        """The ranks that are in one of some states, an IDset."""
        return IDset().union(*[self[state] for state in states])

    def get_drain_info(self, rank):
        """The DrainInfo of a rank, None if it is not drained.

        Raises:
            ValueError: there is no such rank
        """
        if rank not in self.all:
            raise ValueError(f"invalid rank {rank}")
        for info in self.drain_info:
            if rank in info.ranks:
                return info
        return None


class ResourceStatusRPC:
    """The answers to `resource_status`."""

    def __init__(self, h):
        self._rpcs = [RPC(h, topic, "{}") for topic in TOPICS]

    def get(self):
        """Wait for the answers and return a ResourceStatus."""
        WaitAllFuture(self._rpcs).get()
        status, sched, manager = (rpc.get() for rpc in self._rpcs)
        visits = manager["housekeeping"]["running"].values()
        cleaned = IDset().union(*[visit["allocated"] for visit in visits])
        return ResourceStatus(status, SchedResourceList(sched).allocated.ranks, cleaned)


def resource_status(h):
    """Request the state of all ranks; returns an object with ``get()``."""
    return ResourceStatusRPC(h)
