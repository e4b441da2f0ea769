# SPDX-License-Identifier: LGPL-3.0-or-later
"""Disclosure of others' jobs, field by field; names of others are drawn at random."""

import errno
import json
import random
import uuid

import pytest
from peers import R, Rig, jobspec

from flux.scheduler.disclosure import FIELDS, Owned, Reason, behind, read_by, shown_to
from flux.scheduler.host import name_of

GUEST = 9999


class Machine:
    """Four nodes, of which another user's jobs hold all, and jobs of a guest that wait for each
    rule.

    Attributes:
        canaries (list): texts that tell of the other's jobs by name
        mine (dict): cause of its wait -> id of a job of the guest
    """

    def __init__(self, module, private):
        draw = random.Random()
        self.other = draw.randrange(1 << 20, 1 << 30)
        self.bank, self.member = (f"c{uuid.uuid4().hex[:12]}" for _ in range(2))
        first, waits = (draw.randrange(1 << 50, 1 << 60) for _ in range(2))
        self.canaries = [self.bank, self.member, str(self.other)]
        self.canaries += [text for id in (first, waits) for text in (str(id), name_of(id))]
        self.rig = rig = Rig(R(4, 4))
        rig.instance.config = {
            "access": {"private-mode": private},
            "limits": {
                "own": {"per": "user", "max": {"jobs": 1}, "queues": ["q"]},
                "bank": {"per": "bank", "max": {"nodes": 4}},
                "all": {"per": "instance", "max": {"cores": 16}, "queues": ["all"]},
            },
            "licenses": {"matlab": {"total": 3}},
            "queues": {"q": {}, "low": {"parent": "batch"}, "batch": {}, "all": {}},
            "preemption": {"low": {"queues": ["low"], "grace": 60}},
        }
        rig.load(module, "queue-depth=unlimited")
        rig.reserve("week", 1e6, 10, nodes=4, users=[self.other], banks=[self.member])
        self.alloc(first, self.other, 4, bank=self.bank, licenses={"matlab": 2}, queue="low")
        self.alloc(waits, self.other, 4, bank=self.bank)
        self.mine = {"behind": 11, "licenses": 12, "bank": 13}
        self.alloc(11, GUEST, 4)
        self.alloc(12, GUEST, 1, licenses={"matlab": 2})
        self.alloc(13, GUEST, 1, bank=self.bank)
        assert rig.started(after=5) == [first]

    def alloc(self, jobid, userid, nodes, **keys):
        spec = jobspec(nodes, nodes=nodes, exclusive=True, duration=5000, **keys)
        self.rig.alloc(jobid, spec, userid=userid)
        self.rig.settle()

    def ask(self, userid, rolemask, question, **payload):
        self.rig.client.become(userid, rolemask)
        return self.rig.answer(question, **payload)

    def as_guest(self, question, **payload):
        return self.ask(GUEST, 2, question, **payload)

    def newcomers(self):
        """Jobspecs whose start is up to each rule."""
        for keys in ({}, {"licenses": {"matlab": 2}}, {"bank": self.bank}, {"queue": "all"}):
            keys = {"queue": "batch", **keys}
            yield jobspec(1, nodes=1, exclusive=True, duration=100, **keys)

    def all_answers(self, ask):
        for jobid in self.mine.values():
            yield "sched.explain", ask("explain", id=jobid)
            yield "sched.preempt", ask("preempt", id=jobid, dry_run=True)
        yield "sched.explain", ask("explain", all=True)
        for spec in self.newcomers():
            yield "sched.when", ask("when", jobspec=spec)
        for question in ("windows", "reservations", "limits", "preemptions"):
            yield f"sched.{question}", ask(question)


@pytest.fixture(params=[False, True], ids=["guest", "private"], scope="module")
def private(request):
    return request.param


@pytest.fixture(params=["sched-backfill", "sched-fifo"], scope="module")
def machine(request, private):
    return Machine(request.param, private)


def fields(path, value):
    """(path of the object, field) of all objects of the table in an answer."""
    if isinstance(value, list):
        for one in value:
            yield from fields(path, one)
    elif isinstance(value, dict) and path in FIELDS:
        for key, one in value.items():
            yield path, key
            yield from fields(f"{path}.{key}", one)


def test_a_guest_is_shown_no_name_of_another(machine):
    own = {machine.bank} if not machine.rig.instance.config["access"]["private-mode"] else set()
    for topic, answer in machine.all_answers(machine.as_guest):
        text = json.dumps(answer, ensure_ascii=False)
        # A bank in which the guest has a job is named to it, where private mode does not forbid it.
        found = [one for one in machine.canaries if one in text and one not in own]
        assert not found, (topic, text)


def test_a_guest_is_shown_the_fields_of_the_table_alone(machine, private):
    """Beside those of objects that are about own jobs alone."""
    for topic, answer in machine.all_answers(machine.as_guest):
        for path, key in fields(topic, answer):
            if path == "sched.limits.limits" or path.endswith(".limit"):
                continue
            assert key in FIELDS[path].shown(private), (path, key)


