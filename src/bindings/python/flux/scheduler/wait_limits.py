# SPDX-License-Identifier: LGPL-3.0-or-later
"""Jobs that are useless if they start too late: limits on their waits and ends, by the system
attributes ``max-wait``, ``deadline`` and ``early`` (:doc:`../guide/max-wait`).

The clock of ``max-wait`` runs while the job manager allows the job to start, from its first request.
While its queue is stopped, or it is held, its request is withdrawn and the clock is paused. It
restarts from 0 when the scheduler is reloaded. A started job is left alone.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime
from heapq import heapify, heappop, heappush
from typing import Any

from flux.scheduler.admission import AdmissionRule
from flux.scheduler.attributes import SystemAttributes
from flux.scheduler.host import NO_TIMER
from flux.scheduler.requests import PendingJob
from flux.scheduler.rule_host import RuleHost
from flux.scheduler.site_policy.tables import Fields
from flux.scheduler.times import LATEST, duration_text

#: Maximum number of jobs with withdrawn requests whose waits are kept. The scheduler does not learn
#: whether such a job will be requested again.
WITHDRAWN_REMEMBERED = 10000


@dataclass(eq=False)
class _Waiting:
    """A pending job with a limit on its wait."""

    max_wait: float | None  # seconds, or None
    early: bool  # whether a late promise suffices to deny it
    since: float  # time of its request, less the seconds that it waited before that
    latest: float = math.inf  # latest start
    note: str = ""  # the text for its user when that has passed
    promised: float | None = None  # its last promised start


def read_limits(
    attributes: SystemAttributes, duration: float
) -> tuple[float | None, float | None, bool]:
    """Return a job's maximum wait in seconds, its latest end in seconds since the epoch, and whether
    a late promise suffices to deny it. Raises ValueError if a value is invalid, or they conflict;
    the text is for the user."""
    given = {name: attributes.get(name) for name in ("max-wait", "early")}
    table = Fields({name: value for name, value in given.items() if value is not None})
    max_wait, early = table.seconds("max-wait"), table.flag("early")
    deadline = attributes.get("deadline")
    if deadline is not None:
        if type(deadline) not in (int, float) or not 0 < deadline <= LATEST:
            raise ValueError(f"deadline={deadline!r} is invalid: expected seconds since the epoch")
        if not duration:
            raise ValueError("deadline: the job needs a time limit, to know when it has to start")
    if early and max_wait is None and deadline is None:
        raise ValueError("early: there is neither a max-wait nor a deadline")
    return max_wait, None if deadline is None else float(deadline), early


class WaitLimits(AdmissionRule):
    """Denies jobs at the end of their maximum waits.

    It does not keep jobs from starting before, and is not asked about jobs without these
    attributes. Nor is it told of starts: the records of jobs that have started are dropped
    when they may outnumber the others.
    """

    name = "max-wait"
    attributes = ("max-wait", "deadline", "early")
    engaged = False
    has_early = False  # whether a late promise may suffice to deny a pending job

    host: RuleHost

    def __init__(self, host: RuleHost) -> None:
        super().__init__(host)
        self._jobs: dict[int, _Waiting] = {}
        self._by_latest: list[tuple[float, int]] = []  # a heap of (latest start, job id)
        self._most = 64  # length of that at which records of started jobs are dropped
        self._timer = NO_TIMER  # for the first of it
        #: id of a job decided by the next full pass -> number of the event of its request
        self._first_pass: dict[int, int] = {}
        self._too_late: set[int] = set()  # ids of jobs that were promised a start that is too late
        #: job id -> wait in seconds, of jobs whose requests were withdrawn
        self._withdrawn: OrderedDict[int, float] = OrderedDict()

    # -- pending jobs ------------------------------------------------------------------------------

    def alloc(self, job: PendingJob, attributes: SystemAttributes) -> None:
        duration = getattr(job.resource_request, "duration", 0) or 0
        max_wait, deadline, early = read_limits(attributes, duration)
        if max_wait is None and deadline is None:
            return
        now = self.host.now()
        waiting = _Waiting(max_wait, early, now - self._withdrawn.pop(job.jobid, 0.0))
        if max_wait:
            waiting.latest = max(now, waiting.since + max_wait)
            waiting.note = f"max-wait: not started within {duration_text(max_wait)}"
        if deadline is not None and deadline - duration < waiting.latest:
            waiting.latest = deadline - duration
            waiting.note = (
                f"deadline: not started by {time_text(waiting.latest, now)}, so it cannot end by "
                f"{time_text(deadline, now)}"
            )
            if waiting.latest < now:
                raise ValueError(waiting.note)
        if max_wait == 0:
            self._first_pass[job.jobid] = self.host.events_seen
            self.host.tell_of_passes(self.pass_completed)
        if len(self._by_latest) >= self._most:
            is_pending = self.host.pending
            self._jobs = {one: limits for one, limits in self._jobs.items() if is_pending(one)}
            self._by_latest = [(one.latest, jobid) for jobid, one in self._jobs.items()]
            heapify(self._by_latest)
            self._most = 2 * len(self._jobs) + 64
        self._jobs[job.jobid], job.latest = waiting, waiting.latest
        self.has_early |= early
        heappush(self._by_latest, (waiting.latest, job.jobid))
        self._arm()

    def cancel(self, jobid: int) -> None:
        waiting = self._jobs.pop(jobid, None)
        self._first_pass.pop(jobid, None)
        if waiting is not None and waiting.max_wait:
            self._withdrawn[jobid] = max(0.0, self.host.now() - waiting.since)
            while len(self._withdrawn) > WITHDRAWN_REMEMBERED:
                self._withdrawn.popitem(last=False)

    # -- when the wait is over ---------------------------------------------------------------------

    def _arm(self) -> None:
        """Have the first job denied that has not started by its latest start."""
        latest = self._by_latest[0][0] if self._by_latest else math.inf
        if latest < self._timer.when:
            self._timer.cancel()
            self._timer = self.host.call_at(latest, self._expire)

    def _expire(self) -> None:
        """Deny the jobs whose latest starts have passed."""
        self._timer, now = NO_TIMER, self.host.now()
        while self._by_latest:
            latest, jobid = self._by_latest[0]
            waiting, job = self._jobs.get(jobid), self.host.pending(jobid)
            if waiting is None or job is None:
                self._jobs.pop(jobid, None)
            elif latest > now:
                break
            elif waiting.latest <= now:
                self.host.errors.guard(f"max-wait: {job.name}", self._give_up, job, waiting.note)
            heappop(self._by_latest)
        self.has_early &= bool(self._jobs)
        self._arm()

    def pass_completed(self, events: int) -> None:
        """Deny the jobs that are promised a start that is too late, and those that may not wait at
        all and were not started by a full pass that began after the first `events` events."""
        too_late, self._too_late = self._too_late, set()
        for jobid in sorted(too_late):
            self._promised_too_late(jobid)
        for jobid, event in list(self._first_pass.items()):
            if event <= events:
                del self._first_pass[jobid]
                job = self.host.pending(jobid)
                if job is not None:
                    self._give_up(job, "max-wait: it could not start at once")
        if self._first_pass:
            self.host.start_schedule()  # they arrived during that pass
        elif not self._too_late:
            self.host.tell_of_passes(self.pass_completed, False)

    def promised(self, job: PendingJob, when: float | None) -> None:
        """Note a job's promised start (None: the promise was dropped). The job is denied after the
        pass, since it may be promised an earlier one in it."""
        waiting = self._jobs.get(job.jobid)
        if waiting is None or not waiting.early:
            return
        waiting.promised = when
        if when is not None and when > waiting.latest:
            self._too_late.add(job.jobid)
            self.host.tell_of_passes(self.pass_completed)

    def _promised_too_late(self, jobid: int) -> None:
        waiting, job = self._jobs.get(jobid), self.host.pending(jobid)
        if job is not None and waiting is not None and waiting.promised is not None:
            if waiting.promised > waiting.latest:
                when = time_text(waiting.promised, self.host.now())
                self._deny(job, f"{waiting.note} (it is promised {when})")

    def _give_up(self, job: PendingJob, note: str) -> None:
        """Deny a job. Its user gets `note` and the estimated start; without an estimate, the rule's
        reason."""
        host, now = self.host, self.host.now()
        when, _ = host.forecasts.estimate_of(job)
        if when is not None and when > now:
            self._deny(job, f"{note} (first start about {time_text(when, now)})")
            return
        cause = host.admission.why(job)
        why = "" if cause is None else f" ({host.forecasts.for_others(job, cause.reason)})"
        self._deny(job, note + why)

    def _deny(self, job: PendingJob, note: str) -> None:
        self.host.errors.guard(f"max-wait: {job.name}", self.host.give_up, job, note)
        self._withdrawn.pop(job.jobid, None)  # a denied job is not requested again

    def drop_all(self) -> None:
        """Drop the limits of all pending jobs."""
        self._jobs.clear()
        self._by_latest.clear()
        self._first_pass.clear()
        self._too_late.clear()

    # -- answers -----------------------------------------------------------------------------------

    def facts(self, job: PendingJob) -> dict[str, Any]:
        """Return the latest start of a job with a limit, seconds since the epoch."""
        waiting = self._jobs.get(job.jobid)
        if waiting is None or waiting.latest == math.inf:
            return {}
        return {"latest_start": waiting.latest}


def time_text(when: float, now: float) -> str:
    """Format a time in this machine's zone; with the date if it is more than half a day away."""
    if not abs(when) <= LATEST:
        return "never"
    at = datetime.fromtimestamp(when).astimezone()
    return at.strftime("%H:%M" if abs(when - now) < 43200 else "%Y-%m-%d %H:%M")
