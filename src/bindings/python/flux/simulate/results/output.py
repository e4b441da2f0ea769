# SPDX-License-Identifier: LGPL-3.0-or-later
"""The output directory of a call, and results of earlier calls in it."""

import contextlib
import fcntl
import os
import shutil

from flux.simulate.results import reading

#: Files of a result, without its directory of eventlogs.
FILES = (
    "summary.json", "provenance.json", "jobs.csv", "schedule.json", "machine_states.csv", "schedule.swf",
)  # fmt: skip


@contextlib.contextmanager
def naming_errors():
    """Turn an OSError into a ValueError with the file's name in its text."""
    try:
        yield
    except OSError as exc:
        raise ValueError(f"{exc.filename}: {exc.strerror}") from None


@contextlib.contextmanager
def taken(base):
    """Make an output directory, and lock it for the ``with`` block. Raises ValueError if it is no
    directory, or another call writes to it; OSError if it cannot be made."""
    if os.path.exists(base) and not os.path.isdir(base):
        raise ValueError(f"{base}: it is not a directory")
    os.makedirs(base, exist_ok=True)
    lock = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise ValueError(f"{base}: another call is writing its results there") from None
    except OSError:
        pass  # a file system without locks
    try:
        yield
    finally:
        os.close(lock)


def refuse(base, results, remedy):
    """Raise ValueError if there are results (their directories) of an earlier call below `base`,
    which would be mistaken for results of this one."""
    if results:
        names = [os.path.basename(one) for one in results[:3]] + ["..."] * (len(results) > 3)
        raise ValueError(
            f"{base} has results of an earlier call ({', '.join(names)}): give another directory, {remedy}"
        )


def remove(base, results):
    """Remove the files of results (their directories), each directory unless files of others are in
    it, and the report below `base`. Raises OSError."""
    for directory in results:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(os.path.join(directory, "eventlogs"))
        _remove(os.path.join(directory, name) for name in FILES)
        with contextlib.suppress(OSError):
            os.rmdir(directory)
    if results:
        _remove([os.path.join(base, "report.html")])


def _remove(paths):
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)


def make_room(base, tasks):
    """Remove the results that `tasks` make again. Raises OSError, and ValueError if there are
    results of other policies or workloads."""
    ours = {os.path.abspath(task.directory) for task in tasks}
    there = list(reading.directories(base))
    refuse(base, [one for one in there if os.path.abspath(one) not in ours], "or remove these")
    remove(base, there)
