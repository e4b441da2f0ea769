"""The resource service's requests; see the package for their table."""

import errno
import json
import os

from flux_embedded.formats import hostlist, idset
from flux_embedded.formats.levels import LOG_DEBUG, LOG_ERR
from flux_embedded.formats.rset import RSet
from flux_embedded.kernel.service import Service, request
from flux_embedded.services.resource import drains, sources
from flux_embedded.services.resource.acquire import AcquireStream
from flux_embedded.services.resource.admin import Administration, encode_R
from flux_embedded.services.resource.fake import fake_resources
from flux_embedded.services.resource.inventory import Inventory
from flux_embedded.services.resource.journal import Journal
from flux_embedded.services.resource.state import ResourceState


class Resource(Administration, Service):
    """``resource``: inventory, availability, and the scheduler's view of both.

    Module arguments: ``noverify`` leaves out the check that a rank runs on the host the inventory
    gives it.
    """

    name = "resource"

    def __init__(self, ctx, *args):
        super().__init__(ctx, *args)
        for arg in args:
            if arg not in ("noverify", "monitor-force-up"):
                raise OSError(
                    errno.EINVAL, f"resource: unknown argument {arg!r}: expected noverify"
                )
        self.state = ResourceState(ctx.kernel.size)
        self.acquired = AcquireStream(self)
        self._waiting = []  # requests of monitor-waitup
        self.journal = Journal(self, self._store)
        self.shrinks = True  # a rank that goes offline is gone for good
        self.has_kvs = "kvs" in ctx.kernel.services

    # -- start ---------------------------------------------------------------------------------

    def begin(self):
        R, method = self._find_R()
        try:
            self.state.define(Inventory(R), self.ctx.config)
            former = self.journal.replay(self._lookup("resource.eventlog") or "")
        except ValueError as exc:
            raise OSError(errno.EINVAL, self._complain(f"{method}: {exc}")) from None
        self.shrinks = method != "configuration"
        for event in former:
            self._replay(event)
        monitor = self.rpc("overlay.monitor", streaming=True)
        self.state.joined = idset.decode(monitor.body["online"])
        context = {
            "ranks": idset.encode(self.state.base.ranks),
            "online": idset.encode(self.state.online),
        }
        context["nodelist"] = hostlist.encode(self.state.base.hosts)
        self.journal.post("restart", context)
        stored = [["put", "resource.R", encode_R(R)]] if method != "kvs" else []
        self.journal.post("resource-define", {"method": method}, R, stored)
        self._verify(self.state.joined)
        monitor.reset()
        monitor.then(self._monitored)

    def _find_R(self):
        """Return R and how it was found, by the method names of RFC 44."""
        try:
            R = sources.from_config(self.ctx.config)
            if R is not None:
                return R, "configuration"
            text = self._lookup("resource.R")
            if text is not None:
                return json.loads(text), "kvs"
            R = fake_resources(self.ctx.config)
            if R is not None:  # where the start script has not put them into the KVS itself
                return R, "dynamic-discovery"
        except ValueError as exc:
            raise OSError(errno.EINVAL, self._complain(str(exc))) from None
        if self.ctx.job_R is not None:
            return self.ctx.job_R, "job-info"
        return sources.discover(self.ctx.hosts), "dynamic-discovery"

    def _complain(self, text):
        """The reason goes to the log: who loads a module sees an errno only."""
        self.log(LOG_ERR, text)
        return text

    def _lookup(self, key):
        if not self.has_kvs:
            return None
        try:
            return self.rpc("kvs.lookup", {"key": key}).body["value"]
        except FileNotFoundError:
            return None

    def _store(self, ops):
        if self.has_kvs:
            self.rpc("kvs.commit", {"ops": ops}).then(self._stored)

    def _stored(self, future):
        try:
            future.get()
        except OSError as exc:
            self.log(LOG_ERR, f"resource.eventlog: {exc.strerror}")

    def _replay(self, event):
        """Drain as a former run of the service left it."""
        context = event.get("context", {})
        if event["name"] not in ("drain", "undrain"):
            return
        ranks = idset.intersect(idset.decode(context.get("idset", "")), self.state.base.ranks)
        if event["name"] == "undrain":
            self.state.drains.undrain(ranks)
        else:
            overwrite = context.get("overwrite", 0)
            self.state.drains.drain(ranks, event["timestamp"], context.get("reason"), overwrite)

    # -- ranks come and go ---------------------------------------------------------------------

    def _monitored(self, future):
        try:
            update = future.body
        except OSError:  # the overlay is unloaded at the end
            return
        future.reset()
        self._membership(update)

    def _membership(self, update):
        online = idset.decode(update.get("online", ""))
        offline = idset.decode(update.get("offline", ""))
        if online:
            self.state.joined = idset.union(self.state.joined, online)
            self._verify(online)
            self.journal.post("online", {"idset": idset.encode(online)})
        if offline:
            self.state.joined = idset.difference(self.state.joined, offline)
            self.journal.post("offline", {"idset": idset.encode(offline)})
        self._update(gone=offline if self.shrinks else ())
        self._answer_waiting()

    def _verify(self, ranks):
        """Drain ranks that are on another host than the inventory says."""
        table = self.ctx.config.get("resource", {})
        if "noverify" in self.args or (isinstance(table, dict) and table.get("noverify")):
            return
        for rank in idset.members(idset.intersect(ranks, self.state.base.ranks)):
            # Rank 0 is the instance itself: without it there is nothing to be had.
            expected, found = self.state.base.host(rank), self.ctx.hosts[rank]
            if rank and expected != found:
                reason = f"rank {rank} got hostname '{found}', expected '{expected}'"
                payload = {
                    "level": LOG_ERR,
                    "name": self.name,
                    "text": f"draining: {reason}",
                    "rank": rank,
                }
                self.notify("log.append", payload)
                self._drain([rank, rank + 1], reason, drains.KEEP)

    def _update(self, gone=(), properties=None, expiration=None):
        self.acquired.update(self.state.up, gone, properties, expiration)

    # -- the scheduler -------------------------------------------------------------------------

    @request("acquire", streaming=True)
    def acquire(self, msg):
        view = self.state.view
        self.acquired.open(msg, view.R, view.ranks, self.state.up)

    @request("acquire-mute")
    def acquire_mute(self, msg):
        self.acquired.muted = True
        self.respond(msg)

    @request("disconnect", guest=True)
    def disconnect(self, msg):
        if self.acquired.close(msg.sender):
            self.log(LOG_DEBUG, "aborted 1 resource.acquire(s)")
        self.journal.disconnect(msg.sender)
        self._waiting = [other for other in self._waiting if other.sender is not msg.sender]

    @request("monitor-waitup", form={"up": int})
    def monitor_waitup(self, msg):
        """Answer when so many broker ranks are there."""
        if msg.body["up"] > self.kernel.size:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self._waiting.append(msg)
        self._answer_waiting()

    def _answer_waiting(self):
        there = idset.count(self.state.joined)
        for msg in [msg for msg in self._waiting if msg.body["up"] <= there]:
            self._waiting.remove(msg)
            self.respond(msg)

    @request("journal", streaming="journal requires streaming RPC flag")
    def open_journal(self, msg):
        self.journal.open(msg, self.state.base.R)

    @request("journal-cancel")
    def cancel_journal(self, msg):
        self.journal.cancel(msg.sender, (msg.body or {}).get("matchtag"))

    # -- looking -------------------------------------------------------------------------------

    @request("status", guest=True)
    def status(self, msg):
        state = self.state
        online = state.online
        answer = {
            "R": state.base.R,
            "drain": state.drains.status(),
            "online": idset.encode(online),
            "offline": idset.encode(idset.difference(state.base.ranks, online)),
            "exclude": idset.encode(state.all_excluded),
            "torpid": "",
        }
        self.respond(msg, answer)

    @request("sched-status", guest=True)
    def sched_status(self, msg):
        self.rpc("job-manager.resource-status").then(self._allocated, msg)

    def _allocated(self, future, msg):
        try:
            allocated = future.body["allocated"]
        except OSError:  # no job manager: nothing is allocated
            allocated = RSet().to_dict()
        view = self.state.view
        down = view.restrict(idset.difference(view.ranks, self.state.up))
        every = {key: value for key, value in view.R.items() if key != "scheduling"}
        self.respond(msg, {"all": every, "down": down, "allocated": allocated})

    @request("stats-get")
    def stats(self, msg):
        holder = self.acquired.request
        answer = {
            "ranks": len(self.state.base),
            "up": idset.count(self.state.up),
            "events": len(self.journal.events),
        }
        answer["acquired_by"] = holder.sender.name if holder is not None else ""
        self.respond(msg, answer)
