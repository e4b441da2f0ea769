# SPDX-License-Identifier: LGPL-3.0-or-later
"""Which promises come due: the book against a plain list."""

import math
import random
from functools import total_ordering

import pytest

from flux.scheduler.policies.promise_book import PromiseBook


@total_ordering
class Job:
    """As much of a pending job as the book looks at."""

    resource_request = None
    exempt = False

    def __init__(self, jobid, priority):
        self.jobid = jobid
        self.place = (-priority, jobid)

    def __lt__(self, other):
        return self.place < other.place


class Plan:
    """Promises move where the test says."""

    moves_per_turn = 512

    def __init__(self):
        self.starts = {}
        self.row = []

    def reserve(self, jobid, request, when):
        self.starts[jobid] = when

    def hold(self, jobid, request):
        self.starts[jobid] = math.inf

    def cancel(self, jobid):
        del self.starts[jobid]

    def advance(self, jobid):
        return self.starts[jobid]

    def advance_in_turn(self, jobids):
        self.row = list(jobids)
        moved = []
        for place, jobid in enumerate(jobids):
            if jobid % 3:
                self.starts[jobid] -= jobid % 40
                moved.append((place, self.starts[jobid]))
        return len(self.row), moved


@pytest.mark.parametrize("seed", range(6))
def test_what_comes_due(seed):
    rng = random.Random(seed)
    book = PromiseBook()
    book.plan = plan = Plan()
    jobs = {}
    now = 1000.0
    asked = 0
    for step in range(600):
        now += rng.choice([0, 0, 1, 5])
        what = rng.random()
        if what < 0.5 or not jobs:
            job = jobs[step] = Job(step, rng.randrange(3))
            book.make(job, None if rng.random() < 0.1 else now + rng.randrange(300))
        elif what < 0.6:
            job = rng.choice(sorted(jobs.values()))
            book.make(job, now + rng.randrange(100))  # another time, or no longer open
        elif what < 0.75:
            book.drop(jobs.pop(rng.choice(sorted(jobs))))
        elif what < 0.85:
            job = rng.choice(sorted(jobs.values()))
            if book.when(job) is not None:
                plan.starts[job.jobid] -= rng.randrange(20)
                assert book.advance(job) == plan.starts[job.jobid]
        elif not book.open_ids:
            job = min(jobs.values())
            looked, moved = book.advance_following(job)
            assert looked == sorted(jobs.values())[1:]
            assert plan.row == [one.jobid for one in looked]
            assert all(plan.starts[one.jobid] == when for one, when in moved)
        times = {jobid: when for jobid, when in plan.starts.items() if when < math.inf}
        assert book.open_ids == set(plan.starts) - set(times)
        for job in jobs.values():
            assert book.when(job) == times.get(job.jobid)
        if rng.random() < 0.7:
            due = [job for job in sorted(jobs.values()) if times.get(job.jobid, math.inf) <= now]
            asked += bool(due)
            assert book.due(now) == due
            for job in due:  # they start
                book.drop(jobs.pop(job.jobid))
                del times[job.jobid]
        to_come = [when for when in times.values() if when > now]
        assert book.next_after(now) == min(to_come, default=None)
        if rng.random() < 0.05:
            for job in jobs.values():
                job.place = (-rng.randrange(3), job.jobid)
            book.reorder()
    assert asked > 50
    assert [one.jobid for one in book.in_order] == [one.jobid for one in sorted(jobs.values())]
