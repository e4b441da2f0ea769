# SPDX-License-Identifier: LGPL-3.0-or-later
"""Passes over the queue: when they run, and the forecasts that follow them.

An *event* is a message that may change the outcome of a pass. It asks for a pass, a `Pace` says when
that begins, and a `PassRunner` runs it: a function that returns, or a generator stepped once a turn
of the reactor and closed by the next event. After a pass that came to its end another driver runs
the forecast, as far as an `Allowance` lets it. `Passes` puts these together; `Quiescence` tells
others when all that they caused is done.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from flux.scheduler.host import Clock, Committer, ErrorReporter
    from flux.scheduler.requests import Requests


#: Longest pause of a pass, seconds: more is a mistake.
LONGEST_PAUSE = 1e9


class Pace:
    """The adaptive delay that gathers a burst of events into one pass.

    Two moving averages are kept: of the time between events and of the time a pass takes. While
    events come faster than passes can follow, the next pass waits for about as long as one takes.

    Args:
        alpha (float): weight of a new sample, 0 to 1
        longest (float): longest delay, seconds

    Attributes:
        interval (float): average seconds between events
        duration (float): average seconds that a synchronous pass takes
        delay (float): seconds the next pass waits
    """

    def __init__(self, alpha: float, longest: float) -> None:
        self.alpha = alpha
        self.longest = longest
        self.interval = 0.0
        self.duration = 0.0
        self.delay = 0.0
        self._last: float | None = None

    def event(self, now: float) -> None:
        """An event came at `now` (seconds)."""
        if self._last is not None:
            elapsed = max(0.0, now - self._last)
            self.interval = self.alpha * elapsed + (1 - self.alpha) * self.interval
        self._last = now

    def passed(self, seconds: float) -> bool:
        """A synchronous pass took `seconds`. Returns whether the delay changed."""
        self.duration = self.alpha * seconds + (1 - self.alpha) * self.duration
        before = self.delay
        if 0 < self.interval < self.duration:
            self.delay = min(self.duration, self.longest)
        else:
            self.delay = 0.0
        return self.delay != before


class Allowance:
    """How many steps of a forecast may be taken: some at once, then as time passes and events come.

    Estimates must not cost more than the scheduling they are about, however deep the queue and
    also where the clock stands still while a burst of events is handled.

    Args:
        most (float): steps that can be saved up
        rate (float): steps that a second brings
        share (float): steps that an event brings
    """

    def __init__(self, most: float, rate: float, share: float) -> None:
        self.most = most
        self.rate = rate
        self.share = share
        self._left = most
        self._last = 0.0

    def event(self) -> None:
        """An event was handled."""
        self._left = min(self.most, self._left + self.share)

    def spend(self, now: float) -> float:
        """A step was taken at `now`. Returns the seconds to wait before the next."""
        self._left = min(self.most, self._left + max(0.0, now - self._last) * self.rate) - 1
        self._last = now
        return 0.0 if self._left >= 1 else (1 - self._left) / self.rate


class PassRunner:
    """Runs a pass: a function that returns, or a generator stepped once a turn of the reactor.

    Args:
        handle: the Flux handle
        begin: called to begin a pass; if it returns a generator, that is stepped
        before: called before each step
        stepped: called after each step, before anything else can happen
        ended: ``ended(error, seconds)`` is called when the pass is over; error is the exception
            that left it, or None; seconds, how long it took, None for a generator
        stopwatch: gives seconds, to measure with
        pause: ``pause(seconds a step took)`` -> seconds to wait before the next step

    Attributes:
        passes (int): passes that came to their end
        yields (int): yields of all passes
        closed (int): passes closed before their end
        armed (bool): a pass is to begin
    """

    def __init__(
        self,
        handle: Any,
        begin: Callable[[], Any],
        before: Callable[[], None],
        stepped: Callable[[], None],
        ended: Callable[[Exception | None, float | None], None],
        stopwatch: Callable[[], float],
        pause: Callable[[float], float] | None = None,
    ) -> None:
        self.begin = begin
        self.before = before
        self.ended = ended
        self.stepped = stepped
        self.stopwatch = stopwatch
        self.pause = pause
        self.passes = 0
        self.yields = 0
        self.closed = 0
        self.armed = False
        self._generator: types.GeneratorType[Any, Any, Any] | None = None
        self._running = False
        self._start_timer = handle.timer_watcher_create(0.0, self._start)
        self._step_timer = handle.timer_watcher_create(0.0, self._next)

    def move(self, handle: Any) -> None:
        """Go on, at once, with the reactor of another handle."""
        self.stopwatch = handle.stopwatch
        self._start_timer = handle.timer_watcher_create(0.0, self._start)
        self._step_timer = handle.timer_watcher_create(0.0, self._next)
        if self.armed:
            self._start_timer.reset(after=0.0)
        if self.active:
            self._step_timer.reset(after=0.0)

    @property
    def active(self) -> bool:
        """Whether a pass that yields is under way."""
        return self._generator is not None

    def arm(self, delay: float) -> None:
        """Have a pass begin after `delay` seconds, if none is to begin yet."""
        if not self.armed:
            self.armed = True
            self._start_timer.reset(after=delay)

    def close(self) -> Exception | None:
        """Close the pass under way, if any: its ``finally`` blocks run. Returns what they
        raised."""
        generator = self._generator
        if generator is None or self._running:
            return None
        self._generator = None
        self._step_timer.stop()
        self.closed += 1
        try:
            generator.close()
        except Exception as exc:
            return exc
        return None

    def _start(self, handle: Any, watcher: Any, revents: int, args: Any) -> None:
        self.armed = False
        error = self.close()
        if error is not None:
            self.ended(error, None)
            return
        began = self.stopwatch()
        outcome = None
        self.before()
        self._running = True
        try:
            outcome = self.begin()
        except Exception as exc:
            error = exc
        finally:
            self._running = False
        if isinstance(outcome, types.GeneratorType):
            self._generator = outcome
            self._step(began)
            return
        self.stepped()
        if error is None and outcome is not None:
            error = TypeError(f"{outcome!r:.80} was returned: expected nothing, or a generator")
        took = self.stopwatch() - began
        if self.pause is not None:
            self.pause(took)
        self._end(error, took)

    def _next(self, handle: Any, watcher: Any, revents: int, args: Any) -> None:
        if self._generator is not None:
            began = self.stopwatch()
            self.before()
            self._step(began)

    def _step(self, began: float) -> None:
        """Go on with the generator; `before` was called."""
        generator = self._generator
        assert generator is not None
        error: Exception | None = None
        wanted: Any = None
        self._running = True
        try:
            wanted = next(generator)
            if wanted is not None and not _is_pause(wanted):
                text = f"{wanted!r:.80} was yielded: expected a plain yield, or seconds to pause"
                wanted = None
                generator.throw(TypeError(text))  # raised there: the traceback ends in the line
        except StopIteration:
            self._generator = None
        except Exception as exc:
            self._generator = None
            error = exc
        finally:
            self._running = False
        self.stepped()
        rest = self.pause(self.stopwatch() - began) if self.pause is not None else 0.0
        if self._generator is None:
            self._end(error, None)
            return
        self.yields += 1
        if wanted is not None:
            rest = max(rest, wanted)
        self._step_timer.reset(after=rest)

    def _end(self, error: Exception | None, seconds: float | None) -> None:
        if error is None:
            self.passes += 1
        self.ended(error, seconds)


def _is_pause(wanted: Any) -> bool:
    is_number = isinstance(wanted, (int, float)) and not isinstance(wanted, bool)
    return is_number and wanted < LONGEST_PAUSE  # which NaN is not


#: Seconds before the next pass after one that failed; doubled while they keep failing.
FIRST_BACKOFF = 0.01

#: A forecast step is followed by a pause this many times as long, so that
#: estimates and reasons take a tenth of all time: a fifth of a scheduler's that works half of it.
FORECAST_REST = 9.0

#: Forecast steps that may be taken at once, that each second allows, that each event allows.
FORECAST_STEPS = (32, 500.0, 0.125)


class Passes:
    """Calls a policy's ``schedule()`` and ``forecast()`` when it is time to.

    Args:
        handle: the Flux handle
        requests (Requests): the table of requests, with the queue
        clock (Clock): the reactor's time
        stopwatch: gives seconds, to measure how long passes take
        pace (Pace): how long events are gathered
        errors (ErrorReporter): where failures are reported
        schedule: begins a pass
        look_ahead: begins a forecast, or None: there is none
        start: called when a pass is wanted; the usual one calls `begin`
        when_empty (bool): whether passes are wanted while the queue is empty

    Attributes:
        events (int): events so far
        main, forecasts (PassRunner): run passes and forecasts
        pace (Pace): as given
        changed: called when a pass was asked for or has ended; None: not called
        completed: ``completed(events)`` is called when a pass has come to its end that had seen so
            many events; None: not called
    """

    def __init__(
        self,
        handle: Any,
        requests: Requests,
        clock: Clock,
        stopwatch: Callable[[], float],
        pace: Pace,
        errors: ErrorReporter,
        schedule: Callable[[], Any],
        look_ahead: Callable[[], Any] | None,
        start: Callable[[], None],
        when_empty: bool,
    ) -> None:
        self.requests = requests
        self.clock = clock
        self.pace = pace
        self.errors = errors
        self.schedule = schedule
        self.start = start
        self.when_empty = when_empty
        self.changed: Callable[[], None] | None = None
        self.completed: Callable[[int], None] | None = None
        self.events = 0
        #: of these, the count when the pass under way began, and that of the last completed one
        self._seen = 0
        self._passed = 0
        self._backoff = 0.0
        self._forecast_again = False
        self._forecast_not_before = 0.0
        self._allowance = Allowance(*FORECAST_STEPS)
        hooks = (self._before_step, self._after_step)
        self.main = PassRunner(handle, self._begin, *hooks, self._ended, stopwatch)
        self.forecasts: PassRunner | None = None
        if look_ahead is not None:
            self.forecasts = PassRunner(
                handle, look_ahead, *hooks, self._forecast_ended, stopwatch, self._rest
            )

    @property
    def pending(self) -> bool:
        """Whether a pass is to begin."""
        return self.main.armed

    def set_pending(self, pending: bool) -> None:
        """Whether a pass is to begin, for callers that drive passes themselves."""
        self.main.armed = pending
        if self.changed is not None:
            self.changed()

    def move(self, handle: Any) -> None:
        """Go on with the reactor of another handle, without forecasts or delays."""
        self._after_step()  # it may have been left in a forecast
        self.forecasts = None
        self.changed = None
        self._backoff = 0.0
        self.pace = Pace(0.0, 0.0)
        self.main.move(handle)

    def done_with(self, events: int) -> bool:
        """Whether a pass that had seen the first `events` events is over, or none is to come."""
        return self._passed >= events or not (self.main.armed or self.main.active)

    def request(self) -> None:
        """Something happened that a pass should follow."""
        if self.requests.to_sweep:
            self.requests.sweep()
        if self.when_empty or self.requests.queue:
            self.pace.event(self.clock.now())
            self._allowance.event()
            try:
                self.start()
            except Exception:
                self.errors.report("start_schedule", trace=True)
        elif self.main.active:
            self.close()
        if self.changed is not None:
            self.changed()

    def begin(self) -> None:
        """Have a pass begin after the delay that the pace asks for, closing the one under way."""
        main = self.main
        if main.active:
            self.close()
        if not main.armed:
            main.arm(max(self.pace.delay, self._backoff))

    def close(self) -> None:
        """Close the pass under way, if there is one."""
        error = self.main.close()
        if error is not None:
            self._failed(error)

    def forecast(self) -> None:
        """Have a forecast begin as soon as forecasts may, though no pass has been made."""
        if self.forecasts is not None:
            if self.forecasts.active:
                self._forecast_again = True
            else:
                self._arm_forecast(self.forecasts)

    def _begin(self) -> Any:
        self._seen = self.events
        return self.schedule()

    def _ended(self, error: Exception | None, seconds: float | None) -> None:
        self._passed = self._seen
        if error is not None:
            self._failed(error)
        else:
            self._backoff = 0.0
            if seconds is not None and self.pace.passed(seconds):
                self.errors.log.debug(f"sched_delay={self.pace.delay:.6f}")
            if self.forecasts is not None and (self.when_empty or self.requests.queue):
                self.forecast()
            if self.completed is not None:
                self.completed(self._seen)
        if self.changed is not None:
            self.changed()

    def _failed(self, error: Exception) -> None:
        self.errors.report("schedule: this pass is lost", error)
        self._backoff = min(max(2 * self._backoff, FIRST_BACKOFF), self.pace.longest)

    def _arm_forecast(self, forecasts: PassRunner) -> None:
        forecasts.arm(max(0.0, self._forecast_not_before - self.clock.now()))

    def _rest(self, seconds: float) -> float:
        now = self.clock.now()
        rest = max(FORECAST_REST * seconds, self._allowance.spend(now))
        self._forecast_not_before = now + seconds + rest
        return rest

    def _forecast_ended(self, error: Exception | None, seconds: float | None) -> None:
        if error is not None:
            self.errors.report("forecast: this pass is lost", error)
        if self._forecast_again and self.forecasts is not None:
            self._forecast_again = False
            self._arm_forecast(self.forecasts)

    def _before_step(self) -> None:
        self.clock.freeze()
        self.requests.begin_step()

    def _after_step(self) -> None:
        self.requests.end_step()
        self.clock.thaw()


#: Equal answers of the job manager, one after another, after which it is believed to have nothing
#: more to send: a queue that is stopped keeps its jobs for ever, so that an empty queue cannot be
#: waited for.
SAME_ANSWERS_UNTIL_IDLE = 100


class _Asker:
    """A client that waits for quiescence, and its progress.

    Attributes:
        msg (Message): the question
        events (int): events to be done with
        keys (int or None): R to be stored, once all is decided
        sending (bool): whether the job manager may have something more to send
        heard: the job manager's last answer, and the number of answers
        last (bool): whether the job manager is asked for the last time
        full: its answer when as many requests were open as it may send
        again (bool): whether to ask once more when these are decided, since others may follow them
    """

    __slots__ = ("msg", "events", "keys", "sending", "heard", "times", "last", "full", "again")

    def __init__(self, msg: Any, events: int) -> None:
        self.msg = msg
        self.events = events
        self.keys: int | None = None
        self.sending = True
        self.heard: tuple[int, int] | None = None
        self.times = 0
        self.last = False
        self.full: tuple[int, int] | None = None
        self.again = False


class Quiescence:
    """Answers ``sched.quiescent`` once everything that came before it is decided, stored and
    answered.

    A client inside the job manager, as an emulator that waits until the jobs of a step have come,
    asks before the requests for these jobs are sent, since the job manager sends one in a turn of
    its reactor. So first `Quiescence` asks it in its turn (``job-manager.alloc-query``) until no
    request is waiting to be sent, or as many are open as it may send, and then once more, since
    the answer may overtake the last request. In the second case all this is repeated once these
    are decided, until nothing moves any more.

    Args:
        handle: the Flux handle
        passes (Passes): when it is decided
        commits (Committer): when it is stored
        running: function giving how many jobs hold resources, which is part of the answer
        limit: function giving how many requests may be open, or None: any number
        errors (ErrorReporter): where failures are reported
    """

    def __init__(
        self,
        handle: Any,
        passes: Passes,
        commits: Committer,
        running: Callable[[], int],
        limit: Callable[[], int | None],
        errors: ErrorReporter,
    ) -> None:
        self.handle = handle
        self.passes = passes
        self.commits = commits
        self.running = running
        self.limit = limit
        self.errors = errors
        self._askers: list[_Asker] = []

    def ask(self, msg: Any) -> None:
        """Answer `msg` when the time has come."""
        asker = _Asker(msg, self.passes.events)
        self._askers.append(asker)
        self.passes.changed = self.check
        self._query(asker)
        self.check()

    def _query(self, asker: _Asker) -> None:
        def answered(future: Any) -> None:
            try:
                answer = future.get()
                self._heard(asker, int(answer["queue_length"]), int(answer["alloc_pending"]))
            except Exception:
                asker.sending = (
                    False  # no job manager to ask: the jobs that came before the question are all
                )
            if asker.sending:
                self._query(asker)
            else:
                self.check()

        try:
            self.handle.rpc("job-manager.alloc-query").then(answered)
        except Exception:
            asker.sending = False

    def _heard(self, asker: _Asker, queued: int, pending: int) -> None:
        """The job manager says how many requests are to be sent, and how many are open."""
        heard = (queued, pending)
        limit = self.limit()
        asker.times = asker.times + 1 if heard == asker.heard else 0
        asker.heard = heard
        if asker.last or (queued and heard == asker.full):
            asker.sending = False
            asker.events = self.passes.events
            asker.keys = None
        elif queued == 0 or asker.times >= SAME_ANSWERS_UNTIL_IDLE:
            asker.last = True
        elif limit is not None and pending >= limit:
            asker.last = asker.again = True
            asker.full = heard

    def check(self) -> None:
        """Something went on: answer those whose time has come."""
        waiting = []
        for asker in self._askers:
            if asker.keys is None and self.passes.done_with(asker.events):
                asker.keys = self.commits.accepted
            if asker.sending or asker.keys is None or self.commits.stored < asker.keys:
                waiting.append(asker)
            elif asker.again:
                asker.again = asker.last = False
                asker.sending = True
                waiting.append(asker)
                self._query(asker)
            else:
                answer = {"status": 0, "alloc_current": self.running()}
                self.errors.guard("quiescent", self.handle.respond, asker.msg, answer)
        self._askers = waiting
        if not waiting:
            self.passes.changed = None
