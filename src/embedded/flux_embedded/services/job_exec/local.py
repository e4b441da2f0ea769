# SPDX-License-Identifier: LGPL-3.0-or-later
"""Real execution: the tasks of a job as processes of this machine.

One process plays the job shells of all nodes: it starts the tasks, collects their output and writes the
events that job shells write. Statuses are those of a real job: the greatest of the tasks' exit codes, a
signal counting as 128 + its number.
"""

import errno
import json
import os
import resource
import signal
import socket

from flux_embedded.services.job_exec import base, layout, shell
from flux_embedded.services.job_exec.mock import EXPIRED
from flux_embedded.services.job_exec.output import Output
from flux_embedded.services.job_exec.process import PIPE, Process
from flux_engine.formats import fsd, jobid, rset, taskmap

#: exit codes of a shell for a command that is not there, or cannot be run
NOT_FOUND, NOT_EXECUTABLE = 127, 126


class ShellError(Exception):
    """A shell gives up.

    Args:
        note (str): of the exception
        reason (str): what it says before; None: the note
        component (str): of the shell
        status (int): wait status of the job
    """

    def __init__(self, note, reason=None, component=None, status=1 << 8):
        super().__init__(note)
        self.reason = reason or note
        self.component = component
        self.status = status


def _init_error(reason, component):
    """What becomes of a job when a plug-in of its shells cannot begin."""
    return ShellError(f"shell_init: {os.strerror(errno.ENOENT)}", reason, component)


def _check_output(options):
    """Refuse values of the wrong type among the options of the plug-in ``output``."""
    output = options.get("output")
    output = output if isinstance(output, dict) else {}
    timeout = output.get("batch-timeout", 0)
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise _init_error("invalid output.batch-timeout option", "output.kvs")
    for stream in ("stdout", "stderr"):
        where = output.get(stream)
        if isinstance(where, dict) and type(where.get("label", False)) is not bool:
            raise _init_error(f"failed to read {stream} output options", "output.config")


def _exit_timeout(options):
    """Seconds that a job's other tasks have once one has ended; None: no limit."""
    value = options.get("exit-timeout", 30.0)
    if value == "none":
        return None
    try:
        return fsd.parse(value) if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        text = "exit-timeout is not a valid Flux Standard Duration"
        raise _init_error(text, "task-exit") from None


def _soft_limits(options):
    """[(number, soft limit)] of the shell option ``rlimit``, without those that are as they are to be."""
    found = []
    table = options.get("rlimit")
    for name, soft in table.items() if isinstance(table, dict) else ():
        number = getattr(resource, f"RLIMIT_{name.upper()}", None)
        if number is None or type(soft) is not int:
            continue
        now, hard = resource.getrlimit(number)
        if soft < 0 or soft > hard >= 0:
            soft = hard
        if soft != now:
            found.append((number, soft))
    return found


def _signal_option(options):
    """(signal, seconds before the end) of the shell option ``signal``; None without it."""
    option = options.get("signal")
    if option in (None, 0, False):
        return None
    option = option if isinstance(option, dict) else {}
    signum, left = option.get("signum", signal.SIGUSR1), option.get("timeleft", 60.0)
    return int(signal.Signals(signum)), float(left)


