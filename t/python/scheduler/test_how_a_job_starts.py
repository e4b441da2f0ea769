# SPDX-License-Identifier: LGPL-3.0-or-later
"""The page "How a job starts" names the calls that are made, in their order."""

import re
import sys
from pathlib import Path

import pytest
from peers import R, Rig, jobspec, whole

import flux.scheduler

TOP = Path(flux.scheduler.__file__).parent.parent
PAGE = Path(__file__).resolve().parents[3] / "doc/reference/how-a-job-starts.rst"

#: ``name`` (``file``), or several names before their file.
CALL = re.compile(r"``([A-Z]\w+\.\w+|read_alloc)``\s*\(``([\w/]+\.py)``\)")

#: The packages of a start. Guards of `flux.jobtap` installed by an earlier test stay in the interpreter,
#: and run at each event that they watch.
PACKAGES = tuple(f"{TOP}/{package}/" for package in ("scheduler", "resource"))

#: By heading, the most files whose code may run: a layer that only passes on shows here.
MOST_FILES = {
    "A job comes, and starts": 19,
    "A job comes, and waits": 23,
    "A job ends, and the waiting one starts": 26,
}


def documented():
    """By heading, the calls that the page names: (file, name)."""
    page = PAGE.read_text(encoding="utf-8")
    parts = re.split(r"\n(?=[^\n]+\n-{5,}\n)", page)
    found = {}
    for part in parts[1:]:
        heading = part.lstrip().split("\n")[0]
        found[heading] = [(file, name) for name, file in CALL.findall(part)]
    return found


def traced(function):
    """The calls of the library's functions: (file, name without its class)."""
    calls = []

    def note(frame, event, arg):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGES):
            calls.append((str(Path(code.co_filename).relative_to(TOP)), code.co_name))

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


def files_of(calls):
    return {file for file, _ in calls if not file.startswith("scheduler/testing/")}


@pytest.mark.parametrize(
    ("module", "running", "asked", "most"),
    [
        ("sched-fifo", [{"nodes": 1, "exclusive": True}], {"nodes": 1, "exclusive": True}, 14),
        ("sched-backfill", [{"nodes": 1, "exclusive": True}], {"nodes": 1, "exclusive": True}, 17),
        ("sched-backfill", [{"cores": 3}] * 4, {"cores": 2}, 22),  # it waits
    ],
)
def test_unused_features_do_not_run(module, running, asked, most):
    """Another job of a shape that has started: no new shape, rules, estimates or questions."""
    rig = Rig(R(4, 4), module, estimates=False)
    for jobid, wants in enumerate([asked, *running], 1):
        rig.arrive(jobid, jobspec(1, duration=100, **wants))
    rig.free(1, wait=0)
    calls = traced(lambda: rig.arrive(9, jobspec(1, duration=100, **asked)))
    assert (9 in rig.started()) == (len(running) == 1)
    assert len(files_of(calls)) <= most, sorted(files_of(calls))


def test_the_calls_of_the_page_are_made_in_their_order():
    rig = Rig(R(4, 4), "sched-backfill", "queue-depth=unlimited", estimates=False)
    rig.arrive(1, whole(3, 100))

    pages = documented()
    happens = {
        "A job comes, and starts": lambda: rig.arrive(2, whole(1, 50)),
        "A job comes, and waits": lambda: rig.arrive(3, whole(2, 50)),
        "A job ends, and the waiting one starts": lambda: rig.free(1, wait=0),
    }
    for heading, event in happens.items():
        calls = traced(event)
        files = files_of(calls)
        assert len(files) <= MOST_FILES[heading], sorted(files)
        assert len(pages[heading]) >= 6
        at = 0
        for file, name in pages[heading]:
            call = file, name.split(".")[-1]
            assert call in calls[at:], f"{heading}: {name} is not called after those before it"
            at += calls[at:].index(call)
    assert rig.started() == [1, 2, 3]


def test_the_files_that_the_page_names_are_there():
    files = re.findall(r"``((?:scheduler|resource)/[\w/]+\.py)``", PAGE.read_text(encoding="utf-8"))
    assert len(files) > 20
    assert [file for file in files if not (TOP / file).exists()] == []
