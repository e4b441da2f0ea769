# SPDX-License-Identifier: LGPL-3.0-or-later
"""Passes over the queue, the forecasts that follow them, and their timing.

An *event* is a message that may change the outcome of a pass. It requests a pass; a `Pace`
determines when that begins, and a `PassRunner` runs it: a function that returns, or a generator
stepped once per reactor turn and closed by the next event. After a completed pass another runner
makes the forecast, as far as an `Allowance` permits. `Passes` combines these; `Quiescence` reports
when all consequences of earlier messages are processed.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Protocol

if TYPE_CHECKING:
    from flux.scheduler.host import Host
    from flux.scheduler.requests import Requests


#: Maximum pause of a pass in seconds; longer ones are errors.
LONGEST_PAUSE = 1e9


class Pace:
    """The adaptive delay that gathers a burst of events into one pass.

    It keeps moving averages of the time between events and of the duration of a pass. While events
    arrive faster than passes can follow, the next pass is delayed by the average duration.
    """

    def __init__(self, alpha: float, longest: float) -> None:
        self.alpha = alpha  # weight of a new sample, 0 to 1
        self.longest = longest  # maximum delay, seconds
        self.interval = 0.0  # average time between events, seconds
        self.duration = 0.0  # average duration of a synchronous pass, seconds
        self.delay = 0.0  # delay of the next pass, seconds
        self._last: float | None = None

    def event(self, now: float) -> None:
        """Note an event at `now` (seconds)."""
        if self._last is not None:
            elapsed = now - self._last if now > self._last else 0.0
            self.interval = self.alpha * elapsed + (1 - self.alpha) * self.interval
        self._last = now

    def passed(self, seconds: float) -> bool:
        """Note the duration of a synchronous pass in seconds. Return whether the delay changed."""
        self.duration = self.alpha * seconds + (1 - self.alpha) * self.duration
        before = self.delay
        if 0 < self.interval < self.duration:
            self.delay = min(self.duration, self.longest)
        else:
            self.delay = 0.0
        return self.delay != before


class Allowance:
    """The number of forecast steps allowed: some at once, then more with time and events.

    Estimates must not cost more than the scheduling itself, however deep the queue is, even while
    the clock stands still during a burst of events.
    """

    def __init__(self, most: float, rate: float, share: float) -> None:
        self.most = most  # maximum number of saved steps
        self.rate = rate  # steps per second
        self.share = share  # steps per event
        self._left = most
        self._last = 0.0

    def event(self) -> None:
        self._left = min(self.most, self._left + self.share)

    def spend(self, now: float) -> float:
        """Note a step at `now`. Return the seconds to wait before the next."""
        self._left = min(self.most, self._left + max(0.0, now - self._last) * self.rate) - 1
        self._last = now
        return 0.0 if self._left >= 1 else (1 - self._left) / self.rate


class PassRunner:
    """Runs a pass: a function that returns, or a generator stepped once per reactor turn."""

    def __init__(
        self,
        host: Host,
        requests: Requests,
        begin: Callable[[], Any],
        ended: Callable[[BaseException | None, float | None], None],
        pause: Callable[[float], float] | None = None,
    ) -> None:
        self.clock, self.requests = host.clock, requests
        self.begin = begin  # begins a pass; if it returns a generator, that is stepped
        #: ``ended(error, seconds)`` is called when the pass is over; `error` is its exception or
        #: None; `seconds` its duration, or None for a generator
        self.ended = ended
        self.stopwatch = host.stopwatch
        self.soon = host.call_soon
        #: ``pause(seconds)`` returns the seconds to wait after a step that took `seconds`
        self.pause = pause
        self.passes = 0  # number of completed passes
        self.yields = 0  # number of yields of all passes
        self.closed = 0  # number of passes closed before their end
        self.armed = False  # whether a pass is to begin
        #: the current pass, if it is a generator
        self.generator: types.GeneratorType[Any, Any, Any] | None = None
        self._running = False
        #: work that goes ahead of passes, and the method to call after it
        self.ahead: deque[Iterator[None]] = deque()
        self._then: Callable[[], None] | None = None
        self._handle = host.handle
        self._make_timers()

    def _make_timers(self) -> None:
        create = self._handle.timer_watcher_create
        self._start_timer = create(0.0, self._start)
        self._step_timer = create(0.0, self._next)
        self._ahead_timer = create(0.0, self._go_ahead)

    def move(self) -> None:
        """Continue, at once, with another reactor, of the same handle."""
        self.stopwatch, self.soon = self._handle.stopwatch, None
        self._make_timers()
        if self.armed:
            self._start_timer.reset(after=0.0)
        if self.generator is not None:
            self._step_timer.reset(after=0.0)
        if self.ahead:
            self._ahead_timer.reset(after=0.0)

    def go_ahead(self, steps: Iterator[None]) -> None:
        """Make steps ahead of passes, which wait: the first at once, the others in a reactor turn
        each."""
        self.ahead.append(steps)
        if len(self.ahead) == 1:
            self._go_ahead()
        if self.ahead and self.generator is None:
            self.arm(0.0)

    def _go_ahead(self, *_: Any) -> None:
        self._ahead_timer.reset(after=0.0)  # also after an exception
        for _step in self.ahead[0]:
            return
        self.ahead.popleft()
        if not self.ahead:
            self._ahead_timer.stop()
            then, self._then = self._then, None
            if then is not None:
                then()

    def arm(self, delay: float) -> None:
        """Begin a pass after `delay` seconds, unless one is already to begin."""
        if not self.armed:
            self.armed = True
            if self.soon is not None and delay <= 0:
                self.soon(self._start)
            else:
                self._start_timer.reset(after=delay)

    def close(self) -> Exception | None:
        """Close the current pass, if any: its ``finally`` blocks run. Return their exception, or
        None."""
        generator = self.generator
        if generator is None or self._running:
            return None
        self.generator = None
        self._step_timer.stop()
        self.closed += 1
        try:
            generator.close()
        except Exception as exc:
            return exc
        return None

    def _start(self, *_: Any) -> None:
        if self.ahead:
            self._then = self._start
            return
        self.armed = False
        error = None if self.generator is None else self.close()
        if error is None:
            self._step(self.begin)
        else:
            self.ended(error, None)

    def _next(self, *_: Any) -> None:
        if self.ahead:
            self._then = self._next
        elif self.generator is not None:
            self._step(None)

    def _step(self, begin: Callable[[], Any] | None) -> None:
        """Call `begin`; step the generator that it has returned, or (None) the current one."""
        began = self.stopwatch()
        self.clock.freeze()
        if self.requests.to_sweep or self.requests.is_popped:
            self.requests.begin_step()
        self._running = True
        error: BaseException | None = None
        wanted: Any = None
        generator = self.generator
        try:
            if begin is not None:
                outcome = begin()
                if type(outcome) is types.GeneratorType:
                    self.generator = generator = outcome
                elif outcome is not None:
                    text = f"{outcome!r:.80} was returned: expected nothing, or a generator"
                    error = TypeError(text)
            if generator is not None:
                wanted = next(generator)
                if wanted is not None and not _is_pause(wanted):
                    text = (
                        f"{wanted!r:.80} was yielded: expected a plain yield, or seconds to pause"
                    )
                    wanted = None
                    generator.throw(TypeError(text))  # the traceback then ends in that line
        except (Exception, SystemExit) as exc:
            self.generator, error = None, exc
            if generator is not None and isinstance(exc, StopIteration):
                error = None
                if isinstance(exc.value, types.GeneratorType):
                    name = exc.value.__qualname__
                    error = TypeError(f"{name}() was returned by a generator: write `yield from`")
        self.after_step()
        took = self.stopwatch() - began if generator is None or self.pause is not None else 0.0
        rest = self.pause(took) if self.pause is not None else 0.0
        if self.generator is None:
            self.passes += error is None
            self.ended(error, took if generator is None else None)
            return
        self.yields += 1
        if wanted is not None:
            rest = max(rest, wanted)
        self._step_timer.reset(after=rest)

    def after_step(self) -> None:
        """End a step: let the clock go on, and remove answered jobs from the queue."""
        self._running = False
        if self.requests.to_sweep:
            self.requests.end_step()
        self.clock.thaw()


def _is_pause(wanted: Any) -> bool:
    is_number = isinstance(wanted, (int, float)) and not isinstance(wanted, bool)
    return is_number and wanted < LONGEST_PAUSE  # false for NaN


#: Seconds before the pass after a failed one; doubled at each further failure.
FIRST_BACKOFF = 0.01

#: Ratio of the pause after a forecast step to that step: estimates and reasons take at most a tenth
#: of all time, a fifth of a scheduler's that is busy half of it.
FORECAST_REST = 9.0

#: Forecast steps: allowed at once, per second, per event.
FORECAST_STEPS = (32, 500.0, 0.125)


class _Scheduler(Protocol):
    queue_depth: int | str

    def schedule(self) -> Any: ...
    def start_schedule(self) -> None: ...
    def forecast(self) -> Any: ...


class Passes:
    """Calls a scheduler's ``schedule()`` and, to request a pass, its ``start_schedule()``, which by
    default calls `begin`; and its ``forecast()``.

    Attributes:
        keeps_going (bool): whether a pass goes on when another is requested, as one over a backlog
            does, which includes events during the pass; else it is closed
    """

    def __init__(
        self,
        host: Host,
        requests: Requests,
        pace: Pace,
        scheduler: _Scheduler,
        when_empty: bool,
        forecasts: bool,
    ) -> None:
        self.requests = requests
        self.clock, self.errors = host.clock, host.errors
        self.pace = pace
        self.scheduler = scheduler
        self.when_empty = when_empty  # whether passes run while the queue is empty
        self.keeps_going = False
        #: called when a pass was requested or has ended, or a start was sent; may be None
        self.changed: Callable[[], None] | None = None
        #: ``completed(events)`` of each is called when a pass is completed that began after `events`
        #: events
        self.completed: list[Callable[[int], None]] = []
        self.events = 0  # number of events so far
        #: number of events when the current pass began, and when the last completed one did
        self._seen = 0
        self._passed = 0
        self._backoff = 0.0
        self._forecast_again = False
        self._forecast_not_before = 0.0
        self._allowance = Allowance(*FORECAST_STEPS)
        self.main = PassRunner(host, requests, self._begin, self._ended)
        #: None: there are no forecasts
        self.forecasts: PassRunner | None = None
        if forecasts:
            self.forecasts = PassRunner(
                host, requests, scheduler.forecast, self._forecast_ended, self._rest
            )

    @property
    def pending(self) -> bool:
        return self.main.armed

    def set_pending(self, pending: bool) -> None:
        """Set whether a pass is to begin, for callers that run passes themselves."""
        self.main.armed = pending
        if self.changed is not None:
            self.changed()

    def move(self) -> None:
        """Continue with another reactor, of the same handle, without forecasts or delays."""
        self.main.after_step()  # a forecast may have been interrupted
        self.forecasts = None
        self.changed = None
        self._backoff = 0.0
        self.pace = Pace(0.0, 0.0)
        self.main.move()

    def done_with(self, events: int) -> bool:
        """Whether a pass that began after the first `events` events is over, or no pass is to
        come."""
        main = self.main
        return self._passed >= events or not (main.armed or main.generator is not None)

    def request(self, without_effect: bool = False) -> None:
        """Request a pass after an event, unless it would be without effect, and no rule waits for it."""
        if self.requests.to_sweep:
            self.requests.sweep()
        if self.forecasts is not None:
            self._allowance.event()
        if self.when_empty or (self.requests.queue and (self.completed or not without_effect)):
            if self.main.soon is None:  # else no time passes in a pass
                self.pace.event(self.clock.now())
            self.errors.guard("start_schedule", self.scheduler.start_schedule)
        else:
            if self.main.generator is not None:
                self.close()
            self._forecast_after_event()
        if self.changed is not None:
            self.changed()

    def begin(self) -> None:
        """Begin a pass after the delay of the pace. The current one is closed, or `keeps_going`."""
        main = self.main
        if main.generator is not None:
            if self.keeps_going:
                return
            self.close()
        delay = self.pace.delay
        main.arm(delay if delay > self._backoff else self._backoff)

    def close(self) -> None:
        error = self.main.close()
        if error is not None:
            self._failed(error)

    def forecast(self) -> None:
        """Begin a forecast as soon as possible, without a pass before it."""
        if self.forecasts is not None:
            if self.forecasts.generator is not None:
                self._forecast_again = True
            else:
                self._arm_forecast(self.forecasts)

    def _forecast_after_event(self) -> None:
        """Begin a forecast if a job waits, in the queue or for a rule."""
        if self.forecasts is not None and (self.when_empty or self.requests):
            self.forecast()

    def _begin(self) -> Any:
        self._seen = self.events
        return self.scheduler.schedule()

    def _ended(self, error: BaseException | None, seconds: float | None) -> None:
        self._passed = self._seen
        if error is not None:
            self._failed(error)
        else:
            self._backoff = 0.0
            if seconds is not None and self.pace.passed(seconds):
                self.errors.log.debug(f"sched_delay={self.pace.delay:.6f}")
            self._forecast_after_event()
            for completed in self.completed[:]:
                completed(self._seen)
        if self.changed is not None:
            self.changed()

    def _failed(self, error: BaseException) -> None:
        self.errors.report("schedule: this pass is lost", error)
        if not self.when_empty:  # else the policy may keep its jobs elsewhere
            self.errors.guard("schedule", self.requests.put_back)
        self._backoff = min(max(2 * self._backoff, FIRST_BACKOFF), self.pace.longest)

    def _arm_forecast(self, forecasts: PassRunner) -> None:
        forecasts.arm(max(0.0, self._forecast_not_before - self.clock.now()))

    def _rest(self, seconds: float) -> float:
        now = self.clock.now()
        rest = max(FORECAST_REST * seconds, self._allowance.spend(now))
        self._forecast_not_before = now + seconds + rest
        return rest

    def _forecast_ended(self, error: BaseException | None, seconds: float | None) -> None:
        if error is not None:
            self.errors.report("forecast: this forecast is lost", error)
        if self._forecast_again and self.forecasts is not None:
            self._forecast_again = False
            self._arm_forecast(self.forecasts)


#: Number of equal consecutive answers of the job manager after which it counts as idle: a stopped
#: queue keeps its jobs forever, so an empty queue cannot be awaited.
SAME_ANSWERS_UNTIL_IDLE = 100


@dataclass(eq=False)
class _Client:
    """A client waiting for quiescence, and its progress."""

    msg: Any
    events: int  # number of events to be processed
    keys: int | None = None  # number of keys to be stored, once all is decided
    sending: bool = True  # whether the job manager may have more to send
    heard: tuple[int, int] | None = None  # the job manager's last answer
    times: int = 0  # number of answers equal to it before
    last: bool = False  # whether this is the last query to the job manager
    #: the job manager's answer when the maximum number of requests was open
    full: tuple[int, int] | None = None
    again: bool = False  # whether to query again when these are decided, since others may follow


class Quiescence:
    """Answers ``sched.quiescent`` once everything before it is decided, stored and answered.

    A client inside the job manager, such as an emulator waiting for the jobs of a step, asks before
    the requests of these jobs are sent, since the job manager sends one per reactor turn. So
    `Quiescence` first queries the job manager (``job-manager.alloc-query``) until no request is
    unsent or the maximum number is open, and then once more, since the answer may overtake the last
    request. In the second case all this is repeated once these are decided, until nothing changes
    any more.
    """

    def __init__(self, host: Host, passes: Passes) -> None:
        self.host = host
        self.passes = passes
        self._clients: list[_Client] = []

    def ask(self, msg: Any) -> None:
        """Answer `msg` at quiescence."""
        client = _Client(msg, self.passes.events)
        self._clients.append(client)
        self.passes.changed = self.check
        self._query(client)
        self.check()

    def _query(self, client: _Client) -> None:
        def answered(future: Any) -> None:
            try:
                answer = future.get()
                self._heard(client, int(answer["queue_length"]), int(answer["alloc_pending"]))
            except Exception:
                client.sending = False  # there is no job manager: no further jobs will arrive
            if client.sending:
                self._query(client)
            else:
                self.check()

        try:
            self.host.handle.rpc("job-manager.alloc-query").then(answered)
        except Exception:
            client.sending = False

    def _heard(self, client: _Client, queued: int, pending: int) -> None:
        """Process the job manager's numbers of unsent and of open requests."""
        heard = (queued, pending)
        depth = self.passes.scheduler.queue_depth
        client.times = client.times + 1 if heard == client.heard else 0
        client.heard = heard
        if client.last or (queued and heard == client.full):
            client.sending = False
            client.events = self.passes.events
            client.keys = None
        elif queued == 0 or client.times >= SAME_ANSWERS_UNTIL_IDLE:
            client.last = True
        elif depth != "unlimited" and pending >= int(depth):
            client.last = client.again = True
            client.full = heard

    def check(self) -> None:
        """Answer the clients whose conditions are met."""
        waiting = []
        for client in self._clients:
            if client.keys is None and self.passes.done_with(client.events):
                client.keys = self.host.commits.accepted
            if client.sending or client.keys is None or self.host.commits.stored < client.keys:
                waiting.append(client)
            elif client.again:
                client.again = client.last = False
                client.sending = True
                waiting.append(client)
                self._query(client)
            else:
                answer = {"status": 0, "alloc_current": self.passes.requests.running}
                self.host.errors.guard("quiescent", self.host.handle.respond, client.msg, answer)
        self._clients = waiting
        if not waiting:
            self.passes.changed = None
