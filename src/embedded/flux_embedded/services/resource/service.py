# SPDX-License-Identifier: LGPL-3.0-or-later
"""The resource service's requests; see the package for their table."""

import errno
import json
from syslog import LOG_DEBUG, LOG_ERR

from flux_embedded.services.resource.fake import fake_resources
from flux_engine.formats import eventlog, idset
from flux_engine.formats.rset import RSet, redacted
from flux_engine.kernel.service import Service, refusing, request
from flux_engine.resource import sources
from flux_engine.resource.acquire import AcquireStream, property_changes
from flux_engine.resource.inventory import Inventory
from flux_engine.resource.state import ResourceState, targets

#: The payload of drain and undrain.
_DRAIN = {"targets": str, "reason?": str, "mode?": str}

#: Mode of them -> `overwrite` of their events (RFC 44): what changes of a rank that is drained already.
_MODES = {None: 0, "update": 0, "overwrite": 1, "force-overwrite": 2}


class Resource(Service):
    """``resource``; with the argument ``noverify`` it does not check that a rank runs on the host the inventory gives it."""

    name = "resource"

    def __init__(self, ctx, *args):
        super().__init__(ctx, *args)
        for arg in args:
            if arg not in ("noverify", "monitor-force-up"):
                raise OSError(
                    errno.EINVAL, f"resource: unknown argument {arg!r}: expected noverify"
                )
        self.state = ResourceState(ctx.kernel.size)
        self.acquired = ctx.acquired = AcquireStream(self)
        self.shrinks = True  # a rank that goes offline is gone for good

    # -- start ---------------------------------------------------------------------------------

    def begin(self):
        R, method = self._find_R()
        try:
            self.state.define(Inventory(R), self.ctx.config)
            former = eventlog.parse(self.ctx.kvs.find("resource.eventlog") or "")
        except ValueError as exc:
            raise OSError(errno.EINVAL, self._complain(f"{method}: {exc}")) from None
        self.shrinks = method != "configuration"
        for event in former:
            self._replay(event)
        monitor = self.rpc("overlay.monitor", streaming=True)
        self.state.joined = idset.decode(monitor.body["online"])
        self._record("resource-define", {"method": method}, _put(R) if method != "kvs" else [])
        self._verify(self.state.joined)
        monitor.reset()
        monitor.then(self._monitored)

    def _find_R(self):
        """Return R and its source, by the method names of RFC 44."""
        try:
            R = sources.from_config(self.ctx.config)
            if R is not None:
                return R, "configuration"
            text = self.ctx.kvs.find("resource.R")
            if text is not None:
                return json.loads(text), "kvs"
            R = fake_resources(self.ctx.config)
            if R is not None:
                return R, "dynamic-discovery"
        except ValueError as exc:
            raise OSError(errno.EINVAL, self._complain(str(exc))) from None
        if self.ctx.job_R is not None:
            return self.ctx.job_R, "job-info"
        return sources.discover([self.ctx.hostname] * len(self.ctx.hosts)), "dynamic-discovery"

    def _complain(self, text):
        """Log the reason: the user who loads a module sees only an errno."""
        self.log(LOG_ERR, text)
        return text

    def _record(self, name, context, ops=()):
        """Put an event into the eventlog, after other operations on the KVS."""
        line = eventlog.encode(self.now(), name, context)
        self.ctx.kvs.commit([*ops, ["append", "resource.eventlog", line]])

    def _replay(self, event):
        """Restore a drain from the eventlog of a former run of the service."""
        context = event.get("context", {})
        if event["name"] not in ("drain", "undrain"):
            return
        ranks = idset.intersect(idset.decode(context.get("idset", "")), self.state.base.ranks)
        if event["name"] == "undrain":
            self.state.drains.undrain(ranks)
        else:
            self.state.drains.drain(
                ranks, event["timestamp"], context.get("reason"), context.get("overwrite", 0)
            )

    # -- ranks joining and leaving ------------------------------------------------------------------

    def _monitored(self, future):
        try:
            update = future.body
        except OSError:  # the overlay is unloaded at the end
            return
        future.reset()
        online = idset.decode(update.get("online", ""))
        offline = idset.decode(update.get("offline", ""))
        if online:
            self.state.joined = idset.union(self.state.joined, online)
            self._verify(online)
        if offline:
            self.state.joined = idset.difference(self.state.joined, offline)
        self._update(gone=offline if self.shrinks else ())

    def _verify(self, ranks):
        """Drain ranks that run on another host than in the inventory."""
        table = self.ctx.config.get("resource", {})
        if "noverify" in self.args or (isinstance(table, dict) and table.get("noverify")):
            return
        for rank in idset.members(idset.intersect(ranks, self.state.base.ranks)):
            # Rank 0 is exempt: it is the instance itself.
            expected, found = self.state.base.host(rank), self.ctx.hosts[rank]
            if rank and expected not in (found, self.ctx.hostname):
                reason = f"rank {rank} got hostname '{found}', expected '{expected}'"
                payload = {
                    "level": LOG_ERR,
                    "name": self.name,
                    "text": f"draining: {reason}",
                    "rank": rank,
                }
                self.notify("log.append", payload)
                self._drain([rank, rank + 1], reason)

    def _update(self, gone=(), properties=None, expiration=None):
        self.acquired.update(self.state.up, gone, properties, expiration)

    # -- the scheduler -------------------------------------------------------------------------

    @request("acquire")
    def acquire(self, msg):
        view = self.state.view
        self.acquired.open(msg, view.R, view.ranks, self.state.up)

    @request("disconnect", guest=True)
    def disconnect(self, msg):
        if self.acquired.close(msg.sender):
            self.log(LOG_DEBUG, "aborted 1 resource.acquire(s)")

    # -- administration --------------------------------------------------------------------------

    def _targets(self, msg):
        """The ranks that a request names, as bounds."""
        body = msg.body or {}
        with refusing():
            return targets(body.get("targets", body.get("ranks")), self.state.base)

    @request("drain", form=_DRAIN)
    def drain(self, msg):
        ranks, overwrite = self._targets(msg), self._overwrite(msg)
        already = idset.intersect(ranks, self.state.drains.explained())
        if already and "mode" not in msg.body:
            raise FileExistsError(errno.EEXIST, f"{_ranks(already)} already drained")
        self._drain(ranks, msg.body.get("reason"), overwrite)
        self._update()
        self.respond(msg)

    def _overwrite(self, msg):
        """The `overwrite` of a request's mode."""
        mode = msg.body.get("mode")
        if mode not in _MODES:
            raise OSError(errno.EINVAL, f"invalid mode {mode!r} specified")
        return _MODES[mode]

    def _drain(self, ranks, reason, overwrite=0):
        self.state.drains.drain(ranks, self.now(), reason, overwrite)
        self._record_ranks("drain", ranks, reason, overwrite)

    def _record_ranks(self, name, ranks, reason, overwrite):
        context = {"idset": idset.encode(ranks), "nodelist": self.state.base.nodelist(ranks)}
        more = {"reason": reason} if reason else {}
        self._record(name, {**context, **more, "overwrite": overwrite})

    @request("undrain", form=_DRAIN)
    def undrain(self, msg):
        ranks, overwrite = self._targets(msg), self._overwrite(msg)
        others = idset.difference(ranks, self.state.drains.ranks)
        if others and "mode" not in msg.body:
            raise FileExistsError(errno.EEXIST, f"{_ranks(others)} not drained")
        self.state.drains.undrain(ranks)
        self._record_ranks("undrain", ranks, msg.body.get("reason"), overwrite)
        self._update()
        self.respond(msg)

    @request("property-add")
    @request("property-remove")
    def change_property(self, msg):
        ranks, add = self._targets(msg), msg.topic == "resource.property-add"
        former = self.state.view.properties
        with refusing():
            inventory = self.state.with_property((msg.body or {}).get("name"), ranks, add)
        self.state.replace(inventory)
        self._define("reload")
        self._update(properties=property_changes(former, self.state.view.properties))
        self.respond(msg)

    @request("shrink")
    def shrink(self, msg):
        ranks = self._targets(msg)
        if not idset.difference(self.state.base.ranks, ranks):
            raise OSError(errno.EINVAL, "no resources would be left")
        # Like a real Flux's lost brokers, they stay in R: a later scheduler finds their jobs running.
        self._take_offline(ranks, True)
        self.respond(msg)

    @request("expiration-update", form={"expiration": float})
    def expiration_update(self, msg):
        value = msg.body["expiration"]
        with refusing():
            inventory = self.state.base.with_expiration(value)
        if value != self.state.base.expiration:
            self.state.replace(inventory)
            self._record("resource-update", {"expiration": value}, ops=_put(inventory.R))
            self._update(expiration=value)
        self.respond(msg)

    def _define(self, method):
        self._record("resource-define", {"method": method}, _put(self.state.base.R))

    @request("reload", form={"R": dict, "force?": bool})
    def reload(self, msg):
        if self.acquired.request is not None:
            raise OSError(errno.EBUSY, "resources are busy (unload scheduler?)")
        with refusing():
            inventory = Inventory(msg.body["R"])
            size = self.kernel.size
            if inventory.ranks[-1] > size and not msg.body.get("force"):
                raise ValueError(f"R has ranks beyond size={size} (override with -f)")
            self.state.define(inventory, self.ctx.config)
        self.shrinks = True
        self._define("reload")
        self.respond(msg)

    def configure(self, config):
        # A change of resource.exclude has no effect until this module is reloaded.
        sources.check(config)

    @request("offline")
    def offline(self, msg):
        self._take_offline(self._targets(msg), self.shrinks)
        self.respond(msg)

    def _take_offline(self, ranks, shrinks):
        self.state.forced_offline = idset.union(self.state.forced_offline, ranks)
        self._update(gone=ranks if shrinks else ())

    @request("online")
    def online(self, msg):
        ranks = self._targets(msg)
        self.state.forced_offline = idset.difference(self.state.forced_offline, ranks)
        self._update()
        self.respond(msg)

    # -- queries -------------------------------------------------------------------------------

    @request("status", guest=True)
    def status(self, msg):
        state = self.state
        online = state.online
        answer = {
            "R": redacted(state.base.R),
            "drain": state.drains.status(),
            "online": idset.encode(online),
            "offline": idset.encode(idset.difference(state.base.ranks, online)),
            "exclude": idset.encode(state.excluded),
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
        self.respond(msg, {"all": redacted(view.R), "down": down, "allocated": allocated})


def _ranks(bounds):
    return f"rank{'s' if idset.count(bounds) > 1 else ''} {idset.encode(bounds)}"


def _put(R):
    """The KVS operations that store R."""
    return [["put", "resource.R", json.dumps(R, separators=(",", ":"))]]
