# SPDX-License-Identifier: LGPL-3.0-or-later
"""Every row of the allocation protocol (RFC 27), at the message level: well formed, mutated, out of order."""

import errno
import sys

import pytest
from peers import Guide, R, Rig, check_requests, jobspec

ERR = 3


@pytest.fixture
def rig():
    return Rig(R(4, 4), Guide)


def healthy(rig, jobid=4242):
    """Check that the scheduler still serves, and ends only on request."""
    before = len(rig.sched._queue)
    rig.arrive(jobid, jobspec(1), priority=4294967295)
    assert not rig.task.ended
    if rig.answers(jobid, 0):
        rig.free(jobid)
    else:
        rig.cancel(jobid)
    rig.settle()
    assert len(rig.sched._queue) == before


@pytest.mark.parametrize("spec", [None, [], "text", 7, True, {"version": 1}])
def test_a_jobspec_that_cannot_be_parsed_is_denied_and_logged(rig, spec):
    rig.alloc(1, jobspec=spec)
    reason = rig.denied(1).partition("cannot parse jobspec: ")[2]
    assert rig.logged(ERR) == [f"alloc: cannot parse jobspec for ƒ2: {reason}"]
    healthy(rig)


def test_a_fault_of_many_jobspecs_is_logged_once(rig):
    for jobid, spec in enumerate(({"version": 1}, {"version": 1}, {"version": 7}), 1):
        rig.alloc(jobid, spec)
    assert all("cannot parse jobspec" in rig.denied(jobid) for jobid in (1, 2, 3))
    said = [f"alloc: cannot parse jobspec for {name}:" for name in ("ƒ2", "ƒ4")]
    assert [text[:35] for text in rig.logged(ERR)] == said


def test_a_jobspec_nested_past_any_depth_is_denied(rig):
    rack = '{"type": "rack", "count": 1, "id": 7, "with": ['
    text = rack * 5000 + '{"type": "core", "count": 1}' + "]}" * 5000
    resources = f'{{"resources": [{text}]}}'
    rig.send_text(
        "sched.alloc", f'{{"priority": 16, "jobspec": {resources}, "u": "}}\\"[", "id": 1}}'
    )
    nested = jobspec(1)
    for _ in range(200):
        nested["resources"] = [{"type": "rack", "count": 1, "with": nested["resources"]}]
    rig.alloc(2, nested)
    assert rig.denied(1) == "cannot parse jobspec: jobspec is nested too deeply"
    assert rig.success(2)
    rig.send_text("sched.alloc", f'{{"jobspec": {text}}}')
    rig.settle()
    healthy(rig)


@pytest.mark.parametrize(
    "attributes",
    [None, "none", {}, {"user": {"queue": "batch"}}]
    + [{"system": value} for value in (None, "text", [], [["queue", "batch"]])]
    + [{"system": {"queue": 7, "bank": ["physics"], "reservation": None, "licenses": None}}],
)
def test_attributes_of_other_types_count_as_missing(attributes):
    rig = Rig(R(4, 4), "sched-fifo", config={"licenses": {"matlab": 1}})
    spec = dict(jobspec(1), version=9999, attributes=attributes)
    rig.alloc(7, spec)
    assert rig.success(7)
    assert rig.logged(3) == []


@pytest.mark.parametrize(
    "keys",
    [{"id": value} for value in ("1", -1, None, True, 1.5, 1 << 64)]
    + [{"priority": value} for value in (-1, "high", 1 << 32, None)],
)
def test_malformed_alloc_is_dropped_or_denied(rig, keys):
    rig.arrive(1, **keys)
    if "id" in keys:
        assert not rig.received
    else:
        assert "priority" in rig.denied(1)
        (line,) = rig.logged(ERR)
        assert line.startswith("alloc: ƒ2: malformed request: priority: ") and "\n" not in line
    assert rig.sched.stats_get()["errors"] == 1
    healthy(rig)


@pytest.mark.parametrize("topic", ["sched.alloc", "sched.cancel", "sched.prioritize", "sched.free"])
@pytest.mark.parametrize("text", [None, "", "[]", "3", "{", '"x"', "{}", "nonsense"])
def test_payloads_that_are_no_object(rig, topic, text):
    rig.send_text(topic, text)
    rig.settle()
    assert not rig.received
    assert rig.sched.stats_get()["errors"] == 1
    healthy(rig)


