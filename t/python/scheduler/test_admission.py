# SPDX-License-Identifier: LGPL-3.0-or-later
"""Admission rules: what keeps a job from starting although it fits, with the guide's counter of
licences."""

import runpy
from pathlib import Path

import pytest
from each_policy import under
from peers import R, Rig, jobspec, ruled

from flux.scheduler.admission import AdmissionRule, Deferral
from flux.scheduler.policies import Backfill

LICENSES = Path(__file__).resolve().parents[3] / "doc" / "examples" / "licenses.py"
Licenses = runpy.run_path(str(LICENSES))["Licenses"]
POLICIES = under("fifo", "fifo-by-queue", "simple", "easy", "conservative", "no-guarantee")


def load(policy, args, *rules):
    return Rig(R(4, 4), ruled(policy, *rules), *args)


def licensed(policy, args):
    return load(policy, args, lambda host: Licenses(host, {"matlab": 2}))


def wants(count, slots=1, name="matlab", **keys):
    return jobspec(slots, licenses={name: count}, **keys)


# -- licences --------------------------------------------------------------------------------------


@POLICIES
def test_a_job_of_the_same_shape_that_does_not_fit_does_not_speak_for_it(policy, args):
    """And the other way round: a job without licences is blocked, and the one with licences says
    that it waits for these."""
    rig = licensed(policy, args)
    rig.alloc(1, wants(2, slots=16, duration=100))
    rig.settle()
    rig.alloc(2, jobspec(4, duration=100))
    rig.alloc(3, wants(1, slots=4, duration=100))
    assert rig.started() == [1]
    if policy is Backfill:
        assert rig.reason(3).startswith("licenses: needs 1 of matlab")
    rig.free(1)
    assert rig.started() == [1, 2, 3]


@POLICIES
def test_those_that_wait_come_back_in_order_of_priority(policy, args):
    rig = licensed(policy, args)
    rig.alloc(1, wants(2), priority=31)
    for jobid, priority in ((2, 10), (3, 20), (4, 15)):
        rig.alloc(jobid, wants(1), priority=priority)
    assert rig.started() == [1]
    rig.prioritize((2, 30))
    rig.check()
    rig.free(1)
    assert rig.started() == [1, 2, 3]
    rig.free(3)
    assert rig.started() == [1, 2, 3, 4]
    rig.check()


def test_the_arguments_of_the_example_and_a_job_that_runs_when_it_is_loaded():
    rig = Rig(R(4, 4))
    rig.will_be_found(8, R("3", 4), wants(1, name="ansys"))
    rig.load(LICENSES, "licenses=matlab:1,ansys:8", "promises=4")
    rig.alloc(1, wants(1))
    rig.alloc(2, wants(1))
    rig.alloc(3, wants(8, name="ansys"))
    rig.alloc(4, wants(2))
    rig.alloc(5, wants("2"))
    assert rig.started() == [1]
    rig.free(8, R("3", 4))
    assert rig.started() == [1, 3]
    assert rig.denied(4) == "licenses: 2 of matlab: there are 1"
    assert rig.denied(5) == "licenses.matlab='2': expected a number, 1 or more"
    for value in ("matlab", ":4", "matlab:x", "matlab:4,"):
        with pytest.raises(ValueError, match="expected NAME:NUMBER"):
            Rig(R(4, 4)).load(LICENSES, f"licenses={value}")


# -- rules that misbehave, and rules that are not asked --------------------------------------------


class Failing(AdmissionRule):
    """Raises in one method for jobs of priority 1."""

    name = "failing"
    method = ""

    def _maybe(self, method, job):
        if method == self.method and getattr(job, "priority", 1) == 1:
            raise RuntimeError(f"a bug in {method}")

    def alloc(self, job, attributes):
        self._maybe("queued", job)

    def signature(self, job):
        self._maybe("signature", job)

    def check(self, job):
        self._maybe("check", job)

    def allocate(self, job, plan):
        self._maybe("allocate", job)

    def start(self, job, alloc):
        self._maybe("started", job)

    def free(self, jobid, R, final):
        self._maybe("freed", jobid)

    def cancel(self, jobid):
        self._maybe("forget", jobid)


