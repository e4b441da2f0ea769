# SPDX-License-Identifier: LGPL-3.0-or-later
"""An instance with kvs and resource, and a client that records its stream."""

import json

from in_process import InProcess, Stream

from flux.scheduler.testing import make_R
from flux_engine.formats import eventlog


def vm_R(ranks="0-3", cores="0-1", hosts="vm,vm,vm,vm", **more):
    """R of ranks on hosts that all have one name, as in a test instance on one machine."""
    return make_R(ranks, cores, hosts=hosts, **more)


class Holder(Stream):
    """A client that acquires resources."""

    def __init__(self, instance, name="holder"):
        self.h = instance.client(name)
        super().__init__(self.h, "resource.acquire")

    def leave(self):
        self.h.task.close()
        self.kernel.run_until_idle()


class Resources(InProcess):
    """An instance with a resource service in it.

    With ``online=False`` no rank has come up yet: `bring_up` does that, as after the start scripts.
    """

    def __init__(self, size=4, R=None, services=("kvs", "resource"), online=True, **options):
        if not online:
            self.bring_up = lambda: None
        options.setdefault("hosts", ["vm"] * size)
        super().__init__(size=size, R=R, services=services, **options)
        if not online:
            del self.bring_up

    def acquire(self, name="holder"):
        return Holder(self, name)

    def holder(self):
        """A client that has read the first response."""
        holder = self.acquire()
        assert holder.take()
        return holder

    def drained(self):
        """The reasons of drained ranks."""
        return {ranks: info["reason"] for ranks, info in self.call("status")["drain"].items()}

    def call(self, method, _payload=None, **payload):
        topic = method if "." in method else f"resource.{method}"
        return super().call(topic, _payload or payload)

    def events(self):
        """The eventlog in the KVS, as (name, context) pairs."""
        text = self.call("kvs.lookup", key="resource.eventlog")["value"]
        return [(event["name"], event.get("context", {})) for event in eventlog.parse(text)]

    def store_R(self, R):
        self.call("kvs.commit", ops=[["put", "resource.R", json.dumps(R)]])

    def stored_R(self):
        return json.loads(self.call("kvs.lookup", key="resource.R")["value"])

    def reload_module(self, *args):
        """Unload and load the service, with no scheduler there."""
        self.unload("resource")
        self.load_module("resource", *args)
