# SPDX-License-Identifier: LGPL-3.0-or-later
"""Which broker ranks are there: services ``overlay`` and ``groups``.

One process plays every rank, so a rank is online when the instance says so: rank 0 once the start
scripts are done, then the others. ``flux overlay disconnect`` takes one away for good.

====================  ============================================================================
method                payload -> response
====================  ============================================================================
overlay.monitor (S)   -> ``{online: IDSET}`` now, then ``{online}`` or ``{offline}`` with the ranks
                      that changed
overlay.disconnect    ``{rank}`` -> nothing
overlay.join          ``{ranks: IDSET}`` -> nothing: the ranks are online now
overlay.topology      ``{rank}`` -> ``{rank, size, children}``: all ranks are children of rank 0
overlay.health        -> ``{rank, status, duration, children}``, status full, partial, degraded, offline or lost
groups.get            ``{name}`` -> ``{members: IDSET}``, of ``broker.online``; other groups are empty
====================  ============================================================================
"""

import errno

from flux_engine.formats import idset
from flux_engine.formats.levels import LOG_ERR
from flux_engine.kernel.service import Service, request


class OverlayService(Service):
    """``overlay``: ranks come and go."""

    name = "overlay"

    def __init__(self, ctx, *args):
        super().__init__(ctx, *args)
        self.online = []
        self.lost = []
        self._since = self.now()  # of the latest change
        self._monitors = []  # requests that are answered at each change

    @request("monitor", streaming=True)
    def monitor(self, msg):
        self._monitors.append(msg)
        self.respond(msg, {"online": idset.encode(self.online)})

    @request("monitor-cancel")
    def monitor_cancel(self, msg):
        tag = (msg.body or {}).get("matchtag")
        for gone in [m for m in self._monitors if m.sender is msg.sender and m.matchtag == tag]:
            self._monitors.remove(gone)
            self.respond_error(gone, errno.ENODATA)

    def _tell(self, update):
        self._since = self.now()
        for msg in self._monitors:
            self.respond(msg, update)

    @request("disconnect", guest=True)
    def disconnect(self, msg):
        # The notice that a client has gone has no payload; the command to take a rank away has.
        if msg.body is None:
            self._monitors = [m for m in self._monitors if m.sender is not msg.sender]
            return
        if msg.is_guest:
            raise OSError(errno.EPERM, "Request requires owner credentials")
        rank = msg.body.get("rank")
        if not isinstance(rank, int) or not 0 <= rank < self.kernel.size:
            raise OSError(errno.EINVAL, f"rank {rank!r}: expected a rank below {self.kernel.size}")
        if rank == 0:
            raise OSError(errno.EINVAL, "rank 0 cannot be disconnected: it is the instance")
        if not idset.intersect([rank, rank + 1], self.online):
            raise OSError(errno.EINVAL, f"rank {rank} is not online")
        self.online = idset.difference(self.online, [rank, rank + 1])
        self.lost = idset.union(self.lost, [rank, rank + 1])
        self.ctx.log(LOG_ERR, f"{self.ctx.hosts[rank]} (rank {rank}) disconnected", "overlay")
        self._tell({"offline": str(rank)})
        self.respond(msg)

    @request("topology", guest=True, form={"rank": int})
    def topology(self, msg):
        rank, size = msg.body["rank"], self.kernel.size
        if not 0 <= rank < size:
            text = "requested rank is not this broker or its direct child"
            raise OSError(errno.ENOENT, text)
        below = range(1, size) if rank == 0 else ()
        children = [{"rank": child, "size": 1, "children": []} for child in below]
        self.respond(msg, {"rank": rank, "size": 1 + len(children), "children": children})

    @request("health", guest=True)
    def health(self, msg):
        """How the ranks are; a rank that was never there is offline, one that has gone is lost."""
        duration = self.now() - self._since
        online, lost = set(idset.members(self.online)), set(idset.members(self.lost))
        children = []
        for rank in range(1, self.kernel.size):
            status = "full" if rank in online else "lost" if rank in lost else "offline"
            children.append({"rank": rank, "status": status, "duration": duration})
        found = {child["status"] for child in children}
        status = "degraded" if "lost" in found else "partial" if "offline" in found else "full"
        self.respond(msg, {"rank": 0, "status": status, "duration": duration, "children": children})

    @request("join")
    def join(self, msg):
        try:
            ranks = idset.decode((msg.body or {}).get("ranks", ""))
        except (ValueError, TypeError, AttributeError) as exc:
            raise OSError(errno.EINVAL, str(exc)) from None
        if ranks and ranks[-1] > self.kernel.size:
            raise OSError(errno.EINVAL, f"ranks: expected ranks below {self.kernel.size}")
        new = idset.difference(ranks, self.online)
        if new:
            self.online = idset.union(self.online, new)
            self.lost = idset.difference(self.lost, new)
            self._tell({"online": idset.encode(new)})
        self.respond(msg)


class GroupsService(Service):
    """``groups``: the group broker.online, for those who ask by that name."""

    name = "groups"

    @request("get", guest=True, form={"name": str})
    def get(self, msg):
        overlay = self.kernel.services["overlay"].service
        online = overlay.online if msg.body["name"] == "broker.online" else []
        self.respond(msg, {"members": idset.encode(online)})
