"""When the next pass begins, and how a pass that yields is driven."""

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
