# SPDX-License-Identifier: LGPL-3.0-or-later
"""Child processes of the instance, the start scripts and the user's command, and their environment."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from syslog import LOG_ERR, LOG_INFO

from flux.util import fsd
from flux_embedded.services.job_exec.process import watch_exit
from flux_engine import paths

_PR_SET_CHILD_SUBREAPER = 36

#: Arguments of Popen for a process group of its own.
_OWN_GROUP = {"process_group": 0} if sys.version_info >= (3, 11) else {"preexec_fn": os.setpgrp}


class Command:
    """A command run by the instance as one of its rc stages.

    Args:
        ctx (BrokerContext): the broker
        stage (str): name in the log, such as ``rc2.0``
        argv (list of str): one word is a shell command, several are run directly
        environ (dict): its environment
        terminal (bool): make it the foreground process group of the terminal on stdin

    Attributes:
        pid (int): of the process, which leads a process group of its own; None if it did not start
        returncode (int): its exit code, 128 + N after signal N; None while it runs
    """

    def __init__(self, ctx, stage, argv, environ, terminal=False):
        self.ctx = ctx
        self.stage = stage
        self.text = " ".join(argv)
        self.argv = argv if len(argv) > 1 else [environ.get("SHELL") or "/bin/sh", "-c", argv[0]]
        self.environ = environ
        self.terminal = terminal
        self.pid = None
        self.returncode = None
        self._process = None
        self._output = None
        self._started = 0.0

    def start(self, callback):
        """Run it; ``callback()`` is called in the kernel's loop when it has ended."""
        self._started = self.ctx.time()
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            # The output of the stages around the user's own command goes to the log.
            self._output = None if self.stage == "rc2.0" else tempfile.TemporaryFile()
            # Its own process group, so that all of it can be ended, and ^C goes to it alone.
            self._process = subprocess.Popen(
                self.argv, env=self.environ, stdout=self._output, **_OWN_GROUP
            )
        except OSError as exc:
            print(f"{self.argv[0]}: {exc.strerror}", file=sys.stderr, flush=True)
            self._ended(127 if isinstance(exc, FileNotFoundError) else 126, "Exited")
            self.ctx.kernel.call_later(0, callback)
            return
        self.pid = self._process.pid
        if self.terminal:
            _give_terminal(self.pid)
            self.kill(signal.SIGCONT)  # it may have been stopped for reading the terminal already
        watch_exit(self.ctx.kernel, self._process, lambda: self._reap(callback))

    def _reap(self, callback):
        code = self._process.wait()
        if code < 0:
            self._ended(128 - code, signal.strsignal(-code) or f"Signal {-code}")
        else:
            self._ended(code, "Exited")
        callback()

    def _ended(self, returncode, verb):
        if self.terminal:
            _give_terminal(os.getpgrp())
        self.returncode = returncode
        if self._output is not None:
            self._output.seek(0)
            for line in self._output.read().decode("utf-8", "replace").splitlines():
                self.ctx.log(LOG_INFO, f"{self.stage}: {line}")
            self._output.close()
        seconds = max(0.0, self.ctx.time() - self._started)
        text = f"{self.stage}: {self.text} {verb} (rc={returncode}) {fsd(seconds)}"
        self.ctx.log(LOG_ERR if returncode else LOG_INFO, text)

    def kill(self, signum):
        """Send a signal to the whole process group, also if only children of the command are left."""
        if self.pid is not None:
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signum)


def _give_terminal(group):
    """Make a process group the foreground one of the terminal on stdin."""
    former = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.tcsetpgrp(0, group)
    signal.signal(signal.SIGTTOU, former)


def adopt_orphans():
    """Become the parent of orphaned descendants, so that `kill_descendants` finds them."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass  # then a process that leaves its job deliberately outlives the instance


def kill_descendants(spare=()):
    """SIGKILL every descendant of this process, in any group or session, except `spare`."""
    children = _children()
    below = [pid for pid in children.get(os.getpid(), ()) if pid not in spare]
    for pid in below:
        below += children.get(pid, ())
    for pid in below:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def own_children():
    """The pids of this process's children: a shell that ran ``exec flux start`` may have left some."""
    return set(_children().get(os.getpid(), ()))


def _children():
    """Return pid -> list of its children, of all processes."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as stream:
                    parent = int(stream.read().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue  # it has ended meanwhile
            children.setdefault(parent, []).append(int(name))
    return children


#: Variables of the job in which an instance runs, not for commands in the instance.
_OF_THE_JOB = (
    "FLUX_JOB_ID", "FLUX_JOB_ID_PATH", "FLUX_JOB_SIZE", "FLUX_JOB_NNODES", "FLUX_JOB_TMPDIR", "FLUX_JOB_CC", "FLUX_TASK_RANK",
    "FLUX_TASK_LOCAL_ID", "FLUX_KVS_NAMESPACE", "FLUX_HANDLE_USERID", "FLUX_HANDLE_ROLEMASK", "FLUX_EMBEDDED_RANK",
)  # fmt: skip


def command_environment(ctx):
    """Return the environment of the start scripts and of the user's command, a new dict."""
    environ = {name: value for name, value in ctx.environ.items() if name not in _OF_THE_JOB}
    environ["FLUX_URI"] = ctx.attrs.get("local-uri")
    own = ":".join(paths.module_dirs())
    extra = environ.get("FLUX_MODULE_PATH")
    if not extra or extra == own:
        environ["FLUX_MODULE_PATH"] = own
    elif not extra.startswith(own + ":"):
        environ["FLUX_MODULE_PATH"] = f"{own}:{extra}"
    environ["FLUX_EXEC_PATH"] = paths.COMMANDS
    directory = paths.command_dir()
    search = environ.get("PATH", os.defpath).split(":")
    if directory and search[:1] != [directory]:
        environ["PATH"] = ":".join([directory, *search])
    return environ
