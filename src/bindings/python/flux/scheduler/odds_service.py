# SPDX-License-Identifier: LGPL-3.0-or-later
"""Likely starts of pending jobs: calibration, kept across reloads, and answers
(`flux.scheduler.projection.odds`)."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from typing import Any

from flux.scheduler.checkpoint import Checkpoints, in_parts
from flux.scheduler.decision import PolicyView
from flux.scheduler.forecasts import Forecasts
from flux.scheduler.projection.fork import ProjectionFailed, Projections
from flux.scheduler.projection.odds import Calibration, JobOdds, Played, RunShares
from flux.scheduler.query.answering import Caller
from flux.scheduler.requests import PendingJob, RunningJob

#: KVS key of the checkpoint.
KEY = "checkpoint.sched-odds"

#: Seconds for which a forecast of a job answers further queries, unless ranks change.
FRESH_S = 60.0

#: Minimum number of seconds between rounds of plays for annotations, and ratio of that time to the
#: time of a round: at most a tenth of a core.
ROUND_INTERVAL_S = 10.0
ROUND_REST = 9.0


class OddsService:
    """Computes odds of pending jobs, and compares each job's first forecast with its start."""

    def __init__(
        self,
        policy: PolicyView,
        projections: Projections,
        checkpoints: Checkpoints,
    ) -> None:
        self.tells = False  # whether jobs are annotated with odds
        self.shares = RunShares()  # statistics of ended jobs
        self.calibration = Calibration()  # statistics of started jobs
        self._checkpoint = checkpoints.make(KEY, self.text)
        self._policy = policy
        self._projections = projections
        self._forecasts: Forecasts = policy.forecasts
        self._found: dict[int, JobOdds] = {}  # job id -> latest forecast, of pending jobs
        #: id of a pending job with a forecast -> its user, time of the first forecast, and that
        #: forecast
        self.first: dict[int, tuple[int | None, float, Played]] = {}
        self._not_before = 0.0
        self._outdated_at = -math.inf

    @property
    def are_known(self) -> bool:
        """Whether queries are played with drawn run times: that is enabled, and enough jobs have
        ended to draw from."""
        return self._policy.odds_depth > 0 and self.shares.are_enough

    # -- events ------------------------------------------------------------------------------------

    def load(self) -> None:
        if self._policy.odds_depth:
            self._checkpoint.read(self._restore)

    def ended(self, job: RunningJob) -> None:
        """Learn from a job that freed its resources.  O(1)."""
        self.shares.learn(job.userid, job.limit, self._policy.now() - job.start)
        self._checkpoint.changed()

    def left(self, jobid: int, started: bool) -> None:
        """Learn from a job with a forecast (`first`) that is no longer pending.  O(1)."""
        self._found.pop(jobid, None)
        first = self.first.pop(jobid)
        if started:
            self.calibration.learn(*first, self._policy.now())
            self._checkpoint.changed()

    def outdated(self) -> None:
        """Called when ranks or tables have changed."""
        self._outdated_at = self._policy.now()

    # -- questions ---------------------------------------------------------------------------------

    def known(self, jobid: int) -> dict[str, Any]:
        """Return the last forecast of a pending job: ``t_likely`` and ``t_p90``, seconds since the
        epoch, or None."""
        return self._told(self._found.get(jobid))

    def _told(self, odds: JobOdds | None) -> dict[str, Any]:
        """Return the odds of a pending job to tell, from a forecast that may be older than its times."""
        now = self._policy.now()
        return _answer(odds and Played(*(max(now, time) for time in odds.corrected)))

    def of_job(self, job: PendingJob, caller: Caller) -> Generator[float, None, dict[str, Any]]:
        """Compute the odds of a pending job for a caller, unless they are recent. Yields the
        seconds after which to continue.

        Returns as `known`, and ``odds``, None or an object: ``t_likely`` and ``t_p90`` from the
        plays before correction, ``t_limits``, the start if all jobs run to their limits, or None,
        and ``misses``, the number of samples that correct it.
        """
        now = self._policy.now()
        known = self._found.get(job.jobid)
        is_fresh = (
            known is not None and known.made > self._outdated_at and now - known.made <= FRESH_S
        )
        if self.are_known and not is_fresh:
            try:
                answer = yield from self._projections.ask(
                    "estimates", odds=True, asked_by=caller, jobid=job.jobid
                )
                known = self._read(answer, now).get(job.jobid)
            except ProjectionFailed:
                known = None
            if known is not None:
                known = self._note(job, known)
        details = None
        if known is not None:
            details = {**_answer(known.played), "t_limits": known.limits}
            details["misses"] = len(self.calibration)
        return {**self._told(known), "odds": details}

    def of_newcomer(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return the odds of a newcomer, as `known`; `answer` is that of `Player.newcomer`."""
        if answer["settled"] and answer["start"] is not None:
            return _answer(Played(answer["start"], answer["start"]))
        found = next(iter(self._read(answer, answer["made"]).values()), None)
        if found is not None and "t_latest" in answer:
            found = found.by(answer["t_latest"])
        return _answer(found.corrected if found else None)

    def _read(self, answer: dict[str, Any], made: float) -> dict[int, JobOdds]:
        """Return the odds of the jobs that started in enough of the plays; `made` is the time at
        which the plays began."""
        end = self._policy.resources.expiration or math.inf  # nothing starts after the instance
        plays = [
            {jobid: start for jobid, start in starts if start < end}
            for starts in answer.get("plays", ())
        ]
        limits = dict(answer["starts"])
        found = {}
        for jobid in dict.fromkeys(jobid for starts in plays for jobid in starts):
            played = Played.from_starts([starts.get(jobid, math.inf) for starts in plays])
            if played is not None:
                corrected = self.calibration.corrected(played, limits.get(jobid))
                corrected = Played(max(made, corrected.likely), max(made, corrected.safe))
                if corrected.safe < end:
                    found[jobid] = JobOdds(made, played, corrected, limits.get(jobid))
        return found

    def _note(self, job: PendingJob, odds: JobOdds) -> JobOdds:
        """Store the forecast of a pending job, bounded by its promised time."""
        when, kind = self._forecasts.estimate_of(job)
        if when is not None and kind == "promised" and self._policy.decision.keeps_times:
            odds = odds.by(when)
        if not job.request.finalized:
            self._found[job.jobid] = odds
            self.first.setdefault(job.jobid, (job.userid, odds.made, odds.played))
        return odds

    # -- telling -----------------------------------------------------------------------------------

    def tell(self) -> Iterator[float | None]:
        """Annotate the first pending jobs, if it `tells`; for `forecast`. A generator that yields
        after each job, and yields seconds when it has to wait."""
        if not (self.are_known and self._forecasts.are_read):
            return
        policy = self._policy
        wait = self._not_before - policy.now()
        if wait > 0:
            self._forecasts.ask_for_forecast(wait)
        elif any(self._forecasts.is_mature(job) for job in policy.pending_jobs()):
            yield from self._find()
        # postponed forecasts are sent now
        sent = self._forecasts.sent.items()
        for jobid in {jobid for jobid, one in sent if one.odds is not None} | self._found.keys():
            job = policy.pending(jobid)
            if job is not None:
                found = self._found.get(jobid)
                self._forecasts.show_odds(
                    job, found and (found.corrected.likely, found.corrected.safe)
                )
                yield None

    def _find(self) -> Iterator[float | None]:
        policy = self._policy
        made, rest = policy.now(), ROUND_INTERVAL_S
        try:
            answer = yield from self._projections.ask(
                "estimates", odds=True, most=self._policy.odds_depth
            )
            rest = max(rest, ROUND_REST * answer["took"])
        except ProjectionFailed as exc:
            policy.log.debug(f"odds: {exc}")
            return
        finally:
            self._not_before = policy.now() + rest
        self._found.clear()
        for jobid, odds in self._read(answer, made).items():
            job = policy.pending(jobid)
            if job is not None:
                self._note(job, odds)
                yield None

    # -- over a restart ----------------------------------------------------------------------------

    def text(self) -> Iterator[str]:
        """Yield the calibration as JSON text, in parts: half a megabyte at most."""
        return in_parts({"misses": self.calibration.stored()}, "shares", self.shares.stored())

    def _restore(self, stored: Any) -> None:
        self.shares.restore(stored["shares"])
        self.calibration.restore(stored["misses"])


def _answer(times: Played | None) -> dict[str, Any]:
    likely, safe = (None, None) if times is None else times
    return {"t_likely": likely, "t_p90": safe}
