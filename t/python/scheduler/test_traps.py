# SPDX-License-Identifier: LGPL-3.0-or-later
"""Traps that schedulers of this kind have fallen into, one test or more by the number of each.

1. A pass starts a job and yields before the job has left the queue; an event closes the pass, and
   the next one starts the job again.
2. Recursion that goes as deep as the queue is long.
3. A head of the queue that has no shadow time (its nodes are down, or jobs without a limit hold
   them) stops all jobs behind it.
4. The end of a deep queue is never examined at, because events keep starting passes from the front.
5. A pass never reaches a yield, or only between jobs that start: blocked and denied jobs count too.
6. The pool never hears of a new expiration, and plans with an end that has passed.
7. A call inside a pass, or at hello, waits for an answer, one job after the other
   (test_handshake.py, test_messages.py).
8. Cancelling or moving a job costs as much as the queue is long (test_queue.py).
9. Two answers to one request, annotations after the answer (test_states.py), nulls for keys that were never set
   (test_commit.py).
10. A start that fails and leaves the instance without a scheduler and without an error
    (test_handshake.py).
11. The clock of the host is set, and plans made by the old time delay jobs.
"""

import heapq

import pytest
from each_policy import POLICIES
from peers import R, Rig, jobspec

from flux.resource import InsufficientResources
from flux.scheduler import Scheduler
from flux.scheduler.testing.handle import FakeHandle
from flux.scheduler.walk import EFFORT_PER_TURN

MODULES = ["sched-fifo", "sched-simple", "sched-backfill"]


class PopsAfterYield(Scheduler):
    """A policy with the bug: it yields between starting a job and taking it out of the queue."""

    def schedule(self):
        while self._queue:
            job = self._queue[0]
            try:
                job.request.success(self.resources.alloc(job.jobid, job.resource_request))
            except InsufficientResources:
                return
            yield
            heapq.heappop(self._queue)


class NeverPops(Scheduler):
    def schedule(self):
        for job in sorted(self._queue):
            try:
                job.request.success(self.resources.alloc(job.jobid, job.resource_request))
            except InsufficientResources:
                pass
            yield


@pytest.mark.parametrize("policy", [PopsAfterYield, NeverPops])
def test_trap_1_a_started_job_leaves_the_queue_before_anything_can_interrupt(policy):
    rig = Rig(R(2, 4), policy)
    rig.alloc((1, 2, 3))
    jobid = 3
    while jobid < 8:
        rig.turn()
        jobid += 1
        rig.alloc(jobid)  # each closes the pass under way
    rig.settle()
    assert rig.sched.stats_get()["sched_closed"] > 0
    if policy is NeverPops:
        assert sorted(rig.started()) == list(range(1, 9))
    assert len(set(rig.started())) == len(rig.started())
    assert rig.sched.stats_get()["errors"] == 0


@pytest.mark.parametrize("module", MODULES)
def test_trap_2_thousands_of_startable_jobs_in_one_pass(module):
    rig = Rig(R(100, 32), module, "queue-depth=unlimited", "reason-depth=0")
    rig.alloc(range(1, 1201))
    assert len(rig.started()) == 1200
    stats = rig.sched.stats_get()
    assert stats["sched_yields"] > 20
    assert stats["errors"] == 0


def test_trap_3_jobs_that_wait_for_down_nodes_take_no_part_in_passes():
    rig = Rig(R(4, 4), "sched-backfill", up="0-2")
    rig.arrive(range(1, 51), jobspec(1, nodes=4, duration=100), priority=20)
    assert rig.sched.stats_get()["parked"] == 50
    assert rig.sched.stats_get()["pending_jobs"] == len(rig.sched._queue) == 50
    examined = []
    alloc = rig.sched.decision.plan.alloc
    rig.sched.decision.plan.alloc = lambda *args: examined.append(args[0]) or alloc(*args)
    rig.arrive(100, jobspec(1, nodes=1, duration=10))
    rig.free(100, wait=0)
    assert examined == [100]
    rig.resource.update(up="3")
    assert rig.success(1)
    assert rig.sched.stats_get()["parked"] == 0


def deep(jobs=600, busy=15):
    """A backfill scheduler with a blocked head, and jobs behind it that do not fit now.

    Each asks for something else, so that none speaks for another one.
    """
    rig = Rig(R(16, 4), "sched-backfill", "reason-depth=0")
    rig.arrive(1, jobspec(1, nodes=busy, cores=4, duration=100000))
    rig.alloc(2, jobspec(1, nodes=16, cores=4, duration=10), priority=30)
    rig.arrive({jobid: different(jobid, 90000) for jobid in range(3, jobs + 3)})
    return rig


