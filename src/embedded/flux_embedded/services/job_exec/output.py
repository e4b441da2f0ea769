"""Standard output and error of a job (RFC 24): to the KVS key ``guest.output``, or to files.

``guest.output`` is an eventlog: ``header``; ``data`` with stream, rank (of the task, text), data, and
encoding ``base64`` where the bytes are no UTF-8, or ``eof``; ``log`` for messages of the job shell itself
(level, message).
"""

import base64
import os

from flux_embedded.formats import jobid

HEADER = {
    "version": 1,
    "encoding": {"stdout": "UTF-8", "stderr": "UTF-8"},
    "count": {"stdout": 1, "stderr": 1},
    "options": {},
}


class Output:
    """The output of one job.

    Args:
        service: has ``append``
        id (int): the job
        options (dict): ``attributes.system.shell.options``
        name (str): for ``{{name}}`` in file names
        directory (str): where relative file names begin
    """

    def __init__(self, service, id, options, name, directory):
        self.service = service
        self.id = id
        self._partial = {}
        self._files = {}
        self._log([("header", HEADER)])
        output = options.get("output")
        output = output if isinstance(output, dict) else {}
        for stream in ("stdout", "stderr"):
            where = output.get(stream)
            if isinstance(where, dict) and where.get("type") == "file":
                self._files[stream] = self._open(where, name, directory)
        if "stdout" in self._files and "stderr" not in output:
            self._files["stderr"] = self._files["stdout"]

    def _log(self, events):
        self.service.append(self.id, "output", *events)

    def _open(self, where, name, directory):
        path = str(where.get("path", ""))
        for key, value in (
            ("id", jobid.f58(self.id)),
            ("jobid", jobid.f58(self.id)),
            ("id.f58", jobid.f58(self.id)),
            ("id.dec", str(self.id)),
            ("name", name),
        ):
            path = path.replace(f"{{{{{key}}}}}", value)
        path = os.path.join(directory, path)
        mode = "ab" if where.get("mode") == "append" else "wb"
        handle = open(path, mode, buffering=0)  # noqa: SIM115  closed in `close`
        for stream in ("stdout", "stderr"):
            self._log([("redirect", {"stream": stream, "rank": "0", "path": path})])
        return handle

    def write(self, task, stream, data):
        """Take what task number `task` wrote; b"" is its end. Whole lines are passed on."""
        key = (task, stream)
        if data:
            data = self._partial.pop(key, b"") + data
            end = data.rfind(b"\n") + 1
            # A line without end in sight must not be kept for ever.
            if len(data) - end > 1 << 20:
                end = len(data)
            if end < len(data):
                self._partial[key] = data[end:]
            self._emit(task, stream, data[:end])
            return
        self._emit(task, stream, self._partial.pop(key, b""))
        if stream not in self._files:
            self._log([("data", {"stream": stream, "rank": str(task), "eof": True})])

    def _emit(self, task, stream, data):
        if not data:
            return
        if stream in self._files:
            self._files[stream].write(data)
            return
        context = {"stream": stream, "rank": str(task)}
        try:
            context["data"] = data.decode("utf-8")
        except UnicodeDecodeError:
            context["data"] = base64.b64encode(data).decode("ascii")
            context["encoding"] = "base64"
        self._log([("data", context)])

    def fatal(self, message):
        """A message of the shell before it gives up."""
        self._log([("log", {"rank": 0, "level": 0, "message": message})])

    def close(self):
        for handle in {id(f): f for f in self._files.values()}.values():
            handle.close()
