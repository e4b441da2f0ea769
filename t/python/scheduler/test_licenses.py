# SPDX-License-Identifier: LGPL-3.0-or-later
"""Licences: ``[licenses]``."""

import os

import pytest
from each_policy import POLICIES
from peers import START_TIME, R, Rig, jobspec

from flux.scheduler.policies import Backfill, Fifo
from flux.scheduler.site_policy.licenses import read_license


def load(policy, args, rig=None, **licenses):
    rig = rig or Rig(R(4, 4))
    rig.load(policy, *args, config={"licenses": licenses or {"matlab": 2}})
    return rig


def wants(count, slots=1, name="matlab", **keys):
    keys.setdefault("duration", 100)
    return jobspec(slots, licenses={name: count}, **keys)


def used(rig):
    answer = rig.answer("limits")
    return {one["name"]: one["used"] for one in answer["licenses"] if one["used"]}


@POLICIES
def test_the_reason_names_the_licence_that_is_in_use_now(policy, args):
    rig = load(policy, args, matlab=1, ansys=1)
    rig.alloc({1: wants(1), 2: wants(1, name="ansys")})
    rig.alloc(3, jobspec(1, duration=100, licenses={"ansys": 1, "matlab": 1}))
    assert rig.reason(3) == "licenses: ansys 1 of 1 in use; needs 1"
    rig.free(2)
    assert rig.started() == [1, 2]
    assert rig.explain(3)["reason"] == "licenses: matlab 1 of 1 in use; needs 1"


@POLICIES
@pytest.mark.parametrize(
    "licenses, note",
    [
        ("matlab", "licenses='matlab': expected licenses.NAME=NUMBER"),
        ({"matlab": "two"}, "licenses.matlab='two': expected a number, 1 or more"),
        ({"matlab": True}, "licenses.matlab=True: expected a number, 1 or more"),
        ({"matlab": 0}, "licenses.matlab=0: expected a number, 1 or more"),
        ({"matlab": 3}, "licenses: needs 3 of matlab, there are 2"),
        ({"maple": 1}, "licenses: there is no licence maple (known: matlab)"),
        ({f"l{n}": 1 for n in range(65)}, "licenses: 65 names: expected 64 at most"),
    ],
)
def test_more_licences_than_there_are_is_denied(policy, args, licenses, note):
    rig = load(policy, args)
    rig.alloc({1: jobspec(1, licenses=licenses), 2: wants(2)})
    assert rig.denied(1) == note
    assert rig.started() == [2]
    assert not rig.logged(3)


@POLICIES
def test_licences_of_jobs_that_run_when_the_scheduler_comes(policy, args):
    rig = Rig(R(4, 4))
    for jobid, licenses in ((8, {"matlab": 1}), (9, None), (10, "nonsense"), (11, {"maple": 1})):
        spec = jobspec(4, **({"licenses": licenses} if licenses else {}))
        rig.will_be_found(jobid, R(str(jobid - 8), 4), spec, userid=500)
    load(policy, args, rig)
    assert used(rig) == {"matlab": 1}
    assert not rig.logged(3)
    rig.free(9, rig.info.R[9])
    rig.alloc((1, 2), wants(1))
    assert rig.started() == [1]
    rig.free(8, rig.info.R[8])
    for jobid in (10, 11):
        rig.free(jobid, rig.info.R[jobid])
    assert rig.started() == [1, 2]
    assert used(rig) == {"matlab": 2}


@pytest.mark.parametrize(
    "value, text",
    [
        ("x", "'x': expected a whole number, 0 or more, or a table"),
        (-1, "-1: expected a whole number"),
        (True, "True: expected a whole number"),
        ({}, "total is missing"),
        ({"total": -1}, "total=-1: expected a whole number, 0 or more"),
        ({"total": 3, "reserved": 4}, "reserved=4: expected at most the total, 3"),
        ({"total": 3, "used": 4}, "used: unknown key"),
        ({"total": 4, "elsewhere": "used"}, "elsewhere='used': expected the path of a file, from /"),
        ({"total": 4, "elsewhere": 7}, "elsewhere=7: expected text"),
        ({"total": 4, "elsewhere": "/x", "plan": True}, "plan=true: not together with elsewhere"),
        ({"total": 4, "elsewhere": "/x", "every": "soon"}, "every='soon': expected a length of time"),
        ({"total": 4, "every": "30s"}, "every: unknown key"),
    ],
)  # fmt: skip
def test_mistakes_in_an_entry(value, text):
    with pytest.raises(ValueError) as raised:
        read_license("matlab", value)
    assert str(raised.value).startswith(text)


def test_answers():
    rig = load(Backfill, (), matlab={"total": 3, "reserved": 1}, ansys=0)
    rig.alloc({1: wants(2), 2: wants(1)})
    answer = rig.answer("limits")
    assert answer["licenses"] == [
        {"name": "ansys", "total": 0, "reserved": 0, "plan": False, "used": 0, "waiting": 0},
        {"name": "matlab", "total": 3, "reserved": 1, "plan": False, "used": 2, "waiting": 1},
    ]
    stats = rig.answer("stats")
    assert stats["licenses"] == [
        {"name": "ansys", "total": 0, "used": 0},
        {"name": "matlab", "total": 3, "used": 2},
    ]
    reason = "licenses: matlab 2 of 3 in use, 1 reserved; needs 1"
    assert rig.explain(2)["rules"] == [{"rule": "licenses", "reason": reason}]
    for name, verdict, text in (
        ("matlab", "later", "matlab 2 of 3"),
        ("ansys", "never", "there are 0"),
    ):
        answer = rig.answer("when", jobspec=wants(1, name=name))
        assert answer["verdict"] == verdict and text in answer["reason"]