@pytest.mark.parametrize("again", [1, 2], ids=["running", "pending"])
def test_a_second_request_for_a_job_is_ignored(rig, again):
    rig.arrive({1: jobspec(16), 2: jobspec(1)})
    rig.arrive(again, jobspec(1))
    (line,) = rig.logged(ERR)
    assert line.endswith(": a second request is ignored")
    rig.free(1)
    assert rig.success(2)
    assert len(rig.answers(1)) == 1
    assert rig.sched.stats_get()["errors"] == 1


def test_cancel_clears_annotations_first(rig):
    rig.alloc(1, jobspec(16))
    rig.arrive(2)
    rig.sched._queue[0].request.annotate({"sched": {"t_estimate": 90.0, "reason_pending": None}})
    rig.cancel(2)
    assert rig.answers(2) == [
        {"id": 2, "type": 1, "annotations": {"sched": {"t_estimate": 90.0}}},
        {"id": 2, "type": 1, "annotations": {"sched": {"t_estimate": None}}},
        {"id": 2, "type": 3},
    ]


@pytest.mark.parametrize(
    "jobs",
    [None, {}, [[2]], [[2, 3, 4]], [2, 3], [["2", 3]], [[2, "high"]], [[2, -1]], [[2, 1e400]]]
    + [[[2, 31], [2, None]]],
)
def test_malformed_prioritize_changes_nothing(rig, jobs):
    rig.alloc(1, jobspec(16))
    rig.arrive(2)
    rig.send("sched.prioritize", {"jobs": jobs})
    rig.settle()
    assert rig.sched._queue[0].priority == 16
    assert rig.sched.stats_get()["errors"] == 1


def test_free_of_an_unknown_job_is_ignored(rig):
    rig.free(77, R(1, 1), wait=0)
    assert not rig.received and not rig.logged(ERR)


@pytest.mark.parametrize(
    "bad",
    [{"version": 2}, {}, {"version": 1, "execution": {"R_lite": "x"}}, "text", None, []]
    + [R("0", "0-9"), R("99", "0")],
)
def test_a_free_that_does_not_match_changes_nothing(rig, bad):
    rig.arrive(1, jobspec(1, nodes=1, cores=4))
    before = rig.sched.resources.copy_allocated().to_dict()
    rig.send("sched.free", {"id": 1, "R": bad, "final": True})
    rig.settle()
    assert rig.sched.resources.copy_allocated().to_dict() == before
    assert rig.sched.stats_get()["errors"] == 1
    assert rig.ask("sched.quiescent", {}) == (0, {"status": 0, "alloc_current": 1})
    rig.free(1, wait=0)
    healthy(rig)


@pytest.mark.parametrize(
    "payload, errnum",
    [
        *[({"id": jobid, "expiration": 5000}, 0) for jobid in (1, 12345)],
        *[(bad, errno.EINVAL) for bad in (None, {"id": 1}, {"expiration": 1.0}, {"id": "1", "expiration": 1.0})],
        *[
            ({"id": 1, "expiration": value}, errno.EINVAL)
            for value in (-1.0, "soon", None, True, float("nan"), float("inf"))
        ],
    ],
)  # fmt: skip
def test_expiration_payloads(rig, payload, errnum):
    rig.alloc(1)
    got, text = rig.ask("sched.expiration", payload)
    assert got == errnum and bool(text) == bool(errnum)


def test_an_expiration_override_that_raises_is_answered():
    class Mine(Guide):
        def expiration(self, msg, jobid, expiration):
            raise RuntimeError("not today")

    answer = Rig(R(1, 1), Mine).ask("sched.expiration", {"id": 1, "expiration": 1.0})
    assert answer == (22, "RuntimeError: not today")


@pytest.mark.parametrize("payload", [None, {}, {"Jobspec": {}}])
def test_feasibility_without_a_jobspec(rig, payload):
    assert rig.ask("feasibility.check", payload)[0] == errno.EINVAL


def test_resource_status_makes_no_resource_sets(rig, monkeypatch):
    """On a large machine they take ten times as long as all the rest of the answer."""
    rig.arrive(1, jobspec(6))
    expected = rig.sched.resources.copy_allocated().to_dict()["execution"]["R_lite"]
    module = sys.modules["flux.resource.pool.contract"]
    monkeypatch.setattr(module, "resource_set", None)
    errnum, status = rig.ask("sched.resource-status")
    assert errnum == 0 and status["allocated"]["execution"]["R_lite"] == expected


