# SPDX-License-Identifier: LGPL-3.0-or-later
"""The life of an instance that runs a command: start scripts, the user's command, clean shutdown.

The stages run one after the other in the instance's own task, the conductor: rc1 (load modules),
ranks come online, rc2 (the command), cleanup (end the running jobs), rc3 (unload modules). A signal or a
failed module cuts rc2 short and goes on with cleanup.
"""

import os
import shutil
import signal
import sys
import tempfile
import time
from syslog import LOG_CRIT, LOG_ERR, LOG_INFO

from flux.util import fsd
from flux_embedded import about
from flux_embedded.broker.attrs import RC1, RC3
from flux_embedded.broker.instance import Instance, load_all, unload, wind_down
from flux_embedded.broker.modules import PERMANENT
from flux_embedded.broker.process import (
    Command,
    adopt_orphans,
    command_environment,
    kill_descendants,
    own_children,
)
from flux_embedded.broker.server import SocketServer
from flux_engine.kernel import collector
from flux_engine.kernel.clock import RealClock, VirtualClock
from flux_engine.kernel.future import Future
from flux_engine.kernel.handle import Flux
from flux_engine.kernel.task import Task
from flux_engine.kernel.watchdog import LONGEST_TURN, Watchdog, place
from flux_engine.modules.pymodule import print_traceback

#: Signals that end the instance.
FATAL_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

#: Real seconds that a command has to end after SIGTERM, before SIGKILL.
GRACE = 5.0

#: Real seconds between checks that the loop turns.
WATCH_PERIOD = 1.0

#: Real seconds that jobs have to end at shutdown, before the instance goes on without them.
CLEANUP_TIMEOUT = 30.0


