# SPDX-License-Identifier: LGPL-3.0-or-later
"""The resource service (RFC 28, RFC 44), service ``resource``.

``targets`` is an idset of ranks or a hostlist (``ranks`` is another name for it). Methods beyond the RFCs are this project's own.

=====================  ===========================================================================
method                 payload -> response
=====================  ===========================================================================
acquire (S)            -> ``{resources: R, up: IDSET}``, then changes: ``up``, ``down``,
                       ``shrink``, ``property-add``, ``property-remove``, ``expiration``. One holder
                       at a time (EBUSY); its disconnect ends the stream
drain                  ``{targets, reason?}`` -> nothing; EEXIST if one is drained already, with a reason
undrain                ``{targets}`` -> nothing; EEXIST if one is not drained
offline, online        ``{targets}`` -> nothing: as if their brokers had gone, came back. A
                       rank that was offline is not given back to a scheduler that has been told to
                       forget it (``shrink``) before it acquires anew
shrink                 ``{targets}`` -> nothing: the ranks leave the holder's inventory for good, and
                       are offline: a later acquire gets them in ``resources`` and not in ``up``
property-add, -remove  ``{name, targets}`` -> nothing
expiration-update      ``{expiration}`` -> nothing: end of all resources, seconds since the epoch or 0
reload                 ``{R, force?}`` -> nothing: another inventory; EBUSY while a scheduler
                       is loaded. Without force no rank may be beyond the instance's size
status                 -> ``{R, drain: {IDSET: {timestamp, reason}}, online, offline, exclude, torpid}``
sched-status           -> ``{all: R, down: R, allocated: R}``; guests too
=====================  ===========================================================================
"""

import errno
import json
from syslog import LOG_DEBUG, LOG_ERR

from flux_engine.formats import eventlog, idset
from flux_engine.formats.rset import RSet, redacted
from flux_engine.kernel.service import Service, refusing, request
from flux_engine.resource import sources
from flux_engine.resource.acquire import AcquireStream, property_changes
from flux_engine.resource.inventory import Inventory
from flux_engine.resource.state import ResourceState, targets

#: The payload of drain and undrain.
_DRAIN = {"targets": str, "reason?": str, "mode?": str}

_DRAINS = ("drain", "undrain")

#: Mode of these -> `overwrite` of their events (RFC 44): 1 replaces the reason of a drained rank, 2 also its time.
_MODES = {None: 0, "update": 0, "overwrite": 1, "force-overwrite": 2}


