# SPDX-License-Identifier: LGPL-3.0-or-later
"""Tests of a scheduler without a Flux instance.

`FakeInstance` holds a scheduler, yours or one of this library, and emulates its environment. A test
submits jobs, lets time pass, and checks the scheduler's actions (doc/guide/first-test.rst).

It needs the bindings, flux-core's or the embedded instance's, but no broker: the scheduler runs in
the test's process, under a virtual clock, on the same engine as in ``flux simulate``.
"""

from flux.scheduler.testing.builders import jobspec, make_R
from flux.scheduler.testing.instance import EndlessLoop, FakeInstance, SchedulerErrors
from flux.scheduler.testing.services import FakeJob

__all__ = ["EndlessLoop", "FakeInstance", "FakeJob", "SchedulerErrors", "jobspec", "make_R"]
