# SPDX-License-Identifier: LGPL-3.0-or-later
"""Times of passes, generators, and the time of forecasts."""

import runpy

import pytest
from peers import EXAMPLES, Guide, R, Rig, jobspec

from flux.scheduler import Scheduler
from flux.scheduler.passes import Pace


class Stepping(runpy.run_path(str(EXAMPLES / "stepping.py"))["Stepping"]):
    """The guide's example of a generator, with a record of its steps."""

    def __init__(self, h, *args):
        super().__init__(h, *args)
        self.notes = []

    def schedule(self):
        self.notes.append("begin")
        try:
            yield from super().schedule()
        finally:
            self.notes.append("end")

    def alloc_success(self, msg, R, annotations=None):
        self.notes.append(msg.payload["id"])
        super().alloc_success(msg, R, annotations)


def test_delay_is_zero_until_events_outrun_passes():
    pace = Pace(0.25, 1.0)
    pace.event(0.0)
    assert not pace.passed(0.1)
    assert pace.delay == 0.0
    pace.event(10.0)
    assert pace.interval == 2.5
    assert not pace.passed(0.1)
    now = 10.0
    while pace.interval >= pace.duration:
        now += 0.001
        pace.event(now)
    assert pace.passed(0.1)
    assert pace.delay == pace.duration
    assert pace.passed(30.0)
    assert pace.delay == 1.0, "at most"
    pace.event(now + 1000)
    assert pace.passed(0.1)
    assert pace.delay == 0.0


def test_start_schedule_can_be_replaced():
    class Remote(Guide):
        asked = 0

        def start_schedule(self):
            self.asked += 1
            if not self._sched_pending:
                self._sched_pending = True
                self.handle.timer_watcher_create(5.0, self.arrived).start()

        def arrived(self, *args):
            self._sched_pending = False
            self.schedule()

    rig = Rig(R(2, 1), Remote)
    sched = rig.sched
    rig.alloc((1, 2))
    assert (rig.started(), sched.asked) == ([], 2)
    assert rig.started(after=5) == [1, 2]
    assert sched._sched_interval_ewma == 0.0


# -- generators ------------------------------------------------------------------------------------


def test_one_step_a_turn_and_an_event_starts_afresh():
    rig = Rig(R(4, 4), Stepping)
    sched = rig.sched
    rig.alloc((1, 2, 3))
    while len(sched.notes) < 2:
        rig.turn()
    assert sched.notes == ["begin", 1]
    rig.arrive(4, priority=31)
    assert sched.notes == ["begin", 1, 2, "end", "begin", 4, 3, "end"]
    assert sorted(rig.started()) == [1, 2, 3, 4]
    stats = sched.stats_get()
    assert stats["sched_closed"] >= 1
    assert stats["sched_yields"] == 4
    assert stats["sched_delay"] == stats["sched_duration_ewma"] == 0.0


def test_a_pass_over_a_queue_that_emptied_is_closed():
    class Slow(Scheduler):
        ended = False

        def schedule(self):
            try:
                while True:
                    yield 10
            finally:
                self.ended = True

    rig = Rig(R(1, 1), Slow)
    rig.arrive(1)
    rig.cancel(1, wait=0)
    assert rig.sched.ended


def test_a_yielded_number_is_a_wait():
    class Patient(Scheduler):
        def schedule(self):
            self.times = [self.now()]
            for pause in (2.5, None, 0.5, -1):
                yield pause
                self.times.append(self.now())

    rig = Rig(R(1, 1), Patient)
    rig.arrive(1, wait=10)
    times = rig.sched.times
    steps = [later - sooner for sooner, later in zip(times, times[1:])]
    assert steps == [2.5, 0.0, 0.5, 0.0]


def test_a_generator_that_will_not_close_is_counted():
    class Stubborn(Scheduler):
        refusals = 1

        def schedule(self):
            while True:
                try:
                    yield 1
                except GeneratorExit:
                    if not self.refusals:
                        raise
                    self.refusals -= 1
                    yield 2

    rig = Rig(R(1, 1), Stubborn)
    rig.arrive(1)
    rig.arrive(2, wait=1)
    assert rig.sched.stats_get()["errors"] == 1


# -- forecasts -------------------------------------------------------------------------------------


class Forecasting(Guide):
    def __init__(self, h, *args):
        super().__init__(h, *args)
        self.notes = []

    def forecast(self):
        self.notes.append("begin")
        for step in range(3):
            yield 1.0
            self.notes.append(step)


def test_a_forecast_runs_to_its_end_and_then_once_more():
    rig = Rig(R(1, 1), Forecasting)
    sched = rig.sched
    rig.arrive((1, 2))
    assert sched.notes == ["begin"]
    for jobid in (3, 4, 5):
        rig.arrive(jobid, wait=0.1)
    assert sched.notes == ["begin"]
    rig.wait(10)
    assert sched.notes == ["begin", 0, 1, 2] * 2
    stats = sched.stats_get()
    assert (stats["forecast_passes"], stats["forecast_yields"]) == (2, 6)


def test_a_costly_forecast_rests_nine_times_as_long():
    class Costly(Guide):
        def forecast(self):
            self.steps = []
            for _ in range(3):
                self.steps.append(self.now())
                Watch.reading += 0.5
                yield

    class Watch:
        reading = 0.0

    rig = Rig(R(1, 1), Costly)
    sched = rig.sched
    sched._passes.forecasts.stopwatch = lambda: Watch.reading
    rig.arrive((1, 2), wait=20)
    assert [later - sooner for sooner, later in zip(sched.steps, sched.steps[1:])] == [4.5, 4.5]


@pytest.mark.parametrize("answer", ["success", "deny", "cancel"])
def test_stale_annotations_after_the_answer_are_dropped(answer):
    class Late(Guide):
        def forecast(self):
            job = self._queue[0]
            yield 5
            job.request.annotate({"sched": {"t_estimate": 1.0}})

    rig = Rig(R(1, 1), Late)
    rig.alloc(1)
    rig.arrive(2, jobspec(1), wait=1)
    if answer == "success":
        rig.free(1)
    elif answer == "deny":
        rig.resource.update(down="0", shrink="0")
    else:
        rig.cancel(2)
    rig.wait(10)
    assert len(rig.answers(2)) == 1
