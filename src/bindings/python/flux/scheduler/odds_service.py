# SPDX-License-Identifier: LGPL-3.0-or-later
"""Likely starts of pending jobs: their calibration, kept over reloads, and their answers (`flux.scheduler.projection.odds`)."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from flux.scheduler.checkpoint import in_parts
from flux.scheduler.decision import PolicyView
from flux.scheduler.projection.fork import ProjectionFailed
from flux.scheduler.projection.odds import Calibration, JobOdds, Played
from flux.scheduler.projection.run_shares import RunShares

if TYPE_CHECKING:
    from flux.scheduler.checkpoint import Checkpoint
    from flux.scheduler.forecasts import Annotator
    from flux.scheduler.projection.fork import Projections
    from flux.scheduler.query.answering import Caller
    from flux.scheduler.requests import PendingJob, RunningJob

#: The key of the store, its version, and seconds between two writes.
KEY = "checkpoint.sched-odds"
VERSION = 1
SAVE_INTERVAL_S = 600.0

#: Users that are written as one part.
USERS_PER_PART = 64

#: Seconds for which a forecast of a job answers further questions.
FRESH_S = 60.0

#: Least number of seconds between two rounds of plays for annotations, and how many times as long as one took, so that they take a
#: tenth of a core.
ROUND_INTERVAL_S = 10.0
ROUND_REST = 9.0


class OddsPolicy(PolicyView, Protocol):
    """The interface of a policy for odds, a `PolicyScheduler`."""

    def is_mature(self, job: PendingJob) -> bool: ...


class OddsService:
    """Finds odds of pending jobs, and compares the first forecast of each with its start.

    Args:
        policy (PolicyScheduler): the scheduler
        projections (Projections): of it
        annotator (Annotator): tells users

    Attributes:
        depth (int): how many pending jobs are told; 0: nothing is learnt, and no question answered
        tells (bool): whether they are told without being asked
        checkpoint (Checkpoint): where it is kept; to be set before `load`
        shares (RunShares): of the jobs that have ended
        calibration (Calibration): of the jobs that have started
    """

    checkpoint: Checkpoint

    def __init__(self, policy: OddsPolicy, projections: Projections, annotator: Annotator) -> None:
        self.depth = 0
        self.tells = False
        self.shares = RunShares()
        self.calibration = Calibration()
        self._policy = policy
        self._projections = projections
        self._annotator = annotator
        self._found: dict[int, JobOdds] = {}  # by job id, the latest of pending jobs
        #: by id of a pending job with a forecast: its user, and the first forecast with its time
        self.first: dict[int, tuple[int | None, float, Played]] = {}
        self._not_before = 0.0

    @property
    def are_known(self) -> bool:
        """Whether questions are played with drawn run times: that is wanted, and jobs have ended that say how long others may run."""
        return self.depth > 0 and self.shares.are_enough

    # -- events ------------------------------------------------------------------------------------

    def load(self) -> None:
        """Read the checkpoint."""
        if self.depth:
            self.checkpoint.read(self._restore)

    def ended(self, job: RunningJob) -> None:
        """The resources of a job have come back, for which others wait.  O(1)."""
        if self.depth:
            self.shares.learn(job.userid, job.limit, self._policy.now() - job.start)
            self.checkpoint.changed()

    def left(self, jobid: int, started: bool) -> None:
        """A job of which something was found (`first`) is not pending any more.  O(1)."""
        self._found.pop(jobid, None)
        first = self.first.pop(jobid)
        if started:
            self.calibration.learn(*first, self._policy.now())
            self.checkpoint.changed()

    # -- questions ---------------------------------------------------------------------------------

    def known(self, jobid: int) -> dict[str, Any]:
        """The last forecast of a pending job.

        Returns:
            dict: ``t_likely`` and ``t_p90``, seconds since the epoch; None: not known
        """
        found = self._found.get(jobid)
        return _answer(found.told if found else None)

    def of_job(self, job: PendingJob, caller: Caller) -> Generator[float, None, dict[str, Any]]:
        """Find odds of a pending job that a caller asks about, unless that was done a moment ago.

        Yields:
            seconds after which to go on
        Returns:
            dict: as `known`; ``odds``, None or an object: the outcome of the plays before the correction, ``t_likely`` and ``t_p90``;
            ``t_limits``, its start if all jobs run to their limits, or None; ``misses``, how many there were to
            correct it by
        """
        now = self._policy.now()
        known = self._found.get(job.jobid)
        if self.are_known and (known is None or now - known.made > FRESH_S):
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
        return {**_answer(known.told if known else None), "odds": details}

    def of_newcomer(self, answer: dict[str, Any]) -> dict[str, Any]:
        """The outcome of plays for a newcomer, as `known`; `answer` is that of `Player.newcomer`."""
        if answer["settled"] and answer["start"] is not None:
            return _answer(Played(answer["start"], answer["start"]))
        found = next(iter(self._read(answer, answer["made"]).values()), None)
        if found is not None and "t_latest" in answer:
            found = found.by(answer["t_latest"])
        return _answer(found.told if found else None)

    def _read(self, answer: dict[str, Any], made: float) -> dict[int, JobOdds]:
        """The odds of the jobs that started often enough in plays that began at a time."""
        plays = [dict(starts) for starts in answer.get("plays", ())]
        limits = dict(answer["starts"])
        found = {}
        for jobid in dict.fromkeys(jobid for starts in plays for jobid in starts):
            played = Played.of([starts.get(jobid, math.inf) for starts in plays])
            if played is not None:
                told = self.calibration.corrected(played, limits.get(jobid))
                told = Played(max(made, told.likely), max(made, told.safe))
                found[jobid] = JobOdds(made, played, told, limits.get(jobid))
        return found

    def _note(self, job: PendingJob, odds: JobOdds) -> JobOdds:
        """Keep the forecast of a pending job, which starts by its promised time."""
        when, kind = self._annotator.estimate_of(job)
        if when is not None and kind == "promised" and self._policy.decision.keeps_times:
            odds = odds.by(when)
        if not job.request.finalized:
            self._found[job.jobid] = odds
            self.first.setdefault(job.jobid, (job.userid, odds.made, odds.played))
        return odds

    # -- telling -----------------------------------------------------------------------------------

    def tell(self) -> Iterator[float | None]:
        """For a forecast: annotate the first pending jobs. A generator that yields after each job, and seconds where it has to
        wait."""
        if not (self.tells and self.are_known and self._annotator.is_wanted):
            return
        policy = self._policy
        wait = self._not_before - policy.now()
        if wait > 0:
            self._annotator.ask_for_forecast(wait)
        elif any(policy.is_mature(job) for job in policy.pending_jobs()):
            yield from self._find()
        # Forecasts that were put off are told now.
        for jobid in self._annotator.with_odds() | self._found.keys():
            job = policy.pending(jobid)
            if job is not None:
                found = self._found.get(jobid)
                self._annotator.odds(job, found and (found.told.likely, found.told.safe))
                yield None

    def _find(self) -> Iterator[float | None]:
        policy = self._policy
        made, rest = policy.now(), ROUND_INTERVAL_S
        try:
            answer = yield from self._projections.ask("estimates", odds=True, most=self.depth)
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
        """The calibration, as JSON, in parts: half a megabyte at most."""
        head = {"version": VERSION, "misses": self.calibration.stored()}
        shares = self.shares.stored()
        parts = (shares[at : at + USERS_PER_PART] for at in range(0, len(shares), USERS_PER_PART))
        return in_parts(head, "shares", parts)

    def _restore(self, stored: Any) -> None:
        if stored["version"] == VERSION:
            self.shares.restore(stored["shares"])
            self.calibration.restore(stored["misses"])


def _answer(times: Played | None) -> dict[str, Any]:
    likely, safe = (None, None) if times is None else times
    return {"t_likely": likely, "t_p90": safe}
