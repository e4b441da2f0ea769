# SPDX-License-Identifier: LGPL-3.0-or-later
"""The scheduler's other peers: resource, KVS, job-info and the broker's services."""

import errno
import itertools
from syslog import LOG_WARNING

from flux.simulate.engine.loop import Peer
from flux_engine.kernel.direct import Names
from flux_engine.resource.peer import ResourcePeer


class Resource(Peer, ResourcePeer):
    """``resource``, with a history of the available ranks."""

    def __init__(self, kernel, R, config):
        super().__init__(kernel, R, config, patience=0.0)
        #: [(seconds since the epoch, bounds of the ranks available from then on)]
        self.history = [(kernel.time, self.state.up)]

    def changed(self, gone=()):
        self.history.append((self.kernel.time, self.state.up))
        super().changed(gone)

    def drain(self, ranks, reason=None):
        """Drain ranks (bounds); jobs on them continue."""
        self.state.drains.drain(ranks, self.kernel.time, reason)
        self.changed()

    def undrain(self, ranks):
        """Undrain ranks (bounds)."""
        self.state.drains.undrain(ranks)
        self.changed()


class Lookup(Peer):
    """The service `name`, made of functions (`Peer.serve`)."""

    def __init__(self, kernel, name, **functions):
        self.name = name
        super().__init__(kernel)
        self.serve(functions)


def start_broker(kernel, attributes, config, manager):
    """Start the broker's services that a module uses, and ``job-info``, which has R and jobspec of
    active jobs; `attributes` is {name: value}."""

    def attribute(payload):
        name = payload["name"]
        if name not in attributes:
            raise OSError(errno.ENOENT, f"attribute {name} is not set")
        return {"value": attributes[name], "flags": 0}

    def nothing(payload):
        return {}

    def no_key(payload):
        raise OSError(errno.ENOENT, f"{payload.get('key')}: a simulation keeps no KVS")

    def commit(payload):
        return {"rootseq": next(version), "rootref": ""}

    def lookup(payload):
        active = manager.jobs.get(payload["id"])
        known = {} if active is None else manager.known_of(active)
        for key in payload["keys"]:
            if known.get(key) is None:
                raise OSError(errno.ENOENT, "invalid key")
        return {"id": payload["id"], **{key: known[key] for key in payload["keys"]}}

    version = itertools.count(1)
    Names(kernel)
    Lookup(kernel, "attr", get=attribute)
    Lookup(kernel, "config", get=lambda payload: config)
    # Events are not published.
    Lookup(kernel, "event", subscribe=nothing, unsubscribe=nothing, publish=nothing)
    # Nothing is stored: R is read from job-info.
    Lookup(kernel, "kvs", commit=commit, lookup=no_key)
    Lookup(kernel, "job-info", lookup=lookup)


class Log(Peer):
    """``log``: keeps entries of level warning and worse as `lines`: (seconds since the epoch, level, text)."""

    name = "log"

    def __init__(self, kernel):
        super().__init__(kernel)
        self.lines = []
        self.methods = {"append": lambda msg: self.add(msg.body["level"], msg.body["text"])}

    def add(self, level, text):
        """Add an entry of the present time."""
        if level <= LOG_WARNING:
            self.lines.append((self.kernel.time, level, text))