class Resource(Service):
    """``resource``; with the argument ``noverify``, the hosts of ranks are not compared with the inventory."""

    name = "resource"

    def __init__(self, ctx, *args):
        super().__init__(ctx, *args)
        for arg in args:
            if arg not in ("noverify", "monitor-force-up"):
                raise OSError(
                    errno.EINVAL, f"resource: unknown argument {arg!r}: expected noverify"
                )
        self.state = ResourceState(ctx.kernel.size)
        self.acquired = ctx.acquired = AcquireStream(self, self.state)
        self.shrinks = True  # a rank that goes offline is gone for good

    # -- start ---------------------------------------------------------------------------------

    def begin(self):
        method = None
        try:
            R, method = self._find_R()
            self.state.define(Inventory(R), self.ctx.config)
            former = eventlog.parse(self.ctx.kvs.find("resource.eventlog") or "")
        except ValueError as exc:
            text = f"{method}: {exc}" if method else str(exc)
            self.log(LOG_ERR, text)  # the user who loads a module sees only an errno
            raise OSError(errno.EINVAL, text) from None
        self.shrinks = method != "configuration"
        for event in former:
            if event["name"] in _DRAINS:
                self._replay(event["name"], event["timestamp"], event["context"])
        monitor = self.rpc("overlay.monitor", streaming=True)
        self.state.joined = idset.decode(monitor.body["online"])
        self._record("resource-define", {"method": method}, _put(R) if method != "kvs" else [])
        self._verify(self.state.joined)
        monitor.reset()
        monitor.then(self._monitored)

    def _find_R(self):
        """Return R and its source, by the method names of RFC 44."""
        R = sources.from_config(self.ctx.config)
        if R is not None:
            return R, "configuration"
        text = self.ctx.kvs.find("resource.R")
        if text is not None:
            return json.loads(text), "kvs"
        R = sources.fake_resources(self.ctx.config)
        if R is None and self.ctx.job_R is not None:
            return self.ctx.job_R, "job-info"
        R = R or sources.discover([self.ctx.hostname] * len(self.ctx.hosts))
        return R, "dynamic-discovery"

    def _record(self, name, context, ops=()):
        """Put an event into the eventlog, after other operations on the KVS."""
        line = eventlog.encode(self.kernel.time, name, context)
        self.ctx.kvs.commit([*ops, ["append", "resource.eventlog", line]])

    def _replay(self, name, timestamp, context):
        """Restore a drain from the eventlog of a former run of the service."""
        ranks = idset.intersect(idset.decode(context.get("idset", "")), self.state.base.ranks)
        how = context.get("reason"), context.get("overwrite", 0)
        self.state.drains.change(name, ranks, timestamp, *how)

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
        self.acquired.update(gone=offline if self.shrinks else ())

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
                self.ctx.ring.append(LOG_ERR, self.name, f"draining: {reason}", rank)
                self._change_drains("drain", [rank, rank + 1], reason)

    # -- the scheduler -------------------------------------------------------------------------

    @request("acquire", later=True)
    def acquire(self, msg):
        self.acquired.open(msg)

    @request("disconnect", guest=True)
    def disconnect(self, msg):
        if self.acquired.close(msg.sender):
            self.log(LOG_DEBUG, "aborted 1 resource.acquire(s)")

    def stop(self):
        if self.acquired.request is not None:
            text = "the resource module was unloaded"
            self.respond_error(self.acquired.request, errno.ECANCELED, text)

    # -- administration --------------------------------------------------------------------------

    def _targets(self, msg):
        """The ranks that a request names, as bounds."""
        body = msg.body or {}
        with refusing():
            return targets(body.get("targets", body.get("ranks")), self.state.base)

    @request("drain", form=_DRAIN)
    @request("undrain", form=_DRAIN)
    def drain(self, msg):
        name, ranks, mode = msg.topic.partition(".")[2], self._targets(msg), msg.body.get("mode")
        if mode not in _MODES:
            raise OSError(errno.EINVAL, f"invalid mode {mode!r} specified")
        drains = self.state.drains
        if name == "drain":
            wrong, text = idset.intersect(ranks, drains.explained()), "already drained"
        else:
            wrong, text = idset.difference(ranks, drains.ranks), "not drained"
        if wrong and mode is None:
            many = "s" if idset.count(wrong) > 1 else ""
            raise FileExistsError(errno.EEXIST, f"rank{many} {idset.encode(wrong)} {text}")
        self._change_drains(name, ranks, msg.body.get("reason"), _MODES[mode])
        self.acquired.update()

    def _change_drains(self, name, ranks, reason, overwrite=0):
        self.state.drains.change(name, ranks, self.kernel.time, reason, overwrite)
        context = {"idset": idset.encode(ranks), "nodelist": self.state.base.nodelist(ranks)}
        more = {"reason": reason} if reason else {}
        self._record(name, {**context, **more, "overwrite": overwrite})

    @request("property-add")
    @request("property-remove")
    def change_property(self, msg):
        ranks, add = self._targets(msg), msg.topic == "resource.property-add"
        former = self.state.view.properties
        with refusing():
            inventory = self.state.base.with_property((msg.body or {}).get("name"), ranks, add)
        self.state.replace(inventory)
        self._define("reload")
        self.acquired.update(properties=property_changes(former, self.state.view.properties))

    @request("shrink")
    def shrink(self, msg):
        ranks = self._targets(msg)
        if not idset.difference(self.state.base.ranks, ranks):
            raise OSError(errno.EINVAL, "no resources would be left")
        # Like a real Flux's lost brokers, they stay in R: a later scheduler finds their jobs running.
        self._take_offline(ranks, True)

    @request("expiration-update", form={"expiration": float})
    def expiration_update(self, msg):
        value = msg.body["expiration"]
        with refusing():
            inventory = self.state.base.with_expiration(value)
        if value != self.state.base.expiration:
            self.state.replace(inventory)
            self._record("resource-update", {"expiration": value}, ops=_put(inventory.R))
            self.acquired.update(expiration=value)

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

    def configure(self, config):
        # A change of resource.exclude has no effect until this module is reloaded.
        sources.check(config)

    @request("offline")
    @request("online")
    def take_offline(self, msg):
        ranks = self._targets(msg)
        if msg.topic == "resource.online":
            self.state.forced_offline = idset.difference(self.state.forced_offline, ranks)
            self.acquired.update()
        else:
            self._take_offline(ranks, self.shrinks)

    def _take_offline(self, ranks, shrinks):
        self.state.forced_offline = idset.union(self.state.forced_offline, ranks)
        self.acquired.update(gone=ranks if shrinks else ())

    # -- queries -------------------------------------------------------------------------------

    @request("status", guest=True)
    def status(self, msg):
        state = self.state
        online = state.online
        return {
            "R": redacted(state.base.R),
            "drain": state.drains.status(),
            "online": idset.encode(online),
            "offline": idset.encode(idset.difference(state.base.ranks, online)),
            "exclude": idset.encode(state.excluded),
            "torpid": "",
        }

    @request("sched-status", guest=True, later=True)
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


def _put(R):
    """The KVS operations that store R."""
    return [["put", "resource.R", json.dumps(R, separators=(",", ":"))]]
