# SPDX-License-Identifier: LGPL-3.0-or-later
"""The invariants of the fault runs: each catches a violation, and all accept recorded runs."""

import contextlib
import json
from pathlib import Path

import faults
import history
import pytest
import shared
from books import Books, resources_of
from site_rules import SiteRules
from watch import Watch

from flux.resource.Rv1Pool import Rv1Pool
from flux.scheduler.site_policy.limits import LimitRule
from flux.scheduler.site_policy.preemption import state, takers, under_way
from flux.scheduler.testing import make_R
from flux.scheduler.trial import Trial
from flux.simulate.checking import Violation, check_eventlog, check_instance


def log(*events):
    """An eventlog from names, or (name, context) pairs."""
    entries = []
    for number, event in enumerate(events):
        name, context = event if isinstance(event, tuple) else (event, None)
        entry = {"timestamp": 100.0 + number, "name": name}
        if context is not None:
            entry["context"] = context
        entries.append(entry)
    return entries


def violates(said, call, *args):
    """The call is a violation, with this text; if that is None, it is none."""
    with pytest.raises(Violation, match=said) if said else contextlib.nullcontext():
        call(*args)


SUBMIT = ("submit", {"userid": 0, "urgency": 16, "flags": 0, "version": 1})
PRIORITY = ("priority", {"priority": 16})
FINISH = ("finish", {"status": 0})
RELEASE = ("release", {"ranks": "all", "final": True})
NORMAL = [
    SUBMIT, "validate", "depend", PRIORITY, "alloc", "start", FINISH, RELEASE, "free", "clean",
]  # fmt: skip


def test_a_normal_life_is_legal_at_every_point():
    for n in range(len(NORMAL)):
        check_eventlog(1, log(*NORMAL[: n + 1]))


def test_recorded_eventlogs_are_legal():
    cases = [json.loads(line) for line in Path(shared.data_path("golden/eventlogs.jsonl")).open()]
    assert len(cases) > 30
    for case in cases:
        check_eventlog(1, case["events"])


@pytest.mark.parametrize(
    "events, reason",
    [
        (["validate"], "the first event is submit"),
        ([SUBMIT, "validate", "validate"], "validate.: it is there a second time"),
        ([SUBMIT, "validate", "alloc"], "there was no priority before it"),
        (NORMAL[:4] + [("priority", None)], "its context has no 'priority'"),
        (NORMAL[:6] + [RELEASE, "free"], "the job had not ended"),
        (NORMAL[:8] + ["clean"], "its resources were not freed"),
        (NORMAL + [("memo", {"a": 1})], "the job was inactive"),
    ],
)
def test_illegal_eventlogs_are_caught(events, reason):
    violates(reason, check_eventlog, 1, log(*events))


def test_time_must_not_run_backwards():
    entries = log(SUBMIT, "validate")
    entries[1]["timestamp"] = 5.0
    violates("its time is before", check_eventlog, 1, entries)


@pytest.mark.parametrize(
    "R",
    [
        make_R("0-1", "0-3", hosts="n[0-2]"),
        make_R("0-1", ""),
        make_R("0-1", "0-3", gpus=""),
        make_R("1,0", "0-3", hosts="n[0-1]"),
        make_R("0-1", "0-3", starttime=5, expiration=4),
        {"version": 2, "execution": {}},
        {"version": 1},
        {"version": 1, "execution": {"R_lite": []}},
    ],
)
def test_illegal_R_is_caught(R):
    with pytest.raises(Violation):
        resources_of(R)


def test_books_catch_units_that_are_given_twice_or_not_held():
    books = Books(make_R("0-1", "0-3"))
    books.allocate(1, make_R("0", "0-1"))
    violates("held by job 1", books.allocate, 2, make_R("0", "1"))
    violates("does not have", books.allocate, 2, make_R("0", "4"))
    violates("a second time", books.allocate, 1, make_R("1", "0"))
    violates("in part", books.free, 1, make_R("0", "0"), True)
    violates("does not hold", books.free, 1, make_R("1", "0"), True)
    books.free(1, make_R("0", "0-1"), True)
    violates("holds nothing", books.free, 1, make_R("0", "0-1"), True)
    books.allocate(3, make_R("0-1", "0-3"))
    violates("leaves", books.free, 3, make_R("0", "0-3"), True)


class Message:
    def __init__(self, kind, topic, body, errnum=0):
        self.type, self.topic, self.body, self.errnum = kind, topic, body, errnum


