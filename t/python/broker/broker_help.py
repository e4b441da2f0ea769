# SPDX-License-Identifier: LGPL-3.0-or-later
"""Helpers of the broker's tests: small module files, and an instance without job services."""

import textwrap

from in_process import InProcess

from flux_embedded.broker.logring import LEVELS

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


class Broker(InProcess):
    """An instance with only the broker in it, and a directory for module files."""

    def __init__(self, directory, services=(), **options):
        self.directory = directory
        super().__init__(services=services, **options)

    def file(self, name, text):
        """Write a module file; returns its path."""
        path = self.directory / name
        path.write_text(textwrap.dedent(text))
        return str(path)

    def load(self, filename, text, *args, **more):
        return self.call(
            "module.load", {"path": self.file(filename, text), "args": list(args), **more}
        )

    def loaded(self):
        return [mod["name"] for mod in self.call("module.list")["mods"]]

    def log(self):
        """The log as SOURCE.LEVEL: TEXT lines."""
        return [
            f"{entry.name}.{LEVELS[entry.level]}: {entry.text}" for entry in self.ctx.ring.entries()
        ]
