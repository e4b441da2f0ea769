# SPDX-License-Identifier: LGPL-3.0-or-later
"""The ``resource.acquire`` stream (RFC 28): one holder, exact deltas."""

import errno
import os

from flux_engine.formats import idset
from flux_engine.kernel import message
from flux_engine.kernel.direct import Peer
from flux_engine.resource.inventory import Inventory
from flux_engine.resource.state import ResourceState, targets


class AcquireStream:
    """The acquire stream, and the state last sent to its holder.

    Args:
        service (Service): answers on its behalf
        state (ResourceState): the state whose changes are sent
        patience (float): seconds until the holder counts as informed of ranks that went down

    Attributes:
        told (Allocations): the resources as the holder knows them, to check its allocations; None before a request
        request (Message): the holder's request, or None
    """

    def __init__(self, service, state, patience=1.0):
        self.service = service
        self.state = state
        self.patience = patience
        self.told = None
        self.request = None
        self._ranks = []  # bounds: ranks of `resources` that have not been shrunk
        self._up = []

    def open(self, msg):
        """Answer an acquire request with the whole state. OSError EBUSY: there is a holder."""
        if self.request is not None:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        self.request, view = msg, self.state.view
        self._ranks = view.ranks
        self._up = idset.intersect(self.state.up, self._ranks)
        # Imported with the first scheduler only: it imports the bindings, which a broker does not need.
        from flux.resource.allocations import Allocations

        self.told = Allocations(view.R)
        self.told.set_up(idset.encode(self._up))
        self.service.respond(msg, {"resources": view.R, "up": idset.encode(self._up)})

    def close(self, sender):
        """`sender` has gone; returns whether it was the holder."""
        if self.request is None or self.request.sender is not sender:
            return False
        self.request = None
        return True

    def update(self, gone=(), properties=None, expiration=None):
        """Send the holder the changes since the last update, if there are any.

        Arguments: gone (bounds), ranks that are not coming back; properties (dict),
        ``{"property-add"|"property-remove": {NAME: bounds}}``; expiration (seconds since the epoch, or None for no change).
        """
        if self.request is None:
            return
        shrink = idset.intersect(gone, self._ranks)
        self._ranks = idset.difference(self._ranks, shrink)
        up = idset.intersect(self.state.up, self._ranks)
        became_up = idset.difference(up, self._up)
        # A rank that goes for good is always in "down" too, even one that was down before (RFC 28).
        became_down = idset.union(idset.difference(self._up, up), shrink)
        self._up = up
        self.told.set_up(idset.encode(up), self.service.kernel.time, self.patience)
        answer = self._properties(properties or {})
        for key, bounds in (("up", became_up), ("down", became_down), ("shrink", shrink)):
            if bounds:
                answer[key] = idset.encode(bounds)
        if expiration is not None:
            answer["expiration"] = expiration
        if answer:
            self.service.respond(self.request, answer)

    def _properties(self, changes):
        answer = {}
        for key, table in changes.items():
            known = {name: idset.intersect(bounds, self._ranks) for name, bounds in table.items()}
            known = {name: idset.encode(bounds) for name, bounds in known.items() if bounds}
            if known:
                answer[key] = known
        return answer


def property_changes(old, new):
    """Return the ``properties`` argument of `AcquireStream.update` that leads from `old` to `new` (name -> bounds)."""
    add = {name: idset.difference(bounds, old.get(name, [])) for name, bounds in new.items()}
    remove = {name: idset.difference(bounds, new.get(name, [])) for name, bounds in old.items()}
    return {
        "property-remove": {name: bounds for name, bounds in remove.items() if bounds},
        "property-add": {name: bounds for name, bounds in add.items() if bounds},
    }


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
