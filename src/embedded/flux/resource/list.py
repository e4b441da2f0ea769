"""What a scheduler can use: all resources, and which of them are allocated or down."""

import functools
import os

from flux.idset import IDset
from flux.resource.ResourceSet import ResourceSet
from flux_embedded.kernel.future import RPC

__all__ = ["ResourceListRPC", "SchedResourceList", "resource_list"]

#: The states that are reported; the others follow from them.
REPORTED = ("all", "allocated", "down")


def named_ranks(rset, include):
    """The ranks of a ResourceSet that are named, an IDset; hosts that it does not have count as none.

    Args:
        rset (ResourceSet): whose ranks hosts are
        include: ranks (IDset or its text), or hosts (Hostlist or its text)
    """
    try:
        return IDset(include)
    except (TypeError, ValueError):
        return IDset(rset.host_ranks(include, ignore_nomatch=True))


class SchedResourceList:
    """The resources of an instance by state, each a ResourceSet; ``resources["up"]`` is ``resources.up``.

    Args:
        resp (dict): ``all``, ``allocated`` and ``down``: R objects or ResourceSets

    Attributes:
        all, allocated, down: as reported
    """

    def __init__(self, resp):
        sets = {state: ResourceSet(resp.get(state)) for state in REPORTED}
        # What jobs hold carries no properties of its own everywhere; the inventory knows them.
        sets["allocated"] = sets["all"] & sets["allocated"]
        self._take(sets)

    def _take(self, sets):
        for state, resources in sets.items():
            resources.state = state
        self._sets = sets
        for derived in ("up", "free"):
            self.__dict__.pop(derived, None)

    def __getattr__(self, name):
        if name not in REPORTED:
            raise AttributeError(f"Invalid SchedResourceList attr {name}")
        return self._sets[name]

    @functools.cached_property
    def up(self):
        """All that is not down."""
        return self._less("up", self.all, self.down)

    @functools.cached_property
    def free(self):
        """All of `up` that is not allocated."""
        return self._less("free", self.up, self.allocated)

    @staticmethod
    def _less(state, resources, others):
        left = resources - others
        left.state = state
        return left

    def __getitem__(self, state):
        """The set of a state by name; KeyError for other names."""
        if state not in (*REPORTED, "up", "free"):
            raise KeyError(state)
        return getattr(self, state)

    def filter(self, include):
        """Leave out all ranks but some.

        Args:
            include: ranks (IDset or its text), or hosts (Hostlist or its text)
        """
        ranks = named_ranks(self.all, include)
        self._take({state: self[state].copy_ranks(ranks) for state in REPORTED})

    def copy_constraint(self, constraint):
        """A list of the resources that match a constraint of RFC 31 (dict or JSON text)."""
        return SchedResourceList(
            {state: self[state].copy_constraint(constraint) for state in REPORTED}
        )


class ResourceListRPC(RPC):
    """The answer to `resource_list`."""

    def get(self):
        """Wait for the answer and return a SchedResourceList."""
        return SchedResourceList(super().get())


def resource_list(h):
    """Request the resources and their state; returns a ResourceListRPC.

    The environment variable FLUX_RESOURCE_LIST_RPC names another topic than
    ``resource.sched-status``, for example ``sched.resource-status``.
    """
    topic = os.environ.get("FLUX_RESOURCE_LIST_RPC", "resource.sched-status")
    return ResourceListRPC(h, topic, "{}")
