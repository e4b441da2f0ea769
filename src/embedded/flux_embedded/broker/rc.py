# SPDX-License-Identifier: LGPL-3.0-or-later
"""The default start of an instance, without a start script, and its shutdown.

The equivalent of ``flux modprobe rc1`` and ``rc3`` of a real instance, in the instance's own task: a second faster.
"""

from syslog import LOG_ERR

from flux_engine.formats.dotted import lookup_path
from flux_engine.kernel.message import NO_SERVICE

KVS = ("content", "content-sqlite", "kvs", "kvs-watch", "heartbeat")
JOBS = ("job-manager", "job-ingest", "job-info", "job-list", "job-exec", "cron")

#: Seconds a module has to end when the instance shuts down.
UNLOAD_TIMEOUT = 10.0


def load(h, ctx, name, *args):
    """Load a module with its arguments and the configured ones; OSError if that fails."""
    args = [*args, *lookup_path(ctx.config, f"modules.{name}.args", [])]
    try:
        h.rpc("module.load", {"path": name, "args": args}).get()
    except OSError as exc:
        raise OSError(exc.errno, f"load {name}: {exc.strerror}") from None


def load_all(h, ctx):
    """Load the services, and the scheduler."""
    scheduler = lookup_path(ctx.config, "modules.alternatives.sched", "sched-simple")
    for name in (*KVS, "resource", *JOBS, scheduler):
        load(h, ctx, name)


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
            if exc.errno not in NO_SERVICE:
                raise
