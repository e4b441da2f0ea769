# SPDX-License-Identifier: LGPL-3.0-or-later
"""The totals of scripts/runtests: tests passed, failed and skipped."""

import glob
import importlib.machinery
import importlib.util
import os
import signal

import pytest


@pytest.fixture(scope="module")
def runtests(srcdir):
    # The script ends in sys.exit(main()): load the text before that.
    source, end, rest = (srcdir / "scripts" / "runtests").read_text().rpartition("sys.exit(main())")
    assert end and not rest.strip()
    module = importlib.util.module_from_spec(importlib.machinery.ModuleSpec("runtests", None))
    module.__file__ = str(srcdir / "scripts" / "runtests")
    exec(compile(source, module.__file__, "exec"), module.__dict__)
    return module


def counts(total):
    return total.passed, total.failed, total.skipped


@pytest.mark.parametrize(
    ("text", "exitcode", "expected"),
    [
        ("ok 1 - a\nok 2 - b\n1..2\n", 0, (2, 0, 0)),
        ("ok 1 - a\nnot ok 2 - b\n#\tcode\n1..2\n", 1, (1, 1, 0)),
        ("1..0 # SKIP no sharness library\n", 0, (0, 0, 1)),
        ("ok 1 # skip a (missing X)\nok 2 - b\n1..2\n", 0, (1, 0, 1)),
        ("not ok 1 - a # TODO known breakage\n1..1\n", 0, (0, 0, 1)),
        ("ok 1 - a # TODO known breakage vanished\n1..1\n", 0, (0, 1, 0)),
        ("ok 1 - a\n", 1, (1, 1, 0)),  # no plan: it did not come to its end
        ("ok 1 - a\n1..3\n", 0, (1, 1, 0)),
        ("ok 1 - a\n1..1\n", 1, (1, 1, 0)),  # the instance around the script failed at its end
        ("", 137, (0, 1, 0)),
        ("okay then\nnot okay\nok 1 - a\n1..1\n", 0, (1, 0, 0)),
    ],
)
def test_tap(runtests, text, exitcode, expected):
    assert counts(runtests.read_tap(text, "t0001.t", exitcode)) == expected


def test_the_total_names_the_parts_not_run(runtests, capsys):
    total = runtests.Total()
    total.passed = 7
    assert str(total) == "7 passed, 0 failed, 0 skipped"
    part = runtests.Total()
    runtests.report_not_run("t/python", ["pytest", "greenlet"], part)
    runtests.report_not_run("t/faults", ["greenlet"], part)
    assert "NOT RUN t/faults" in capsys.readouterr().out
    total += part
    assert str(total).startswith("7 passed, 0 failed, 0 skipped; NOT RUN: t/python and t/faults, ")
    assert str(total).endswith("no greenlet and no pytest (scripts/venv sets up a Python that has)")
    assert not total.skipped and not total.failed


def test_failures_are_named(runtests):
    total = runtests.read_tap("not ok 1 - the pool is full\n1..1\n", "t0001.t", 1)
    assert total.failures == ["t0001.t: the pool is full"]


def test_junit(runtests, tmp_path):
    report = tmp_path / "pytest.xml"
    report.write_text(
        """<testsuites><testsuite>
        <testcase classname="t.python.resource.test_a" name="one"/>
        <testcase classname="t.python.resource.test_a.TestX" name="two"><failure message="no"/></testcase>
        <testcase classname="t.python.test_b" name="three"><skipped message="no data"/></testcase>
        <testcase classname="t.python.test_b" name="four"><error message="fixture"/></testcase>
        </testsuite></testsuites>"""
    )
    totals = runtests.read_junit(report)
    assert counts(totals["resource/test_a"]) == (1, 1, 0)
    assert counts(totals["test_b"]) == (0, 1, 1)
    assert totals["test_b"].reasons == {"no data": 1}


def test_excerpt_shows_the_failure(runtests):
    lines = [
        "ok 1 - a", "expecting success: cmd b", "its output", "not ok 2 - b", "ok 3 - c", "1..3",
    ]  # fmt: skip
    assert runtests.excerpt("\n".join(lines)) == lines[1:4]


def test_the_version_of_the_flux_that_a_tree_is_built_for(runtests, tmp_path):
    versions = "commands:    \\t\\t0.89.0-3-gabc\\nlibflux-core:\\t0.89.0\\n"
    flux = tmp_path / "flux"
    flux.write_text(f"#!/bin/sh\nprintf '{versions}'\n")
    flux.chmod(0o755)
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "config.sh").write_text(f"JQ='jq'\nREAL_FLUX='{flux}'\nPYTHON=''\n")
    assert runtests.version_of_flux(str(tmp_path)) == "0.89.0-3-gabc"


def test_who_is_left_of_a_script_does_not_hold_it_up(runtests, tmp_path):
    """A process that a script started in its own session may keep the output open indefinitely."""
    script = "setsid sh -c 'echo $$ >pid; mv pid orphan; exec sleep 600' & while [ ! -e orphan ]; do sleep 0.05; done; sleep 600"
    command = ["sh", "-c", "echo begun; " + script]
    log = tmp_path / "log"
    try:
        done = runtests.run_command(command, str(tmp_path), str(log), None, seconds=2)
        assert done == ("begun\n\nkilled after 2 s\n", 137) and log.read_text() == done[0]
        os.kill(int((tmp_path / "orphan").read_text()), 0)  # it is still there
    finally:
        os.kill(int((tmp_path / "orphan").read_text()), signal.SIGKILL)


def test_every_file_is_in_one_part(runtests):
    top = os.path.join(runtests.SRCDIR, "t", "python")
    names = [name for part in runtests.parts_of("t/python") for name in part]
    found = []
    for name in names:
        path = os.path.join(runtests.SRCDIR, name)
        found += glob.glob(os.path.join(path, "test_*.py")) if os.path.isdir(path) else [path]
    assert sorted(found) == sorted(glob.glob(os.path.join(top, "**/test_*.py"), recursive=True))


@pytest.mark.parametrize(
    "command, expected", [("echo fine", (1, 0, 0)), ("echo bad; false", (0, 1, 0))]
)
def test_a_lint_counts_as_a_test(runtests, tmp_path, capsys, command, expected):
    results = runtests.Total()
    runtests.run_lint("ruff", command, str(tmp_path), results)
    assert counts(results) == expected
    assert ("| bad" in capsys.readouterr().out) is bool(expected[1])
