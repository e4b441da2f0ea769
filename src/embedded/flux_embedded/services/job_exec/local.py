"""Real execution: the tasks of a job as processes of this machine.

One process plays the job shells of all nodes: it starts the tasks, collects their output and writes the
events that job shells write. Statuses are those of a real job: the greatest of the tasks' exit codes, a
signal counting as 128 + its number.
"""

import os
import signal

from flux_embedded.formats import jobid
from flux_embedded.services.job_exec import base, layout
from flux_embedded.services.job_exec.mock import EXPIRED
from flux_embedded.services.job_exec.output import Output
from flux_embedded.services.job_exec.process import PIPE, Process

#: exit codes of a shell for a command that is not there, or cannot be run
NOT_FOUND, NOT_EXECUTABLE = 127, 126


class LocalJob(base.ExecJob):
    """One real job."""

    __slots__ = (
        "_tasks",
        "_procs",
        "_codes",
        "_output",
        "_over",
        "_ending",
        "_kill_alarm",
        "_input",
        "_early",
    )

    def __init__(self, service, msg, body):
        super().__init__(service, msg, body)
        self._tasks = []
        self._procs = {}
        self._codes = {}
        self._output = None
        self._over = False
        self._ending = False
        self._kill_alarm = None
        self._input = False
        self._early = []

    def start(self):
        # The request lacks the environment, which only the KVS has.
        lookup = {"id": self.id, "keys": ["jobspec"], "flags": 3}
        self.service.append(self.id, "exec.eventlog", ("init", None), ("starting", None))
        self.service.rpc("kvs.lookup", {"key": f"{jobid.kvs_dir(self.id)}.guest.input"}).then(
            self._look_for_input
        )
        self.service.rpc("job-info.lookup", lookup).then(self._launch)

    def _look_for_input(self, future):
        """Somebody writes the job's standard input if it was submitted so."""
        try:
            self._input = bool(future.body)
        except OSError:
            self._input = False

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
            command = jobspec["tasks"][0]["command"]
            self._tasks = layout.place(jobspec, self.R)
            if not self._tasks:
                raise ValueError("the job has no tasks")
            argv = [command] if isinstance(command, str) else list(command)
            shell = system.get("shell") or {}
            options = shell.get("options") or {}
            name = (system.get("job") or {}).get("name") or os.path.basename(argv[0])
            cwd = system.get("cwd") or "/"
            self._output = Output(self.service, self.id, options, name, cwd)
        except (OSError, ValueError, KeyError, TypeError, IndexError) as exc:
            self.answer(
                "exception", {"severity": 0, "type": "exec", "note": f"cannot start job: {exc}"}
            )
            self._end(None)
            return
        if not os.path.isdir(cwd):
            cwd = "/tmp"
        self.answer("start", {})
        self._shell_events()
        self._spawn_all(argv, self._environment(system), cwd, options)
        if self.expiration:
            self.set_alarm(self.expiration, self._expire)

    def _shell_events(self):
        nnodes = self._tasks[-1].node + 1
        counts = []
        for node in range(nnodes):
            tasks = sum(1 for task in self._tasks if task.node == node)
            if counts and counts[-1][2] == tasks:
                counts[-1][1] += 1
            else:
                counts.append([node, 1, tasks, 1])
        init = {
            "service": f"0-shell-{jobid.f58plain(self.id)}",
            "leader-rank": self._tasks[0].broker_rank,
        }
        self.service.append(
            self.id,
            "exec.eventlog",
            ("shell.init", {**init, "size": nnodes}),
            ("shell.start", {"taskmap": {"version": 1, "map": counts}}),
        )

    def _environment(self, system):
        """The job's environment; what a command cannot do without comes from the instance."""
        given = system.get("environment") or {}
        environment = {key: str(value) for key, value in given.items() if value is not None}
        for key in ("PATH", "HOME"):
            if key not in given and key in self.service.ctx.environ:
                environment[key] = self.service.ctx.environ[key]
        return environment

    def _spawn_all(self, argv, environment, cwd, options):
        uri = self.service.ctx.attrs.get("local-uri")
        source = options.get("input")
        stdin = source.get("stdin") if isinstance(source, dict) else None
        for task in self._tasks:
            env = layout.task_environment(environment, self.id, self._tasks, task, uri)
            try:
                self._spawn(task, argv, env, cwd, stdin)
            except (OSError, ValueError) as exc:
                self._cannot_start(task, argv[0], exc)
                break
        if not self._procs:
            self._end(max(self._codes.values()) << 8)
        early, self._early = self._early, None
        for data, eof in early:
            self.write(data, eof)

    def write(self, data, eof):
        """Standard input for all tasks."""
        if self._early is not None:
            self._early.append((data, eof))
            return
        for process in list(self._procs.values()):
            process.write(data, eof)

    def _spawn(self, task, argv, env, cwd, stdin):
        source = None
        if isinstance(stdin, dict) and stdin.get("type") == "file":
            source = open(os.path.join(cwd, stdin["path"]), "rb")  # noqa: SIM115  closed below
        opened = source
        if source is None and self._input:
            source = PIPE
        try:
            self._procs[task.rank] = Process(
                self.service,
                argv,
                env,
                cwd,
                lambda stream, data, rank=task.rank: self._output.write(rank, stream, data),
                lambda status, rank=task.rank: self._task_ended(rank, status),
                source,
            )
        finally:
            if opened is not None:
                opened.close()

    def _cannot_start(self, task, command, exc):
        """A task could not be started: that ends the job."""
        missing = isinstance(exc, FileNotFoundError)
        self._codes[task.rank] = NOT_FOUND if missing else NOT_EXECUTABLE
        reason = exc.strerror if isinstance(exc, OSError) else str(exc)
        note = f"task {task.rank} (host {task.host}): start failed: {command}: {reason}"
        self._output.fatal(note)
        request = {"id": self.id, "type": "exec", "severity": 0, "note": note}
        self._ending = True
        self.service.notify("job-manager.raise", request)
        self._signal_all(signal.SIGTERM)

    # -- running -------------------------------------------------------------------------------------

    def _task_ended(self, rank, status):
        process = self._procs.pop(rank)
        signaled = status & 0x7F
        code = 128 + signaled if signaled else status >> 8
        self._codes[rank] = code
        task = self._tasks[rank]
        context = {
            "localid": task.local_id,
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
        self._signal_all(int(signum))

    def _signal_all(self, signum):
        for process in list(self._procs.values()):
            process.kill(signum)

    def exception(self, kind):
        if not self._ending:
            self._ending = True
            self._terminate(signal.SIGTERM)

    def set_expiration(self, expiration):
        self.expiration = expiration
        if self.alarm is not None:
            self.alarm.cancel()
            self.alarm = None
        if expiration and self._tasks and not self._over and not self._ending:
            self.set_alarm(expiration, self._expire)

    def _expire(self):
        self.alarm = None
        if not self._ending and not self._over:
            self._ending = True
            self.answer("exception", EXPIRED)
            self._terminate(signal.SIGALRM)

    def _terminate(self, signum):
        """End the tasks with `signum`, and with SIGKILL what does not heed it."""
        self._signal_all(signum)
        if self._procs:
            when = self.service.kernel.time + self.service.kill_timeout
            self._kill_alarm = base.Alarm(
                self.service, when, lambda: self._signal_all(signal.SIGKILL)
            )

    # -- ending --------------------------------------------------------------------------------------

    def _end(self, status):
        """All is over, with a wait status; None: nothing was ever started."""
        if self._over:
            return
        self._over = True
        self._cancel_alarms()
        if self._output is not None:
            self._output.close()
        if status is not None:
            leader = self._tasks[0].broker_rank
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

    def _cancel_alarms(self):
        for alarm in (self.alarm, self._kill_alarm):
            if alarm is not None:
                alarm.cancel()

    def abandon(self):
        self._over = True
        self._cancel_alarms()
        for process in list(self._procs.values()):
            process.abandon()
