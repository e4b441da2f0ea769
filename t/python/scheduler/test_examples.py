# SPDX-License-Identifier: LGPL-3.0-or-later
"""The examples of the guide (doc/examples) behave as documented, and the code of first-test.rst runs as printed there."""

import ast
import re
import textwrap

import pytest
from peers import EXAMPLES, R, Rig, jobspec, part_of, whole

from flux.scheduler import forecasts

DOC = EXAMPLES.parent
FIRST_TEST = DOC / "guide" / "first-test.rst"
PAGES = sorted((DOC / "guide").glob("scheduler*.rst"))
PAGES += [DOC / "guide" / f"{name}.rst" for name in ("admission", "overriding", "shorter-waits")]


def load(name, *args, inventory=None):
    return Rig(inventory or R(4, 4), EXAMPLES / (name + ".py"), *args)


def blocks(page):
    """The Python code of a page, block by block."""
    blocks = re.findall(r"\.\. code-block:: python\n\n((?:    .*\n|\n)+)", page.read_text())
    return [textwrap.dedent(block) for block in blocks]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_in_the_guide_is_valid(page):
    """Fragments are shown in code blocks: each must at least parse."""
    for block in blocks(page):
        ast.parse(block)


@pytest.fixture
def quiet_second(monkeypatch):
    """Users get the same annotations as on a real instance."""
    monkeypatch.undo()
    assert forecasts.QUIET_TIME_S == 1.0


def test_the_first_test_passes_as_printed(tmp_path, monkeypatch):
    (tmp_path / "my-sched.py").write_text((EXAMPLES / "first.py").read_text())
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(blocks(FIRST_TEST)[0], names)
    names["test_jobs_start_in_order"]()


def test_the_report_of_the_first_test_is_as_printed(capsys, quiet_second):
    exec(blocks(FIRST_TEST)[1], {})
    printed = re.search(r"prints::\n\n((?:    .*\n)+)", FIRST_TEST.read_text()).group(1)
    assert capsys.readouterr().out == textwrap.dedent(printed)


def test_the_other_blocks_of_the_first_test_run():
    assert len(blocks(FIRST_TEST)) == 3
    exec(blocks(FIRST_TEST)[2], {})


def test_stepping():
    rig = load("stepping")
    assert rig.manager.ready_request == {"mode": "limited", "limit": 64}
    rig.alloc((1, 2), jobspec(10))
    rig.alloc(3, jobspec(1))
    assert rig.started() == [1, 3]
    assert rig.sched.stats_get()["sched_yields"] >= 3


def test_limits():
    rig = load("limits", "max-nodes=2")
    rig.alloc({1: whole(2, 10), 2: whole(1, 10)}, userid=500)
    rig.alloc({3: whole(1, 10), 4: whole(1)}, userid=600)
    assert rig.started() == [1, 3]
    assert rig.denied(4) == "a time limit is required"
    assert rig.ask("limits.stats-get")[1]["nodes_by_user"] == {"500": 2, "600": 1}
    rig.free(1, part_of(rig.success(1)["R"], "0"), final=False)
    assert rig.started() == [1, 3, 2]
    rig.cancel(2)
    assert not rig.logged(3)


def test_limits_follow_a_reload():
    rig = Rig(R(4, 4))
    rig.will_be_found(9, R(2, 4), userid=500)
    rig.load(EXAMPLES / "limits.py", "max-nodes=3")
    rig.alloc(1, jobspec(1, nodes=2, duration=10), userid=500)
    assert rig.started() == []
    with pytest.raises(ValueError, match="max-nodes='x': expected a number of nodes"):
        load("limits", "max-nodes=x")
    with pytest.raises(ValueError, match="unknown argument 'colour=red'"):
        load("limits", "colour=red")


def test_estimates():
    rig = load("estimates")
    rig.arrive(1, jobspec(16, duration=100))
    start = rig.now
    rig.alloc(2, jobspec(1, duration=100))
    assert rig.annotations(2) == {"sched": {"t_estimate": start + 100}}
    rig.free(1)
    assert rig.annotations(2) == {"sched": {"resource_summary": "rank0/core0"}}


def test_widest():
    rig = load("widest", "narrowest=2")
    rig.alloc(1, jobspec(2, duration=10), priority=31)
    rig.alloc({2: jobspec(1), 3: jobspec(15, duration=100)})
    start = rig.now
    assert rig.started() == [3]
    assert rig.denied(2) == "no jobs of less than 2 cores here"
    assert rig.shown(3)["width"] == 15
    assert rig.reason(1).startswith("insufficient resources: needs 2 slots")
    # A wider job goes ahead although it comes later, and the reasons say so.
    rig.alloc(4, jobspec(16, duration=1000))
    assert rig.reason(1) == "behind ƒ5"
    assert rig.reason(4).startswith("insufficient resources: needs 16 slots")
    assert rig.shown(4)["t_estimate"] == start + 100
    assert rig.shown(1)["t_estimate"] == start + 1100
    rig.free(3)
    assert rig.started() == [3, 4]


