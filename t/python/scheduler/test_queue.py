# SPDX-License-Identifier: LGPL-3.0-or-later
"""The pending queue: always a valid heap to who reads it, whatever was cancelled or moved
before."""

import heapq
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peers import Guide, R, Rig, jobspec

from flux.scheduler import PendingJob, ordered_jobs
from flux.scheduler import queue as queue_module
from flux.scheduler.ordered_jobs import Alike, OrderedJobs, entry_of
from flux.scheduler.queue import Backlog, PendingQueue, in_order
from flux.scheduler.requests import Requests


def job(jobid, priority=16):
    return PendingJob(jobid, priority, 0.0, None, None)


def is_heap(jobs):
    return all(not jobs[i] < jobs[(i - 1) // 2] for i in range(1, len(jobs)))


def test_jobs_order_by_priority_then_id():
    jobs = [job(3), job(1), job(2, 17), job(4, 0)]
    assert [j.jobid for j in sorted(jobs)] == [2, 1, 3, 4]


def test_a_job_takes_new_attributes():
    one = job(1)
    assert one._last_annotation is None
    one.my_notes = ["seen"]
    assert one.my_notes == ["seen"]


def test_a_priority_set_directly_counts_at_once():
    queue = [job(1), job(2), job(3)]
    queue[2].priority = 31
    heapq.heapify(queue)
    assert queue[0].jobid == 3


def test_same_id_again_after_removal():
    queue = PendingQueue()
    first, second, third = job(7), job(7, 20), job(7, 5)
    queue.push(first)
    queue.remove(first)
    queue.push(second)
    queue.remove(second)
    queue.push(third)
    assert queue.settle() == [third]


def test_the_same_job_again_after_removal():
    """As when an admission rule defers a job and readmits it before anybody has read the queue."""
    queue = PendingQueue()
    stay, comes_back = job(1), job(2, 20)
    queue.push(stay)
    queue.push(comes_back)
    queue.remove(comes_back)
    queue.push(comes_back)
    assert len(queue) == 2 and queue.settle() == [comes_back, stay]


def test_removing_what_is_not_there_is_harmless():
    queue = PendingQueue()
    stay, gone = job(1), job(2)
    queue.push(stay)
    queue.push(gone)
    assert heapq.heappop(queue.settle()) is stay
    queue.remove(stay)
    queue.move(stay, 31)
    assert queue.settle() == [gone]


def test_replaced_list_is_used_as_it_is():
    queue = PendingQueue()
    queue.push(job(1))
    mine = [job(2)]
    queue.replace(mine)
    assert queue.settle() is mine


OPS = st.lists(
    st.tuples(
        st.sampled_from(["push", "remove", "move", "pop", "read", "heapify"]),
        st.integers(0, 400),
        st.integers(0, 5),
    ),
    max_size=300,
)


@given(st.integers(0, 200), OPS)
def test_agrees_with_a_sorted_list(size, ops):
    queue = PendingQueue()
    model = {}
    for number in range(size):
        model[number] = job(number, number % 4)
        queue.push(model[number])
    for op, which, priority in ops:
        if op == "push":
            if which not in model:
                model[which] = job(which, priority)
                queue.push(model[which])
        elif op == "remove" and which in model:
            queue.remove(model.pop(which))
        elif op == "move" and which in model:
            queue.move(model[which], priority)
            assert model[which].priority == priority
        elif op == "pop" and model:
            top = heapq.heappop(queue.settle())
            assert top is min(model.values())
            del model[top.jobid]
        elif op == "heapify":
            heapq.heapify(queue.settle())
        elif op == "read":
            heap = queue.settle()
            assert is_heap(heap)
            assert sorted(j.jobid for j in heap) == sorted(model)
    assert [j.jobid for j in in_order(queue.settle())] == [j.jobid for j in sorted(model.values())]


@pytest.mark.parametrize("size", [1000])
def test_a_cancel_in_a_deep_queue_touches_few_jobs(size):
    """Trap 8, by count: the comparisons of one removal grow with the heap's depth, not its size."""
    compared = []

    class Counting(PendingJob):
        def __lt__(self, other):
            compared.append(1)
            return super().__lt__(other)

    queue = PendingQueue()
    jobs = [Counting(i, (i * 7919) % 50, 0.0, None, None) for i in range(size)]
    for one in jobs:
        queue.push(one)
    queue.settle()
    del compared[:]
    for one in jobs[size // 2 : size // 2 + 20]:
        queue.remove(one)
        queue.move(jobs[one.jobid + 200], 51)
        assert is_valid_root(queue.settle())
    assert len(compared) < 20 * 60


def is_valid_root(heap):
    return heap[0].order <= heap[1].order


def test_order_without_sorting_stops_early():
    heap = [job(i) for i in range(10)]
    walk = in_order(heap)
    assert next(walk).jobid == 0
    heapq.heappop(heap)
    assert [j.jobid for j in walk] == list(range(1, 10))
    assert list(in_order([])) == []


# -- Backlog ---------------------------------------------------------------------------------------


class Request:
    """As much of an open request as a queue looks at."""

    finalized = False


@pytest.mark.parametrize("behind", [20, 21])
def test_a_round_goes_on_behind_a_row_and_passes_over_nobody(behind):
    """A policy that examines job 19 blocks a row that begins right behind it, or one job later."""
    backlog, pending = backlog_of(60)
    backlog.wake(0.0)
    examined = []
    for one in backlog.to_examine(lambda: 0.0):
        if one is not None:
            examined.append(one.jobid)
            backlog.block(one)
            if one.jobid == 19:
                backlog.block_row(one, [pending[jobid] for jobid in range(behind, 50)])
    row = set(range(behind, 50))
    assert sorted(examined) == [jobid for jobid in sorted(pending) if jobid not in row]


def backlog_of(count):
    backlog = Backlog()
    jobs = {jobid: PendingJob(jobid, 16, 0.0, Request(), None) for jobid in range(1, count + 1)}
    for pending in jobs.values():
        backlog.push(pending)
    looked_at(backlog)
    return backlog, jobs


def looked_at(backlog, steps=None):
    """Ids of the jobs that one pass of so many steps looks at, all of which are found blocked."""
    found = []
    for pending in backlog.to_examine(lambda: 0.0):
        if pending is not None:
            found.append(pending.jobid)
            backlog.block(pending)
        elif steps is not None:
            steps -= 1
            if steps == 0:
                break
    return found


@pytest.mark.parametrize("priority", [0, 31])
def test_a_round_whose_job_moves_goes_on_where_it_stood(priority):
    """The job at which a round stands gets another place: those in between still have their
    turn."""
    backlog, jobs = backlog_of(100)
    backlog.wake(0.0)
    seen = looked_at(backlog, steps=1)
    assert 0 < len(seen) < 50
    stands_at = jobs[seen[-1] + 1]
    backlog.move(stands_at, priority)
    assert set(seen) | set(looked_at(backlog)) == set(jobs)
    assert backlog.stats(5.0)["unlooked"] == 0


def test_a_newcomer_ahead_of_where_a_round_stood_is_looked_at():
    backlog, jobs = backlog_of(100)
    backlog.wake(0.0)
    seen = looked_at(backlog, steps=1)
    backlog.move(jobs[seen[-1] + 1], 0)
    newcomer = PendingJob(1000, 16, 0.0, Request(), None)
    backlog.push(newcomer)
    assert 1000 in looked_at(backlog)


def test_jobs_moved_while_they_are_new_are_looked_at_once_each():
    backlog, jobs = backlog_of(40)
    for jobid in range(40, 20, -1):
        backlog.move(jobs[jobid], 20)
        backlog.move(jobs[jobid], 16)
    found = looked_at(backlog)
    assert sorted(found) == list(range(21, 41))


class Asks:
    """As much of a pool's request as a backlog looks at."""

    def __init__(self, shape, duration=0.0):
        self.shape = shape
        self.duration = duration


def all_refused(backlog, for_family=lambda job: False):
    """The ids of the jobs that a round examines, if each is refused for those that ask for the same, and
    some for their families."""
    found = []
    for pending in backlog.to_examine(lambda: 0.0):
        if pending is not None:
            found.append(pending.jobid)
            backlog.block(pending, alike=True, family=for_family(pending))
    return found


def test_a_refused_job_speaks_for_those_behind_it_that_ask_for_the_same():
    backlog = Backlog()
    asked = [("a", 60), ("b", 60), ("a", 60), ("a", 30), ("a", 0), ("b", 0), ("a", 30), ("c", 1)]
    for jobid, (shape, duration) in enumerate(asked, 1):
        backlog.push(PendingJob(jobid, 16, 0.0, Request(), Asks(shape, duration)))

    def looks():
        return all_refused(backlog)

    assert looks() == [1, 2, 4, 8]
    assert looks() == []
    # One that comes ahead of them is examined, one behind them is not.
    backlog.push(PendingJob(9, 31, 0.0, Request(), Asks("a", 60)))
    backlog.push(PendingJob(10, 16, 0.0, Request(), Asks("a", 60)))
    assert looks() == [9]
    # Whoever has something of its own is examined, and what is found ends with the epoch.
    job = backlog.settle()[3]
    job.exempt = True
    backlog.wake(1.0)
    assert looks() == [9, 2, job.jobid, 4, 8]
    assert backlog.stats(5.0)["unlooked"] == 0


def test_where_there_is_no_room_a_refused_job_speaks_for_its_family():
    """Signatures of which the first letter is the same are a family here."""
    backlog = Backlog()
    backlog.family_of = lambda signature: signature[0]
    asked = [("a1", 60), ("b1", 60), ("a2", 30), ("a2", 10), ("b2", 10), ("a1", 10), ("c1", 60)]
    for jobid, (shape, duration) in enumerate(asked, 1):
        backlog.push(PendingJob(jobid, 16, 0.0, Request(), Asks(shape, duration)))

    def looks():
        return all_refused(backlog, lambda job: job.resource_request.shape[0] != "b")

    assert looks() == [1, 2, 5, 7]
    # One ahead of the refused job is examined, one behind it is not; what is exempt is.
    backlog.push(PendingJob(8, 31, 0.0, Request(), Asks("a2", 60)))
    backlog.push(PendingJob(9, 16, 0.0, Request(), Asks("a2", 5)))
    exempt = backlog.settle()[4]
    assert exempt.jobid == 4
    exempt.exempt = True
    backlog.exempt_jobs = lambda: [exempt]
    assert looks() == [8]
    backlog.wake(1.0)
    assert looks() == [8, 2, 4, 5, 7]
    # The whole family leaves, and comes anew.
    for job in list(backlog.settle()):
        backlog.remove(job)
    backlog.push(PendingJob(20, 16, 0.0, Request(), Asks("a3", 5)))
    assert looks() == [20]


def test_exempt_jobs_among_many_that_are_refused_are_looked_at():
    backlog = Backlog()
    jobs = [PendingJob(jobid, 16, 0.0, Request(), Asks("a", 60)) for jobid in range(1, 2001)]
    for job in jobs:
        backlog.push(job)
    exempt = [jobs[499], jobs[1998]]
    backlog.exempt_jobs = lambda: exempt
    for job in exempt:
        job.exempt = True
    found = []
    for pending in backlog.to_examine(lambda: 0.0):
        if pending is not None:
            found.append(pending.jobid)
            backlog.block(pending, alike=not pending.exempt)
    assert sorted(found) == [1, 500, 1999]
    del found[:]
    backlog.wake(1.0)
    for pending in backlog.to_examine(lambda: 0.0):
        if pending is not None:
            found.append(pending.jobid)
            backlog.block(pending, alike=not pending.exempt)
    assert found == [1, 500, 1999]
    assert backlog.stats(5.0)["unlooked"] == 0
    for job in jobs:
        backlog.remove(job)
    assert backlog._signatures == {}


def test_what_was_refused_does_not_hold_when_its_job_has_gone_or_things_change():
    for change in ("gone", "allowed", "again"):
        backlog = Backlog()
        jobs = [PendingJob(jobid, 16, 0.0, Request(), Asks("a", 60)) for jobid in (1, 2, 3)]
        backlog.push(jobs[0])
        for pending in backlog.to_examine(lambda: 0.0):
            if pending is not None:
                backlog.block(pending, alike=True)
        if change == "gone":
            backlog.remove(jobs[0])
        elif change == "allowed":
            backlog.allow()
        else:
            backlog.again(jobs[0])
        backlog.push(jobs[1])
        found = [pending.jobid for pending in backlog.to_examine(lambda: 0.0) if pending]
        assert 2 in found, change


LOOKS = st.lists(
    st.tuples(
        st.sampled_from(
            ["push", "push", "remove", "move", "wake", "allow", "again", "pass", "exempt"]
        ),
        st.integers(0, 60),
        st.integers(0, 3),
    ),
    max_size=80,
)


@given(LOOKS)
def test_a_round_by_signatures_looks_at_the_same_jobs_as_one_from_job_to_job(ops):
    """Whatever happens in between, and wherever passes are cut short."""
    logs = []
    for merged in (0, queue_module.MAX_SIGNATURES_MERGED):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(queue_module, "MAX_SIGNATURES_MERGED", merged)
            patch.setattr(ordered_jobs, "JOBS_PER_BLOCK", 4)
            patch.setattr(queue_module, "EFFORT_PER_TURN", 10**9)  # turns are of another length
            patch.setattr(queue_module, "HEAD_JOBS", 2)
            logs.append(looks_of(ops))
    assert logs[0] == logs[1]


def looks_of(ops):
    """Who is examined while all this happens, each found blocked, the shorter as well if a third is
    examined."""
    backlog = Backlog()
    jobs = {}
    exempt = []
    backlog.exempt_jobs = lambda: exempt
    found = []

    def look(steps):
        for job in backlog.to_examine(lambda: 0.0):
            if job is not None:
                found.append(job.jobid)
                limit = 0.0 if job.jobid % 3 == 0 else inf
                backlog.block(job, alike=not job.exempt, limit=limit)
                steps -= 1
                if steps == 0:
                    return

    for op, number, kind in ops:
        job = jobs.get(number)
        if op == "push" and job is None:
            asks = Asks("abcd"[kind], 60 + number % 5)
            jobs[number] = PendingJob(number, 16 + kind, 0.0, Request(), asks)
            backlog.push(jobs[number])
        elif op == "wake":
            backlog.wake(0.0)
        elif op == "allow":
            backlog.allow()
        elif op == "pass":
            look(number or -1)
        elif job is None:
            pass
        elif op == "remove":
            backlog.remove(jobs.pop(number))
            if job.exempt:
                exempt.remove(job)
        elif op == "move" and not job.exempt:
            backlog.move(job, 14 + kind)
        elif op == "again":
            backlog.again(job)
        elif op == "exempt" and not job.exempt:
            job.exempt = True
            exempt.append(job)
            exempt.sort()
    look(-1)
    assert backlog.stats(5.0)["unlooked"] == 0
    return found


def test_a_job_that_leaves_and_comes_back_to_its_place_in_a_round_is_looked_at_once():
    backlog = Backlog()
    jobs = [PendingJob(n, 16, 0.0, Request(), Asks("ab"[n == 150], 60)) for n in range(200)]
    for one in jobs:
        backlog.push(one)
    looked_at(backlog)
    backlog.wake(0.0)
    seen = looked_at(backlog, steps=2)
    for _ in range(2):  # all of its signature are gone for a moment
        backlog.remove(jobs[150])
        backlog.push(jobs[150])
    assert 150 not in seen
    assert looked_at(backlog).count(150) == 1


@pytest.mark.parametrize("size", [1000, 4000])
def test_a_round_over_a_deep_queue_looks_at_few_jobs_of_each_signature(monkeypatch, size):
    """What is looked at in a round grows with the shapes in the queue, not with its jobs."""
    backlog = Backlog()
    for jobid in range(1, size + 1):
        backlog.push(PendingJob(jobid, 16, 0.0, Request(), Asks("abcdefgh"[jobid % 8], jobid % 97)))

    def look():
        found = []
        for pending in backlog.to_examine(lambda: 0.0):
            if pending is not None:
                found.append(pending.jobid)
                backlog.block(pending, alike=True, limit=0.0)
        return found

    look()
    searched = []
    after = Alike.after
    monkeypatch.setattr(Alike, "after", lambda *args: searched.append(1) or after(*args))
    backlog.wake(1.0)
    assert look() == list(range(1, 9))
    assert len(searched) <= 3 * 8


# -- an order of one's own -------------------------------------------------------------------------


class ByWidth:
    """As much of a scheduler as requests look at."""


def test_an_order_of_ones_own_is_that_of_heap_backlog_and_walk():
    for queue in (PendingQueue(), Backlog()):
        table = Requests(queue, order=lambda job: (-job.resource_request, job.t_submit))
        for jobid, width in enumerate([3, 1, 4, 1, 5, 9, 2, 6], 1):
            request = table.open(ByWidth(), object(), jobid)
            queue.push(PendingJob(jobid, jobid, 1.0, request, width))
        expected = [6, 8, 5, 3, 1, 7, 2, 4]
        assert [j.jobid for j in in_order(queue.settle())] == expected
        queue.move(table.job_of(2), 4000)  # a priority does not count
        assert [j.jobid for j in in_order(queue.settle())] == expected
        table.job_of(4).resource_request = 7
        queue.reorder()
        assert [j.jobid for j in in_order(queue.settle())] == [6, 4, 8, 5, 3, 1, 7, 2]
        assert is_heap(queue.settle())


@given(
    st.lists(
        st.tuples(st.sampled_from("push take read move many defer".split()), st.integers(0, 400)),
        max_size=60,
    ),
    st.sampled_from([1, 3000]),
)
def test_a_backlog_is_in_order_for_who_reads_it(steps, jobs):
    """Jobs leave and change places together or one by one, in short lists and long ones."""
    backlog = Backlog()
    there = {}
    for jobid in range(jobs):
        there[jobid] = job(jobid, 16 + jobid % 3)
        backlog.push(there[jobid])
    for what, number in steps:
        some = [one for one in there.values() if one.jobid % 400 == number]
        if what == "push" and number + 10**6 not in there:
            there[number + 10**6] = job(number + 10**6, number % 32)
            backlog.push(there[number + 10**6])
        elif what == "read":
            assert backlog.heap == sorted(there.values())
        elif what == "many":
            backlog.move_all({one: one.jobid % 7 for one in there.values() if one.jobid > number})
        elif what == "move":
            for one in some:
                backlog.move(one, number % 32)
        else:
            for one in some:
                backlog.remove(there.pop(one.jobid))
                if what == "defer":
                    one.priority = number  # one that waits elsewhere, and is not read of before
    assert backlog.settle() == sorted(there.values())
    assert len(backlog) == len(there) and bool(backlog) == bool(there)
    assert sum(one.count for one in backlog._signatures.values()) == len(there)


def test_jobs_are_neither_compared_nor_listed_when_many_come_leave_and_move(monkeypatch):
    """A job that comes, moves or leaves costs a search for its place, however many there are, and
    whoever looks at the queue in between."""
    compared, listed = [], []
    before = PendingJob.__lt__
    monkeypatch.setattr(PendingJob, "__lt__", lambda a, b: compared.append(1) or before(a, b))
    for name in ("to_list", "__iter__"):
        method = getattr(OrderedJobs, name)
        monkeypatch.setattr(
            OrderedJobs, name, lambda self, method=method: listed.append(1) or method(self)
        )
    backlog = Backlog()
    jobs = [job(jobid) for jobid in range(4000)]

    def look():
        assert len(backlog) and backlog and backlog.has_priorities in (False, True)
        assert next(backlog.in_order(8)) is backlog.jobs.first
        backlog.wake(0.0)

    for one in jobs:
        one.signature = one.jobid % 20
        backlog.push(one)
        look()
    for one in jobs:
        backlog.move(one, 16 + one.jobid % 5)
        look()
    backlog.move_all({one: 16 + one.jobid // 20 % 5 for one in jobs[::20]})
    for one in jobs[1:]:
        backlog.remove(one)
        look()
    assert not compared and not listed
    assert backlog.heap == jobs[:1]


@given(
    st.lists(
        st.tuples(st.sampled_from("add add remove head since".split()), st.integers(0, 60)),
        max_size=80,
    )
)
def test_ordered_jobs_are_what_a_sorted_list_is(steps):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordered_jobs, "JOBS_PER_BLOCK", 4)
        jobs, there = OrderedJobs(), {}
        for what, number in steps:
            model = sorted(there.values())
            if what == "add" and number not in there:
                there[number] = job(number, 16 + number % 3)
                jobs.add(entry_of(there[number]))
            elif what == "remove" and number in there:
                jobs.remove(there.pop(number))
            elif what == "head":
                assert jobs.head(number) == model[:number]
                if model:
                    assert (jobs.first, jobs.last) == (model[0], model[-1])
            elif what == "since":
                behind = [one for one in model if (one.order, one.jobid) >= (-17, number)]
                assert list(jobs.since(-17, number)) == behind
        assert list(jobs) == jobs.to_list() == sorted(there.values())
        assert jobs.count == len(there)
        assert max(len(block) for block in jobs._blocks) <= 4


@pytest.mark.parametrize("size", [1000, 4000])
def test_many_new_jobs_that_others_speak_for_are_passed_over_in_turns(monkeypatch, size):
    """However many come at once, a pass gives way after it has passed over some of them."""
    backlog = Backlog()
    backlog.push(PendingJob(1, 16, 0.0, Request(), Asks("a", 60)))
    assert all_refused(backlog) == [1]
    for jobid in range(2, size):
        backlog.push(PendingJob(jobid, 16, 0.0, Request(), Asks("a", 60)))
    backlog.push(PendingJob(size, 16, 0.0, Request(), Asks("b", 60)))
    passed_over = [0]
    is_due = Backlog._is_due

    def counted(self, one):
        passed_over[-1] += 1
        return is_due(self, one)

    monkeypatch.setattr(Backlog, "_is_due", counted)
    found = []
    for pending in backlog.to_examine(lambda: 0.0):
        if pending is None:
            passed_over.append(0)
        else:
            found.append(pending.jobid)
            backlog.block(pending, alike=True)
    assert found == [size]
    most = queue_module.HEAD_JOBS + queue_module.FRESH_SKIPPED_PER_TURN
    assert sum(passed_over) >= size - 1 and max(passed_over) <= most + 1


def test_a_pass_that_is_cut_short_again_and_again_comes_to_the_last_of_many_new_jobs():
    backlog = Backlog()
    backlog.push(PendingJob(1, 16, 0.0, Request(), Asks("a", 60)))
    assert all_refused(backlog) == [1]
    for jobid in range(2, 3000):
        backlog.push(PendingJob(jobid, 16, 0.0, Request(), Asks("a", 60)))
    backlog.push(PendingJob(3000, 16, 0.0, Request(), Asks("b", 60)))
    passes = 0
    while 3000 not in looked_at(backlog, steps=1):
        passes += 1
        assert passes < 3000 // queue_module.FRESH_SKIPPED_PER_TURN + 2


@pytest.mark.parametrize("gpus", [0, 1], ids=["counted", "on ranks"])
@pytest.mark.parametrize("promise", ["1", "20"])
def test_sched_backfill_makes_no_list_of_all_jobs_as_they_come_move_and_leave(
    monkeypatch, promise, gpus
):
    listed = []
    monkeypatch.setattr(OrderedJobs, "to_list", lambda self: listed.append(1) or list(self))
    rig = Rig(R(2, 4, 2))
    rig.load_file("sched-backfill", "queue-depth=unlimited", f"promise={promise}")
    keys = {"cores": 3, "gpus": 1} if gpus else {"exclusive": True}
    for jobid in range(200):
        rig.alloc(jobid, jobspec(1, nodes=2, duration=100 + jobid % 7, **keys))
        rig.turn()
    rig.wait(5)  # reasons and expected starts are told
    for jobid in range(1, 200):
        rig.prioritize((jobid, jobid % 32))
        rig.turn()
    rig.free(0)
    rig.wait(5)
    for jobid in range(1, 200):
        rig.cancel(jobid)
        rig.turn()
    rig.settle()
    assert len(rig.started()) == 2
    assert not listed and not rig.logged(3)


def test_a_policy_that_pops_what_it_starts_may_have_a_backlog():
    class Popping(Guide):
        _queue_class = Backlog

    rig = Rig(R(4, 4))
    sched = rig.load(Popping, "queue-depth=unlimited")
    for jobid in range(1, 7):
        rig.alloc(jobid, jobspec(4), priority=16 + jobid % 2)
    rig.settle()
    assert rig.started() == [1, 3, 5, 2]
    assert [one.jobid for one in sched._queue] == [4, 6] and len(sched._backlog) == 2
    rig.free(3)
    rig.settle()
    assert rig.started() == [1, 3, 5, 2, 4]
    assert not rig.logged(3)
