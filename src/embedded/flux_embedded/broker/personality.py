# SPDX-License-Identifier: LGPL-3.0-or-later
"""What an instance loads at start when no start script is named, and how it winds down.

A personality is a list of steps, run one after the other by the instance's own task. A step is a
module with its arguments, or a function of the Startup that runs it.
"""

import errno
import json

from flux_embedded.formats import eventlog
from flux_embedded.formats.levels import LOG_ERR
from flux_embedded.formats.rset import uniform
from flux_embedded.services.resource.fake import fake_resources

KVS = ("content", "content-sqlite", "kvs", "kvs-watch", "heartbeat")
JOBS = ("job-manager", "job-ingest", "job-info", "job-list")

#: Seconds a module has to end when the instance shuts down.
UNLOAD_TIMEOUT = 10.0


class StartError(Exception):
    """A step failed; the text goes to the log."""


class Startup:
    """Runs the steps of a personality; its caller is a task of the kernel and may block.

    Args:
        h (Flux): handle of that task
        ctx (BrokerContext): the broker
    """

    def __init__(self, h, ctx):
        self.h = h
        self.ctx = ctx

    def load(self, name, *args):
        """Load a module with its arguments and the configured ones; StartError if that fails."""
        args = [*args, *configured_args(self.ctx.config, name)]
        try:
            self.h.rpc("module.load", {"path": name, "args": list(args)}).get()
        except OSError as exc:
            raise StartError(f"load {name}: {exc.strerror}") from None

    def put(self, key, text):
        """Write a key to the KVS."""
        self.h.rpc("kvs.commit", {"ops": [["put", key, text]]}).get()

    def put_resources(self, R):
        """Write R to the KVS, from where the resource service takes it."""
        self.put("resource.R", json.dumps(R, separators=(",", ":")))

    def run(self, name):
        """Load what personality `name` has."""
        PERSONALITIES[name](self)


def configured_args(config, name):
    """The arguments of module `name` by ``[modules] NAME.args`` (list of str)."""
    modules = config.get("modules", {})
    entry = modules.get(name, {}) if isinstance(modules, dict) else {}
    return entry.get("args", []) if isinstance(entry, dict) else []


def unload(h, ctx, names):
    """Remove modules, one after the other; those a user removed meanwhile are gone already."""
    for name in names:
        try:
            h.rpc("module.remove", {"name": name}).wait_for(UNLOAD_TIMEOUT).get()
        except FileNotFoundError:
            pass
        except TimeoutError:
            ctx.log(LOG_ERR, f"rc3.0: remove {name}: it does not end")


def _minimal(startup):
    """Nothing but the broker itself."""


def _kvs(startup):
    for name in KVS:
        startup.load(name)


def _job(startup):
    environ = startup.ctx.environ
    ncores = _number(environ, "TEST_UNDER_FLUX_CORES_PER_RANK", 2)
    ngpus = _number(environ, "TEST_UNDER_FLUX_GPUS_PER_RANK", 0)
    _kvs(startup)
    startup.put_resources(uniform(startup.ctx.hosts, ncores, ngpus))
    startup.load("resource", "noverify")
    for name in JOBS:
        startup.load(name)
    if environ.get("TEST_UNDER_FLUX_NO_JOB_EXEC") != "y":
        startup.load("job-exec")
    mode = environ.get("TEST_UNDER_FLUX_SCHED_SIMPLE_MODE")
    startup.load("sched-simple", *([f"mode={mode}"] if mode else []))
    startup.h.rpc("sched-simple.debug", {"op": "setbit", "flags": 2}).get()


def _full(startup):
    _kvs(startup)
    context = {"version": 1, "core_version": startup.ctx.attrs.get("version")}
    startup.put("admin.eventlog", eventlog.encode(startup.ctx.time(), "start", context))
    try:
        R = fake_resources(startup.ctx.config)
    except ValueError as exc:
        raise StartError(str(exc)) from None
    if R is not None:
        startup.put_resources(R)
    startup.load("resource")
    for name in (*JOBS, "job-exec", "cron"):
        startup.load(name)
    startup.load(scheduler(startup.ctx.config))


def scheduler(config):
    """Return the name of the scheduler module: ``[modules] alternatives.sched``, or sched-simple."""
    alternatives = config.get("modules", {})
    alternatives = alternatives.get("alternatives", {}) if isinstance(alternatives, dict) else {}
    return (
        alternatives.get("sched", "sched-simple")
        if isinstance(alternatives, dict)
        else "sched-simple"
    )


PERSONALITIES = {"minimal": _minimal, "kvs": _kvs, "job": _job, "full": _full}


def _number(environ, name, default):
    text = environ.get(name)
    if not text:
        return default
    try:
        value = int(text)
        if 0 <= value <= 4096:
            return value
    except ValueError:
        pass
    raise StartError(f"{name}={text!r}: expected an integer from 0 to 4096")


def wind_down(h):
    """Stop scheduling, end the running jobs and wait until nothing runs; services may be missing."""
    for topic, payload in (
        ("job-manager.queue-start", {"start": False, "all": True}),
        ("resource.acquire-mute", {}),
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
