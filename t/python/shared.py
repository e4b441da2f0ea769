# SPDX-License-Identifier: LGPL-3.0-or-later
"""Find the recorded data of a real instance, and read it.

The data is not in this tree.  Its directory (with ``golden/`` and ``hwloc/`` in it) is named by the
environment variable FLUX_TEST_DATA; without that, ``../shared`` beside the root of the tree is
taken if it exists.  Where there is none, the tests that need it are skipped, and say so.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

SRCDIR = Path(__file__).resolve().parents[2]
MISSING = "no recorded data: set FLUX_TEST_DATA to the directory that holds golden/ and hwloc/"


def data_dir():
    """Return the directory of recorded data as a Path, or None."""
    named = os.environ.get("FLUX_TEST_DATA")
    # A relative name counts from where pytest was started, like any file name on a command line.
    path = Path(named).resolve() if named else SRCDIR.parent / "shared"
    return path if (path / "golden").is_dir() else None


def require_data():
    """Return the directory of recorded data as a Path; skip the test (or, at import, the file)
    without it."""
    path = data_dir()
    if path is None:
        pytest.skip(MISSING, allow_module_level=True)
    return path


def runs(few, many):
    """How many random runs there are to be: `few`, or `many` with FLUX_TEST_LONG."""
    return many if os.environ.get("FLUX_TEST_LONG") else few


def seeds(few, many):
    """The seeds of as many `runs`."""
    return range(runs(few, many))


def require_long():
    """Skip the test unless FLUX_TEST_LONG asks for those that take minutes."""
    if not os.environ.get("FLUX_TEST_LONG"):
        pytest.skip("takes long: FLUX_TEST_LONG=1")


def data_path(name):
    """Return the Path of one recorded file, such as ``golden/eventlogs.jsonl``; skip without it."""
    path = require_data() / name
    if not path.exists():
        pytest.skip(f"no recorded data: {path} is missing", allow_module_level=True)
    return path


def run(*command, **more):
    """Run a command, without input; its output is text, in `stdout` and `stderr`."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    words = [str(word) for word in command]
    return subprocess.run(words, **{**pipes, "text": True, "check": False, **more})


def load_json(name):
    """Return the parsed content of a recorded JSON file."""
    with open(data_path(name), encoding="utf-8") as stream:
        return json.load(stream)


def recorded_cases(cases, values=1):
    """Cases of recorded data for ``pytest.mark.parametrize``, with so many values in each; without any, a single one,
    which is skipped and names the missing data."""
    found = list(cases)
    if found:
        return found
    path = data_dir()
    reason = MISSING if path is None else f"no recorded data: nothing for this test in {path}"
    return [pytest.param(*[None] * values, id="no-data", marks=pytest.mark.skip(reason=reason))]


def corner_cases(policies):
    """Return the recorded corner cases of schedules of each of `policies`, for `recorded_cases`."""
    if data_dir() is None:
        return []
    return [
        pytest.param(case, policy, id=f"{case['name']}-{policy}")
        for case in load_json("golden/schedules/corner-cases.json")
        for policy in case["start"]
        if policy in policies
    ]


def optional_jsonl(name):
    """Return the parsed lines of a recorded JSONL file, or [] without data (for parametrize at
    import time)."""
    path = data_dir()
    if path is None or not (path / name).exists():
        return []
    with open(path / name, encoding="utf-8") as stream:
        return [json.loads(line) for line in stream if line.strip()]
