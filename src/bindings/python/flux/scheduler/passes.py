"""Passes over the queue: when they run, what follows them, and what they must not leave behind."""

import types


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

    def __init__(self, alpha, longest):
        self.alpha = alpha
        self.longest = longest
        self.interval = 0.0
        self.duration = 0.0
        self.delay = 0.0
        self._last = None

    def event(self, now):
        """An event came at `now` (seconds)."""
        if self._last is not None:
            elapsed = max(0.0, now - self._last)
            self.interval = self.alpha * elapsed + (1 - self.alpha) * self.interval
        self._last = now

    def passed(self, seconds):
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

    def __init__(self, most, rate, share):
        self.most = most
        self.rate = rate
        self.share = share
        self._left = most
        self._last = 0.0

    def event(self):
        """An event was handled."""
        self._left = min(self.most, self._left + self.share)

    def spend(self, now):
        """A step was taken at `now`. Returns the seconds to wait before the next."""
        self._left = min(self.most, self._left + max(0.0, now - self._last) * self.rate) - 1
        self._last = now
        return 0.0 if self._left >= 1 else (1 - self._left) / self.rate


class Driver:
    """Runs a pass: a function that returns, or a generator stepped once a turn of the reactor.

    Args:
        handle: the Flux handle
        begin: called to begin a pass; what it returns is stepped if it is a generator
        before: called before each step
        stepped: called after each step, before anything else can happen
        ended: ``ended(error, seconds)`` is called when the pass is over; error is the exception that
            left it, or None; seconds, how long it took, None for a generator
        stopwatch: gives seconds, to measure with
        pause: ``pause(seconds a step took)`` -> seconds to wait before the next step

    Attributes:
        passes (int): passes that came to their end
        yields (int): yields of all passes
        closed (int): passes closed before their end
        armed (bool): a pass is to begin
        active (bool): a pass that yields is under way
    """

    def __init__(self, handle, begin, before, stepped, ended, stopwatch, pause=None):
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
        self._generator = None
        self._running = False
        self._start_timer = handle.timer_watcher_create(0.0, self._start)
        self._step_timer = handle.timer_watcher_create(0.0, self._next)

    @property
    def active(self):
        return self._generator is not None

    def arm(self, delay):
        """Have a pass begin after `delay` seconds, if none is to begin yet."""
        if not self.armed:
            self.armed = True
            self._start_timer.reset(after=delay)

    def close(self):
        """Close the pass under way, if any: its ``finally`` blocks run. Returns what they raised."""
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

    def _start(self, handle, watcher, revents, args):
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
        self.stepped()
        if isinstance(outcome, types.GeneratorType):
            self._generator = outcome
            self._step()
        else:
            took = self.stopwatch() - began
            if self.pause is not None:
                self.pause(took)
            self._end(error, took)

    def _next(self, handle, watcher, revents, args):
        self._step()

    def _step(self):
        generator = self._generator
        if generator is None:
            return
        began = self.stopwatch()
        error = wanted = None
        self.before()
        self._running = True
        try:
            wanted = next(generator)
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
        if type(wanted) in (int, float) and rest < wanted < 1e9:
            rest = wanted
        self._step_timer.reset(after=rest)

    def _end(self, error, seconds):
        if error is None:
            self.passes += 1
        self.ended(error, seconds)


#: Seconds before the next pass after one that failed; doubled while they keep failing.
FIRST_BACKOFF = 0.01

#: A forecast step of so many seconds is followed by a pause this many times as long, so that
#: estimates and reasons take a tenth of all time: a fifth of a scheduler's that works half of it.
FORECAST_REST = 9.0

#: Forecast steps that may be taken at once, that each second allows, that each event allows.
FORECAST_STEPS = (32, 500.0, 0.125)


