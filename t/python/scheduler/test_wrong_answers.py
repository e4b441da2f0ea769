# SPDX-License-Identifier: LGPL-3.0-or-later
"""A wrong return value of a site's method costs only the job concerned."""

import heapq
import sys

import pytest
from each_policy import TABLE
from peers import R, Rig, jobspec, loaded, ruled

from flux.resource import Rv1Pool
from flux.scheduler import Scheduler
from flux.scheduler.admission import AdmissionRule, Deferral
from flux.scheduler.policies import Backfill, Fifo
from flux.scheduler.policy import PolicyScheduler
from flux.scheduler.site_policy.limits import LimitUse
from flux.scheduler.testing import FakeInstance

RAISES = object()


def test_a_job_whose_order_goes_wrong_later_keeps_its_place():
    class Odd(Backfill):
        def order(self, job):
            return None if job.priority > 100 else -job.priority

    instance = loaded(Odd, nodes=1, check_errors=False)
    first, second, third = (instance.submit(nodes=1, duration=10) for _ in range(3))
    instance.advance(1)
    third.set_priority(1000)
    instance.advance(60)
    assert [job.result for job in (first, second, third)] == ["completed"] * 3
    assert second.t_start < third.t_start
    (text,) = instance.errors
    assert "keeps its place in the queue: order() returned None" in text


class Scalar:
    """A number of numpy, which is neither int nor float."""

    def __init__(self, value):
        self.value = value

    def __float__(self):
        return float(self.value)


def test_an_order_that_sets_the_priority_is_told():
    class Odd(Backfill):
        def order(self, job):
            job.priority = 7
            return -job.priority

    instance = loaded(Odd, nodes=1, check_errors=False)
    job = instance.submit(nodes=1, duration=10)
    instance.advance(1)
    assert job.state == "running"
    assert instance.errors == ["ƒ2 keeps its place in the queue: order() sets the priority"]


def starts_by(tmp_path, option, returned):
    """The order in which three jobs start that wait together for the same node, and the errors logged."""
    path = tmp_path / "site.py"
    path.write_text("def function(scheduler, job):\n    return scheduler.returned(job)\n")

    class Site(Backfill):
        def returned(self, job):
            return returned(job.jobid)

    instance = FakeInstance(nodes=2, check_errors=False)
    args = [f"{option}={path}:function"] + ["rank=shortest"] * (option == "predict")
    instance.load(Site, *args)
    instance.submit(nodes=2, duration=10)
    instance.submit(nodes=1, duration=90, priority=20)
    instance.submit(nodes=2, duration=10, priority=20)
    jobs = [instance.submit(nodes=1, duration=10) for _ in range(3)]
    instance.advance(60)
    return sorted(range(3), key=lambda i: jobs[i].t_start), instance.errors


@pytest.mark.parametrize("option", ["rank", "candidates", "predict"])
@pytest.mark.parametrize("wrong", [None, float("nan"), "text", (1, 2)])
def test_values_other_than_numbers_are_told_once(tmp_path, option, wrong):
    assert starts_by(tmp_path, option, lambda jobid: Scalar(9 - jobid)) == ([2, 1, 0], [])
    order, errors = starts_by(tmp_path, option, lambda jobid: wrong)
    assert order == [0, 1, 2]
    if option == "predict" and isinstance(wrong, (type(None), float)):
        assert not errors  # unknown
    else:
        (text,) = errors
        assert text.startswith(f"{option} of ")
        assert text.endswith(f" is {wrong!r}: expected a number")


@pytest.mark.parametrize(
    "method, args",
    [("rank", []), ("candidate_rank", ["promise=1"]), ("latest_start", ["promise=all"])],
)
def test_a_number_that_is_not_computed_stops_no_pass(method, args):
    def wrong(self, job):
        raise KeyError("mine")

    policy = type("Mine", (Backfill,), {method: wrong})
    instance = loaded(policy, *args, nodes=2, check_errors=False)
    for nodes in (1, 2, 1, 1):
        instance.submit(nodes=nodes, duration=10)
    instance.advance(60)
    assert [job.result for job in instance.jobs.values()] == ["completed"] * 4
    (text,) = instance.errors
    assert text.startswith(("candidates" if method == "candidate_rank" else method) + " of ƒ")
    assert text.endswith("KeyError: 'mine'")


@pytest.mark.parametrize("wrong", [RAISES, 7, {1}])
def test_a_reason_that_is_none_costs_no_other(wrong):
    class Odd(Backfill):
        def why(self, job, facts=None):
            if job.jobid != 2:
                return super().why(job, facts)
            if wrong is RAISES:
                raise KeyError("mine")
            return wrong

    instance = loaded(Odd, nodes=1, check_errors=False)
    jobs = [instance.submit(nodes=1, duration=10) for _ in range(3)]
    instance.advance(5)
    assert instance.request("sched.explain", {"all": True})["jobs"][1]["reason"]
    assert [bool(job.reason_pending) for job in jobs] == [False, False, True]
    (text,) = instance.errors
    expected = "'mine'" if wrong is RAISES else f"why() returned {wrong}: expected text or None"
    assert text.startswith(f"why: {jobs[1].name}") and text.endswith(expected)