class Kernel:
    turns = 0
    time = 50.0
    services = {"sched": "S"}

    def now(self):
        return self.time


@pytest.fixture
def watch():
    watch = Watch(Kernel(), strict=True)
    watch.see("S", Message(2, "resource.acquire", {"resources": make_R("0-1", "0-3"), "up": "0"}))
    watch.kernel.turns = 100
    return watch


def ask(watch, jobid, priority=16, **more):
    job = {"shape": 0, "constraint": 0, "duration": 0, "run": 0, "urgency": 16, **more}
    watch.jobs[jobid] = job
    body = {"id": jobid, "priority": priority, "jobspec": history.jobspec_of_job(job)}
    del body["jobspec"]["attributes"]["system"]["environment"]
    watch.see("S", Message(1, "sched.alloc", body))
    watch.kernel.turns += 100


def commit(watch, jobid, R):
    name = f"{jobid:016x}"
    key = "job." + ".".join(name[n : n + 4] for n in (0, 4, 8, 12)) + ".R"
    watch.see("K", Message(1, "kvs.commit", {"ops": [["put", key, json.dumps(R)]]}))


def answer(watch, jobid, **body):
    watch.see("J", Message(2, "sched.alloc", {"id": jobid, **body}))


def start(watch, jobid, R):
    """The scheduler stores R and starts a job."""
    commit(watch, jobid, R)
    answer(watch, jobid, type=0, R=R)


ONE = make_R("0", "0", nslots=1)


def test_a_correct_exchange_passes(watch):
    ask(watch, 5)
    start(watch, 5, ONE)
    watch.see("S", Message(1, "sched.free", {"id": 5, "R": ONE, "final": True}))
    assert not watch.books.held


@pytest.mark.parametrize(
    "wrong, said",
    [
        (lambda watch: answer(watch, 5, type=0, R=ONE), "before its R"),
        (lambda watch: answer(watch, 5, type=2), "without a reason"),
        (lambda watch: [answer(watch, 5, type=3) for _ in range(2)], "has no request"),
        (lambda watch: answer(watch, 5, type=2, note="no"), "though it could run"),
        (lambda watch: start(watch, 5, make_R("1", "0", nslots=1)), "which is down"),
        (lambda watch: start(watch, 5, make_R("0", "0-1", nslots=1)), "asked for"),
        (lambda watch: (ask(watch, 6), start(watch, 6, ONE)), "precedes it"),
    ],
)
def test_an_answer_that_should_not_be_is_caught(watch, wrong, said):
    ask(watch, 5)
    violates(said, wrong, watch)


LATE = "was started after"


@pytest.mark.parametrize("may_wait, waited, said", [(5, 4.9, None), (5, 5.1, LATE), (0, 1, None)])
def test_a_start_after_max_wait_is_caught(watch, may_wait, waited, said):
    ask(watch, 5, max_wait=may_wait)
    R = {**ONE, "execution": {**ONE["execution"], "starttime": 50.0 + waited}}
    commit(watch, 5, R)
    watch.kernel.time += 30  # it took long to store R
    violates(said, lambda: answer(watch, 5, type=0, R=R))


@pytest.mark.parametrize(
    "asked, waited, said",
    [
        ({"max_wait": 5}, 5, None),
        ({"max_wait": 5}, 4, "was denied after 4"),
        ({}, 0, "was denied after 0"),
    ],
)
def test_a_denial_before_max_wait_is_caught(watch, asked, waited, said):
    ask(watch, 5, **asked)
    watch.kernel.time += waited
    violates(said, lambda: answer(watch, 5, type=2, note="max-wait: not started within 5s"))


def test_a_job_that_waits_on_after_max_wait_is_caught(watch):
    ask(watch, 5)
    ask(watch, 6, max_wait=0)
    watch.kernel.time += 59
    assert watch.overdue() is None
    watch.kernel.time += 2
    assert watch.overdue() == 6


def test_an_idle_head_is_caught(watch):
    assert watch.stuck() is None
    ask(watch, 5)
    assert watch.stuck() == 5


def test_a_broken_promise_is_caught(watch):
    watch.bound = True
    ask(watch, 5)
    promised = {"t_estimate": 49.0, "t_estimate_kind": "promised"}
    answer(watch, 5, type=1, annotations={"sched": promised})
    violates("was promised 49.0 and started at 50.0", start, watch, 5, ONE)


