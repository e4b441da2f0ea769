# SPDX-License-Identifier: LGPL-3.0-or-later
"""Real execution: the tasks of a job as processes of this machine.

One process acts as the job shells of all nodes: it starts the tasks, collects their output and writes
the events of job shells. Statuses are those of a real job: the greatest of the tasks' exit codes, a
signal counting as 128 + its number.
"""

import errno
import json
import os
import signal
import socket
from syslog import LOG_EMERG, LOG_ERR, LOG_NOTICE

from flux.util import fsd
from flux_embedded.services.job_exec import layout, shell
from flux_embedded.services.job_exec.mock import EXPIRED, ExecJob
from flux_embedded.services.job_exec.process import Process
from flux_embedded.services.job_exec.shell import Output
from flux_engine.formats import jobid, rset
from flux_engine.formats.dotted import lookup_path

#: exit codes of a shell for a command that does not exist, or cannot be run
NOT_FOUND, NOT_EXECUTABLE = 127, 126


class LocalJob(ExecJob):
    def __init__(self, service, msg, body):
        super().__init__(service, msg, body)
        self._tasks = []
        self._procs = {}  # rank of a task -> Process, while it runs
        self._codes = {}  # rank of a task -> exit code, once it has ended
        self._output = None
        self._over = False
        self._ending = False
        self._directory = None
        self._templates = None
        self._options = {}
        self._limits = self._warning = ()

    def start(self):
        self.service.append(self.id, "exec.eventlog", ("init", None), ("starting", None))
        jobspec = self.jobspec
        try:
            system = jobspec["attributes"]["system"]
            # The environment is only in the submitted jobspec.
            J = self.service.ctx.kvs.value(f"{jobid.kvs_dir(self.id)}.J")
            submitted = json.loads(J)["attributes"].get("system") or {}
            environment = submitted.get("environment") or {}
            command = jobspec["tasks"][0]["command"]
            self._options = options = layout.shell_options(jobspec)
            self._tasks = layout.place(jobspec, self.R)
            if not self._tasks:
                raise ValueError("the job has no tasks")
            self._limits = shell.limits(options.get("rlimit") or {})
            self._warning = shell.warning(options.get("signal"))
            argv = [command] if isinstance(command, str) else list(command)
            name = (system.get("job") or {}).get("name") or os.path.basename(argv[0])
            cwd = system.get("cwd") or "/"
            where = f"jobtmp-0-{jobid.f58(self.id)}"
            rundir = self.service.ctx.attrs.get("rundir")
            self._directory = shell.Directory(rundir, where, system.get("files") or {})
            self._templates = shell.Templates(self.id, name, self._directory.path, self._tasks)
            self._output = Output(self.service, self.id, options, self._tasks, self._templates)
            self._output.open(cwd)
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as exc:
            self._fail(f"cannot start job: {exc}", 1 << 8)
            return
        try:
            stdin = self._stdin(cwd)
        except OSError as exc:
            note = f"error opening input file '{exc.filename}': {exc.strerror}"
            self._fail(note, signal.SIGTERM)
            return
        if not os.path.isdir(cwd):
            why = os.strerror(errno.ENOTDIR if os.path.exists(cwd) else errno.ENOENT)
            text = f"host {socket.gethostname()}: Could not change dir to {cwd}: {why}. Going to /tmp instead"
            self._output.log(text, LOG_ERR)
            cwd = "/tmp"
        self.answer("start", {})
        size = 1 + max(task.node for task in self._tasks)
        init = {"leader-rank": self._tasks[0].broker_rank, "size": size}
        events = ("shell.init", init), ("shell.start", None)
        self.service.append(self.id, "exec.eventlog", *events)
        self._spawn_all(argv, self._environment(environment), cwd, stdin)
        self._watch_time()

    def _stdin(self, cwd):
        """The file for standard input, which can be read, or None."""
        stdin = lookup_path(self._options, "input.stdin")
        if not isinstance(stdin, dict) or stdin.get("type") != "file":
            return None
        name = self._templates.render(str(stdin.get("path", "")))
        path = os.path.join(cwd, name)
        try:
            open(path, "rb").close()
        except OSError as exc:
            raise OSError(exc.errno, exc.strerror, name) from None
        return path

    def _fail(self, note, status):
        """End the job shell with a wait status before it has started a task."""
        self.answer("start", {})
        self._raise(note)
        self._end(status)

    def _raise(self, note):
        """Log the last message of the job shell, and raise it as the job's exception."""
        if self._output is not None:
            self._output.log(note, LOG_EMERG)
        self.answer("exception", {"severity": 0, "type": "exec", "note": note})

    def _watch_time(self):
        """Wait for the end of the job's time, and before it for the time of the shell option ``signal``."""
        self.cancel_alarm()
        if self.expiration:
            left, _ = self._warning
            early = left and self.expiration - left > self.service.kernel.time
            when = self.expiration - left if early else self.expiration
            self.set_alarm(when, self._warn if early else self._expire)

    def _warn(self):
        left, signum = self._warning
        text = f"signal: job will expire in {fsd(left)}, sending {signum.name} to job"
        self._output.log(text, LOG_NOTICE)
        self.kill(signum)
        self._watch_time()

    def _environment(self, given):
        """The job's environment, from the jobspec only."""
        return {
            key: self._templates.render(str(value))
            for key, value in given.items()
            if value is not None
        }

    def _spawn_all(self, argv, environment, cwd, stdin):
        uri = self.service.ctx.attrs.get("local-uri")
        environment["FLUX_JOB_TMPDIR"] = self._directory.path
        outer = self.service.ctx.environ.get("FLUX_JOB_ID_PATH", "")
        environment["FLUX_JOB_ID_PATH"] = f"{outer}/{jobid.f58(self.id)}"
        for task in self._tasks:
            env = layout.task_environment(environment, self.id, self._tasks, task, uri)
            words = [self._templates.render(word, task) for word in argv]
            try:
                rank = task.rank
                write = lambda stream, data, rank=rank: self._output.write(rank, stream, data)
                ended = lambda status, rank=rank: self._task_ended(rank, status)
                how = env, cwd, write, ended, stdin, self._limits
                self._procs[rank] = Process(self.service, words, *how)
            except (OSError, ValueError) as exc:
                self._cannot_start(task, argv[0], exc)
                break
        if not self._procs:
            self._end(max(self._codes.values()) << 8)

    def _cannot_start(self, task, command, exc):
        """End the job: a task could not be started."""
        missing = isinstance(exc, FileNotFoundError)
        self._codes[task.rank] = NOT_FOUND if missing else NOT_EXECUTABLE
        reason = exc.strerror if isinstance(exc, OSError) else str(exc)
        host = socket.gethostname()
        self._ending = True
        self._raise(f"task {task.rank} (host {host}): start failed: {command}: {reason}")
        self.kill(signal.SIGTERM)

    # -- running -------------------------------------------------------------------------------------

    def _task_ended(self, rank, status):
        process = self._procs.pop(rank)
        signaled = status & 0x7F
        code = 128 + signaled if signaled else status >> 8
        self._codes[rank] = code
        if len(self._codes) == 1:
            # The others have no event.
            context = {
                "localid": self._tasks[rank].local_id,
                "rank": rank,
                "state": "Exited",
                "pid": process.pid,
                "wait_status": status,
                "signaled": signaled,
                "exitcode": code,
            }
            self.service.append(self.id, "exec.eventlog", ("shell.task-exit", context))
        if not self._procs:
            self._end(max(self._codes.values()) << 8)

    def kill(self, signum):
        for process in list(self._procs.values()):
            process.kill(signum)

    def exception(self, kind):
        if not self._ending:
            self._ending = True
            self._terminate(signal.SIGTERM)

    def set_expiration(self, expiration):
        self.expiration = expiration
        if self._procs and not self._over and not self._ending:
            self._watch_time()

    def _expire(self):
        if not self._ending and not self._over:
            self._ending = True
            self.answer("exception", EXPIRED)
            self._terminate(signal.SIGALRM)

    def _terminate(self, signum):
        """End the tasks with `signum`, and with SIGKILL those that ignore it."""
        self.kill(signum)
        if self._procs:
            when = self.service.kernel.time + self.service.kill_timeout
            self.set_alarm(when, lambda: self.kill(signal.SIGKILL))

    # -- ending --------------------------------------------------------------------------------------

    def _end(self, status):
        """End the job with a wait status: all tasks have ended, or none could be started."""
        if self._over:
            return
        self._over = True
        self.cancel_alarm()
        if self._output is not None:
            self._output.close()
        if self._directory is not None:
            self._directory.remove()
        leader = rset.ranks(self.R)[0]
        exited = ("shell-exit", {"rank": leader, "wait_status": status})
        # a job that has ended by an exception has failed, even with exit code 0
        self.finish(status or self._ending << 8, exited)

    def abandon(self):
        self._over = True
        self.cancel_alarm()
        for process in self._procs.values():
            process.abandon()
        if self._directory is not None:
            self._directory.remove()
