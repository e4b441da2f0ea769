# SPDX-License-Identifier: LGPL-3.0-or-later
"""The program of a job: one run."""

import json
import os
import pickle
import sys

from flux.simulate import run


def main():
    """Make one run. The command line is the directory, the run's number, and the name of its
    files."""
    directory, number, name = sys.argv[1:]
    parent = os.getppid()

    def tell(progress):
        if os.getppid() != parent:
            os._exit(1)  # the job is lost
        _replace(os.path.join(directory, f"{number}.progress"), json.dumps(progress).encode())

    try:
        place, task = _read(os.path.join(directory, f"{number}.task"))
        task.case.workload = _read(os.path.join(directory, f"case-{place}"))
        result = run.result_of(task, tell)
    except KeyboardInterrupt:
        result = "failed", "interrupted"
    data = pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
    _replace(os.path.join(directory, f"{name}.result"), data)


def _read(path):
    with open(path, "rb") as stream:
        return pickle.load(stream)


def _replace(path, data):
    # Atomic: a reader sees the old file or the new one.
    with open(f"{path}.new", "wb") as stream:
        stream.write(data)
    os.replace(f"{path}.new", path)
