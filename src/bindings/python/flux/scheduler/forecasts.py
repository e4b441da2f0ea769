# SPDX-License-Identifier: LGPL-3.0-or-later
"""What users of pending jobs are told: when these start, and what they wait for."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING

from flux.scheduler.annotator import ESTIMATE_GRAIN_S
from flux.scheduler.disclosure import JobOwner, Reason, is_private
from flux.scheduler.projection.fork import ProjectionFailed, Projections

if TYPE_CHECKING:
    from flux.scheduler.annotator import Annotator
    from flux.scheduler.host import InstanceConfig
    from flux.scheduler.policy import PolicyScheduler
    from flux.scheduler.requests import PendingJob
    from flux.scheduler.wait_limits import WaitLimits

#: Least number of seconds between two estimates of all jobs, and how many times as long as one took,
#: so that they take a tenth of a core.
ESTIMATE_INTERVAL_S = 0.1
ESTIMATE_REST = 9.0


class Forecasts:
    """Tells users of estimates, promises and reasons.

    Args:
        policy (PolicyScheduler): the scheduler
        annotator (Annotator): by whom they are told
        projections (Projections): where estimates come from
        wait_limits (WaitLimits): is told of promised starts as well
        config (InstanceConfig): says what users may know of one another
    """

    def __init__(
        self,
        policy: PolicyScheduler,
        annotator: Annotator,
        projections: Projections,
        wait_limits: WaitLimits,
        config: InstanceConfig,
    ) -> None:
        self._policy = policy
        self._annotator = annotator
        self._projections = projections
        self._not_before = 0.0
        self._wait_limits = wait_limits
        self._config = config

    # -- when jobs start ---------------------------------------------------------------------------

    def estimate_of(self, job: PendingJob) -> tuple[float | None, str | None]:
        """Return the expected start that a job was told (seconds since the epoch), and its kind,
        "promised" or "planned"; None if it was told none."""
        return self._annotator.estimate_of(job)

    def show_estimate(self, job: PendingJob, when: float | None, kind: str | None = None) -> None:
        """As `PolicyScheduler.show_estimate`."""
        self._note_promise(job, when, kind)
        self._annotator.estimate(job, when, kind)

    def promised(self, job: PendingJob, when: float | None, kind: str) -> None:
        """Tell the start that a job was promised (seconds since the epoch; None: nobody knows when).
        Where a projection follows, it tells what is not certain, or was found to be earlier."""
        expected, _ = self.estimate_of(job)
        is_earlier = (
            expected is not None and when is not None and expected < when - ESTIMATE_GRAIN_S
        )
        is_projected = self.are_read and self._policy.estimate_depth > 0
        if is_projected and (kind == "planned" or is_earlier):
            self._note_promise(job, when, kind)
        else:
            self.show_estimate(job, when, kind)

    def _note_promise(self, job: PendingJob, when: float | None, kind: str | None) -> None:
        if self._wait_limits.engaged:
            self._wait_limits.promised(job, when if kind == "promised" else None)

    @property
    def are_read(self) -> bool:
        """Whether anybody reads what is told of jobs. In a simulation for start times nobody does."""
        return self._annotator.is_wanted

    @property
    def shows_changes(self) -> bool:
        """Whether it matters that the estimate of a job changes that was told one."""
        return self.are_read or self._wait_limits.engaged

    def estimates(self) -> Iterator[float | None]:
        """As `PolicyScheduler.estimates`."""
        policy, annotator = self._policy, self._annotator
        most = policy.estimate_depth
        if not most:
            return
        wait = self._not_before - policy.now()
        if wait > 0:
            annotator.ask_for_forecast(wait)
            return
        if not any(annotator.is_mature(job) for job in policy.pending_jobs()):
            return
        rest = ESTIMATE_INTERVAL_S
        try:
            answer = yield from self._projections.ask("estimates", most=most)
            rest = max(rest, ESTIMATE_REST * answer["took"])
            starts = dict(answer["starts"])
            if answer["denied"]:
                # Who is to be given up is told when it would have started.
                more = yield from self._projections.ask("estimates", most=most, patient=True)
                rest += ESTIMATE_REST * more["took"]
                waiting = set(answer["denied"])
                starts.update(one for one in more["starts"] if one[0] in waiting)
        except ProjectionFailed as exc:
            policy.log.debug(f"estimates: {exc}")
            return
        finally:
            self._not_before = policy.now() + rest
        for jobid in [*starts, *annotator.with_estimates()]:
            job = policy.pending(jobid)
            if job is not None:
                self._show_projected(job, starts.get(jobid))
                yield None

    def _show_projected(self, job: PendingJob, when: float | None) -> None:
        """Tell the start of a job in a projection (seconds since the epoch); None: it has none."""
        decision = self._policy.decision
        promised = decision.promised_start(job)
        if promised is not None and (when is None or abs(when - promised) <= ESTIMATE_GRAIN_S):
            self.show_estimate(job, promised, "promised")
        else:
            kind = "planned" if decision.looks_past_heads else None
            self._annotator.estimate(job, when, kind)

    # -- what jobs wait for ------------------------------------------------------------------------

    def show_reason(self, job: PendingJob, reason: str | None) -> bool:
        """As `PolicyScheduler.show_reason`."""
        return self._annotator.reason(job, self.for_others(job, reason))

    def for_others(self, job: PendingJob, reason: str | None) -> str | None:
        """Return a reason as Flux may show it with a job: to all users, or in private mode to its
        owner."""
        if isinstance(reason, Reason) and is_private(self._config.get()):
            return reason.read_by(JobOwner(job.userid))
        return reason

    def reasons(self) -> Iterator[None]:
        """As `PolicyScheduler.reasons`."""
        policy, depth = self._policy, self._policy.reason_depth
        if not policy.planning.pool_can("explain") or not self._annotator.wants_reasons():
            return
        for job in heapq.nsmallest(depth, policy.admission.deferred()):
            cause = policy.admission.why(job)
            self.show_reason(job, None if cause is None else cause.reason)
            yield
        for job in policy.pending_jobs(deferred=False, most=depth):
            if not job.request.finalized and self._annotator.is_mature(job):
                explained = policy.facts.explained()
                if self.show_reason(job, policy.why(job)) or policy.facts.explained() != explained:
                    yield
