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
groups.get (S)        ``{name: "broker.online"}`` -> ``{members: IDSET}`` now and at each change
====================  ============================================================================
"""

import errno

from flux_embedded.formats import idset
from flux_embedded.formats.levels import LOG_ERR
from flux_embedded.kernel.service import Service, request


class _Streams:
    """Streaming requests that are answered whenever something changes."""

    def __init__(self, service):
        self.service = service
        self.requests = []

    def add(self, msg, first):
        self.requests.append(msg)
        self.service.respond(msg, first)

    def tell(self, update):
        for msg in self.requests:
            self.service.respond(msg, update)

    def drop(self, sender, matchtag=None):
        """Forget the requests of `sender`, or the one with `matchtag`; return those dropped."""
        gone = [m for m in self.requests if m.sender is sender and matchtag in (None, m.matchtag)]
        self.requests = [m for m in self.requests if m not in gone]
        return gone


class OverlayService(Service):
    """``overlay``: ranks come and go."""

    name = "overlay"

    def __init__(self, ctx, *args):
        super().__init__(ctx, *args)
        self.online = []
        self.lost = []
        self.streams = _Streams(self)

    @request("monitor", streaming=True)
    def monitor(self, msg):
        self.streams.add(msg, {"online": idset.encode(self.online)})

    @request("monitor-cancel")
    def monitor_cancel(self, msg):
        for gone in self.streams.drop(msg.sender, (msg.body or {}).get("matchtag")):
            self.respond_error(gone, errno.ENODATA)

    @request("disconnect", guest=True)
    def disconnect(self, msg):
        # The notice that a client has gone has no payload; the command to take a rank away has.
        if msg.body is None:
            self.streams.drop(msg.sender)
            return
        if msg.is_guest:
            raise OSError(errno.EPERM, "Request requires owner credentials")
        rank = msg.body.get("rank")
        if not isinstance(rank, int) or not 0 <= rank < self.kernel.size:
            raise OSError(errno.EINVAL, f"rank {rank!r}: expected a rank below {self.kernel.size}")
        if rank == 0:
            raise OSError(errno.EINVAL, "rank 0 cannot be disconnected: it is the instance")
        if not idset.combine([rank, rank + 1], self.online, idset.INTERSECT):
            raise OSError(errno.EINVAL, f"rank {rank} is not online")
        self.online = idset.combine(self.online, [rank, rank + 1], idset.DIFFERENCE)
        self.lost = idset.combine(self.lost, [rank, rank + 1], idset.UNION)
        self.ctx.log(LOG_ERR, f"{self.ctx.hosts[rank]} (rank {rank}) disconnected", "overlay")
        self.streams.tell({"offline": str(rank)})
        self.respond(msg)

    @request("join")
    def join(self, msg):
        try:
            ranks = idset.decode((msg.body or {}).get("ranks", ""))
        except (ValueError, TypeError, AttributeError) as exc:
            raise OSError(errno.EINVAL, str(exc)) from None
        if ranks and ranks[-1] > self.kernel.size:
            raise OSError(errno.EINVAL, f"ranks: expected ranks below {self.kernel.size}")
        new = idset.combine(ranks, self.online, idset.DIFFERENCE)
        if new:
            self.online = idset.combine(self.online, new, idset.UNION)
            self.lost = idset.combine(self.lost, new, idset.DIFFERENCE)
            self.streams.tell({"online": idset.encode(new)})
        self.respond(msg)


class GroupsService(Service):
    """``groups``: the group broker.online, for those who ask by that name."""

    name = "groups"

    def __init__(self, ctx, *args):
        super().__init__(ctx, *args)
        self.online = []
        self.streams = _Streams(self)

    def begin(self):
        self.rpc("overlay.monitor", streaming=True).then(self._changed)

    def _changed(self, future):
        try:
            update = future.body
        except OSError:  # the overlay is unloaded at the end
            return
        self.online = idset.combine(
            self.online, idset.decode(update.get("online", "")), idset.UNION
        )
        self.online = idset.combine(
            self.online, idset.decode(update.get("offline", "")), idset.DIFFERENCE
        )
        future.reset()
        self.streams.tell({"members": idset.encode(self.online)})

    @request("get", guest=True, streaming=True)
    def get(self, msg):
        name = (msg.body or {}).get("name")
        if name != "broker.online":
            raise OSError(errno.ENOENT, f"group {name!r}: only broker.online is known")
        self.streams.add(msg, {"members": idset.encode(self.online)})

    @request("disconnect", guest=True)
    def disconnect(self, msg):
        self.streams.drop(msg.sender)
