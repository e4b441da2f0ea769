# SPDX-License-Identifier: LGPL-3.0-or-later
"""`Scheduler.call_at`: calls at times of the reactor's clock."""

import pytest
from peers import Guide, R, Rig, jobspec


@pytest.fixture
def rig():
    rig = Rig(R(1, 1), Guide)
    rig.called = []
    return rig


def note(rig, what):
    return lambda: rig.called.append((what, rig.sched.now() - rig.start))


def test_in_order_of_time_and_equal_times_in_the_order_of_the_calls(rig):
    rig.start = rig.now
    for seconds in (30, 10, 20, 10.5):
        rig.sched.call_at(rig.now + seconds, note(rig, seconds))
    for number in range(20):
        rig.sched.call_at(rig.now + 12, note(rig, f"equal {number}"))
    rig.settle()
    assert rig.called == []
    rig.wait(15)
    equal = [(f"equal {number}", 12) for number in range(20)]
    assert rig.called == [(10, 10), (10.5, 10.5), *equal]
    rig.sched.call_at(rig.now + 1, note(rig, "sooner"))
    rig.wait(100)
    assert rig.called[22:] == [("sooner", 16), (20, 20), (30, 30)]


@pytest.mark.parametrize("when", [60, -1, "60", None, float("nan")])
def test_a_time_that_is_none_is_refused(rig, when):
    with pytest.raises(ValueError, match="expected seconds since the epoch: self.now"):
        rig.sched.call_at(when, note(rig, "never"))


def test_a_generator_is_refused(rig):
    def steps():
        yield

    async def coroutine():
        pass

    for function in (steps, coroutine):
        with pytest.raises(TypeError, match=rf"{function.__name__}\(\) would not run"):
            rig.sched.call_at(rig.now, function)


def test_cancel(rig):
    rig.start = rig.now
    timers = {s: rig.sched.call_at(rig.now + s, note(rig, s)) for s in (1, 2, 3, 4)}
    timers[1].cancel()
    timers[3].cancel()
    timers[3].cancel()
    rig.sched.call_at(rig.now + 2, timers[4].cancel)
    rig.wait(10)
    assert [what for what, _ in rig.called] == [2]
    timers[2].cancel()  # it was called


def test_canceled_ones_do_not_pile_up(rig):
    timers = rig.sched._host.timers
    for seconds in range(1000):
        rig.sched.call_at(rig.now + 1e6 + seconds, note(rig, seconds)).cancel()
    assert len(timers._due) <= 128


def test_without_a_function_a_pass_begins(rig):
    passes = []
    rig.sched.schedule = lambda: passes.append(rig.now)
    begin = rig.now
    rig.arrive(1, jobspec(1))
    rig.sched.call_at(begin + 50)
    rig.wait(100)
    assert passes == [begin, begin + 50]