def test_the_table_names_all_fields_that_there_are(machine):
    """One that is missing in it would be kept from guests unseen."""
    owner = lambda question, **payload: machine.ask(0, 1, question, **payload)  # noqa: E731
    for topic, answer in machine.all_answers(owner):
        for path, key in fields(topic, answer):
            named = " ".join(FIELDS[path]).split()
            assert key in named, (path, key)


def test_the_owner_and_an_admin_are_shown_all(machine):
    for rolemask in (1, 2 | 8):
        (job,) = machine.ask(0, rolemask, "explain", id=machine.mine["behind"])["jobs"]
        assert machine.canaries[4] in str(job["behind"])
        assert "others" in machine.ask(0, rolemask, "explain", all=True)
        (one,) = machine.ask(0, rolemask, "reservations")["reservations"]
        assert machine.member in one["group"] and "in_the_way" in one


def test_use_of_licences_and_limits(machine, private):
    answer = machine.as_guest("limits")
    (matlab,) = answer["licenses"]
    assert matlab["total"] == 3 and ("used" in matlab) is ("waiting" in matlab) is not private
    of_bank = [one for one in answer["limits"] if one["limit"] == "bank" and one.get("used") != {}]
    assert of_bank and all(("used" in one) is not private for one in of_bank)


def test_when_tells_the_resources_of_others_where_flux_does(machine, private):
    _, of_license, of_bank, of_all = (
        machine.as_guest("when", jobspec=spec)["reason"] for spec in machine.newcomers()
    )
    assert of_bank == "limit bank: too much of 4 nodes is in use; needs 1"
    if machine.rig.sched.decision.looks_past_heads:  # else it waits for its turn at first
        use = ": too many of 3 are" if private else " 2 of 3"
        assert of_license == f"licenses: matlab{use} in use; needs 2"
    assert "limit all" not in of_all


def test_why_a_job_waits_is_told_with_the_job(machine, private):
    """Flux shows annotations to all, and in private mode to the job's owner."""
    told = {why: machine.rig.reason(jobid) or "" for why, jobid in machine.mine.items()}
    if told["bank"] != "behind ƒC":  # as the order of the queue has it without backfilling
        assert (told["bank"] == "limit bank: too much of 4 nodes is in use; needs 1") is private
        assert ("2 of 3" in told["licenses"]) is not private
    if private:
        assert not any(one in text for one in machine.canaries for text in told.values())


def test_plan_and_statistics_are_refused(machine):
    machine.rig.client.become(GUEST)
    for question in ("plan", "stats", "reserve", "unreserve"):
        assert machine.rig.ask(f"sched.{question}", {})[0] == errno.EPERM


# -- the table itself ------------------------------------------------------------------------------


class Reader:
    def __init__(self, userid=None, private=False):
        self.userid, self.private = userid, private

    def may_see(self, userid):
        return self.userid is not None and userid == self.userid


def test_a_field_that_the_table_does_not_have_is_not_shown():
    answer = {"now": 1, "secret": 2, "jobs": [{"id": 3, "secret": 4, "limit": {"job": "x"}}]}
    shown = {"now": 1, "jobs": [{"id": 3, "limit": {}}]}
    assert shown_to(Reader(), "sched.explain", answer) == shown
    assert shown_to(Reader(), "sched.limits.limits", Owned({"used": 1}, 5)) == {"used": 1}
    assert shown_to(Reader(6, True), "sched.limits.limits", Owned({"used": 1}, 5)) == {}
    assert shown_to(Reader(5, True), "sched.limits.limits", Owned({"used": 1}, 5)) == {"used": 1}


def test_a_reason_has_a_text_for_each_reader():
    reason = Reason("all", "little", "some", userid=5)
    readers = (Reader(5, True), Reader(6, True), Reader(6))
    assert [read_by(reader, reason) for reader in readers] == ["all", "little", "some"]
    assert read_by(Reader(6), reason.not_for_guests()) == "little"
    assert read_by(Reader(), None) is None and read_by(Reader(), "plain") == "plain"
    assert read_by(Reader(6, True), behind("ƒ2", 5, "limit x: ")) == "limit x: waits for its turn"


@pytest.mark.parametrize("question", ["when", "windows"])
def test_a_guest_is_not_shown_the_text_of_a_mistake_of_the_scheduler(
    machine, monkeypatch, question
):
    """The text of an error can name anything: the owner reads it, and so it is in the log."""

    def fails(*args, **kwargs):
        raise KeyError(machine.bank)

    monkeypatch.setattr("flux.scheduler.projection.player.Player.newcomer", fails)
    monkeypatch.setattr("flux.scheduler.query.source.QuerySource.plan", fails)
    payload = {"jobspec": jobspec(1, queue="batch")} if question == "when" else {}
    for userid in (GUEST, 0):
        machine.rig.client.become(userid)
        errnum, answer = machine.rig.ask(f"sched.{question}", payload)
        assert (machine.bank in json.dumps(answer)) is (userid == 0)
        assert errnum == (0 if question == "when" else errno.EINVAL)
        assert ("failed" in json.dumps(answer)) is (userid != 0)
