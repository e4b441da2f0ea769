# SPDX-License-Identifier: LGPL-3.0-or-later
"""``resource`` for a scheduler among services that answer at once: tests and simulations."""

import errno

from flux_engine.formats import idset
from flux_engine.kernel import message
from flux_engine.kernel.direct import Peer
from flux_engine.resource.acquire import AcquireStream
from flux_engine.resource.inventory import Inventory
from flux_engine.resource.state import ResourceState, targets


class ResourcePeer(Peer):
    """``resource``: the acquire stream (RFC 28), on the same state class as the instance's service,
    which uses ``resource.exclude`` and ``queues`` of the configuration. Ranks are given as bounds.

    Args:
        R (dict): the inventory
        config (dict): the configuration
        patience (float): see `AcquireStream`
    """

    name = "resource"

    def __init__(self, kernel, R, config, patience):
        super().__init__(kernel)
        self.state = ResourceState(0)
        self.state.define(Inventory(R), config)
        self.acquired = AcquireStream(self, self.state, patience)
        self.methods = {"acquire": self._acquire}

    def _acquire(self, msg):
        if not msg.flags & message.FLAG_STREAMING:
            raise OSError(errno.EPROTO, "resource.acquire requires a streaming request")
        self.acquired.open(msg)

    def changed(self, gone=()):
        """Tell the scheduler of changes of the state; ranks in `gone` do not come back."""
        self.acquired.update(gone)

    def released(self, sender):
        """Forget the scheduler, which ended."""
        self.acquired.close(sender)

    def ranks_of(self, text):
        """Return the bounds of the ranks that an idset or a hostlist names. Raises ValueError if it
        is neither, or names an unknown rank or host."""
        return targets(text, self.state.base)

    def down(self, ranks):
        """Take ranks offline."""
        self.state.forced_offline = idset.union(self.state.forced_offline, ranks)
        self.changed()

    def up(self, ranks):
        """Bring ranks back online."""
        self.state.forced_offline = idset.difference(self.state.forced_offline, ranks)
        self.changed()

    def shrink(self, ranks):
        """Remove ranks for good."""
        self.state.replace(self.state.base.without(ranks))
        self.changed(ranks)
