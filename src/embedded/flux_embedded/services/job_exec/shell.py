# SPDX-License-Identifier: LGPL-3.0-or-later
"""The surroundings of a job: its output; its directory with the files of its jobspec (RFC 37), and ``{{templates}}``."""

import base64
import json
import os
import re
import resource
import shutil
import signal
import socket
import tempfile

from flux_engine.formats import idset, jobid

STREAMS = ("stdout", "stderr")


class Output:
    """Standard output and error of one job (RFC 24), whose `options` are ``attributes.system.shell.options``: to the KVS key
    ``guest.output``, or to files.

    ``guest.output`` is an eventlog: ``header``; ``data`` with stream, rank (of the task, text), data, and
    encoding ``base64`` where the bytes are not UTF-8, or ``eof``; ``log`` for messages of the job shell itself
    (level, message).
    """

    def __init__(self, service, id, options, tasks, templates):
        self.service = service
        self.id = id
        self._tasks = tasks
        self._templates = templates
        self._directory = None
        self._partial = {}
        self._handles = {}
        encoding, count = dict.fromkeys(STREAMS, "UTF-8"), dict.fromkeys(STREAMS, len(tasks))
        header = {"version": 1, "encoding": encoding, "count": count, "options": {}}
        self._log([("header", header)])
        output = options.get("output")
        output = output if isinstance(output, dict) else {}
        self._where = {
            stream: where
            for stream, where in output.items()
            if stream in STREAMS and isinstance(where, dict) and where.get("type") == "file"
        }
        if "stdout" in self._where and "stderr" not in output:
            self._where["stderr"] = self._where["stdout"]

    def open(self, directory):
        """Open the files; relative names begin in directory. OSError if one cannot be opened."""
        self._directory = directory
        for stream, where in self._where.items():
            for task in self._tasks:
                self._file(stream, task)
            path = self._templates.render(str(where.get("path", "")))
            ranks = idset.encode([0, len(self._tasks)], brackets=True)
            self._log([("redirect", {"stream": stream, "rank": ranks, "path": path})])

    def _log(self, events):
        self.service.append(self.id, "output", *events)

    def _file(self, stream, task):
        """The file for a stream of a task; a file named twice is opened once."""
        where = self._where[stream]
        path = self._templates.render(str(where.get("path", "")), task)
        path = os.path.join(self._directory, path) if path else path
        if path not in self._handles:
            self._handles[path] = open(path, "wb", buffering=0)  # noqa: SIM115  closed in `close`
        return self._handles[path]

    def write(self, task, stream, data):
        """Take output of task number `task`; b"" is its end. Whole lines are passed on."""
        key = (task, stream)
        if data:
            data = self._partial.pop(key, b"") + data
            end = data.rfind(b"\n") + 1
            # Do not buffer an endless line.
            if len(data) - end > 1 << 20:
                end = len(data)
            if end < len(data):
                self._partial[key] = data[end:]
            self._emit(task, stream, data[:end])
            return
        self._emit(task, stream, self._partial.pop(key, b""))
        if stream not in self._where:
            self._log([("data", {"stream": stream, "rank": str(task), "eof": True})])

    def _emit(self, task, stream, data):
        if not data:
            return
        where = self._where.get(stream)
        lines = [line for line in re.split(rb"(?<=\n)", data) if line]
        if where is not None:
            label = b"%d: " % task if where.get("label") else b""
            self._file(stream, self._tasks[task]).write(b"".join(label + line for line in lines))
        else:  # one event for each line, like the shell of a real Flux
            self._log([("data", _data(stream, task, line)) for line in lines])

    def log(self, message, level):
        """Log a message of the shell; LOG_EMERG: its last one."""
        self._log([("log", {"rank": 0, "level": level, "message": message})])

    def close(self):
        for handle in self._handles.values():
            handle.close()


