# SPDX-License-Identifier: LGPL-3.0-or-later
"""An instance in this process: kernel, broker services and modules, without socket or command.

    instance = Instance(size=4, clock=VirtualClock())
    instance.start()
    instance.load_module("sched-fifo")
    instance.handle.rpc("job-ingest.submit", {...}).get()
    instance.stop()

``flux start`` uses the same class and adds the rest (see `session`).
"""

import json
import os
import selectors
import socket
import threading
from syslog import LOG_ERR

from greenlet import getcurrent

from flux_embedded.about import HOST_VERSION
from flux_embedded.broker.attrs import AttrTable
from flux_embedded.broker.infra import (
    AttrService,
    BrokerService,
    EventService,
    LogService,
    NameService,
)
from flux_embedded.broker.logring import LogRing
from flux_embedded.broker.modules import PERMANENT, ModuleManager, end_greenlet
from flux_embedded.services.kvs import Tree
from flux_engine import paths
from flux_engine.formats import hostlist, idset, states
from flux_engine.formats.config import check
from flux_engine.formats.dotted import lookup_path
from flux_engine.kernel.handle import RPC_NORESPONSE, Flux
from flux_engine.kernel.kernel import Kernel
from flux_engine.kernel.message import NO_SERVICE, OWNER
from flux_engine.kernel.task import Task
from flux_engine.modules.pymodule import search_path


class BrokerContext:
    """The broker as its services see it.

    Args:
        kernel (Kernel): the kernel they run on
        attrs (AttrTable): attributes; default: a table with nothing set at start
        config (dict): the configuration at start
        hosts (list of str): name of each rank's host; default: this host for every rank
        environ (dict): the environment of the instance

    Attributes:
        kernel, attrs, config, hosts, environ: as above; ``config`` is replaced as a whole when the
            configuration is reloaded, never changed in place
        ring (LogRing): the log
        acquired (AcquireStream): the scheduler's view of the resources; None without a resource service
        kvs (Tree): the key-value store; clients access it through service ``kvs``
        jobs (Jobs): those of the job manager; None without one
        job_R (dict): resources of the job in which the instance runs, or None
        fatal: None, or ``fatal(text)``: called if the instance must end because a module failed
    """

    def __init__(self, kernel, attrs=None, config=None, hosts=None, environ=None):
        self.kernel = kernel
        self.attrs = attrs or AttrTable()
        self.config = config or {}
        self.hostname = self.attrs.get("hostname") or socket.gethostname()
        self.hosts = hosts or [self.hostname] * kernel.size
        self.environ = os.environ if environ is None else environ
        self.ring = LogRing(self.attrs, self.time)
        self.fatal = None
        self.acquired = None
        self.jobs = None
        self.kvs = Tree()
        self.job_R = None
        define = self.attrs.define
        define("size", kernel.size)
        define("hostlist", hostlist.encode(self.hosts))
        define("hostname", self.hostname)
        define("broker.pid", os.getpid())
        define("broker.starttime", f"{kernel.clock.now():.6f}")
        define("security.owner", OWNER)
        define("version", HOST_VERSION)

    def time(self):
        """The current time, in seconds since the epoch, read from the kernel's clock."""
        return self.kernel.clock.now()

    def log(self, level, text, name="broker"):
        """Log on the broker's own behalf."""
        self.ring.append(level, name, text)

    def call_later_real(self, seconds, function):
        """Call ``function()`` in the loop after `seconds` of real time, also under a virtual clock."""
        if not self.kernel.clock.virtual:
            self.kernel.call_later(seconds, function)
            return
        reader, writer = os.pipe()

        def expire():
            os.close(writer)

        def ready(fd, events):
            self.kernel.remove_fd(fd)
            os.close(fd)
            function()

        timer = threading.Timer(seconds, expire)
        timer.daemon = True
        self.kernel.add_fd(reader, selectors.EVENT_READ, ready)
        timer.start()


KVS = ("content", "content-sqlite", "kvs", "kvs-watch", "heartbeat")
JOBS = ("job-manager", "job-ingest", "job-info", "job-list", "job-exec", "cron")

#: Seconds that a module has to end.
UNLOAD_TIMEOUT = 10.0


def load(h, ctx, name, *args):
    """Load a module with its arguments and the configured ones; OSError if that fails."""
    args = [*args, *lookup_path(ctx.config, f"modules.{name}.args", [])]
    try:
        h.rpc("module.load", {"path": name, "args": args}).get()
    except OSError as exc:
        raise OSError(exc.errno, f"load {name}: {exc.strerror}") from None