@pytest.mark.parametrize("error", [KeyError, SystemExit])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    "base, args",
    [(Fifo, []), (Backfill, []), (Backfill, ["rank=shortest"]), (Backfill, ["promise=all"])],
)
def test_a_start_that_raises_costs_its_job_alone(base, args, late, error):
    class Odd(base):
        def start(self, job, alloc, **annotations):
            if late:
                super().start(job, alloc, **annotations)
            if job.jobid == 2:
                raise error("mine")
            if not late:
                super().start(job, alloc, **annotations)

    instance = loaded(Odd, *args, nodes=1, check_errors=False)
    jobs = [instance.submit(nodes=1, duration=10) for _ in range(4)]
    instance.advance(60)
    ends = ["completed", "completed" if late else "failed", "completed", "completed"]
    assert [job.result for job in jobs] == ends
    said = f"{error.__name__}: {error('mine')}"
    assert late or jobs[1].note == f"scheduler error: {said}"
    (text,) = instance.errors
    assert text.startswith(f"start: {jobs[1].name}\nTraceback") and text.endswith(said)


@pytest.mark.parametrize("base", [Scheduler, PolicyScheduler])
def test_jobs_taken_out_of_the_queue_by_a_pass_that_fails_are_queued_again(base):
    class Hasty(base):
        """Takes the job out of the queue before it knows whether it fits."""

        def schedule(self):
            while self._queue:
                job = heapq.heappop(self._queue)
                job.request.success(self.resources.alloc(job.jobid, job.resource_request))

    instance = loaded(Hasty, nodes=1, check_errors=False)
    jobs = [instance.submit(nodes=1, duration=10) for _ in range(3)]
    instance.advance(60)
    assert [job.result for job in jobs] == ["completed"] * 3
    assert all(text.startswith("schedule: this pass is lost\n") for text in instance.errors)


@pytest.mark.parametrize("base", [Fifo, Backfill])
@pytest.mark.parametrize("sent", [False, True])
@pytest.mark.parametrize("name", ["alloc_annotate", "alloc_deny", "alloc_cancel"])
def test_an_answer_whose_override_raises_is_sent_once(base, sent, name):
    def odd(self, msg, *arguments):
        if sent:
            getattr(super(Odd, self), name)(msg, *arguments)
        raise KeyError("mine")

    Odd = type("Odd", (base,), {name: odd})
    instance = loaded(Odd, check_errors=False)
    told = len(instance.errors)  # of a super() that is not seen
    jobs = [instance.submit(duration=100) for _ in range(3)]
    jobs.append(instance.submit(nodes=1000))
    instance.advance(5)
    jobs[1].cancel()
    instance.advance(300)
    assert [job.result for job in jobs] == ["completed", "canceled", "completed", "failed"]
    assert "unsatisfiable" in jobs[3].note
    assert {text.partition("ƒ")[0] for text in instance.errors[told:]} == {f"{name}: "}


def test_jobs_that_a_policy_keeps_elsewhere_stay_there():
    class Elsewhere(Scheduler):
        failed = False

        def alloc(self, *args):
            super().alloc(*args)
            self.mine = self._queue.pop()

        def schedule(self):
            if not self.failed:
                self.failed = True
                raise KeyError("mine")
            assert not self._queue

    instance = loaded(Elsewhere, check_errors=False)
    for _ in range(2):
        instance.submit()
        instance.advance(1)
    (text,) = instance.errors
    assert text.startswith("schedule: this pass is lost\n")


def test_an_allocation_to_a_job_canceled_meanwhile_is_freed():
    class Slow(Scheduler):
        """Allocates, lets others have a turn, and answers without a look whether it still may."""

        def schedule(self):
            for job in list(self._queue):
                alloc = self.resources.alloc(job.jobid, job.resource_request)
                yield 1.0
                job.request.success(alloc)
                self._queue.remove(job)

    instance = loaded(Slow, nodes=1, check_errors=False)
    first = instance.submit(nodes=1, duration=10)
    instance.advance(0.5)
    first.cancel()
    instance.advance(5)
    assert first.result == "canceled"
    assert instance.scheduler.resources.copy_allocated().nnodes == 0
    second = instance.submit(nodes=1, duration=10)
    instance.advance(5)
    assert second.state == "running"