class LocalJob(base.ExecJob):
    """One real job."""

    def __init__(self, service, msg, body):
        super().__init__(service, msg, body)
        self._tasks = []
        self._procs = {}  # rank of a task -> Process, while it runs
        self._codes = {}  # rank of a task -> exit code, once it has ended
        self._output = None
        self._over = False
        self._ending = False
        self._alarms = {}  # what it is for -> base.Alarm
        self._signal = None
        self._directory = None
        self._templates = None
        self._early = []  # what was written before there was a task to read it
        self._options = {}
        self._name = None

    def start(self):
        # The environment is only in what was submitted.
        lookup = {"id": self.id, "keys": ["jobspec", "J"], "flags": 3}
        self.service.append(self.id, "exec.eventlog", ("init", None), ("starting", None))
        self.service.rpc("job-info.lookup", lookup).then(self._launch)

    # -- starting ------------------------------------------------------------------------------------

    def _launch(self, future):
        if self._over:
            return
        if self._ending:
            # Cancelled before there was anything to kill.
            self._end(None)
            return
        try:
            jobspec = future.body["jobspec"]
            system = jobspec["attributes"]["system"]
            submitted = json.loads(future.body["J"])["attributes"].get("system") or {}
            environment = submitted.get("environment") or {}
            command = jobspec["tasks"][0]["command"]
            options = self._options = layout.shell_options(jobspec)
            try:
                self._tasks = layout.place(jobspec, self.R)
            except layout.MapError as exc:
                status = signal.SIGTERM if exc.killed else 1 << 8
                raise ShellError(str(exc), status=status) from None
            if not self._tasks:
                raise ValueError("the job has no tasks")
            argv = [command] if isinstance(command, str) else list(command)
            self._name = os.path.basename(argv[0])
            name = (system.get("job") or {}).get("name") or self._name
            cwd = system.get("cwd") or "/"
            fault = ((system.get("exec") or {}).get("bulkexec") or {}).get("mock_exception")
            if fault in ("init", "starting"):
                self._raise(f"mock {fault} exception generated")
                self._end(1 << 8)
                return
            self._make_directory(system, name)
            _check_output(options)
            self._output = Output(self.service, self.id, options, self._tasks, self._templates)
            try:
                self._output.open(cwd)
            except OSError as exc:
                text = f"open: {exc.filename}: {exc.strerror}"
                raise _init_error(text, "output.task") from None
            self._check_input(options, cwd)
            self._signal = _signal_option(options)
            _exit_timeout(options)
        except ShellError as exc:
            self.answer("start", {})
            if self._output is None:
                self._output = Output(self.service, self.id, {}, [], None)
            self._output.fatal(exc.reason, exc.component)
            self._raise(str(exc))
            self._end(exc.status)
            return
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as exc:
            self._raise(f"cannot start job: {exc}")
            self._end(None)
            return
        if not os.path.isdir(cwd):
            cwd = "/tmp"
        self.answer("start", {})
        self._shell_events()
        self._spawn_all(argv, self._environment(environment), cwd, options)
        self._watch_time()

    def _raise(self, note):
        self.answer("exception", {"severity": 0, "type": "exec", "note": note})

    def _make_directory(self, system, name):
        rundir = self.service.ctx.attrs.get("rundir")
        base_name = f"jobtmp-0-{jobid.f58(self.id)}"
        self._directory = shell.Directory(rundir, base_name, system.get("files") or {})
        self._templates = shell.Templates(self.id, name, self._tasks, self._directory.path)

    def _stdin(self, options, cwd):
        """The file that is standard input; None for what `write` brings."""
        source = options.get("input")
        stdin = source.get("stdin") if isinstance(source, dict) else None
        if not isinstance(stdin, dict) or stdin.get("type") != "file":
            return None
        return os.path.join(cwd, self._templates.render(stdin["path"]))

    def _check_input(self, options, cwd):
        path = self._stdin(options, cwd)
        if path is not None:
            try:
                os.close(os.open(path, os.O_RDONLY))
            except OSError as exc:
                text = f"error opening input file '{path}': {exc.strerror}"
                raise ShellError(text, None, "input.file", signal.SIGTERM) from None

    def _watch_time(self):
        """Wait for the end of the job's time, and for the warning before it."""
        self._cancel_alarms("expire", "warn")
        if self.expiration:
            self._set_alarm("expire", self.expiration, self._expire)
            if self._signal is not None:
                self._set_alarm("warn", self.expiration - self._signal[1], self._warn)

    def _set_alarm(self, what, when, function):
        self._alarms[what] = base.Alarm(self.service, when, function)

    def _cancel_alarms(self, *which):
        """Cancel these alarms, or all."""
        for what in which or tuple(self._alarms):
            alarm = self._alarms.pop(what, None)
            if alarm is not None:
                alarm.cancel()

    def _warn(self):
        signum, left = self._signal
        name = signal.Signals(signum).name
        self._output.say(
            f"job will expire in {left:.1f}s, sending {name} to job", component="signal"
        )
        self.kill(signum)

    def _shell_events(self):
        nodes = layout.nodes_of(self._tasks)
        init = {
            "service": f"0-shell-{jobid.f58plain(self.id)}",
            "leader-rank": self._tasks[0].broker_rank,
        }
        self.service.append(
            self.id,
            "exec.eventlog",
            ("shell.init", {**init, "size": len(nodes)}),
            ("shell.start", {"taskmap": {"version": 1, "map": taskmap.encode(nodes)}}),
        )

    def _environment(self, given):
        """The job's environment: what the jobspec says and no more."""
        return {
            key: self._templates.render(str(value))
            for key, value in given.items()
            if value is not None
        }

    def _spawn_all(self, argv, environment, cwd, options):
        uri = self.service.ctx.attrs.get("local-uri")
        stdin = self._stdin(options, cwd)
        environment["FLUX_JOB_TMPDIR"] = self._directory.path
        outer = self.service.ctx.environ.get("FLUX_JOB_ID_PATH", "")
        environment["FLUX_JOB_ID_PATH"] = f"{outer}/{jobid.f58(self.id)}"
        for task in self._tasks:
            env = layout.task_environment(environment, self.id, self._tasks, task, uri)
            layout.bind_gpus(env, self._tasks, task, options.get("gpu-affinity"))
            words = [self._templates.render(word, task) for word in argv]
            try:
                self._spawn(task, words, env, cwd, stdin)
            except (OSError, ValueError) as exc:
                self._cannot_start(task, argv[0], exc)
                break
        if not self._procs:
            self._end(max(self._codes.values()) << 8)
        early, self._early = self._early, None
        for some in early:
            self.write(*some)

    def write(self, data, eof, ranks=None):
        """Standard input for all tasks, or those of these ranks (a container): the others get none."""
        if self._early is not None:
            self._early.append((data, eof, ranks))
            return
        if ranks is not None and not any(task.rank in ranks for task in self._tasks):
            raise BrokenPipeError(errno.EPIPE, "the job has no such task")
        for rank, process in list(self._procs.items()):
            if ranks is None or rank in ranks:
                process.write(data, eof)
            else:
                process.write(b"", True)

    def _spawn(self, task, argv, env, cwd, stdin):
        opened = open(stdin, "rb") if stdin is not None else None  # noqa: SIM115  closed below
        try:
            self._procs[task.rank] = Process(
                self.service,
                argv,
                env,
                cwd,
                lambda stream, data, rank=task.rank: self._output.write(rank, stream, data),
                lambda status, rank=task.rank: self._task_ended(rank, status),
                opened or PIPE,
                _soft_limits(self._options),
            )
        finally:
            if opened is not None:
                opened.close()

    def _cannot_start(self, task, command, exc):
        """A task could not be started: that ends the job."""
        missing = isinstance(exc, FileNotFoundError)
        self._codes[task.rank] = NOT_FOUND if missing else NOT_EXECUTABLE
        reason = exc.strerror if isinstance(exc, OSError) else str(exc)
        host = socket.gethostname()
        note = f"task {task.rank} (host {host}): start failed: {command}: {reason}"
        self._output.fatal(note)
        request = {"id": self.id, "type": "exec", "severity": 0, "note": note}
        self._ending = True
        self.service.notify("job-manager.raise", request)
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
        elif len(self._codes) == 1:
            self._watch_others(rank, status, code)

    def _watch_others(self, rank, status, code):
        """The first of several tasks has ended: see what that means for the others."""
        how = signal.strsignal(status & 0x7F) if status & 0x7F else f"Exit {code}"
        task = f"{self._name}: task rank {rank} on host {self._tasks[rank].host}"
        if self._options.get("exit-on-error") and code:
            self._give_up(f"{task} failed ({how}) and exit-on-error is set", code)
            return
        timeout = _exit_timeout(self._options)
        if timeout is not None:
            given = self._options.get("exit-timeout", "30s")
            text = f"{task} exited ({how}) and exit-timeout={given} has expired"
            when = self.service.kernel.time + timeout
            self._set_alarm("exit-timeout", when, lambda: self._give_up(text, code))

    def _give_up(self, note, code):
        self._ending = True
        self._output.fatal(note, "task-exit")
        self._raise(note)
        self._abandon_all()
        self._end((code or 1) << 8)

    def kill(self, signum):
        for process in list(self._procs.values()):
            process.kill(signum)

    def exception(self, kind):
        if not self._ending:
            self._ending = True
            self._terminate(self.service.term_signal)

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
        """End the tasks with `signum`, and with SIGKILL what does not heed it.

        A shell passes SIGTERM and SIGALRM on to its tasks; it dies of another signal, and they with it.
        """
        if signum not in (signal.SIGTERM, signal.SIGALRM):
            self._abandon_all()
            self._end(int(signum))
            return
        self.kill(signum)
        if self._procs:
            when = self.service.kernel.time + self.service.kill_timeout
            self._set_alarm("kill", when, lambda: self.kill(self.service.kill_signal))

    def _abandon_all(self):
        procs, self._procs = self._procs, {}
        for process in procs.values():
            process.abandon()

    # -- ending --------------------------------------------------------------------------------------

    def _end(self, status):
        """All is over, with a wait status; None: nothing was ever started."""
        if self._over:
            return
        self._over = True
        self._cancel_alarms()
        if self._output is not None:
            self._output.close()
        if self._directory is not None:
            self._directory.remove()
        if status is not None:
            leader = rset.ranks(self.R)[0]
            self.service.append(
                self.id,
                "exec.eventlog",
                ("shell-exit", {"rank": leader, "wait_status": status}),
                ("complete", {"status": status}),
                ("done", None),
            )
        else:
            self.service.append(self.id, "exec.eventlog", ("done", None))
        # The output is in the KVS before anybody hears that the job is over.
        self.service.flush()
        if status is not None:
            self.answer("finish", {"status": status})
        self.release()

    def abandon(self):
        self._over = True
        self._cancel_alarms()
        self._abandon_all()
        if self._directory is not None:
            self._directory.remove()
