# SPDX-License-Identifier: LGPL-3.0-or-later
"""The tables of topics and functions: complete, and every test they name exists."""

import re
from pathlib import Path

import pytest

from flux.jobtap import Plugin

HERE = Path(__file__).resolve().parent
DOC = HERE.parents[2] / "doc"

#: all callback topics of the interface
TOPICS = """job.create job.destroy job.validate job.dependency.SCHEME job.new job.state.depend job.state.priority
    job.state.sched job.event.NAME job.priority.get job.inactive-add job.inactive-remove job.update job.update.KEY
    conf.update plugin.query""".split()


FUNCTIONS = [name for name in vars(Plugin) if not name.startswith("_")]


@pytest.fixture(scope="module")
def guide():
    return (DOC / "guide" / "jobtap.rst").read_text(encoding="utf-8")


def test_each_topic_and_function_has_a_test_that_exists():
    page = (DOC / "reference" / "jobtap.rst").read_text(encoding="utf-8")
    defined = {path.stem for path in HERE.glob("test_*.py")}
    for path in HERE.glob("test_*.py"):
        defined |= set(re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.M))
    named = set(re.findall(r"\b(test_\w+)", page))
    assert named <= defined, named - defined
    rows = " ".join(re.findall(r"(?m)^   \* - (.*)\n     - .*(?:test_|t2205)", page))
    wanted = [f"``{topic}``" for topic in TOPICS] + sorted({*FUNCTIONS} - {"args", "name", "path"})
    assert [name for name in wanted if name not in rows] == []


def test_every_topic_function_and_example_is_there(guide):
    from flux_embedded.services.job_manager.jobtap.stack import EXAMPLES

    assert [topic for topic in TOPICS if f"``{topic}``" not in guide] == []
    assert [name for name in FUNCTIONS if name not in guide] == []
    examples = [path.name for path in Path(EXAMPLES).glob("*.py")]
    assert examples and [name for name in examples if f"``{name}``" not in guide] == []


def test_the_first_example_works(guide, inst, tmp_path):
    block = guide.split(".. code-block:: python\n\n", 1)[1].split("\n\n.. code-block", 1)[0]
    (tmp_path / "limits.py").write_text("\n".join(line[4:] for line in block.splitlines()))
    inst.jobtap(load=str(tmp_path / "limits.py"))
    with pytest.raises(OSError, match="a time limit is required"):
        inst.submit()
    assert inst.jm.jobs.active[inst.submit(duration=60)].priority == 160
