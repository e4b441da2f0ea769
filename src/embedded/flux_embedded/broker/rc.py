# SPDX-License-Identifier: LGPL-3.0-or-later
"""The default start of an instance, without a start script, and its shutdown.

What ``flux modprobe rc1`` and ``rc3`` are in a real instance, in the instance's own task, a second faster.
"""

import errno
import json

from flux_embedded.services.resource.fake import fake_resources
from flux_engine.formats import eventlog
from flux_engine.formats.dotted import lookup_path
from flux_engine.formats.levels import LOG_ERR

KVS = ("content", "content-sqlite", "kvs", "kvs-watch", "heartbeat")
JOBS = ("job-manager", "job-ingest", "job-info", "job-list", "job-exec", "cron")

#: Seconds a module has to end when the instance shuts down.
UNLOAD_TIMEOUT = 10.0


class StartError(Exception):
    """A step failed; the text goes to the log."""


class Startup:
    """Loads modules; its caller is a task of the kernel and may block.

    Args:
        h (Flux): handle of that task
        ctx (BrokerContext): the broker
    """

    def __init__(self, h, ctx):
        self.h = h
        self.ctx = ctx

    def load(self, name, *args):
        """Load a module with its arguments and the configured ones; StartError if that fails."""
        args = [*args, *lookup_path(self.ctx.config, f"modules.{name}.args", [])]
        try:
            self.h.rpc("module.load", {"path": name, "args": list(args)}).get()
        except OSError as exc:
            raise StartError(f"load {name}: {exc.strerror}") from None

    def put(self, key, text):
        """Write a key to the KVS."""
        self.ctx.kvs.commit([["put", key, text]])

    def put_resources(self, R):
        """Write R to the KVS, where the resource service reads it."""
        self.put("resource.R", json.dumps(R, separators=(",", ":")))

    def run(self):
        """Load the services, on the configured resources or this host's, and the scheduler."""
        for name in KVS:
            self.load(name)
        context = {"version": 1, "core_version": self.ctx.attrs.get("version")}
        self.put("admin.eventlog", eventlog.encode(self.ctx.time(), "start", context))
        try:
            R = fake_resources(self.ctx.config)
        except ValueError as exc:
            raise StartError(str(exc)) from None
        if R is not None:
            self.put_resources(R)
        scheduler = lookup_path(self.ctx.config, "modules.alternatives.sched", "sched-simple")
        for name in ("resource", *JOBS, scheduler):
            self.load(name)


def unload(h, ctx, names):
    """Remove modules, one after the other; those a user removed meanwhile are gone already."""
    for name in names:
        try:
            h.rpc("module.remove", {"name": name}).wait_for(UNLOAD_TIMEOUT).get()
        except FileNotFoundError:
            pass
        except TimeoutError:
            ctx.log(LOG_ERR, f"rc3.0: remove {name}: it does not end")


def wind_down(h):
    """Stop scheduling, end the running jobs and wait until nothing runs; services may be missing."""
    for topic, payload in (
        ("job-manager.queue-start", {"start": False, "all": True}),
        (
            "job-manager.raiseall",
            {
                "dry_run": False,
                "userid": -1,
                "states": 48,
                "type": "cancel",
                "severity": 0,
                "note": "instance is shutting down",
            },
        ),
        ("job-manager.idle", {}),
    ):
        try:
            h.rpc(topic, payload).get()
        except OSError as exc:
            if exc.errno not in (errno.ENOSYS, errno.EHOSTUNREACH):
                raise