@POLICIES
@pytest.mark.parametrize("method", ["queued", "signature", "check", "allocate"])
def test_a_rule_that_raises_costs_one_job(policy, args, method):
    rig = load(policy, args, type("Broken", (Failing,), {"method": method}))
    rig.alloc(1, jobspec(1), priority=1)
    rig.alloc(2, jobspec(1))
    assert f"a bug in {method}" in rig.denied(1)
    assert rig.started() == [2]
    assert any(f"a bug in {method}" in text for text in rig.logged(3))
    rig.alloc(3, jobspec(14))
    assert rig.started() == [2, 3]
    rig.check()


class Hears(AdmissionRule):
    name = "hears"

    def __init__(self, host):
        super().__init__(host)
        self.heard = []

    def start(self, job, alloc):
        self.heard.append(("started", job.jobid))

    def free(self, jobid, R, final):
        self.heard.append(("freed", jobid))

    def cancel(self, jobid):
        self.heard.append(("forget", jobid))


@POLICIES
@pytest.mark.parametrize("method", ["started", "freed", "forget"])
def test_a_rule_that_raises_when_it_is_told_costs_nothing(policy, args, method):
    rig = load(policy, args, type("Broken", (Failing,), {"method": method}), Hears)
    rig.alloc(1, jobspec(16), priority=1)
    rig.settle()
    rig.alloc(2, jobspec(1))
    rig.alloc(3, jobspec(1))
    rig.settle()
    rig.cancel(2)
    assert rig.answers(2, 3)
    rig.free(1)
    assert rig.started() == [1, 3]
    assert any(f"a bug in {method}" in text for text in rig.logged(3))
    assert rig.rule("hears").heard == [("started", 1), ("forget", 2), ("freed", 1), ("started", 3)]
    rig.check()


class Deadline(AdmissionRule):
    """Jobs start once a time has come, and end by another."""

    name = "deadline"
    told = ()

    def __init__(self, host):
        super().__init__(host)
        self.opens = None
        self.told = []

    def ready(self):
        self.opens = self.host.now() + 100
        self.host.call_at(self.opens, lambda: self.host.readmit(self))

    def check(self, job):
        if self.host.now() < self.opens:
            return Deferral("too early", until=self.opens)
        end = self.host.now() + job.resource_request.duration
        self.host.admission.own_ends[job.jobid] = min(end, self.opens + 50)
        return None

    def extended(self, jobid, expiration):
        self.told.append((jobid, expiration))


@POLICIES
def test_a_rule_that_waits_for_a_time(policy, args):
    rig = load(policy, args, Deadline)
    begin = rig.now
    rig.alloc(1, jobspec(1, duration=1000))
    rig.alloc(2, jobspec(1, duration=10))
    rig.wait(2)
    assert rig.shown(1) == {
        "reason_pending": "too early",
        "t_estimate": begin + 100,
        "t_estimate_kind": "planned",
    } or rig.shown(1) == {"reason_pending": "too early", "t_estimate": begin + 100}
    rig.wait(97)
    assert rig.started() == []
    rig.wait(2)
    assert rig.started() == [1, 2]
    ends = [rig.success(jobid)["R"]["execution"]["expiration"] for jobid in (1, 2)]
    assert ends[0] == begin + 150
    assert begin + 110 <= ends[1] < begin + 112
    rig.expire(1, begin + 500)
    rig.settle()
    assert rig.rule("deadline").told == [(1, begin + 500)]
    assert rig.sched.resources.job_end(1) == begin + 500


def test_a_rule_with_the_older_names_of_events_goes_on():
    class Rule(AdmissionRule):
        name = "older"

        def __init__(self, host):
            super().__init__(host)
            self.heard = []

        def queued(self, job, attributes):
            self.heard.append("queued")

        def started(self, job, alloc):
            self.heard.append("started")

        def freed(self, jobid, R, final):
            self.heard.append("freed")

    rig = load(Backfill, (), Rule)
    rig.alloc(1)
    rig.settle()
    rig.free(1)
    rig.settle()
    assert rig.rule("older").heard == ["queued", "started", "freed"]
    assert [text for text in rig.logged(4) if "queued() is called alloc() now" in text]
