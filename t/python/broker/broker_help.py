# SPDX-License-Identifier: LGPL-3.0-or-later
"""Helpers of the broker's tests: small module files, and an instance without job services."""

import textwrap

import pytest

from flux_embedded.broker.instance import Instance
from flux_engine.kernel.clock import VirtualClock
from flux_engine.kernel.handle import Flux
from flux_engine.kernel.task import Task

GOOD = """
    from flux.brokermod import BrokerModule, request_handler
    class M(BrokerModule):
        @request_handler("hello")
        def hello(self, msg):
            self.handle.respond(msg, {"name": self.name, "args": list(self.args)})
        @request_handler("park")
        def park(self, msg):
            self.parked = msg
        @request_handler("crash")
        def crash(self, msg):
            raise RuntimeError("handler crash")
        @request_handler("stoperr")
        def stoperr(self, msg):
            self.stop_error()
        @request_handler("stopok")
        def stopok(self, msg):
            self.stop()
        @request_handler("block")
        def block(self, msg):
            self.handle.rpc("peer.answer-later").get()
            self.handle.respond(msg, {})
"""


class Broker:
    """An instance with only the broker in it, and a directory for module files."""

    def __init__(self, directory, **options):
        self.directory = directory
        options.setdefault("services", ())
        self.instance = Instance(clock=VirtualClock(), **options)
        self.instance.start()
        self.kernel = self.instance.kernel
        self.h = self.instance.handle

    def file(self, name, text):
        """Write a module file; returns its path."""
        path = self.directory / name
        path.write_text(textwrap.dedent(text))
        return str(path)

    def call(self, topic, payload=None, **kwargs):
        return self.h.rpc(topic, payload, **kwargs).get()

    def fails(self, topic, payload=None, **kwargs):
        """Return (errno, text) of a request that must fail."""
        with pytest.raises(OSError) as caught:
            self.call(topic, payload, **kwargs)
        return caught.value.errno, caught.value.strerror

    def load(self, filename, text, *args, **more):
        return self.call(
            "module.load", {"path": self.file(filename, text), "args": list(args), **more}
        )

    def loaded(self):
        return [mod["name"] for mod in self.call("module.list")["mods"]]

    def log(self):
        """The log as SOURCE.LEVEL: TEXT lines."""
        from flux_engine.formats.levels import LEVELS

        return [
            f"{entry.name}.{LEVELS[entry.level]}: {entry.text}"
            for entry in self.instance.ctx.ring.entries()
        ]

    def settle(self):
        self.kernel.run_until_idle()

    def client(self, name="client", **credentials):
        """Another client of the same instance."""
        return Flux(Task(self.kernel, name, **credentials))
