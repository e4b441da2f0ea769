# SPDX-License-Identifier: LGPL-3.0-or-later
"""What a site's own methods return wrongly costs the job that it is about."""

import pytest

from flux.scheduler import Scheduler
from flux.scheduler.admission import AdmissionRule
from flux.scheduler.policies import Backfill, Fifo
from flux.scheduler.testing import FakeInstance


def play(policy, jobs=4):
    instance = FakeInstance(nodes=1, check_errors=False)
    instance.load(policy)
    submitted = [instance.submit(nodes=1, duration=10) for _ in range(jobs)]
    instance.advance(10 * jobs)
    return instance, submitted


@pytest.mark.parametrize("base", [Fifo, Backfill])
@pytest.mark.parametrize("wrong", [None, float("nan"), "text"])
def test_an_order_that_cannot_be_sorted_costs_its_job(base, wrong):
    class Odd(base):
        def order(self, job):
            return wrong if job.userid == 7 else job.jobid

    instance = FakeInstance(nodes=1, check_errors=False)
    instance.load(Odd)
    jobs = [instance.submit(nodes=1, duration=10, userid=user) for user in (1, 7, 1, 7, 1)]
    instance.advance(60)
    assert [job.result for job in jobs] == [
        "completed",
        "failed",
        "completed",
        "failed",
        "completed",
    ]
    assert all("cannot be sorted among others" in text for text in instance.errors)
    assert len(instance.errors) == 2


def test_a_job_whose_order_goes_wrong_later_keeps_its_place():
    class Odd(Backfill):
        def order(self, job):
            return None if job.priority > 100 else -job.priority

    instance = FakeInstance(nodes=1, check_errors=False)
    instance.load(Odd)
    first, second, third = (instance.submit(nodes=1, duration=10) for _ in range(3))
    instance.advance(1)
    third.set_priority(1000)
    instance.advance(60)
    assert [job.result for job in (first, second, third)] == ["completed"] * 3
    assert second.t_start < third.t_start
    (text,) = instance.errors
    assert "keeps its place in the queue: order() returned None" in text


def test_a_signature_that_cannot_be_hashed_costs_its_job():
    class Rule(AdmissionRule):
        name = "odd"

        def signature(self, job):
            return [1] if job.userid == 7 else None

    class Odd(Backfill):
        def __init__(self, h, *args):
            super().__init__(h, *args)
            self.add_rule(Rule(self))

    instance = FakeInstance(nodes=1, check_errors=False)
    instance.load(Odd)
    jobs = [instance.submit(nodes=1, duration=10, userid=user) for user in (1, 7, 1)]
    instance.advance(60)
    assert [job.result for job in jobs] == ["completed", "failed", "completed"]
    assert "signature() of a rule: unhashable type: 'list'" in instance.errors[0]


def test_what_is_allocated_to_a_job_that_was_canceled_meanwhile_is_given_back():
    class Slow(Scheduler):
        """Allocates, lets others have a turn, and answers without a look whether it still may."""

        def schedule(self):
            for job in list(self._queue):
                alloc = self.resources.alloc(job.jobid, job.resource_request)
                yield 1.0
                job.request.success(alloc)
                self._queue.remove(job)

    instance = FakeInstance(nodes=1, check_errors=False)
    instance.load(Slow)
    first = instance.submit(nodes=1, duration=10)
    instance.advance(0.5)
    first.cancel()
    instance.advance(5)
    assert first.result == "canceled"
    assert instance.scheduler.resources.copy_allocated().nnodes == 0
    second = instance.submit(nodes=1, duration=10)
    instance.advance(5)
    assert second.state == "running"
