"""What administrators ask of the resource service: drain, exclude, properties, another inventory."""

import errno
import json

from flux_embedded.formats import idset
from flux_embedded.kernel.service import request
from flux_embedded.services.resource import drains, sources
from flux_embedded.services.resource.acquire import property_changes
from flux_embedded.services.resource.inventory import Inventory
from flux_embedded.services.resource.state import targets

_OVERWRITE = {
    "none": drains.KEEP,
    "update": drains.KEEP,
    "overwrite": drains.REASON,
    "force-overwrite": drains.ALL,
}
#: What drain and undrain take.
_DRAIN = {"targets": str, "mode?": str, "reason?": str}


class Administration:
    """The part of the service `Resource` that changes the state on request.

    It uses the service's `state`, `journal`, `acquired` and `shrinks`, and `_update`, which tells the
    scheduler what has changed.
    """

    def _targets(self, msg):
        body = msg.body or {}
        try:
            return targets(body.get("targets", body.get("ranks")), self.state.base)
        except ValueError as exc:
            raise OSError(errno.EINVAL, str(exc)) from None

    @request("drain", form=_DRAIN)
    def drain(self, msg):
        body = msg.body
        ranks, mode, reason = self._targets(msg), body.get("mode") or "none", body.get("reason")
        if mode not in _OVERWRITE:
            raise OSError(errno.EINVAL, "Invalid mode specified")
        already = idset.intersect(ranks, self.state.drains.ranks)
        if already and mode == "none":
            raise FileExistsError(errno.EEXIST, f"{_ranks(already)} already drained")
        self._drain(ranks, reason, _OVERWRITE[mode])
        self._update()
        self.respond(msg)

    def _drain(self, ranks, reason, overwrite):
        self.state.drains.drain(ranks, self.now(), reason, overwrite)
        context = {"idset": idset.encode(ranks), "nodelist": self.state.base.nodelist(ranks)}
        if reason:
            context["reason"] = reason
        context["overwrite"] = overwrite
        self.journal.post("drain", context)

    @request("undrain", form=_DRAIN)
    def undrain(self, msg):
        body = msg.body
        ranks, mode = self._targets(msg), body.get("mode") or "none"
        if mode not in _OVERWRITE:
            raise OSError(errno.EINVAL, f"invalid undrain mode '{mode}' specified")
        others = idset.difference(ranks, self.state.drains.ranks)
        if others and mode == "none":
            raise FileExistsError(errno.EEXIST, f"{_ranks(others)} not drained")
        self.state.drains.undrain(ranks)
        context = {"idset": idset.encode(ranks), "nodelist": self.state.base.nodelist(ranks)}
        if body.get("reason"):
            context["reason"] = body["reason"]
        context["overwrite"] = _OVERWRITE[mode]
        self.journal.post("undrain", context)
        self._update()
        self.respond(msg)

    @request("exclude")
    def exclude(self, msg):
        self.state.excluded = idset.union(self.state.excluded, self._targets(msg))
        self._update()
        self.respond(msg)

    @request("include")
    def include(self, msg):
        ranks = self._targets(msg)
        if idset.intersect(ranks, self.state.config_excluded):
            text = (
                "excluded by configuration: change resource.exclude and reload the resource module"
            )
            raise OSError(
                errno.EINVAL,
                f"{_ranks(idset.intersect(ranks, self.state.config_excluded))}: {text}",
            )
        self.state.excluded = idset.difference(self.state.excluded, ranks)
        self._update()
        self.respond(msg)

    @request("property-add")
    def property_add(self, msg):
        self._change_property(msg, True)

    @request("property-remove")
    def property_remove(self, msg):
        self._change_property(msg, False)

    def _change_property(self, msg, add):
        ranks = self._targets(msg)
        try:
            inventory = self.state.with_property((msg.body or {}).get("name"), ranks, add)
        except ValueError as exc:
            raise OSError(errno.EINVAL, str(exc)) from None
        self._replace(inventory)
        self.respond(msg)

    @request("shrink")
    def shrink(self, msg):
        ranks = self._targets(msg)
        inventory = self.state.base.without(ranks)
        if not inventory.ranks:
            raise OSError(errno.EINVAL, "no resources would be left")
        if self.state.base.has_topology:
            # TreePool takes ranks 0 to n-1 only: without this one the next scheduler could not start.
            self._take_offline(ranks, True)
        else:
            self._replace(inventory, gone=ranks)
        self.respond(msg)

    @request("expiration")
    def expiration(self, msg):
        value = (msg.body or {}).get("expiration")
        try:
            inventory = self.state.base.with_expiration(value)
        except ValueError as exc:
            raise OSError(errno.EINVAL, str(exc)) from None
        if value != self.state.base.expiration:
            self.state.replace(inventory)
            self.journal.post(
                "resource-update",
                {"expiration": value},
                ops=[["put", "resource.R", encode_R(inventory.R)]],
            )
            self._update(expiration=value)
        self.respond(msg)

    def _replace(self, inventory, gone=()):
        """The inventory changes under the scheduler: it is told what, and R is written anew."""
        former = self.state.view.properties
        self.state.replace(inventory)
        self._define("reload")
        # Properties of ranks that go are no change of their own.
        left = {name: idset.difference(bounds, gone) for name, bounds in former.items()}
        self._update(gone, property_changes(left, self.state.view.properties))

    def _define(self, method):
        R = self.state.base.R
        self.journal.post(
            "resource-define", {"method": method}, R, [["put", "resource.R", encode_R(R)]]
        )

    @request("reload")
    def reload(self, msg):
        body = msg.body or {}
        if self.acquired.request is not None:
            raise OSError(errno.EBUSY, "resources are busy (unload scheduler?)")
        try:
            R = body["R"] if "R" in body else sources.read_json(body.get("path"), "path")
            inventory = Inventory(json.loads(R) if isinstance(R, str) else R)
            size = self.kernel.size
            if inventory.ranks[-1] > size and not body.get("force"):
                # The real service's words, to the letter.
                raise ValueError(
                    f"resource object contains ranks execeeding size={size} (override with -f))"
                )
            self.state.define(inventory, self.ctx.config)
        except ValueError as exc:
            raise OSError(errno.EINVAL, str(exc)) from None
        self.shrinks = True
        self._define("reload")
        self.respond(msg)

    @request("config-reload")
    def config_reload(self, msg):
        # A change of resource.exclude has no effect until this module is loaded anew.
        sources.check(msg.body or {})
        self.respond(msg)

    @request("offline")
    def offline(self, msg):
        self._take_offline(self._targets(msg), self.shrinks)
        self.respond(msg)

    def _take_offline(self, ranks, shrinks):
        self.state.forced_offline = idset.union(self.state.forced_offline, ranks)
        self.journal.post("offline", {"idset": idset.encode(ranks)})
        self._update(gone=ranks if shrinks else ())

    @request("online")
    def online(self, msg):
        ranks = self._targets(msg)
        self.state.forced_offline = idset.difference(self.state.forced_offline, ranks)
        self.journal.post("online", {"idset": idset.encode(ranks)})
        self._update()
        self.respond(msg)


def _ranks(bounds):
    return f"rank{'s' if idset.count(bounds) > 1 else ''} {idset.encode(bounds)}"


def encode_R(R):
    """Return R as the text that goes into the KVS."""
    return json.dumps(R, separators=(",", ":"))
