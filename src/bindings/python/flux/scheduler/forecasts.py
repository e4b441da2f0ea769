# SPDX-License-Identifier: LGPL-3.0-or-later
"""Estimated starts and reasons of pending jobs, for users.

Both are annotations, stored and shown by the job manager. Most jobs of a busy machine start within
a second, and annotations of these would only burden the job manager. So a job is *quiet* in the
first second after its request, and for a second after each annotation. An estimate made meanwhile
is kept and sent later; a reason is not, since the forecast requested for that time finds it again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Callable

from flux.resource.pool.masks import quote
from flux.scheduler.decision import PolicyView
from flux.scheduler.disclosure import JobOwner, Reason, behind, is_private
from flux.scheduler.host import Host, check_time
from flux.scheduler.projection.fork import ProjectionFailed, Projections
from flux.scheduler.requests import PendingJob

#: Minimum number of seconds between estimates of all jobs, and ratio of that time to the time that
#: they took: at most a tenth of a core.
ESTIMATE_INTERVAL_S = 0.1
ESTIMATE_REST = 9.0

#: Estimates that change by less, in seconds, are not sent again.
ESTIMATE_GRAIN_S = 0.1

#: Seconds after its request in which a job is not annotated, and minimum number of seconds between
#: two annotations of a job.
QUIET_TIME_S = 1.0

#: Odds are sent again only if a time changes by this fraction of the time until then, and by this
#: number of seconds.
ODDS_GRAIN = 0.1
ODDS_GRAIN_S = 60.0

#: Annotations within this number of seconds count as one: an estimate and a reason from one
#: forecast.
SAME_TIME_S = 0.1


class _Sent:
    """The annotations sent for one job."""

    __slots__ = ("at", "estimate", "kind", "later", "odds", "reason")

    def __init__(self) -> None:
        self.at: float | None = None  # time of the last annotation
        self.estimate: float | None = None
        self.kind: str | None = None  # kind of the estimate: "promised" or "planned"
        self.reason: str | None = None
        self.odds: tuple[float, float] | None = None  # the likely start, and the nine-of-ten start
        #: estimate to send after the quiet time, and its kind
        self.later: tuple[float | None, str | None] | None = None


class Forecasts:
    """Informs users of estimates, promises and reasons, at the right time."""

    def __init__(
        self,
        host: Host,
        policy: PolicyView,
        projections: Projections,
        forecast: Callable[[], None],
    ) -> None:
        self._policy = policy
        self._projections = projections
        self._config = host.config
        self._clock = host.clock
        self._forecast = forecast  # called when postponed annotations may be sent
        self._errors = host.errors
        #: whether annotations have a reader; in a simulation of starts they have none
        self.are_read = host.wants_forecast
        self.sent: dict[int, _Sent] = {}  # by job id
        self._timer = host.handle.timer_watcher_create(0.0, self._expired)
        self._due = math.inf  # time of the next forecast asked for
        self._reasons_at = -math.inf  # when reasons were last found
        self._not_before = 0.0  # time of the next estimates
        self._why_failed = False  # whether an error of `why` was logged

    def _of(self, job: PendingJob) -> _Sent:
        sent = self.sent.get(job.jobid)
        if sent is None:
            sent = self.sent[job.jobid] = _Sent()
        return sent

    def is_mature(self, job: PendingJob) -> bool:
        """Whether a job may be annotated now. If not, a forecast is requested for when it may."""
        sent = self.sent.get(job.jobid)
        now = self._clock.now()
        if sent is None or sent.at is None:
            when = job.came + QUIET_TIME_S
        elif now - sent.at <= SAME_TIME_S:
            return True
        else:
            when = sent.at + QUIET_TIME_S
        if now >= when:
            return True
        if when < self._due:
            self.ask_for_forecast(when - now)
        return False

    def _estimate(self, job: PendingJob, when: float | None, kind: str | None) -> None:
        """Send when a job is expected to start, now or after its quiet time."""
        if when is None and not self._has_estimate(job.jobid):
            return  # nothing to remove: most jobs of a deep queue never have an estimate
        sent = self._of(job)
        if not self.are_read:
            # A simulation of starts reads the first promise of each job, to check that it was kept.
            if kind != "promised" or when is None or sent.estimate is not None:
                return
        elif not self.is_mature(job):
            sent.later = (when, kind)
            return
        sent.later = None
        shown = sent.estimate
        if when is None:
            if shown is None:
                return  # an estimate was to be sent later
            kind = None
        elif shown is not None and abs(when - shown) < ESTIMATE_GRAIN_S and kind == sent.kind:
            return
        sent.estimate = when
        sched: dict[str, Any] = {"t_estimate": when}
        if kind != sent.kind:
            sent.kind = sched["t_estimate_kind"] = kind
        self._tell(job, sent, sched)

    def show_odds(self, job: PendingJob, times: tuple[float, float] | None) -> None:
        """Send when a job is likely to start, unless it is quiet: likely start and nine-of-ten
        start, seconds since the epoch; None removes them."""
        sent = self._of(job)
        if not self.are_read or times == sent.odds or not self._differs(sent.odds, times):
            return
        if self.is_mature(job):
            sent.odds = times
            likely, safe = (None, None) if times is None else times
            self._tell(job, sent, {"t_likely": likely, "t_p90": safe})

    def _differs(
        self, shown: tuple[float, float] | None, times: tuple[float, float] | None
    ) -> bool:
        """Whether odds have changed enough to send them."""
        if shown is None or times is None:
            return True
        now = self._clock.now()
        return any(
            abs(new - old) >= max(ODDS_GRAIN_S, ODDS_GRAIN * (old - now))
            for old, new in zip(shown, times)
        )

    def estimate_of(self, job: PendingJob) -> tuple[float | None, str | None]:
        """Return the expected start of a job as sent (seconds since the epoch), and its kind,
        "promised" or "planned"; (None, None) if none was sent."""
        sent = self.sent.get(job.jobid)
        if sent is None or sent.estimate is None:
            return None, None
        return sent.estimate, sent.kind or "planned"

    def _has_estimate(self, jobid: int) -> bool:
        """Whether an estimate was sent for a job, or is to be sent later."""
        sent = self.sent.get(jobid)
        return sent is not None and (sent.estimate is not None or sent.later is not None)

    def ask_for_forecast(self, seconds: float) -> None:
        """Request a forecast after `seconds`, unless an earlier one is due."""
        seconds = max(SAME_TIME_S, seconds)
        when = self._clock.now() + seconds
        if when < self._due:
            self._due = when
            self._timer.stop()
            self._timer.reset(after=seconds)

    def _tell(self, job: PendingJob, sent: _Sent, sched: dict[str, Any]) -> None:
        now = self._clock.now()
        if sent.at is None or now - sent.at > SAME_TIME_S:
            sent.at = now
        job.request.annotate({"sched": sched})

    def _expired(self, handle: Any, watcher: Any, revents: int, args: Any) -> None:
        self._due = math.inf
        for jobid, later in [(id, sent.later) for id, sent in self.sent.items() if sent.later]:
            job = self._policy.pending(jobid)
            if job is not None and not job.request.finalized:
                self._errors.guard("estimate", self._estimate, job, *later)
        # Reasons and estimates rest for different times: if both could be put off again, each
        # would ask for the other's forecast, without end.
        self._reasons_at = -math.inf
        self._forecast()

    # -- when jobs start ---------------------------------------------------------------------------

    def show_estimate(self, job: PendingJob, when: float | None, kind: str | None = None) -> None:
        """Annotate a job with its estimated start (seconds since the epoch), now or after its quiet
        time, and its kind (``sched.t_estimate_kind``), "promised" or "planned"; None removes the
        annotation."""
        if when is not None:
            now = self._clock.now()
            check_time(when, now, lambda: f"show_estimate({job.name}, {when!r})")
        self._note_promise(job, when, kind)
        self._estimate(job, when, kind)

    def promised(self, job: PendingJob, when: float | None, kind: str) -> None:
        """Send the promised start of a job (seconds since the epoch; None: unknown). If a
        projection follows, it is left to that."""
        if self.are_read and self._policy.estimate_depth:
            self._note_promise(job, when, kind)
        else:
            self.show_estimate(job, when, kind)

    def _note_promise(self, job: PendingJob, when: float | None, kind: str | None) -> None:
        limits = self._policy.wait_limits
        if limits.has_early:
            limits.promised(job, when if kind == "promised" else None)

    @property
    def shows_changes(self) -> bool:
        """Whether changes of a job's estimate matter."""
        return self.are_read or self._policy.wait_limits.has_early

    def estimates(self) -> Iterator[float | None]:
        policy = self._policy
        most = policy.estimate_depth
        if not most:
            return
        wait = self._not_before - policy.now()
        if wait > 0:
            self.ask_for_forecast(wait)
            return
        if not any(self.is_mature(job) for job in policy.pending_jobs()):
            return
        rest = ESTIMATE_INTERVAL_S
        try:
            answer = yield from self._projections.ask("estimates", most=most)
            rest = max(rest, ESTIMATE_REST * answer["took"])
            starts, late = dict(answer["starts"]), dict(answer["late"])
            if answer["denied"]:
                # A job that will be given up is shown its start if it were not.
                more = yield from self._projections.ask("estimates", most=most, patient=True)
                rest += ESTIMATE_REST * more["took"]
                waiting = set(answer["denied"])
                starts.update(one for one in more["starts"] if one[0] in waiting)
        except ProjectionFailed as exc:
            policy.log.debug(f"estimates: {exc}")
            return
        finally:
            self._not_before = policy.now() + rest
        shown = filter(self._has_estimate, self.sent)
        for jobid in dict.fromkeys([*starts, *late, *shown]):
            job = policy.pending(jobid)
            if job is not None:
                self._show_projected(job, starts.get(jobid), late.get(jobid))
                yield None

    def _show_projected(self, job: PendingJob, when: float | None, late: float | None) -> None:
        """Send the start of a job in a projection: seconds since the epoch; None: unknown, but later
        than `late`, if that is known."""
        decision = self._policy.decision
        promised = decision.promised_start(job)
        if promised is not None:
            least, most = (late or 0.0, math.inf) if when is None else (when, when)
            if least - ESTIMATE_GRAIN_S <= promised <= most + ESTIMATE_GRAIN_S:
                self.show_estimate(job, promised, "promised")
                return
        self._estimate(job, when, "planned" if decision.looks_past_heads else None)

    # -- reasons of waits --------------------------------------------------------------------------

    def show_reason(self, job: PendingJob, reason: str | None) -> bool:
        """Annotate a job with the reason of its wait; None removes it. For a job that is not mature
        a later forecast does. Return whether an annotation was sent."""
        if not isinstance(reason, (str, type(None))):
            raise TypeError(f"show_reason({job.name}, {reason!r}): expected text or None")
        sent, reason = self._of(job), self.for_others(job, reason)
        if reason == sent.reason or not self.are_read or not self.is_mature(job):
            return False
        sent.reason = reason
        self._tell(job, sent, {"reason_pending": reason})
        return True

    def for_others(self, job: PendingJob, reason: str | None) -> str | None:
        """Return a reason as Flux may show it with a job: to all users, or in private mode to its
        owner."""
        if isinstance(reason, Reason) and is_private(self._config.get()):
            return reason.read_by(JobOwner(job.userid))
        return reason

    def reason_of(self, job: PendingJob, facts: dict[str, Any] | None = None) -> str | None:
        """Return `PolicyScheduler.why`. If an override raises or returns no text, that is logged
        once, and the reason is unknown."""
        try:
            reason = self._policy.why(job, facts)
            if reason is None or isinstance(reason, str):
                return reason
            raise TypeError(f"why() returned {quote(reason)}: expected text or None")
        except (Exception, SystemExit) as exc:
            if not self._why_failed:
                self._why_failed = True
                self._errors.report(f"why: {job.name}", exc)
        return None

    def kind_of_wait(
        self, job: PendingJob, facts: dict[str, Any] | None = None
    ) -> tuple[str, str | None]:
        """Return the kind of a job's wait: the name of an admission rule such as ``reservation``,
        or ``order``, ``down``, ``resources``; and its reason, as `PolicyScheduler.why`."""
        policy, decision = self._policy, self._policy.decision
        head = decision.ahead_of(job)
        if head is not None and not decision.looks_past_heads:
            return "order", behind(head.name, head.userid)
        cause: tuple[str, str | None] | None = policy.admission.why(job)
        if cause is not None:
            return cause
        if not facts and not policy.planning.pool_can("explain"):
            return "resources", "insufficient resources"
        facts = facts or policy.facts.explain(job.resource_request)
        if head is not None and not facts["reason"]:
            return "order", behind(head.name, head.userid)
        pool, request = policy.resources, job.resource_request
        is_down = policy.facts.waits_for_down_ranks(request)
        reason = describe(facts)
        if reason is None and not pool.fits_on(request, pool.ranks):
            reason = pool.why_not(request)
        return "down" if is_down else "resources", reason or decision.why(job)

    def reasons(self) -> Iterator[None]:
        """Tell the first `PolicyScheduler.reason_depth` pending jobs why they wait; for `forecast`.
        A generator that yields after each job that took work."""
        policy, depth = self._policy, self._policy.reason_depth
        if not policy.planning.pool_can("explain"):
            return
        now = self._clock.now()
        if 0 <= now - self._reasons_at < min(QUIET_TIME_S, SAME_TIME_S):
            self.ask_for_forecast(SAME_TIME_S)  # passes in close succession share one search
            return
        self._reasons_at = now
        deferred = policy.admission.deferred
        for job in deferred.jobs.head(depth):
            cause = policy.admission.why(job)
            # None: its rule has readmitted it, and it waits for something else
            self.show_reason(job, self.reason_of(job) if cause is None else cause.reason)
            yield
        for job in policy.pending_jobs(deferred=False, most=depth):
            if not job.request.finalized and self.is_mature(job):
                explained = policy.facts.explained()
                if (
                    self.show_reason(job, self.reason_of(job))
                    or policy.facts.explained() != explained
                ):
                    yield


def describe(facts: dict[str, Any]) -> str | None:
    """Return why a job is pending, in terms of its user, from `facts` of
    ``ResourcePool.explain()``: nodes that are down, if the job cannot start without them, else the
    pool's reason; None if it could start now."""
    matching, up = facts["matching"], facts["up"]
    if facts["unit"] == "nodes" and up < facts["needed"] <= matching:
        down = matching - up
        return f"{down} of {matching} matching nodes {'is' if down == 1 else 'are'} down"
    return facts["reason"] or None
