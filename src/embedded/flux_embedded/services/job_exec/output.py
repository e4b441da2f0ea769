# SPDX-License-Identifier: LGPL-3.0-or-later
"""Standard output and error of a job (RFC 24): to the KVS key ``guest.output``, or to files.

``guest.output`` is an eventlog: ``header``; ``data`` with stream, rank (of the task, text), data, and
encoding ``base64`` where the bytes are not UTF-8, or ``eof``; ``log`` for messages of the job shell itself
(level, message).
"""

import base64
import os
import re

from flux_engine.formats import idset

STREAMS = ("stdout", "stderr")


class Output:
    """The output of one job, whose `options` are ``attributes.system.shell.options``."""

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
