# SPDX-License-Identifier: LGPL-3.0-or-later
"""The broker ranks that are online: service ``overlay``.

One process plays every rank, so a rank is online when the instance says so: rank 0 once the start
scripts are done, then the others. ``flux overlay disconnect`` takes one offline for good.

====================  ============================================================================
method                payload -> response
====================  ============================================================================
overlay.monitor (S)   -> ``{online: IDSET}`` now, then ``{online}`` or ``{offline}`` with the ranks
                      that changed
overlay.disconnect    ``{rank}`` -> nothing
overlay.join          ``{ranks: IDSET}`` -> nothing: the ranks are online now
====================  ============================================================================
"""

import errno
from syslog import LOG_ERR

from flux_engine.formats import idset
from flux_engine.kernel.service import Service, refusing, request


class OverlayService(Service):
    """``overlay``: ranks come and go."""

    name = "overlay"

    def __init__(self, ctx, *args):
        super().__init__(ctx, *args)
        self.online = []
        self._monitors = self.keep()

    @request("monitor", streaming=True)
    def monitor(self, msg):
        self._monitors.append(msg)
        self.respond(msg, {"online": idset.encode(self.online)})

    def _tell(self, update):
        for msg in self._monitors:
            self.respond(msg, update)

    @request("disconnect", guest=True)
    def disconnect(self, msg):
        # The notice of a client's disconnect has no payload; the command to disconnect a rank has.
        if msg.body is None:
            super().disconnect(msg)
            return
        if msg.is_guest:
            raise OSError(errno.EPERM, "Request requires owner credentials")
        rank = msg.body.get("rank")
        # Rank 0 is the instance.
        if type(rank) is not int or rank < 1 or not idset.intersect([rank, rank + 1], self.online):
            raise OSError(errno.EINVAL, f"rank {rank!r}: expected a rank above 0 that is online")
        self.online = idset.difference(self.online, [rank, rank + 1])
        self.ctx.log(LOG_ERR, f"{self.ctx.hosts[rank]} (rank {rank}) disconnected", "overlay")
        self._tell({"offline": str(rank)})
        self.respond(msg)

    @request("join", form={"ranks": str})
    def join(self, msg):
        with refusing():
            ranks = idset.decode(msg.body["ranks"])
        if ranks and ranks[-1] > self.kernel.size:
            raise OSError(errno.EINVAL, f"ranks: expected ranks below {self.kernel.size}")
        new = idset.difference(ranks, self.online)
        if new:
            self.online = idset.union(self.online, new)
            self._tell({"online": idset.encode(new)})
        self.respond(msg)
