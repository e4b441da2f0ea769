# SPDX-License-Identifier: LGPL-3.0-or-later
"""The command's side of runs as jobs."""

import contextlib
import json
import os
import pickle
import selectors
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace

from flux.simulate.live import flux_command
from flux.simulate.signals import ending
from flux.simulate.workload.record import OptionError

#: Seconds between checks of the jobs' progress.
LOOK_EVERY = 0.25
#: The job's program. The path is this process's: its bindings may differ from the instance's.
PROGRAM = "import sys; sys.path.pop(0); from flux.simulate.as_jobs.program import main; main()"


def run_as_jobs(tasks, progress=None):
    """Run `tasks` as jobs of the enclosing instance; see `run.run_all`.

    The working directory, or that of the results, must be on a file system shared by all nodes.
    """
    for task in tasks:
        if task.policy.entry is not None:
            raise OptionError(
                f"{task.policy.name}: a class cannot be sent to another node: write it into a file, and name that"
            )
    places = [os.path.dirname(task.directory) for task in tasks if task.directory]
    base = os.path.abspath(os.path.commonpath(places)) if places else os.getcwd()
    os.makedirs(base, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".flux-simulate-", dir=base) as directory:
        _write_tasks(tasks, directory)
        return _Runs(tasks, directory, progress).run()


def _write_tasks(tasks, directory):
    places = {}
    for number, task in enumerate(tasks):
        place = places.setdefault(id(task.workload), len(places))
        path = os.path.join(directory, f"case-{place}")
        if not os.path.exists(path):
            _write(path, task.workload)
        # Each workload is written once, not once per policy.
        bare = replace(task, case=replace(task.case, workload=None))
        _write(os.path.join(directory, f"{number}.task"), (place, bare))
    call = {
        "jobs": len(tasks),
        "command": [sys.executable, "-c", PROGRAM, directory],
        "directory": os.getcwd(),
        "environment": {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    }
    with open(os.path.join(directory, "call.json"), "w", encoding="utf-8") as stream:
        json.dump(call, stream)


def _write(path, value):
    with open(path, "wb") as stream:
        pickle.dump(value, stream, pickle.HIGHEST_PROTOCOL)


class _Runs:
    def __init__(self, tasks, directory, progress):
        self.tasks = tasks
        self.directory = directory
        self.progress = progress
        self.results = [None] * len(tasks)
        self.left = set(range(len(tasks)))
        self.interrupted = False
        self._seen = {}

    def run(self):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "submit.py")
        with open(os.path.join(self.directory, "submit.err"), "w+", encoding="utf-8") as errors:
            # In its own session: Ctrl-C reaches this process only, which forwards it.
            submit = subprocess.Popen(
                [flux_command("--parallel=flux"), "python", script, self.directory],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True,
            )  # fmt: skip

            def interrupt(signum, frame):
                self.interrupted = True
                with contextlib.suppress(OSError):
                    submit.stdin.write(b"interrupt\n")
                    submit.stdin.flush()

            try:
                with ending(interrupt):
                    self._follow(submit.stdout)
            finally:
                # EOF: `submit` cancels the running jobs and exits.
                with contextlib.suppress(OSError):
                    submit.stdin.close()
                code = submit.wait()
                submit.stdout.close()
            errors.seek(0)
            said = errors.read().strip().splitlines() or [f"exit code {code}"]
        if self.left and not self.interrupted:
            raise ValueError(f"--parallel=flux: the instance takes no jobs: {said[-1]}")
        return self.results, self.interrupted

    def _follow(self, stream):
        """Read the lines of `submit` up to the end."""
        begun = b""
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while self.left:
                if not selector.select(LOOK_EVERY):
                    self._look()
                    continue
                data = os.read(stream.fileno(), 65536)
                if not data:
                    return
                *lines, begun = (begun + data).split(b"\n")
                for line in lines:
                    self._ended(**json.loads(line))

    def _look(self):
        if self.progress is None:
            return
        for number in self.left:
            with contextlib.suppress(FileNotFoundError):
                with open(self._path(f"{number}.progress"), encoding="utf-8") as stream:
                    text = stream.read()
                if text != self._seen.get(number):
                    self._seen[number] = text
                    self.progress.update(self.tasks[number], json.loads(text))

    def _ended(self, number, name, text):
        """A job ended: `name` is the stem of its files, `text` the reason if it left no result."""
        self.left.discard(number)
        for kind, stream in (("out", sys.stdout), ("err", sys.stderr)):
            with contextlib.suppress(FileNotFoundError):
                path = self._path(f"{name}.{kind}")
                with open(path, encoding="utf-8", errors="replace") as source:
                    shutil.copyfileobj(source, stream)
        kind, value = "failed", text
        with contextlib.suppress(FileNotFoundError):
            with open(self._path(f"{name}.result"), "rb") as stream:
                kind, value = pickle.load(stream)
        self.results[number] = value
        if kind == "done" and self.progress is not None:
            self.progress.finished(self.tasks[number], value)

    def _path(self, name):
        return os.path.join(self.directory, name)