def test_resource_status_comes_from_a_pool_with_its_own_account():
    from flux.resource import ResourcePool
    from flux.resource.Rv1Pool import Rv1Pool

    class Own(Rv1Pool):
        def copy_allocated(self):
            return ResourcePool(R("2", 1)).to_resource_set()

        copy_down = copy_allocated

    class Mine(Guide):
        pool_class = Own

    rig = Rig(R(4, 1), Mine)
    _, status = rig.ask("sched.resource-status")
    for what in ("allocated", "down"):
        assert [entry["rank"] for entry in status[what]["execution"]["R_lite"]] == ["2"]


def test_stats_have_the_fields_of_the_guide_first(rig):
    errnum, stats = rig.ask("sched-test.stats-get")
    assert errnum == 0
    assert list(stats)[:8] == [
        "sched_passes", "sched_yields", "forecast_passes", "forecast_yields", "sched_delay", "sched_duration_ewma",
        "sched_interval_ewma", "pending_jobs",
    ]  # fmt: skip
    assert stats["pending_jobs"] == stats["errors"] == 0


def test_unknown_methods_and_guests_are_the_hosts_affair(rig):
    assert rig.ask("sched.nosuch")[0] == errno.ENOSYS
    rig.client.rolemask = 2
    rig.client.userid = 1234
    for topic in ("sched.alloc", "sched.quiescent", "feasibility.check", "sched-test.stats-get"):
        assert rig.ask(topic, {}) == (errno.EPERM, "Request requires owner credentials")


def test_quiescent_waits_for_pass_commit_and_reply(rig):
    rig.kvs.hold()
    rig.alloc((1, 2))
    rig.send("sched.quiescent", None)
    rig.settle()
    assert not rig.received
    rig.kvs.release()
    rig.settle()
    topics = [topic for topic, _, _ in rig.received]
    assert topics == ["sched.alloc", "sched.alloc", "sched.quiescent"]
    assert rig.received[-1][2] == {"status": 0, "alloc_current": 2}


def test_quiescent_does_not_wait_for_later_requests(rig):
    rig.arrive(1)
    rig.kvs.hold()
    rig.arrive(2)
    rig.kvs.release()
    rig.send("sched.quiescent", None)
    rig.kvs.hold()
    rig.arrive(3)
    assert [topic for topic, _, _ in rig.received if topic == "sched.quiescent"]
    assert rig.started() == [1, 2]


def test_quiescent_does_not_wait_for_ever_for_requests_that_never_come(rig):
    rig.manager.alloc_query = lambda: ({"queue_length": 1, "alloc_pending": 0, "running": 0}, [])
    assert rig.ask("sched.quiescent") == (0, {"status": 0, "alloc_current": 0})


class Forwarding(Guide):
    """Reports each success to another service, which may be missing."""

    late = False

    def alloc_success(self, msg, R, annotations=None):
        if self.late:
            super().alloc_success(msg, R, annotations)
        if msg.payload["id"] == 1:
            raise OSError("nobody there")
        if not self.late:
            super().alloc_success(msg, R, annotations)


def test_a_success_that_cannot_be_sent_denies_the_job_and_frees_its_resources():
    rig = Rig(R(1, 4), Forwarding)
    rig.alloc((1, 2), jobspec(4))
    assert rig.denied(1) == "scheduler error: OSError: nobody there"
    assert rig.started() == [2]
    assert rig.sched.stats_get()["errors"] == 1
    assert rig.logged(ERR)[0].startswith("alloc_success: ƒ2\nTraceback")
    check_requests(rig.sched)
    rig.free(2)
    rig.sched.late = True
    rig.alloc(1, jobspec(4))  # it may be asked for again
    assert [answer["type"] for answer in rig.answers(1)] == [2, 0]
    assert rig.sched.stats_get()["errors"] == 2, "and changes nothing for the job"
    rig.free(1)
    rig.alloc(3, jobspec(4))
    assert rig.started() == [2, 1, 3]


