"""Passes over the queue: when they run, what follows them, and what they must not leave behind."""

from flux.scheduler.pacing import Allowance, Driver, Pace

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
