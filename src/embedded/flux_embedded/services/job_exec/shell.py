# SPDX-License-Identifier: LGPL-3.0-or-later
"""The surroundings of a job: its directory with the files of its jobspec (RFC 37), and ``{{templates}}``."""

import base64
import json
import os
import re
import resource
import shutil
import signal
import socket
import tempfile

from flux_engine.formats import jobid

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
