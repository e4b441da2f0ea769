# SPDX-License-Identifier: LGPL-3.0-or-later
"""The state that the builtin services of an instance share."""

import os
import selectors
import socket
import threading

from flux_embedded.about import HOST_VERSION
from flux_embedded.broker.attrs import AttrTable
from flux_embedded.broker.logring import LogRing
from flux_embedded.services.kvs import Tree
from flux_engine.formats import hostlist
from flux_engine.kernel.message import OWNER


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