def test_a_job_that_waits_for_nothing_is_caught(watch):
    watch.strict = False
    ask(watch, 5)
    assert watch.idle() is None
    watch.kernel.time += 3599
    assert watch.idle() is None
    watch.kernel.time += 2
    assert watch.idle() == 5
    # The job may wait for one ahead of it that can have no promise.
    ask(watch, 4)
    assert watch.idle() is None
    assert list(watch.able) == [4]


def test_calm_histories_are_told_from_others():
    assert history.is_calm(history.make(3, 60, calm=True))
    assert not history.is_calm(history.make(3, 60))


def test_overlaps_of_recorded_jobs_are_caught():
    R = make_R("0", "0")
    first = (1, log(*NORMAL), R)
    check_instance(R, [first, (2, log(*NORMAL[:4]), None)])  # one waits
    violates("core 0 of rank 0 is job", check_instance, R, [first, (2, log(*NORMAL[:6]), R)])


def test_the_same_seed_gives_the_same_history_and_shrinking_keeps_the_cause():
    made = history.make(7)
    assert made == history.make(7) != history.make(8)
    impatient = history.make(7, impatient=True)
    assert [step[0] for step in impatient] == [step[0] for step in made] and impatient != made
    json.dumps(made)
    culprit = made[11]
    assert history.shrink(made, lambda candidate: culprit in candidate) == [culprit]


# -- preemption ------------------------------------------------------------------------------------

CALM_AND_PREEMPTING = 7  # a seed whose history has no fault


def run_preempting():
    made = history.make(CALM_AND_PREEMPTING, 40, calm=True, preempting=True)
    return faults.run_history(made, "sched-backfill", "rv1")


@pytest.fixture
def noted(monkeypatch):
    """Replaces a method by one that notes the result of a function of its arguments first."""
    notes = []

    def note(of, name, what):
        ordinary = getattr(of, name)
        monkeypatch.setattr(of, name, lambda *args: (notes.append(what(*args)), ordinary(*args))[1])
        return notes

    return note


def finds(run, *said):
    found = run()
    assert found.startswith("Violation: ") and all(text in found for text in said)


def test_a_history_with_preemption_has_jobs_that_make_way(noted):
    ended = noted(Watch, "_raised", lambda self, body: body["severity"])
    assert run_preempting() is None
    assert ended.count(0) > 3


def test_a_job_that_is_ended_though_it_need_not_be_is_found(monkeypatch):
    """Planted defects: all that could be chosen are, also on other ranks, and at the deadline none is
    spared."""

    def choose_all(candidates, trial):
        for one in candidates:
            trial.take_out(one.jobid)
        return candidates if trial.fits() else None

    monkeypatch.setattr(takers, "choose", choose_all)
    monkeypatch.setattr(Trial, "needed", lambda self, victims: set(victims))
    monkeypatch.setattr(state.Part, "_is_on", lambda self, jobid, place: True)
    finds(run_preempting, ": job ", "was ended for job")


def test_a_job_that_is_ended_without_a_record_is_found(monkeypatch):
    """A planted defect: the record is not waited for, and never written."""
    monkeypatch.setattr(state.PreemptionState, "store", lambda self, stored=lambda: None: stored())
    finds(run_preempting, ": job ", "there is no record of it")


def run_borrowing():
    """Two of four nodes are taken for 100 s, all four are promised from then on, and a job of standby
    starts on two of them for longer."""

    def whole(nodes, queue, run, duration):
        shape = len(history.ORDINARY) + nodes - 1
        asked = {"shape": shape, "constraint": 0, "urgency": 16}
        return ["submit", [{**asked, "queue": queue, "run": run, "duration": duration}]]

    made = [whole(2, "batch", 100, 100), whole(4, "batch", 20, 400)]
    made += [whole(2, "standby", 300, 300), ["advance", 10], ["advance", 300]]
    return faults.run_history(made, "conservative", "rv1")


def test_a_job_that_is_not_ended_before_the_time_of_another_is_found(noted, monkeypatch):
    """A planted defect: jobs that start in promised time are warned, and not ended."""
    ended = noted(under_way.Preemption, "_end_victim", lambda self, victim: self.in_promise)
    assert run_borrowing() is None and ended == [True]
    monkeypatch.setattr(under_way.Preemption, "_end_victim", lambda *args: None)
    finds(run_borrowing, ": job ", "was promised")


# -- a reload --------------------------------------------------------------------------------------

STRAGGLER = "straggler-of-housekeeping-and-a-new-queue.json"