@pytest.mark.parametrize("name", ["easy", "conservative", "promise-all"])
def test_a_pool_that_fails_at_a_future_start_costs_that_job_alone(name):
    class Odd(Rv1Pool):
        """Nodes are chosen twice where too few are free, as they are in the future."""

        def _sort_candidates(self, candidates):
            return candidates + candidates

    policy, args = TABLE[name]
    instance = loaded(
        type("Mine", (policy,), {"pool_class": Odd}), *args, nodes=4, cores=4, check_errors=False
    )
    jobs = [
        instance.submit(nodes=nodes, cores=4, duration=duration)
        for nodes, duration in [(1, 50), (1, 60), (1, 70), (3, 10), (1, 20)]
    ]
    instance.advance(1)
    assert [job.state for job in jobs] == ["running"] * 3 + ["inactive", "running"]
    assert jobs[3].note.endswith("rank 0 is not in the pool, or chosen twice")


@pytest.mark.parametrize("name", sorted(TABLE))
def test_a_pool_that_fails_from_some_time_on_costs_the_jobs_that_it_is_asked_about(name):
    broken = []

    class Odd(Rv1Pool):
        def _sort_candidates(self, candidates):
            return candidates if not broken else 1 / 0

    policy, args = TABLE[name]
    mine = type("Mine", (policy,), {"pool_class": Odd})
    instance = loaded(mine, *args, nodes=4, cores=4, check_errors=False)
    jobs = [
        instance.submit(nodes=nodes, cores=4, duration=duration)
        for nodes, duration in [(1, 50), (1, 60), (2, 70), (3, 10), (2, 10), (4, 100)]
    ]
    instance.advance(1)
    assert [job.state for job in jobs] == ["running"] * 3 + ["pending"] * 3
    broken.append(True)
    instance.advance(70)
    assert [job.note for job in jobs[3:]] == [
        "internal error: ZeroDivisionError: division by zero"
    ] * 3
    broken.clear()
    last = instance.submit(nodes=4, cores=4, duration=5)
    instance.advance(1)
    assert last.state == "running"


@pytest.mark.parametrize("error", [KeyError, SystemExit])
@pytest.mark.parametrize("name", sorted(TABLE))
def test_a_pool_that_fails_at_a_job_costs_that_job_alone(name, error):
    class Odd(Rv1Pool):
        def _select_resources(self, candidates, request):
            if "odd" in request.jobspec["attributes"]["system"]:
                raise error("mine")
            return super()._select_resources(candidates, request)

    policy, args = TABLE[name]
    for odd in range(3):
        kind = type("Mine", (policy,), {"pool_class": Odd})
        instance = loaded(kind, *args, nodes=4, cores=4, check_errors=False)
        jobs = [
            instance.submit(nodes=nodes, cores=4, duration=10, **{"odd": True} if n == odd else {})
            for n, nodes in enumerate([2, 4, 1, 3])
        ]
        instance.advance(60)
        assert [n for n, job in enumerate(jobs) if job.result != "completed"] == [odd]
        assert "mine" in jobs[odd].note
        (text,) = instance.errors
        assert text.startswith(f"alloc: {jobs[odd].name}")


# -- every method of an admission rule -------------------------------------------------------------

WRONG = {
    "raises": RAISES,
    "exits": SystemExit,
    "unhashable": [object(), {1}],
    "another type": 1j,
    "a deferral of nothing": Deferral([1], "x", [2]),
    "not a number": float("nan"),
}

HOOKS = sorted(
    name for name, value in vars(AdmissionRule).items() if callable(value) and name[0] != "_"
)


def rule_with(hook, value, called):
    """A class of rules that answer wrongly to one method, until `called` has "over" in it."""

    def wrong(self, *args, **keys):
        if "over" in called:
            return getattr(AdmissionRule, hook)(self, *args, **keys)
        called.add(hook)
        if value is RAISES:
            raise RuntimeError(f"a bug in {hook}")
        if value is SystemExit:
            sys.exit(f"a bug in {hook}")
        return value

    return type("Wrong", (AdmissionRule,), {"name": "wrong", hook: wrong})


QUESTIONS = [
    *[("sched.explain", payload) for payload in ({"all": True}, {"id": 4})],
    *[(f"sched.{topic}", {"horizon": 3600}) for topic in ("plan", "windows")],
    *[(f"sched.{topic}", {}) for topic in ("stats", "limits")],
]


class Hears(AdmissionRule):
    """A rule after the faulty one, which is still informed of all jobs."""

    name = "hears"

    def __init__(self, host):
        super().__init__(host)
        self.running, self.gone = set(), set()

    def start(self, job, alloc):
        self.running.add(job.jobid)

    def hello(self, job):
        self.running.add(job.jobid)

    def free(self, jobid, R, final):
        self.running.remove(jobid)

    def cancel(self, jobid):
        self.gone.add(jobid)


#: Methods that decide whether the job may start.
COSTS_ITS_JOB = ("alloc", "signature", "check")

