# SPDX-License-Identifier: LGPL-3.0-or-later
"""Tests of a scheduler without a Flux instance.

`FakeInstance` holds a scheduler, yours or one of this library, and emulates its environment. A test
submits jobs, lets time pass, and checks the scheduler's actions::

    from flux.scheduler.testing import FakeInstance

    def test_jobs_start_in_order():
        instance = FakeInstance(nodes=4, cores=8)
        instance.load(MyScheduler, "queue-depth=8")
        first = instance.submit(nodes=4, duration=600)
        second = instance.submit(nodes=1)
        instance.run_until_idle()
        assert instance.running() == [first] and first.ranks == "0-3"
        instance.advance(600)
        assert instance.running() == [second] and second.t_start == first.t_start + 600

It needs the bindings, flux-core's or the embedded instance's, but no broker: the scheduler runs in
the test's process, under a virtual clock, on the same engine (``flux_engine``) as in ``flux
simulate``. Behaviour that depends on real processes, several brokers or a real KVS is tested in an
instance (doc/guide/testing.rst).
"""

from flux.scheduler.testing.builders import jobspec, make_R
from flux.scheduler.testing.instance import EndlessLoop, FakeInstance, SchedulerErrors
from flux.scheduler.testing.job_manager import FakeJob

__all__ = ["EndlessLoop", "FakeInstance", "FakeJob", "SchedulerErrors", "jobspec", "make_R"]