def load_all(h, ctx):
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
    ended = {"type": "cancel", "severity": 0, "note": "instance is shutting down"}
    for method, payload in (
        ("queue-start", {"start": False, "all": True}),
        ("raiseall", {"dry_run": False, "userid": -1, "states": states.RUNNING, **ended}),
        ("idle", {}),
    ):
        try:
            h.rpc(f"job-manager.{method}", payload).get()
        except OSError as exc:
            if exc.errno not in NO_SERVICE:
                raise


#: The services for tests of jobs; tests of a scheduler load it themselves.
JOB_SERVICES = ("kvs", "resource", "job-manager", "job-ingest", "job-info", "job-list", "job-exec")


class Instance:
    """One instance.

    Args:
        size (int): broker ranks
        conf (dict): configuration
        clock: RealClock (the default) or VirtualClock
        services (iterable of str): builtin modules that `start` loads, in this order
        R (dict): resources (RFC 20), put into the KVS before the resource service reads it; default:
            the configured ones, or this host's
        hosts (list of str): the host of each rank; default: this host's name
        attrs (AttrTable): attributes set at start
        environ (dict): its environment; default: the process's
        nopanic (bool): go on when a module fails

    Attributes:
        kernel (Kernel), ctx (BrokerContext), modules (ModuleManager)
        handle (Flux): of a task in the greenlet that called `start`
    """

    #: Class of the kernel.
    kernel_class = Kernel

    def __init__(self, size=1, conf=None, clock=None, services=JOB_SERVICES, R=None, hosts=None, attrs=None,
                 environ=None, nopanic=True):  # fmt: skip
        environ = os.environ if environ is None else environ
        self.kernel = self.kernel_class(clock, size)
        self.ctx = BrokerContext(self.kernel, attrs, check(conf or {}, "conf"), hosts, environ)
        if nopanic:
            self.ctx.attrs.define("broker.module-nopanic", "1")
        self.services = tuple(services)
        self.R = R
        self.modules = ModuleManager(self.ctx, search_path(environ, paths.module_dirs()))
        self.infra = [
            cls(self.ctx)
            for cls in (LogService, AttrService, NameService, EventService, BrokerService)
        ]
        self.infra.append(self.modules)
        self.handle = None

    def start(self):
        """Start it, in the calling greenlet: load the services, bring all ranks online; OSError if that fails."""
        self.start_broker()
        for name in self.services:
            if name == "resource" and self.R is not None:
                self.ctx.kvs.commit([["put", "resource.R", json.dumps(self.R)]])
            load(self.handle, self.ctx, name, *(["noverify"] if name == "resource" else []))
        self.bring_up()

    def start_broker(self):
        """Start the permanent services."""
        for service in self.infra:
            service.start()
        self.handle = Flux(Task(self.kernel, "client"))
        for name in PERMANENT:
            self.load_module(name)

    def bring_up(self, handle=None):
        """Bring the ranks online: rank 0, whose services are up now, and a moment later the others."""
        h = handle or self.handle
        h.rpc("overlay.join", {"ranks": "0"}).get()
        if self.kernel.size > 1:
            h.rpc("overlay.join", {"ranks": idset.encode([1, self.kernel.size])}).get()

    def load_module(self, name, *args):
        """Load a module by name or path; OSError if that fails."""
        self.handle.rpc("module.load", {"path": str(name), "args": list(args)}).get()

    def unload(self, name):
        """Unload a module; FileNotFoundError if it is not loaded."""
        self.handle.rpc("module.remove", {"name": name}).get()

    def service(self, name):
        """Return the Service object of a builtin module; KeyError if it is not loaded."""
        return self.modules.table[name].service

    def stop(self):
        """Unload all modules, and close all tasks, timers and descriptors. May be repeated."""
        if self.handle is None:
            return
        for name in self.modules.removal_order():
            removed = self.handle.rpc("module.remove", {"name": name})
            self._settle(removed.is_ready)
            if name in self.modules.table:
                self.modules.kill(name)
        for service in reversed(self.infra):
            service.on_exit = lambda task, exc: task.close()
            self.handle.rpc(f"{service.name}.shutdown", flags=RPC_NORESPONSE)
        self.kernel.run_until_idle()
        self.handle.task.close()
        self.handle = None
        for endpoint in list(self.kernel.endpoints.values()):
            if isinstance(endpoint, Task) and endpoint.greenlet is not getcurrent():
                endpoint.close()
                end_greenlet(endpoint)
        self.ctx.ring.close()
        self.kernel.dispose()

    def _settle(self, ready):
        """Run until ``ready()``, at most UNLOAD_TIMEOUT; under a virtual clock, until idle."""
        if self.kernel.clock.virtual:
            self.kernel.run_until_idle()
            return
        late = []
        self.kernel.call_later(UNLOAD_TIMEOUT, lambda: late.append(True))
        self.kernel.run(until=lambda: ready() or bool(late))