def different(jobid, duration):
    """A request that is unlike all others, and too long to be done before the promised start."""
    without = {"not": [{"properties": [f"p{jobid}"]}]}
    return jobspec(1, nodes=1, cores=4, duration=100000 + duration, constraints=without)


def counting(rig):
    """The jobs that are looked at from now on, closely or by the plan's quick look."""
    looked = []
    decision = rig.sched.decision
    examine, too_long = decision.examine, decision.too_long

    def waits(job):
        found = too_long(job)
        if found is not None:
            looked.append(job.jobid)
        return found

    decision.examine = lambda job: looked.append(job.jobid) or examine(job)
    decision.too_long = waits
    return looked


def test_trap_4_the_tail_is_looked_at_under_steady_events():
    rig = deep(busy=14)  # those that come leave a node: jobs without room need no look each
    sched = rig.sched
    last = 602
    examined = counting(rig)
    # In every turn a job is started and one returned.
    turns = 0
    rig.arrive(9000, jobspec(1, duration=5), priority=31)
    del examined[:]
    jobid = 9001
    while last not in examined and turns < 5000:
        rig.free(jobid - 1)
        rig.alloc(jobid, jobspec(1, duration=5), priority=31)
        while not rig.answers(jobid, 0, settle=False):
            rig.turn()
            turns += 1
        jobid += 1
    assert last in examined
    assert sched.stats_get()["sched_closed"] == 0
    assert turns < 40 * 600 / EFFORT_PER_TURN
    rig.settle()
    stats = sched.stats_get()
    assert stats["unlooked"] == 0.0
    assert "unlooked_longest" in stats


@pytest.mark.parametrize("module", MODULES)
def test_trap_5_blocked_and_denied_jobs_yield_too(module):
    rig = Rig(R(4, 4), module, "queue-depth=unlimited", "reason-depth=0")
    rig.arrive(1, jobspec(1, nodes=4, cores=4))
    before = rig.sched.stats_get()["sched_yields"]
    blocks = module == "sched-backfill"
    jobs = range(2, 302)
    rig.arrive({n: different(n, 10000) if blocks else jobspec(1, nodes=9) for n in jobs})
    assert rig.sched.stats_get()["sched_yields"] - before >= 300 / EFFORT_PER_TURN
    assert rig.sched.stats_get()["sched_passes"] <= 3


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("reloaded", [False, True])
def test_trap_6_the_end_of_the_instance_moves_jobs_without_a_limit(module, reloaded):
    """As in an instance that is a job of another one, whose duration is updated there: the job manager
    moves the ends of such jobs without a request to the scheduler."""
    rig = Rig(R(2, 4))
    start = rig.now
    rig.resource.R["execution"]["expiration"] = start + 1000
    rig.load(module)
    rig.arrive({1: jobspec(1, cores=4, nodes=1), 2: jobspec(1, cores=4, nodes=1, duration=100)})
    if reloaded:
        for jobid in (1, 2):
            rig.will_be_found(jobid)
        rig.reload(module)
    rig.alloc(3, jobspec(1, cores=4, nodes=2, duration=100))
    assert rig.shown(3)["t_estimate"] == start + 1000
    rig.resource.update(expiration=start + 3000)
    rig.settle()
    assert dict(rig.sched.resources.job_end_times()) == {1: start + 3000, 2: start + 100}
    assert rig.shown(3)["t_estimate"] == start + 3000
    rig.resource.update(expiration=start + 500)
    assert rig.shown(3)["t_estimate"] == start + 500


@POLICIES
def test_trap_11_jobs_start_whatever_the_clock_does(monkeypatch, policy, args):
    """Ahead and back, under a job that runs, one that waits for it, and a plan of both."""
    jump = 0.0
    clock = FakeHandle.reactor_now
    monkeypatch.setattr(FakeHandle, "reactor_now", lambda *args: clock(*args) + jump)
    rig = Rig(R(4, 4), policy, *args)
    runs = 0
    for by in (0.0, 7200.0, -7200.0, 86400.0, -3.6e6, 0.0):
        jump = by
        for jobid in range(runs + 1, runs + 4):
            rig.arrive(jobid, jobspec(1, nodes=4, exclusive=True, duration=600))
        rig.wait(30)
        assert rig.sched.now() == rig.now + by
        for _ in range(2 + (runs > 0)):  # one runs on
            rig.free(max(runs, 1), wait=30)
            runs = max(runs, 1) + 1
            assert rig.started() == list(range(1, runs + 1))
    assert runs == 18 and rig.sched.stats_get()["errors"] == 0