def test_a_straggler_that_is_given_away_is_found(monkeypatch):
    """A planted defect: all ranks of a job count as free after it has returned one."""
    ordinary = Rv1Pool.remove_ranks
    monkeypatch.setattr(Rv1Pool, "remove_ranks", lambda self, ranks: ordinary(self, "0-3"))
    made = json.loads(Path(faults.HERE, "cases", STRAGGLER).read_text())["history"]
    finds(lambda: faults.run_history(made, "sched-backfill", "rv1"), "is held by job")


# -- limits of a site ------------------------------------------------------------------------------


def held_by(*ranks, cores=1):
    return {(rank, "core", core) for rank in ranks for core in range(cores)}


BANK_LIMIT = {"limits": {"bank": {"per": "bank", "max": {"nodes": 2}}}}
LICENCES = {"licenses": {"matlab": 3}}
RESERVED = {"licenses": {"matlab": {"total": 3, "reserved": 1}}}
SHARING = {"sharing": {"all": {"mode": "bank"}}}
#: by id; 1 and 2 are of one bank
JOBS = {1: {"bank": "red", "licenses": 2}, 2: {"bank": "red", "licenses": 1}, 3: {"bank": "blue"}}


@pytest.mark.parametrize(
    "tables, held, wrong",
    [
        (BANK_LIMIT, {1: held_by(0), 2: held_by(1)}, None),
        (BANK_LIMIT, {1: held_by(0, 1), 2: held_by(1)}, None),  # the same node
        (BANK_LIMIT, {1: held_by(0, 1), 2: held_by(2)}, "limit bank: 3 of 2 nodes"),
        (BANK_LIMIT, {1: held_by(0, 1, 2), 2: held_by(3)}, "limit bank: 4 of 2 nodes"),
        (BANK_LIMIT, {3: held_by(0, 1), 2: held_by(2)}, None),  # another bank's
        (LICENCES, {1: held_by(0), 2: held_by(1)}, None),
        (RESERVED, {1: held_by(0), 2: held_by(1)}, "3 of 2 licences"),
        (SHARING, {1: held_by(0), 2: held_by(0, 1), 3: held_by(2)}, None),
        (SHARING, {3: held_by(0), 2: held_by(0, 1)}, "beside job 3, a stranger"),
    ],
)
def test_a_start_against_the_tables_of_a_site_is_found(tables, held, wrong):
    violates(wrong, SiteRules(tables).started, 2, JOBS, held)


RACKS = {"topology": {"rack": {"groups": {"a": "node[0-1]", "b": "node[2-3]"}}}}


@pytest.mark.parametrize(
    "placement, ranks, wrong",
    [
        ({"max": 2}, (1, 2), None),
        ({}, (1, 2), "it requires 1 of level rack at most, and is in 2"),
        ({}, (1, 4), "1 of its nodes are of none"),
        ({"mode": "preferred"}, (1, 2, 4), None),
    ],
)
def test_a_job_that_is_not_where_it_has_to_be_is_found(placement, ranks, wrong):
    jobs = {1: {"bank": "red", "placement": {"level": "rack", **placement}}}
    held = {1: held_by(*ranks)}
    SiteRules({}).started(1, jobs, held)
    violates(wrong, SiteRules(RACKS).started, 1, jobs, held)


def test_while_tables_change_either_may_be_in_force():
    both = SiteRules(BANK_LIMIT)
    both.tables.append({})
    both.started(1, JOBS, {1: held_by(0, 1, 2)})
    assert not both.allows(1, JOBS, {}, {"nodes": 3, "cores": 3, "gpus": 0, "jobs": 1})


@pytest.mark.parametrize("scheduler", ["sched-fifo", "sched-backfill"])
def test_a_scheduler_that_does_not_count_is_caught(scheduler, monkeypatch):
    """The defect is planted in the rule: it takes every job for one that may start."""
    job = {"shape": 9, "constraint": 0, "duration": 20, "run": 20, "urgency": 16, "bank": "red"}
    steps = [["configure", 1], ["submit", [job] * 3], ["advance", 3]]
    assert faults.run_history(steps, scheduler, "rv1") is None
    monkeypatch.setattr(LimitRule, "check", lambda self, job: None)
    monkeypatch.setattr(LimitRule, "second_look", lambda self, job, pool, held: None)
    finds(lambda: faults.run_history(steps, scheduler, "rv1"), "3 of 2 nodes")