def _data(stream, task, data):
    """The context of a ``data`` event (RFC 24)."""
    context = {"stream": stream, "rank": str(task)}
    try:
        context["data"] = data.decode("utf-8")
    except UnicodeDecodeError:
        context["data"] = base64.b64encode(data).decode("ascii")
        context["encoding"] = "base64"
    return context


_TEMPLATE = re.compile(r"\{\{([^{}]*)\}\}")


def limits(rlimit):
    """Return the limits of the shell option ``rlimit`` that differ from this process's: [(resource, (soft, hard))].

    Raises:
        ValueError: one is unknown, or no number
    """
    found = []
    for name, value in rlimit.items():
        which = getattr(resource, f"RLIMIT_{name.upper()}", None)
        if which is None or type(value) is not int:
            raise ValueError(f"rlimit: invalid shell option rlimit.{name}={json.dumps(value)}")
        soft, hard = resource.getrlimit(which)
        if hard != resource.RLIM_INFINITY and not 0 <= value <= hard:
            value = hard
        if value != soft:
            found.append((which, (value, hard)))
    return found


def warning(option):
    """Return (seconds, signal) of the shell option ``signal``: the tasks get the signal so long before the job expires; 0: never."""
    if not option:
        return 0.0, signal.SIGUSR1
    return float(option["timeleft"]), signal.Signals(option["signum"])


class Directory:
    """The directory of one job with its files, which exists while tasks run.

    It is `name` in `rundir`, or a unique one for temporary files without a `rundir`. `files` has the entries of
    ``attributes.system.files``; ValueError if one is malformed, or leads out of the directory.
    """

    def __init__(self, rundir, name, files):
        if rundir is None:
            self.path = tempfile.mkdtemp(prefix=f"{name}-")
        else:
            self.path = os.path.join(rundir, name)
            os.mkdir(self.path, 0o700)
        try:
            for name, entry in files.items():
                self._write(name, entry)
        except (KeyError, TypeError, AttributeError) as exc:
            self.remove()
            raise ValueError(f"files: {name}: malformed entry: {exc!r}") from None
        except (OSError, ValueError):
            self.remove()
            raise

    def _write(self, name, entry):
        target = os.path.normpath(os.path.join(self.path, name))
        if not target.startswith(self.path + os.sep):
            raise ValueError(f"files: {name}: outside the job's directory")
        data = entry["data"]
        if entry.get("encoding") == "base64":
            data = base64.b64decode(data)
        elif isinstance(data, str):
            data = data.encode("utf-8", "surrogateescape")
        else:
            data = json.dumps(data).encode()
        os.makedirs(os.path.dirname(target), exist_ok=True)
        mode = entry.get("mode", 0o600) & 0o777
        with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)

    def remove(self):
        shutil.rmtree(self.path, ignore_errors=True)


class Templates:
    """The ``{{name}}`` of one job's command, environment and file names; unknown ones are not replaced."""

    def __init__(self, id, name, tmpdir, tasks):
        self._values = {
            "name": name,
            "tmpdir": tmpdir,
            "id": jobid.f58(id),
            "size": len(tasks),
            "ntasks": len(tasks),
            "nnodes": 1 + max(task.node for task in tasks),
        }
        for form, encode in jobid.FORMS.items():
            self._values[f"id.{form}"] = encode(id)

    def render(self, text, task=None):
        """Replace the known names in a text; those that differ by task or node only with `task` (layout.Placed)."""
        if "{{" not in text:
            return text
        values = self._values
        if task is not None:
            values = {
                **values,
                **dict.fromkeys(("taskid", "task.id", "task.rank"), task.rank),
                **dict.fromkeys(("task.index", "task.localid"), task.local_id),
                "node.id": task.node,
                "node.name": socket.gethostname(),
            }

        def replace(match):
            name = match.group(1)
            if name.startswith("jobid"):
                name = name[len("job") :]
            return str(values[name]) if name in values else match.group()

        return _TEMPLATE.sub(replace, text)
