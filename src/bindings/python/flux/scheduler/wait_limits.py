# SPDX-License-Identifier: LGPL-3.0-or-later
"""Jobs that are of no use if they start too late: how long one waits, and by when it has to end.

A jobspec may say, as system attributes (RFC 14):

- ``max-wait``: a length of time, seconds or text such as ``"90m"``. A job that has not started
  within it is denied. With 0 it starts in the first full pass that looks at it, or not at all;
- ``deadline``: seconds since the epoch by which the job has to have ended. It needs a time limit,
  and is denied once it cannot start early enough to run for that long;
- ``early``: true: the job is denied as soon as it is *promised* a start that is later than one of
  the two allows. An estimate that is no promise says nothing.

The clock of ``max-wait`` runs while the job could be started as far as the job manager goes: from
its first request on, so that dependencies and begin times do not count; while its queue is stopped,
or it is held, its request is withdrawn and the clock stands. It begins anew when the scheduler is
loaded anew. A job that is not sent to the scheduler, as one beyond ``queue-depth``, is not seen
here.

A job that has started is left alone, whatever its deadline says: its time limit ends it before.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from flux.resource.errors import InfeasibleRequest
from flux.scheduler.admission import AdmissionRule, Deferral
from flux.scheduler.reservations.times import LATEST, duration_text, parse_duration

if TYPE_CHECKING:
    from flux.scheduler.attributes import SystemAttributes
    from flux.scheduler.host import ErrorReporter, Timer
    from flux.scheduler.requests import PendingJob
    from flux.scheduler.rule_host import RuleHost

#: Seconds after which the clock is read though no job's time is over: it may have been set.
CLOCK_CHECK_S = 60.0

#: Withdrawn requests of which it is remembered how long the job had waited. The scheduler is not
#: told whether such a job comes again.
WITHDRAWN_REMEMBERED = 10000


class Wanted(NamedTuple):
    """What a jobspec says of how late its job may start.

    Attributes:
        max_wait: seconds; None: it may wait as long as it likes
        deadline: when it has to have ended, seconds since the epoch; None: at no time
        early: whether a promise that is too late is enough to deny it
    """

    max_wait: float | None
    deadline: float | None
    early: bool


class _Waiting:
    """A pending job with a limit on its wait."""

    __slots__ = (
        "came",
        "early",
        "event",
        "job",
        "latest",
        "max_wait",
        "note",
        "promised",
        "waited",
    )

    def __init__(self, job: PendingJob, wanted: Wanted, came: float, waited: float) -> None:
        self.job = job
        self.came = came
        self.waited = waited  # before this request
        self.max_wait = wanted.max_wait
        self.early = wanted.early
        #: the latest time at which it may start, and what its user is told when that is over
        self.latest = math.inf
        self.note = ""
        #: for a max-wait of 0: the number of the event that its request was; else None
        self.event: int | None = None
        #: the start that it was promised last
        self.promised: float | None = None


def read_wanted(attributes: SystemAttributes, duration: float) -> Wanted:
    """Read what a jobspec says of how late its job may start.

    Args:
        attributes (SystemAttributes): those of the job
        duration: its time limit, seconds; 0: none

    Raises:
        ValueError: it cannot be read, or does not go together; the text is for the user
    """
    max_wait = attributes.get("max-wait")
    if max_wait is not None:
        max_wait = _seconds(max_wait)
    deadline = attributes.get("deadline")
    if deadline is not None:
        if type(deadline) not in (int, float) or not 0 < deadline <= LATEST:
            raise ValueError(f"deadline={deadline!r} is invalid: expected seconds since the epoch")
        if not duration:
            raise ValueError("deadline: the job needs a time limit, to know when it has to start")
    early = attributes.get("early", False)
    if not isinstance(early, bool):
        raise ValueError(f"early={early!r} is invalid: expected true or false")
    if early and max_wait is None and deadline is None:
        raise ValueError("early: there is neither a max-wait nor a deadline")
    return Wanted(max_wait, None if deadline is None else float(deadline), early)


def _seconds(value: Any) -> float:
    """A length of time of a jobspec in seconds, 0 or more."""
    if type(value) in (int, float) and 0 <= value <= LATEST:
        return float(value)
    if isinstance(value, str):
        if value in ("0", "0s"):
            return 0.0
        return parse_duration(value, "max-wait")
    raise ValueError(
        f"max-wait={value!r} is invalid: expected seconds, or a length of time such as 90m or 4h"
    )


class WaitLimits(AdmissionRule):
    """Denies jobs that have waited for as long as they may.

    It keeps no job from starting before that, and is not asked about jobs without these attributes.

    Args:
        host (RuleHost): the scheduler
        errors (ErrorReporter): where trouble is reported
    """

    name = "max-wait"
    attributes = ("max-wait", "deadline", "early")
    engaged = False  # no job has one of these attributes yet

    host: RuleHost

    def __init__(self, host: RuleHost, errors: ErrorReporter) -> None:
        super().__init__(host)
        self._errors = errors
        self._jobs: dict[int, _Waiting] = {}
        #: heap of (time, job id): when the time of a job is over. What is in it of a job that does
        #: not wait any more, or has another time since, is passed over
        self._due: list[tuple[float, int]] = []
        self._timer: Timer | None = None
        self._armed_for = math.inf
        #: ids of jobs that the next full pass decides
        self._first_pass: dict[int, None] = {}
        #: by job id, for how many seconds a job had waited whose request was withdrawn
        self._withdrawn: OrderedDict[int, float] = OrderedDict()

    def _engage(self) -> None:
        engaged = bool(self._jobs)
        if self.host.admission.engage(self, engaged):
            self.host.tell_of_passes(self.pass_completed if engaged else None)

    # -- a job that waits --------------------------------------------------------------------------

    def alloc(self, job: PendingJob, attributes: SystemAttributes) -> None:
        duration = getattr(job.resource_request, "duration", 0) or 0
        wanted = read_wanted(attributes, duration)
        if wanted.max_wait is None and wanted.deadline is None:
            return
        now = self.host.now()
        waiting = _Waiting(job, wanted, now, self._withdrawn.pop(job.jobid, 0.0))
        if wanted.max_wait:
            waiting.latest = now + max(0.0, wanted.max_wait - waiting.waited)
            waiting.note = f"max-wait: not started within {duration_text(wanted.max_wait)}"
        if wanted.deadline is not None and wanted.deadline - duration < waiting.latest:
            waiting.latest = wanted.deadline - duration
            waiting.note = (
                f"deadline: not started by {time_text(waiting.latest, now)}, so it cannot end by "
                f"{time_text(wanted.deadline, now)}"
            )
            if waiting.latest < now:
                raise ValueError(waiting.note)
        if wanted.max_wait == 0:
            waiting.event = self.host.events_seen
            self._first_pass[job.jobid] = None
        self._jobs[job.jobid] = waiting
        if waiting.latest < math.inf:
            heapq.heappush(self._due, (waiting.latest, job.jobid))
            if waiting.latest < self._armed_for:
                self._arm()
        self._engage()

    def check(self, job: PendingJob) -> Deferral | None:
        waiting = self._jobs.get(job.jobid)
        if waiting is not None and self.host.now() > waiting.latest:
            # The timer is late, or the pass came first.
            raise InfeasibleRequest(self._sentence(waiting))
        return None

    def cancel(self, jobid: int) -> None:
        waiting = self._drop(jobid)
        if waiting is not None and waiting.max_wait:
            self._withdrawn[jobid] = waiting.waited + max(0.0, self.host.now() - waiting.came)
            while len(self._withdrawn) > WITHDRAWN_REMEMBERED:
                self._withdrawn.popitem(last=False)

    def start(self, job: PendingJob, alloc: Any) -> None:
        self._drop(job.jobid)

    def _drop(self, jobid: int) -> _Waiting | None:
        waiting = self._jobs.pop(jobid, None)
        if waiting is not None:
            self._first_pass.pop(jobid, None)
            self._engage()
            if len(self._due) > 2 * len(self._jobs) + 64:  # most of it is of jobs that have started
                self._due = [entry for entry in self._due if not self._is_stale(*entry)]
                heapq.heapify(self._due)
        return waiting

    # -- when its time is over ---------------------------------------------------------------------

    def pass_completed(self, events: int) -> None:
        """A full pass over the queue is over, which had seen the first `events` events: jobs that
        may not wait at all, and that it has not started, are denied."""
        for jobid in list(self._first_pass):
            waiting = self._jobs[jobid]
            if waiting.event is not None and waiting.event <= events:
                self._give_up(waiting, "max-wait: it could not start at once")
        if self._first_pass:
            self.host.start_schedule()  # they came while that pass was under way

    def promised(self, job: PendingJob, when: float | None) -> None:
        """A job was promised a start (None: it is promised none any more). It may be in the middle
        of a pass, so what follows from it is done later."""
        waiting = self._jobs.get(job.jobid)
        if waiting is None or not waiting.early:
            return
        waiting.promised = when
        if when is not None and when > waiting.latest:
            self.host.call_at(self.host.now(), lambda: self._promised_too_late(job.jobid))

    def _promised_too_late(self, jobid: int) -> None:
        waiting = self._jobs.get(jobid)
        if waiting is not None and waiting.promised is not None:
            if waiting.promised > waiting.latest:
                when = time_text(waiting.promised, self.host.now())
                self._deny(waiting, f"{waiting.note} (it is promised {when})")

    def _arm(self) -> None:
        """Have one timer for the next job whose time is over."""
        due = self._due
        while due and self._is_stale(*due[0]):
            heapq.heappop(due)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._armed_for = math.inf
        if due:
            self._armed_for = min(due[0][0], self.host.now() + CLOCK_CHECK_S)
            self._timer = self.host.call_at(self._armed_for, self._expired)

    def _is_stale(self, when: float, jobid: int) -> bool:
        waiting = self._jobs.get(jobid)
        return waiting is None or waiting.latest != when

    def _expired(self) -> None:
        self._timer = None
        now = self.host.now()
        while self._due and self._due[0][0] <= now:
            when, jobid = heapq.heappop(self._due)
            if not self._is_stale(when, jobid):
                waiting = self._jobs[jobid]
                self._give_up(waiting, waiting.note)
        self._arm()

    def _give_up(self, waiting: _Waiting, note: str) -> None:
        self._deny(waiting, self._sentence(waiting, note))

    def _deny(self, waiting: _Waiting, note: str) -> None:
        self._errors.guard(f"max-wait: {waiting.job.name}", self.host.give_up, waiting.job, note)
        self._drop(waiting.job.jobid)
        self._withdrawn.pop(waiting.job.jobid, None)  # it was denied, and does not come again

    def _sentence(self, waiting: _Waiting, note: str | None = None) -> str:
        """What the user of a job is told that is denied: when it would have started, or else what
        a rule keeps it waiting for."""
        note = waiting.note if note is None else note
        now = self.host.now()
        when, _ = self.host.forecasts.estimate_of(waiting.job)
        if when is not None and when > now:
            return f"{note} (first start about {time_text(when, now)})"
        cause = self.host.admission.why(waiting.job)
        if cause is None:
            return note
        return f"{note} ({self.host.forecasts.for_others(waiting.job, cause.reason)})"

    def drop_all(self) -> None:
        """Let all pending jobs wait for as long as it takes."""
        for jobid in list(self._jobs):
            self._drop(jobid)

    # -- answers -----------------------------------------------------------------------------------

    def facts(self, job: PendingJob, expected_start: float | None, first: bool) -> dict[str, Any]:
        """Of a job that may not wait for ever: until when, seconds since the epoch."""
        waiting = self._jobs.get(job.jobid)
        if waiting is None or waiting.latest == math.inf:
            return {}
        return {"latest_start": waiting.latest}


def time_text(when: float, now: float) -> str:
    """A time of day, of this machine's zone; with the date if it is more than half a day away."""
    if not abs(when) <= LATEST:
        return "never"
    at = datetime.fromtimestamp(when).astimezone()
    return at.strftime("%H:%M" if abs(when - now) < 43200 else "%Y-%m-%d %H:%M")
