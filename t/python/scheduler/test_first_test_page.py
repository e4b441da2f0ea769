# SPDX-License-Identifier: LGPL-3.0-or-later
"""The code of doc/guide/first-test.rst runs as it is printed there."""

import re
import textwrap

import pytest
from peers import EXAMPLES

PAGE = EXAMPLES.parent / "guide" / "first-test.rst"
BLOCK = re.compile(r"\.\. code-block:: python\n\n((?:    .*\n|\n)+)")


def blocks():
    """The Python code of the page, block by block."""
    return [textwrap.dedent(block) for block in BLOCK.findall(PAGE.read_text())]


@pytest.fixture
def quiet_second(monkeypatch):
    """Users get the same annotations as on a real instance."""
    from flux.scheduler import forecasts

    monkeypatch.undo()
    assert forecasts.QUIET_TIME_S == 1.0


def test_the_first_test_passes_as_printed(tmp_path, monkeypatch):
    (tmp_path / "my-sched.py").write_text((EXAMPLES / "first.py").read_text())
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(blocks()[0], names)
    names["test_jobs_start_in_order"]()


def test_the_report_is_as_printed(capsys, quiet_second):
    exec(blocks()[1], {})
    printed = re.search(r"prints::\n\n((?:    .*\n)+)", PAGE.read_text()).group(1)
    assert capsys.readouterr().out == textwrap.dedent(printed)


def test_the_other_blocks_run():
    assert len(blocks()) == 3
    exec(blocks()[2], {})