@pytest.mark.parametrize("name", ["widest", "lookahead", "shortest", "aging", "debugfirst"])
def test_policies_keep_reservations(name):
    rig = load(name)
    rig.reserve("dat", 100, 50, nodes=4, users=[0])
    rig.alloc({1: whole(4, 200), 2: whole(4, 50, reservation="later")})
    assert rig.started() == []
    rig.alloc(3, jobspec(4, nodes=2, exclusive=True, duration=20, reservation="dat"), priority=17)
    assert rig.started(after=101) == [3]
    rig.free(3)
    assert rig.started(after=60) == [3, 1]
    assert not rig.logged(3)


def test_shortest():
    rig = load("shortest", "promises=unlimited")
    rig.arrive(1, jobspec(16, duration=100))
    rig.alloc({2: jobspec(16), 3: jobspec(16, duration=300), 4: jobspec(16, duration=200)})
    rig.arrive(5, jobspec(16, duration=1000), priority=17)
    for jobid in (1, 5, 4, 3):
        rig.free(jobid, wait=0)
    assert rig.started() == [1, 5, 4, 3, 2]


def test_aging():
    rig = load("aging", "patience=1000", "queue-depth=unlimited")
    begin = rig.now
    rig.arrive(1, jobspec(16))
    rig.alloc(2, jobspec(16), priority=1, t_submit=begin - 500)
    rig.alloc(3, jobspec(16), priority=20)
    rig.arrive(4, jobspec(16), priority=0, t_submit=begin - 2000)
    assert [job.jobid for job in rig.sched.pending_jobs()] == [4, 3, 2]
    rig.wait(499)
    assert [job.jobid for job in rig.sched.pending_jobs()] == [4, 3, 2]
    rig.wait(2)
    assert [job.jobid for job in rig.sched.pending_jobs()] == [4, 2, 3]
    assert rig.reason(3) == "behind ƒ5"
    rig.cancel(4)
    rig.free(1)
    assert rig.started() == [1, 2]
    rig.wait(1000)
    assert not rig.logged(3)


def test_lookahead():
    rig = load("lookahead")
    rig.alloc({1: jobspec(15), 2: jobspec(2), 3: jobspec(17), 4: jobspec(1)})
    assert rig.started() == [1, 4]
    assert "need 17 slot" in rig.denied(3)
    examined = []
    alloc = rig.sched.resources.alloc
    rig.sched.resources.alloc = lambda *args: examined.append(args[0]) or alloc(*args)
    rig.arrive(5, jobspec(1))
    assert examined == [5]
    rig.free(1)
    assert rig.started() == [1, 4, 2, 5]
    assert rig.ask("lookahead.stats-get")[1]["unlooked"] == 0.0


def test_elsewhere():
    asked = []

    def choose(payload):
        asked.append(payload["jobs"])
        return {"start": payload["jobs"][-1:]}

    rig = Rig(R(4, 4))
    rig.instance.add_service("oracle", {"choose": choose})
    rig.load(EXAMPLES / "elsewhere.py")
    rig.arrive((1, 2, 3))
    assert asked == [[1]]
    rig.prioritize((2, 20))
    rig.settle()
    assert asked == [[1], [2, 3]]
    assert rig.started() == [1, 3]


def test_rackpool(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    rig = Rig(R(8, 4), "sched-fifo", "pool-class=rackpool", "queue-depth=unlimited")
    rig.alloc((1, 2, 3, 4), jobspec(4, duration=10))
    ranks = [rig.success(jobid)["R"]["execution"]["R_lite"][0]["rank"] for jobid in (1, 2, 3, 4)]
    assert ranks == ["0", "1", "2", "3"]
    rig.alloc(5, jobspec(1, nodes=4, duration=10))
    assert rig.success(5)["R"]["execution"]["R_lite"][0]["rank"] == "4-7"


def test_the_users_own_minimal_example(shared_data, tmp_path):
    """The example of the document this library was written from, character by character."""
    text = (shared_data / "seeds" / "003_scheduler-guide-with-api.txt").read_text()
    code = text[text.index("import heapq\n") : text.index("Save this as my-sched.py")]
    path = tmp_path / "my-sched.py"
    path.write_text(code)
    rig = Rig(R(2, 2), path)
    rig.alloc({1: jobspec(3), 2: jobspec(9), 3: jobspec(3), 4: jobspec(1)})
    assert rig.started() == [1]
    assert "need 9 slot" in rig.denied(2)
    rig.free(1)
    assert rig.started() == [1, 3, 4]


def test_debugfirst():
    rig = load("debugfirst")
    start = rig.now
    rig.arrive(1, whole(4, 100))
    rig.alloc({2: whole(4, 3600), 3: whole(4, 1800)})
    latest = [rig.shown(jobid)["t_latest"] - start for jobid in (2, 3)]
    assert latest == [86400, 7200]
    rig.free(1)
    assert rig.started() == [1, 3]


def test_curfew():
    rig = Rig(R(4, 4))
    rig.wait((22 * 3600 - rig.now) % 86400)
    rules = {"curfew": f"{EXAMPLES / 'curfew.py'}:Curfew"}
    rig.load("sched-backfill", config={"rules": rules})
    for jobid, keys in ((1, {"noisy": True}), (2, {"noisy": True}), (3, {})):
        rig.alloc(jobid, jobspec(16, duration=100, **keys))
    assert rig.started() == [3]
    assert rig.reason(1) == "curfew: it is quiet here until 8:00 UTC"
    rig.free(3)
    rig.cancel(2)
    assert rig.started(after=10 * 3600) == [3, 1]
    assert not rig.logged(3)