def test_a_schedule_that_raises_costs_that_pass_and_backs_off():
    class Broken(Guide):
        broken = True
        passes = 0

        def schedule(self):
            self.passes += 1
            if self.broken:
                raise RuntimeError("bug in the policy")
            super().schedule()

    rig = Rig(R(1, 4), Broken)
    sched = rig.sched
    delays = []
    for jobid in range(1, 12):
        rig.alloc(jobid)
        before = rig.now
        count = sched.passes
        while sched.passes == count:
            rig.wait(0.001)
        delays.append(round(rig.now - before, 2))
    assert delays[0] == 0
    assert delays[1:6] == [0.01, 0.02, 0.04, 0.08, 0.16]
    assert max(delays) <= sched.SCHED_DELAY_MAX + 0.01
    assert sched.stats_get()["errors"] == 11
    sched.broken = False
    rig.arrive(20, wait=2)
    assert len(rig.started()) == 4


@pytest.mark.parametrize("point", ["cancel", "prioritize", "resource_update", "forecast"])
def test_other_override_points_that_raise_lose_that_event(point):
    def broken(self, *args):
        raise RuntimeError("bug in " + point)

    rig = Rig(R(1, 1), type("Broken", (Guide,), {point: broken}))
    rig.arrive((1, 2))
    rig.prioritize((2, 20))
    rig.resource.update(down="0")
    rig.resource.update(up="0")
    if point == "cancel":
        rig.cancel(2)
    rig.wait(1)
    assert rig.sched.stats_get()["errors"] >= 1
    rig.free(1, wait=1)
    assert rig.success(2)


def test_updates_are_applied_as_a_unit_down_over_up_shrink_over_both():
    rig = Rig(R(8, 1), Guide, up="0-2")
    rig.resource.update(up="3-6", down="2,6", shrink="6")
    status = rig.ask("sched.resource-status")[1]
    assert [e["rank"] for e in status["all"]["execution"]["R_lite"]] == ["0-5,7"]
    assert [e["rank"] for e in status["down"]["execution"]["R_lite"]] == ["2,7"]


def test_shrink_denies_jobs_that_became_infeasible_but_drain_does_not(rig):
    rig.alloc({1: jobspec(1), 2: jobspec(1, nodes=4, cores=4)})
    rig.resource.update(down="3")
    assert rig.answers(2) == []
    rig.resource.update(down="3", shrink="3")
    assert "need 4 node" in rig.denied(2)


def test_property_updates_let_a_job_run(rig):
    rig.arrive(1, jobspec(1))
    rig.resource.update(property_add={"fast": "2"})
    rig.settle()
    spec = jobspec(1, constraints={"properties": ["fast"]})
    rig.alloc(2, spec)
    assert rig.ranks(2) == {2}
    rig.resource.update(property_remove={"fast": "2", "nosuch": "1"})
    assert rig.ask("feasibility.check", {"jobspec": spec})[0] == errno.EINVAL


@pytest.mark.parametrize(
    "key, value",
    [("up", 7), ("up", "x"), ("down", None), ("shrink", []), ("property_add", "x"), ("odd", 1)]
    + [("expiration", "late")],
)
def test_malformed_updates_are_counted_not_fatal(rig, key, value):
    rig.resource.update(**{key: value})
    rig.settle()
    healthy(rig)


@pytest.mark.parametrize("text", ["", "{", '{"up": "0"}}', "[]", "null", "1", "[" * 100000])
def test_a_response_of_the_resource_service_that_cannot_be_read_is_dropped(rig, text):
    rig.resource.respond(rig.resource.stream, text)
    rig.settle()
    healthy(rig)
    assert any("resource.acquire: malformed response" in line for line in rig.logged(3))
    rig.resource.update(down="0")
    rig.settle()
    assert rig.sched.resources.copy_down().ranks.encode() == "0"


def test_a_pool_without_an_operation_warns_once():
    from flux.resource import ResourcePool

    class Plain(ResourcePool):
        remove_property = add_property = property(doc="not here")

    class Mine(Guide):
        pool_class = Plain

    rig = Rig(R(1, 1), Mine)
    rig.resource.update(property_add={"x": "0"})
    rig.resource.update(property_add={"y": "0"})
    assert len([line for line in rig.logged(4) if "add_property" in line]) == 1
    healthy(rig)


@pytest.mark.parametrize("userid", [{"id": 1}, [], "root", -1, 1.5, None, True, 1 << 70])
def test_a_userid_that_is_none_is_that_of_nobody(userid):
    rig = Rig(R(1, 4), "sched-backfill", "predict=class")
    rig.alloc(1, userid=userid)
    assert rig.started() == [1]
    rig.free(1)
    assert not rig.logged(3) and rig.sched.running == {}
