# SPDX-License-Identifier: LGPL-3.0-or-later
"""The other services a scheduler talks to: resource, KVS, job-info, and the broker's own."""

import errno
import itertools
import marshal

from flux.simulate.engine.loop import Peer
from flux_engine.formats import idset
from flux_engine.kernel import message
from flux_engine.resource.acquire import AcquireStream
from flux_engine.resource.inventory import Inventory
from flux_engine.resource.state import ResourceState, targets


class Resource(Peer):
    """``resource``: the acquire stream (RFC 28) over the same state as the instance's service.

    Args:
        kernel (Loop): the kernel
        R (dict): the inventory
        config (dict): ``resource.exclude`` and ``queues`` count
    """

    name = "resource"

    def __init__(self, kernel, R, config):
        super().__init__(kernel)
        self.state = ResourceState(0)
        self.state.define(Inventory(R), config)
        self.acquired = AcquireStream(self, patience=0.0)
        self.methods = {"acquire": self._acquire}
        #: [(seconds since the epoch, bounds of the ranks that may be used from then on)]
        self.history = [(kernel.time, self.state.up)]

    def _update(self, gone=()):
        self.history.append((self.kernel.time, self.state.up))
        self.acquired.update(self.state.up, gone=gone)

    def _acquire(self, msg):
        if not msg.flags & message.FLAG_STREAMING:
            raise OSError(errno.EPROTO, "resource.acquire requires a streaming request")
        view = self.state.view
        self.acquired.open(msg, view.R, view.ranks, self.state.up)

    def released(self, sender):
        """The scheduler is gone."""
        self.acquired.close(sender)

    def ranks_of(self, text):
        """Bounds of the ranks that an idset or a hostlist names.

        Raises:
            ValueError: it is neither, or names what is not there
        """
        return targets(text, self.state.base)

    def drain(self, ranks, reason=None):
        """Take ranks (bounds) out of use; what runs there goes on."""
        self.state.drains.drain(ranks, self.kernel.time, reason)
        self._update()

    def undrain(self, ranks):
        """Undo `drain`."""
        self.state.drains.undrain(ranks)
        self._update()

    def down(self, ranks):
        """Ranks go offline."""
        self.state.forced_offline = idset.union(self.state.forced_offline, ranks)
        self._update()

    def up(self, ranks):
        """Ranks come back."""
        self.state.forced_offline = idset.difference(self.state.forced_offline, ranks)
        self._update()

    def shrink(self, ranks):
        """Ranks leave for good."""
        self.state.replace(self.state.base.without(ranks))
        self._update(ranks)

    @property
    def available(self):
        """Text of the ranks that may be used, an idset."""
        return idset.encode(self.state.up)


class JobInfo(Peer):
    """``job-info``: R and jobspec of active jobs."""

    name = "job-info"

    def __init__(self, kernel, manager):
        super().__init__(kernel)
        self.manager = manager
        self.methods = {"lookup": self._lookup}

    def _lookup(self, msg):
        body = msg.body
        active = self.manager.jobs.get(body["id"])
        answer = {"id": body["id"]}
        for key in body["keys"]:
            value = None
            if active is not None and key in ("R", "jobspec"):
                value = active.R if key == "R" else marshal.loads(active.jobspec)
            if value is None:
                raise OSError(errno.ENOENT, "invalid key")
            answer[key] = value
        self.respond(msg, answer)


class Log(Peer):
    """``log``: keeps what is urgent.

    Args:
        kernel (Loop): the kernel
        level (int): the least urgent syslog level that is kept

    Attributes:
        lines (list): (seconds since the epoch, level, text)
    """

    name = "log"

    def __init__(self, kernel, level=4):
        super().__init__(kernel)
        self.level = level
        self.lines = []
        self.methods = {"append": self._append}

    def _append(self, msg):
        body = msg.body
        if body["level"] <= self.level:
            self.lines.append((self.kernel.time, body["level"], body["text"]))


class Broker(Peer):
    """A service whose answers do not depend on what happens; arguments as for `Peer.serve`, after its name."""

    def __init__(self, kernel, name, functions):
        self.name = name
        super().__init__(kernel)
        self.serve(functions)


def make_broker(kernel, attributes, config):
    """Make ``attr``, of a dict of attributes; ``config``, of a configuration; ``event``, in which nobody publishes any; and ``kvs``,
    which keeps nothing: R comes back from `JobInfo`."""

    def attribute(body):
        name = body["name"]
        if name not in attributes:
            raise OSError(errno.ENOENT, f"attribute {name} is not set")
        return {"value": attributes[name], "flags": 0}

    def lookup(body):
        raise OSError(errno.ENOENT, f"{body.get('key')}: a simulation keeps no KVS")

    version = itertools.count(1)
    Broker(kernel, "attr", {"get": attribute})
    Broker(kernel, "config", {"get": lambda body: config})
    Broker(kernel, "event", dict.fromkeys(("subscribe", "unsubscribe", "publish"), lambda body: {}))
    commit = lambda body: {"rootseq": next(version), "rootref": ""}
    Broker(kernel, "kvs", {"commit": commit, "lookup": lookup})
