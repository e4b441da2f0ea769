# SPDX-License-Identifier: LGPL-3.0-or-later
"""The ``resource.acquire`` stream (RFC 28): one holder, exact deltas."""

import errno
import os

from flux_engine.formats import idset


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
