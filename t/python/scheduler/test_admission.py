# SPDX-License-Identifier: LGPL-3.0-or-later
"""Admission rules, which keep jobs from starting although they fit: the guide's counter of licences."""

from pathlib import Path

import pytest
from each_policy import under
from peers import R, Rig, jobspec, ruled

from flux.scheduler.admission import AdmissionRule, Deferral
from flux.scheduler.policies import Backfill

LICENSES = Path(__file__).resolve().parents[3] / "doc" / "examples" / "licenses.py"
POLICIES = under("fifo", "fifo-by-queue", "simple", "easy", "conservative", "no-guarantee")


def load(policy, args, *rules):
    return Rig(R(4, 4), ruled(policy, *rules), *args)


def wants(count, slots=1, name="matlab", **keys):
    return jobspec(slots, licenses={name: count}, **keys)


def test_the_arguments_of_the_example_and_a_job_that_runs_when_it_is_loaded():
    rig = Rig(R(4, 4))
    rig.will_be_found(8, R("3", 4), wants(1, name="ansys"))
    rig.load(LICENSES, "licenses=matlab:1,ansys:8", "promises=4")
    rig.alloc((1, 2), wants(1))
    rig.alloc({3: wants(8, name="ansys"), 4: wants(2), 5: wants("2")})
    assert rig.started() == [1]
    rig.free(8, R("3", 4))
    assert rig.started() == [1, 3]
    assert rig.denied(4) == "licenses: 2 of matlab: there are 1"
    assert rig.denied(5) == "licenses.matlab='2': expected a number, 1 or more"
    for value in ("matlab", ":4", "matlab:x", "matlab:4,"):
        with pytest.raises(ValueError, match="expected NAME:NUMBER"):
            Rig(R(4, 4)).load(LICENSES, f"licenses={value}")


class Deadline(AdmissionRule):
    """Jobs start once a time has come, and end by another."""

    name = "deadline"
    told = ()

    def __init__(self, host):
        super().__init__(host)
        self.opens = host.now() + 100
        self.told = []

    def check(self, job):
        if self.host.now() < self.opens:
            return Deferral("too early", self.opens)
        end = self.host.now() + job.resource_request.duration
        self.host.admission.own_ends[job.jobid] = min(end, self.opens + 50)
        return None

    def extended(self, jobid, expiration):
        self.told.append((jobid, expiration))


@POLICIES
def test_a_time_that_has_passed_counts_as_unknown(policy, args):
    class Never(AdmissionRule):
        name = "never"

        def check(self, job):
            return Deferral("never", 0)

    rig = load(policy, args, Never)
    rig.arrive(1, jobspec(1, duration=10), wait=10)
    assert rig.started() == [] and rig.shown(1)["reason_pending"] == "never"


@POLICIES
def test_a_rule_that_waits_for_a_time(policy, args):
    rig = load(policy, args, Deadline)
    begin = rig.now
    rig.arrive({1: jobspec(1, duration=1000), 2: jobspec(1, duration=10)}, wait=2)
    kind = {"t_estimate_kind": "planned"} if policy is Backfill else {}
    assert rig.shown(1) == {"reason_pending": "too early", "t_estimate": begin + 100, **kind}
    assert rig.started(after=97) == []
    assert rig.started(after=2) == [1, 2]
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
    rig.arrive(1)
    rig.free(1, wait=0)
    assert rig.rule("older").heard == ["queued", "started", "freed"]
    assert [text for text in rig.logged(4) if "queued() is called alloc() now" in text]
