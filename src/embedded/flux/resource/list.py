"""What a scheduler can use: all resources, and which of them are allocated or down."""

import os

from flux.resource.ResourceSet import ResourceSet
from flux_embedded.kernel.future import RPC

__all__ = ["ResourceListRPC", "SchedResourceList", "resource_list"]


class SchedResourceList:
    """The resources of an instance by state, each a ResourceSet.

    Args:
        resp (dict): R objects ``all``, ``allocated`` and ``down``

    Attributes:
        all, allocated, down: as reported
        up: all that is not down
        free: all of `up` that is not allocated
    """

    def __init__(self, resp):
        self.all = ResourceSet(resp["all"])
        self.allocated = ResourceSet(resp.get("allocated"))
        self.down = ResourceSet(resp.get("down"))
        # What jobs hold carries no properties of its own everywhere; the inventory knows them.
        self.allocated = self.all & self.allocated
        self.up = self.all - self.down
        self.free = self.up - self.allocated
        for state in ("all", "allocated", "down", "up", "free"):
            getattr(self, state).state = state

    def __getitem__(self, state):
        """The set of a state by name; KeyError for other names."""
        if state not in ("all", "allocated", "down", "up", "free"):
            raise KeyError(state)
        return getattr(self, state)


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