class Passes:
    """The part of `Scheduler` that calls `schedule` and `forecast`.

    An event asks for a pass (`_request_schedule`), the pace says when (`start_schedule`), a driver
    runs it; after it, another driver runs the forecast.
    """

    def _init_passes(self, handle, stopwatch):
        #: messages that may change what a pass finds
        self._events = 0
        #: of these, what the pass under way had seen when it began, and the last that was completed
        self._events_seen = 0
        self._events_passed = 0
        #: [message, events before it, R to be stored before the answer] of sched.quiescent
        self._quiet = []
        #: jobs whose request has its answer, and that may still sit in the queue
        self._answered = []
        self._queue_before = 0
        self._backoff = 0.0
        self._outlook_again = False
        self._outlook_not_before = 0.0
        self._allowance = Allowance(*FORECAST_STEPS)
        self._pace = Pace(self.SCHED_EWMA_ALPHA, self.SCHED_DELAY_MAX)
        hooks = (self._before_step, self._after_step)
        self._pass = Driver(handle, self._begin_pass, *hooks, self._pass_ended, stopwatch)
        self._outlook = Driver(
            handle, self.forecast, *hooks, self._forecast_ended, stopwatch, self._rest
        )

    @property
    def _sched_pending(self):
        """Whether a pass is to begin; an override of `start_schedule` may set it for its own."""
        return self._pass.armed

    @_sched_pending.setter
    def _sched_pending(self, pending):
        self._pass.armed = pending
        if self._quiet:
            self._check_quiet()

    @property
    def _sched_delay(self):
        return self._pace.delay

    @property
    def _sched_interval_ewma(self):
        return self._pace.interval

    @property
    def _sched_duration_ewma(self):
        return self._pace.duration

    def _request_schedule(self):
        """Something happened that a pass should look at."""
        self._drop_answered()
        if self._always_wanted or len(self._backlog):
            self._pace.event(self.now())
            self._allowance.event()
            self._guard("start_schedule", self.start_schedule)
        elif self._pass.active:
            self._close_pass()
        if self._quiet:
            self._check_quiet()

    def start_schedule(self):
        """Have a pass begin after the delay that the pace asks for, closing the one under way.

        Override this to drive passes in another way; it is called once an event.
        """
        self._close_pass()
        self._pass.arm(max(self._pace.delay, self._backoff))

    def _close_pass(self):
        error = self._pass.close()
        if error is not None:
            self._pass_failed(error)

    def _begin_pass(self):
        self._events_seen = self._events
        return self.schedule()

    def _pass_ended(self, error, seconds):
        self._events_passed = self._events_seen
        if error is not None:
            self._pass_failed(error)
        else:
            self._backoff = 0.0
            if seconds is not None and self._pace.passed(seconds):
                self.log.debug(f"sched_delay={self._pace.delay:.6f}")
            if not self._no_forecast and (self._always_wanted or len(self._backlog)):
                if self._outlook.active:
                    self._outlook_again = True
                else:
                    self._arm_outlook()
        if self._quiet:
            self._check_quiet()

    def _pass_failed(self, error):
        self._mishap("schedule: this pass is lost", error)
        self._backoff = min(max(2 * self._backoff, FIRST_BACKOFF), self.SCHED_DELAY_MAX)

    def _arm_outlook(self):
        self._outlook.arm(max(0.0, self._outlook_not_before - self.now()))

    def _rest(self, seconds):
        rest = max(FORECAST_REST * seconds, self._allowance.spend(self.now()))
        self._outlook_not_before = self.now() + seconds + rest
        return rest

    def _forecast_ended(self, error, seconds):
        if error is not None:
            self._mishap("forecast: this pass is lost", error)
        if self._outlook_again:
            self._outlook_again = False
            self._arm_outlook()

    def _before_step(self):
        """A policy's code is about to run: it must find only jobs that wait."""
        self._drop_answered()
        self._queue_before = len(self._backlog)

    def _drop_answered(self):
        """Take jobs out of the queue that were answered by code that ran outside of a pass."""
        if self._answered:
            for job in self._answered:
                self._backlog.remove(job)
            self._answered.clear()

    def _after_step(self):
        """A policy's code has run: what it has answered leaves the queue before anything else happens."""
        answered = self._answered
        if answered:
            if len(self._backlog) != self._queue_before - len(answered):
                # The usual policy pops what it answers, which this length tells without a search.
                for job in answered:
                    self._backlog.remove(job)
            answered.clear()

    # -- sched.quiescent -------------------------------------------------------------------------------

    def _check_quiet(self):
        """Answer those who wait for what had arrived before them to be done with."""
        waiting = []
        for entry in self._quiet:
            msg, events, keys = entry
            if keys is None and (
                self._events_passed >= events or not (self._pass.armed or self._pass.active)
            ):
                keys = entry[2] = self._commits.accepted
            if keys is None or self._commits.stored < keys:
                waiting.append(entry)
            else:
                self._guard(
                    "quiescent",
                    self.handle.respond,
                    msg,
                    {"status": 0, "alloc_current": len(self._holding)},
                )
        self._quiet = waiting