def test_a_start_is_promised_while_all_who_hold_a_planned_licence_have_an_end():
    rig = load(Backfill, (), matlab={"total": 2, "plan": True})
    rig.arrive(1, wants(2, duration=0))
    rig.arrive(2, wants(1))

    def promised():
        job = rig.sched.pending(2)
        return job in rig.sched.promises and rig.sched.promises.when(job)

    assert not promised()
    for expiration in (rig.now + 100, 0, rig.now + 70):
        rig.expire(1, expiration)
        rig.settle()
        assert promised() == expiration
    rig.free(1)
    assert rig.started() == [1, 2]


# -- used elsewhere --------------------------------------------------------------------------------


def test_a_change_of_licences_that_are_not_planned_withdraws_no_promise():
    """A promise on ranks keeps its time if a job is to end earlier; a new one would not be so late."""
    rig = load(Backfill, ())
    rig.alloc(1, jobspec(1, cores=3, duration=200))
    rig.arrive(2, jobspec(1, cores=3, nodes=4, duration=10))
    rig.expire(1, START_TIME + 150)
    rig.reconfigure({"licenses": {"matlab": 5}})
    assert rig.sched.promises.when(rig.sched.pending(2)) == START_TIME + 200


def write(path, text, rig=None, age=0.0):
    path.write_text(text)
    when = START_TIME if rig is None else rig.instance.now()
    os.utime(path, (when - age, when - age))


def matlab(path, **keys):
    return {"matlab": {"total": 4, "elsewhere": str(path), **keys}}


def listed(rig):
    return rig.answer("limits")["licenses"][0]


@POLICIES
def test_licences_used_elsewhere_are_left_to_others(policy, args, tmp_path):
    path = tmp_path / "used"
    write(path, "# of the server\nansys 7\nmatlab 3  # of 4\n")
    rig = load(policy, args, **matlab(path))
    rig.arrive(1, wants(1))
    rig.arrive(2, wants(2))
    assert 1 in rig.sched.running and 2 not in rig.sched.running
    rig.wait(10)
    assert rig.reason(2) == "licenses: matlab 1 of 4 in use, 3 elsewhere; needs 2"
    assert (listed(rig)["elsewhere"], listed(rig)["stale"]) == (3, False)
    write(path, "matlab 1\n", rig)
    rig.wait(31)
    rig.settle()
    assert 2 in rig.sched.running


@POLICIES
def test_the_last_number_holds_and_its_age_is_told(policy, args, tmp_path):
    path = tmp_path / "used"
    write(path, "matlab 3\n", age=60)
    rig = load(policy, args, **matlab(path, **{"max-age": "2m"}))
    rig.alloc(1, wants(2))
    assert not listed(rig)["stale"]
    path.unlink()
    rig.wait(100)
    found = listed(rig)
    assert found["stale"] and found["elsewhere"] == 3 and found["age"] >= 160
    assert rig.answer("stats")["licenses"][0]["stale"]
    assert "3 elsewhere (2m ago); needs 2" in rig.explain(1)["reason"]
    warned = [text for _, text in rig.instance.log if "the last numbers hold" in text]
    assert len(warned) == 1 and "No such file" in warned[0]
    write(path, "matlab 0\n", rig)
    rig.wait(31)
    rig.settle()
    assert 1 in rig.sched.running and not listed(rig)["stale"]


def test_a_file_that_is_written_no_more_is_one_line_and_so_is_its_return(tmp_path):
    path = tmp_path / "used"
    write(path, "matlab 3\n")
    rig = load(Fifo, (), **matlab(path, **{"max-age": "2m"}))
    rig.wait(600)
    stale = f"licenses: elsewhere={path}: older than max-age: the last numbers hold"
    assert [line for line in rig.logged() if "elsewhere=" in line] == [stale]
    write(path, "matlab 3\n", rig)
    rig.wait(100)
    again = f"licenses: elsewhere={path}: up to date again"
    assert [line for line in rig.logged() if "elsewhere=" in line] == [stale, again]


@pytest.mark.parametrize(
    "text", [None, "matlab\n", "matlab -1\n", "matlab two\n", "x" * 70000, "matlab 1" + "0" * 99]
)
def test_a_file_that_cannot_be_read_costs_nothing_but_a_line(text, tmp_path):
    path = tmp_path / "used"
    if text is None:
        os.mkfifo(path)
    else:
        write(path, text)
    rig = load(Fifo, (), **matlab(path))
    rig.arrive(1, wants(4), wait=100)
    assert 1 in rig.sched.running
    found = listed(rig)
    assert (found["elsewhere"], found["age"], found["stale"]) == (0, None, True)
    (line,) = [line for line in rig.logged() if "the last numbers hold" in line]
    assert text is not None or "not a regular file" in line


def test_a_new_table_keeps_the_counts_read_and_reads_one_file_once(tmp_path):
    path = tmp_path / "used"
    write(path, "matlab 2\nansys 1\n")
    rig = load(Fifo, (), **matlab(path))
    path.unlink()
    tables = {name: {"total": 9, "elsewhere": str(path)} for name in ("matlab", "ansys")}
    rig.reconfigure({"licenses": tables})
    counts = {one["name"]: one["elsewhere"] for one in rig.answer("limits")["licenses"]}
    assert counts == {"matlab": 2, "ansys": 1}
    rig.reconfigure({})
    rig.wait(100)
    assert "licenses" not in [rule.name for rule in rig.sched.admission.rules]
