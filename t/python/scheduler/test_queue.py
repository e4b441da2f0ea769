# SPDX-License-Identifier: LGPL-3.0-or-later
"""The pending queue: its readers always see a valid heap, after any cancel or move."""

import heapq
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peers import R, Rig, jobspec

from flux.scheduler import PendingJob, walk
from flux.scheduler.queue import Backlog, PendingQueue, in_order
from flux.scheduler.requests import Requests
from flux.scheduler.walk import OrderedJobs, entry_of


def job(jobid, priority=16):
    return PendingJob(jobid, priority, 0.0, None, None)


def is_heap(jobs):
    return all(not jobs[i] < jobs[(i - 1) // 2] for i in range(1, len(jobs)))


def test_a_group_that_was_emptied_during_a_walk_has_no_shorter_job():
    """As when all readmitted jobs of one signature have started, and one of the next was refused."""
    jobs, first, last = OrderedJobs(), job(1), job(2)
    first.limit = last.limit = 60.0
    jobs.add(entry_of(first))
    jobs.add(entry_of(last))
    assert jobs.shorter_since((first.order, 2), 100.0) is last
    jobs.remove(last)
    jobs.remove(first)
    assert jobs.shorter_since((first.order, 2), 100.0) is None


def test_a_job_that_was_removed_comes_back_and_one_that_has_gone_is_not_missed():
    """As when an admission rule defers a job and readmits it before anybody has read the queue."""
    queue = PendingQueue()
    stay, comes_back = job(1), job(2, 20)
    for one in (stay, comes_back):
        queue.push(one)
    queue.remove(comes_back)
    queue.push(comes_back)
    assert len(queue) == 2 and queue.settle() == [comes_back, stay]
    assert heapq.heappop(queue.settle()) is comes_back
    queue.remove(comes_back)
    queue.move_all({comes_back: 31})
    assert queue.settle() == [stay]


def test_replaced_list_is_used_as_it_is():
    queue = PendingQueue()
    queue.push(job(1))
    mine = [job(2)]
    queue.replace(mine)
    assert queue.settle() is mine


def steps(names, *numbers, most):
    """Strategy of lists of steps: a name, and numbers up to these."""
    choices = [st.integers(0, number) for number in numbers]
    return st.lists(st.tuples(st.sampled_from(names.split()), *choices), max_size=most)


@given(st.integers(0, 200), steps("push remove move pop read heapify", 400, 5, most=300))
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
            queue.move_all({model[which]: priority})
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


def test_a_cancel_in_a_deep_queue_touches_few_jobs():
    """Trap 8, by count: the comparisons of one removal grow with the heap's depth, not its size."""
    compared = []

    class Counting(PendingJob):
        def __lt__(self, other):
            compared.append(1)
            return super().__lt__(other)

    queue = PendingQueue()
    jobs = [Counting(i, (i * 7919) % 50, 0.0, None, None) for i in range(1000)]
    for one in jobs:
        queue.push(one)
    queue.settle()
    del compared[:]
    for one in jobs[500:520]:
        queue.remove(one)
        queue.move_all({jobs[one.jobid + 200]: 51})
        first, second = queue.settle()[:2]
        assert first.order <= second.order
    assert len(compared) < 20 * 60


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
        queue.move_all({table.job_of(2): 4000})  # a priority does not count
        assert [j.jobid for j in in_order(queue.settle())] == expected
        table.job_of(4).resource_request = 7
        queue.reorder()
        assert [j.jobid for j in in_order(queue.settle())] == [6, 4, 8, 5, 3, 1, 7, 2]
        assert is_heap(queue.settle())


@pytest.fixture(scope="module")
def small_blocks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walk, "JOBS_PER_BLOCK", 4)
        yield


@given(steps("push take read move many defer", 400, most=60), st.sampled_from([1, 100, 1000]))
def test_a_backlog_is_in_order_for_who_reads_it(small_blocks, ops, jobs):
    """Jobs leave and change places together or one by one, in short lists and long ones."""
    backlog = Backlog()
    there = {}
    for jobid in range(jobs):
        there[jobid] = job(jobid, 16 + jobid % 3)
        backlog.push(there[jobid])
    for what, number in ops:
        some = [one for one in there.values() if one.jobid % 400 == number]
        if what == "push" and number + 10**6 not in there:
            there[number + 10**6] = job(number + 10**6, number % 32)
            backlog.push(there[number + 10**6])
        elif what == "read":
            model = sorted(there.values())
            assert list(backlog.jobs) == backlog.jobs.to_list() == model
            assert backlog.jobs.head(number) == model[:number]
            if model:
                assert (backlog.jobs.first, backlog.jobs.last) == (model[0], model[-1])
            behind = [one for one in model if (one.order, one.jobid) >= (-17, number)]
            first = backlog.jobs.first_since((-17, number))
            assert first is (behind[0] if behind else None)
        elif what == "many":
            backlog.move_all({one: one.jobid % 7 for one in there.values() if one.jobid > number})
        elif what == "move":
            for one in some:
                backlog.move_all({one: number % 32})
        else:
            for one in some:
                backlog.remove(there.pop(one.jobid))
                if what == "defer":
                    one.priority = number  # one that waits elsewhere, and is not read of before
    assert backlog.settle() == sorted(there.values())
    assert len(backlog) == len(there) and bool(backlog) == bool(there)
    for one in there.values():
        one.request = SimpleNamespace(finalized=False)
        backlog.join_group(one)
    assert sum(one.count for one in backlog.groups.values()) == len(there)
    assert max(len(block) for block in backlog.jobs.blocks) <= 4


@pytest.mark.parametrize("gpus", [0, 1], ids=["counted", "on ranks"])
@pytest.mark.parametrize("promise", ["1", "20"])
def test_sched_backfill_makes_no_list_of_all_jobs_as_they_come_move_and_leave(
    monkeypatch, promise, gpus
):
    listed = []
    monkeypatch.setattr(OrderedJobs, "to_list", lambda self: listed.append(1) or list(self))
    rig = Rig(R(2, 4, 2), "sched-backfill", "queue-depth=unlimited", f"promise={promise}")
    keys = {"cores": 3, "gpus": 1} if gpus else {"exclusive": True}
    for jobid in range(60):
        rig.alloc(jobid, jobspec(1, nodes=2, duration=100 + jobid % 7, **keys))
        rig.turn()
    rig.wait(5)  # reasons and expected starts are told
    for jobid in range(1, 60):
        rig.prioritize((jobid, jobid % 32))
        rig.turn()
    rig.free(0, wait=5)
    for jobid in range(1, 60):
        rig.cancel(jobid)
        rig.turn()
    assert len(rig.started()) == 2
    assert not listed and not rig.logged(3)


def test_a_job_whose_examination_raised_is_examined_again():
    backlog, one = Backlog(), job(1)
    one.request = SimpleNamespace(finalized=False)
    backlog.push(one)
    with pytest.raises(KeyError):
        for _ in backlog.to_examine(float):
            raise KeyError
    assert list(backlog.to_examine(float)) == [one]
