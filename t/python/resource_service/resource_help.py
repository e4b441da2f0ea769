# SPDX-License-Identifier: LGPL-3.0-or-later
"""Helpers of the resource service's tests: an instance with kvs and resource, and a client that
records its stream."""

import pytest

from flux.scheduler.testing import make_R
from flux_embedded.broker.instance import Instance
from flux_engine.kernel.clock import VirtualClock
from flux_engine.kernel.handle import Flux
from flux_engine.kernel.task import Task


def vm_R(ranks="0-3", cores="0-1", hosts="vm,vm,vm,vm", **more):
    """R of ranks on hosts that all have one name, as in a test instance on one machine."""
    return make_R(ranks, cores, hosts=hosts, **more)


class Holder:
    """A client that acquires resources."""

    def __init__(self, instance, name="holder"):
        self.instance = instance
        self.h = Flux(Task(instance.kernel, name))
        self.future = self.h.rpc("resource.acquire", flags=2)

    def sent(self):
        """The payloads received since the last call."""
        self.instance.kernel.run_until_idle()
        found = []
        while self.future.is_ready():
            found.append(self.future.get())
            self.future.reset()
        return found

    def leave(self):
        self.h.task.close()
        self.instance.kernel.run_until_idle()


class Resources:
    """An instance with a resource service in it.

    With ``online=False`` no rank has come up yet.
    """

    def __init__(self, size=4, R=None, services=("kvs", "resource"), online=True, **options):
        options.setdefault("hosts", ["vm"] * size)
        self.instance = Instance(size=size, clock=VirtualClock(), R=R, services=services, **options)
        if not online:
            self.instance.bring_up = lambda: None
        self.instance.start()
        self.h = self.instance.handle

    def bring_up(self):
        """The ranks come up, as after the start scripts."""
        Instance.bring_up(self.instance)

    def acquire(self, name="holder"):
        return Holder(self.instance, name)

    def call(self, method, _payload=None, **payload):
        topic = method if "." in method else f"resource.{method}"
        return self.h.rpc(topic, _payload or payload).get()

    def fails(self, method, **payload):
        """Return (errno, text) of a request that must fail."""
        with pytest.raises(OSError) as caught:
            self.call(method, **payload)
        return caught.value.errno, caught.value.strerror

    def events(self):
        """The eventlog in the KVS, as (name, context) pairs."""
        from flux_engine.formats import eventlog

        text = self.call("kvs.lookup", key="resource.eventlog")["value"]
        return [(event["name"], event.get("context", {})) for event in eventlog.parse(text)]

    def store_R(self, R):
        import json

        self.call("kvs.commit", ops=[["put", "resource.R", json.dumps(R)]])

    def stored_R(self):
        import json

        return json.loads(self.call("kvs.lookup", key="resource.R")["value"])

    def reload_module(self, *args):
        """Unload and load the service, with no scheduler there."""
        self.instance.unload("resource")
        self.instance.load_module("resource", *args)