CASES = [("conservative", hook, wrong) for hook in HOOKS for wrong in WRONG]
CASES += [(name, hook, "raises") for hook in HOOKS for name in ("fifo", "short-waits")]


@pytest.mark.parametrize("name, hook, wrong", CASES, ids=["-".join(case) for case in CASES])
def test_whatever_a_rule_answers_the_scheduler_goes_on(name, hook, wrong):
    policy, args = TABLE[name]
    called = set()
    kind = rule_with(hook, WRONG[wrong], called)

    rig = Rig(R(4, 4), estimates=hook in ("why", "check"))
    rig.will_be_found(99, R("3", 4))
    rig.load(ruled(policy, kind, Hears), *args)
    rig.alloc({jobid: jobspec(8, duration=100 + jobid) for jobid in range(1, 5)})
    rig.wait(5)
    answers = [rig.ask(*question) for question in QUESTIONS]
    assert all(errnum == 0 or isinstance(answer, str) for errnum, answer in answers)
    if wrong in ("raises", "exits") and hook in COSTS_ITS_JOB:
        assert (f"a bug in {hook}" if wrong == "raises" else f"{hook}() exits") in rig.denied(1)
    elif wrong in ("raises", "exits"):
        assert rig.started() == [1], "what a rule is told costs nothing"
    rig.cancel(4)
    for jobid in rig.started()[:1]:
        rig.expire(jobid, rig.now + 50)
        rig.free(jobid)
    rig.settle()
    rig.resource.update(down="2")
    rig.resource.update(up="2")
    rig.reconfigure({"queues": {"a": {}}})
    rig.wait(5)
    assert hook in called or name != "conservative"
    told = rig.logged(3)
    assert not [line for line in told if "pass is lost" in line or "forecast" in line], told
    # A line for each of the jobs that it costs, or one for the method.
    assert len(told) <= 6 and all(
        f"wrong: {hook}" in line or f"a bug in {hook}" in line for line in told
    )
    called.add("over")
    rig.free(99, rig.info.R[99])
    for jobid in rig.started()[1:]:
        rig.free(jobid)
    rig.arrive(50, jobspec(1, duration=10))
    rig.sched.look_again()
    rig.wait(5)
    assert rig.task.failure is None and not rig.task.ended
    assert rig.answers(50, 0) and not rig.answers(50, 2)
    hears = rig.rule("hears")
    assert hears.running == {50} and 4 in hears.gone


@pytest.mark.parametrize("hook", ["check", "why"])
def test_a_rule_that_readmits_jobs_when_asked_is_not_asked_for_ever(hook):
    class Wakes(AdmissionRule):
        name = "wakes"

        def check(self, job):
            if hook == "check":
                self.host.readmit(self)
            return Deferral("not yet", key="k")

        def why(self, job):
            if hook == "why":
                self.host.readmit(self)

        def free(self, jobid, R, final):
            self.host.readmit(self)  # as a rule should

    rig = Rig(R(2, 4), ruled(Backfill, Wakes))
    rig.alloc({jobid: jobspec(1, duration=10) for jobid in (1, 2)})
    rig.wait(5)
    told = rig.logged(3)
    assert told and all("wakes: readmit() in an answer" in line for line in told)
    assert rig.sched.stats_get()["sched_passes"] < 10
    denied = [jobid for jobid in (1, 2) if rig.answers(jobid, 2)]
    assert denied == ([1, 2] if hook == "check" else [])
    rig.sched.admission.tell(AdmissionRule.free, 9, None, True)
    assert rig.logged(3) == told


def test_a_rule_that_cannot_tell_whether_it_is_engaged_is():
    class Odd(AdmissionRule):
        name = "odd"

        @property
        def engaged(self):
            return 1 / 0

        def hello(self, job):
            self.bank = job.attributes.get("bank")

    rig = Rig(R(2, 4), estimates=False)
    rig.will_be_found(99, R("1", 4), jobspec(4, duration=50, bank="a"))
    rig.load(ruled(Backfill, Odd))
    rig.arrive(1)
    assert rig.started() == [1]
    (line,) = rig.logged(3)
    assert line.startswith("admission rule odd: engaged") and "ZeroDivisionError" in line
    assert rig.rule("odd").bank == "a"


def test_a_rule_that_raises_at_the_end_of_a_job_keeps_no_record_of_it(monkeypatch):
    config = {"limits": {"one": {"per": "user", "max": {"nodes": 1}}}}
    rig = Rig(R(2, 4), Backfill, config=config)
    rig.arrive(1)
    assert rig.sched.admission.counted
    monkeypatch.setattr(LimitUse, "note_held", lambda *args: 1 / 0)
    rig.free(1, wait=0)
    assert not rig.sched.admission.counted
    assert any("admission rule limit: note_held" in text for text in rig.logged(3))