class Session:
    """An instance that runs a command, from start to end, by the options of `start.parse`."""

    def __init__(self, options):
        self.options = options
        self.exit_code = 0
        clock = VirtualClock() if options.virtual_time else RealClock()
        self.instance = Instance(options.size, options.config, clock, (), hosts=options.hosts, attrs=options.attrs,
                                 nopanic=False)  # fmt: skip
        self.kernel = self.instance.kernel
        self.ctx = self.instance.ctx
        self.ctx.fatal = self.stop
        self.ctx.job_R = options.parent and options.parent.R
        self.conductor = Task(self.kernel, "broker", self._conduct)
        self.h = Flux(self.conductor)
        self.server = None
        self.rundir = None
        self.keeps_rundir = bool(options.attrs.get("rundir"))  # the user's own
        self.strangers = own_children()
        self.command = None  # the Command that runs now
        self.noted = None  # the first fatal signal: number, and real time
        self.stopping = None  # reason of an early end: a signal number, or a text
        self.done = False
        self._report_at = LONGEST_TURN

    def run(self):
        """Run the instance to its end. Return the exit code. Raises OSError without a run directory or socket."""
        adopt_orphans()
        undo = [self.kernel.add_signal(number, self._signalled) for number in FATAL_SIGNALS]
        for number in FATAL_SIGNALS:
            signal.signal(number, self._note_signal)  # the loop still receives it, when it turns
        try:
            self._make_rundir()
            self.instance.start_broker()
            self.server = SocketServer(self.ctx, os.path.join(self.rundir, "local-0"))
            self.conductor.on_exit = self._conducted
            self.conductor.start()
            collector.settle()
            # Modules share one thread: code that sleeps, or runs a program that waits for the instance, stops everything.
            with Watchdog(
                self.kernel.turn_under_way, self._stuck, signal.ITIMER_REAL, WATCH_PERIOD
            ):
                self.kernel.run(until=lambda: self.done)
            self.server.drain(1.0)
        finally:
            try:
                self._close()
            finally:
                kill_descendants(self.strangers)
                self._remove_rundir()
                for function in undo:
                    function()
        return self.exit_code

    def _close(self):
        if self.server is not None:
            self.server.close()
        if self.options.parent is not None:
            self.options.parent.close()
        self.instance.stop()

    def _make_rundir(self):
        attrs = self.ctx.attrs
        path = attrs.get("rundir")
        if path:
            os.makedirs(path, 0o700, exist_ok=True)
            self.rundir = os.path.abspath(path)
        else:
            self.rundir = tempfile.mkdtemp(prefix="flux-")
        attrs.define("rundir", self.rundir)
        attrs.define("local-uri", "local://" + os.path.join(self.rundir, "local-0"))

    def _remove_rundir(self):
        if self.rundir is None or self.keeps_rundir:
            return
        for _ in range(20):
            shutil.rmtree(self.rundir, ignore_errors=True)
            if not os.path.exists(self.rundir):
                return
            time.sleep(0.05)  # a process of a job just killed may have written a last file
        print(f"flux-start: {self.rundir} could not be removed", file=sys.stderr)

    # -- ending early ----------------------------------------------------------------------------

    def _note_signal(self, number, frame):
        self.noted = self.noted or (number, time.monotonic())

    def _stuck(self, frame, seconds):
        """Called by the watchdog repeatedly: a module blocks the loop, so that it cannot handle a signal or end."""
        task = self.kernel.running
        culprit = task.name if task is not None else "broker"
        if seconds <= WATCH_PERIOD:
            self._report_at = LONGEST_TURN
        if seconds >= self._report_at:
            self._report_at *= 2
            where = place(frame, getattr(task, "path", None))
            self.ctx.log(
                LOG_ERR, f"{culprit} has blocked the instance for {seconds:.0f}s, at {where}"
            )
        if self.noted is None or time.monotonic() - self.noted[1] < GRACE:
            return
        if self.stopping is not None and seconds < CLEANUP_TIMEOUT:
            return  # the signal was handled, and a module may take long to end
        self.ctx.log(
            LOG_CRIT, f"{culprit} blocks the instance, which cannot shut down: ended by force"
        )
        kill_descendants(self.strangers)
        self._remove_rundir()
        if self.server is not None and os.path.exists(self.server.path):
            os.unlink(self.server.path)
        os._exit(128 + self.noted[0])

    def _signalled(self, number):
        if self.stopping is not None and self.command is not None:
            self.command.kill(signal.SIGKILL)  # the second signal: do not wait
        self.stop(number)

    def stop(self, reason):
        """End the instance: `reason` is a signal number, or the text of a failure (exit code 1)."""
        if self.stopping is not None:
            return
        self.stopping = reason
        if isinstance(reason, int):
            self.exit_code = 128 + reason
            self.ctx.log(LOG_INFO, f"{signal.Signals(reason).name}: shutting down")
        else:
            self.exit_code = 1
        if self.command is not None:
            self._end_command(self.command)

    def _end_command(self, command):
        # like a terminal that closes: at any end of the instance, its command is hung up
        command.kill(signal.SIGHUP)
        command.kill(signal.SIGCONT)  # a stopped one could not end

        def insist():
            if command.returncode is None:
                command.kill(signal.SIGKILL)

        self.ctx.call_later_real(GRACE, insist)

    # -- the stages ------------------------------------------------------------------------------

    def _conducted(self, task, exc):
        if exc is not None:
            print_traceback(exc)
            self.exit_code = self.exit_code or 1
        self.done = True

    def _conduct(self):
        started = self._rc1()
        if started and self.stopping is None:
            self.instance.bring_up(self.h)
            if self.options.parent is not None:
                self.options.parent.announce(self.ctx.attrs.get("local-uri"))
            self._rc2()
        self._cleanup()
        self._rc3(started)
        self._end_leftovers()

    def _rc1(self):
        """Load modules; returns whether that worked."""
        path = self.ctx.attrs.get("broker.rc1_path")
        if path != RC1:
            if not path:
                return True
            code = self._run("rc1.0", [path])
            if code and self.stopping is None:
                self.exit_code = code
            return not code
        began = self.ctx.time()
        try:
            load_all(self.h, self.ctx)
        except OSError as exc:
            self.ctx.log(LOG_ERR, f"rc1.0: {exc.strerror}")
            seconds = fsd(self.ctx.time() - began)
            self.ctx.log(LOG_ERR, f"rc1.0: {RC1} Exited (rc=1) {seconds}")
            self.exit_code = 1
            return False
        return True

    def _rc2(self):
        argv = self.options.command
        if not argv:
            if not sys.stdin.isatty():
                self.ctx.log(LOG_CRIT, "stdin is not a tty - can't run interactive shell")
                self.exit_code = 1
                return
            print(f"This is the {about.describe()}.", file=sys.stderr)
            argv = [os.environ.get("SHELL") or "/bin/sh"]
        code = self._run("rc2.0", argv, terminal=sys.stdin is not None and sys.stdin.isatty())
        if self.stopping is None or isinstance(self.stopping, int):
            self.exit_code = code

    def _cleanup(self):
        if "job-manager" not in self.kernel.services:
            return
        future = Future(self.h)
        helper = Task(self.kernel, "broker", lambda: wind_down(helper.handle))
        helper.on_exit = lambda task, exc: (task.close(), future.settle(str(exc or "")))
        Flux(helper)
        helper.start()
        self.ctx.call_later_real(CLEANUP_TIMEOUT, lambda: future.settle("jobs did not end in time"))
        text = future.get()
        if text:
            self.ctx.log(LOG_ERR, f"cleanup.0: {text}")
            self.exit_code = self.exit_code or 1

    def _rc3(self, started):
        path = self.ctx.attrs.get("broker.rc3_path")
        if path != RC3:
            if path and started:
                code = self._run("rc3.0", [path], even_if_stopping=True)
                if code:
                    self.exit_code = self.exit_code or code
        else:
            names = [
                name for name in self.instance.modules.removal_order() if name not in PERMANENT
            ]
            unload(self.h, self.ctx, names)

    def _end_leftovers(self):
        """Kill the Python modules that were not unloaded; that is a failure of the instance."""
        for name in self.instance.modules.python_modules():
            self.instance.modules.kill(name, "Terminated")
            if not self.ctx.attrs.is_true("broker.module-nopanic"):
                self.exit_code = self.exit_code or 1

    def _run(self, stage, argv, terminal=False, even_if_stopping=False):
        """Run a command to its end and return its exit code."""
        if self.stopping is not None and not even_if_stopping:
            return 1
        ended = Future(self.h)
        command = Command(self.ctx, stage, argv, command_environment(self.ctx), terminal)
        self.command = command
        command.start(lambda: ended.settle(True))
        ended.get()
        self.command = None
        if terminal is False:
            command.kill(signal.SIGHUP)
        return command.returncode
