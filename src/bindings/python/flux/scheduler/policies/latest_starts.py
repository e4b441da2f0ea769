# SPDX-License-Identifier: LGPL-3.0-or-later
"""The latest starts promised by sched-backfill with ``promise=all``, the outcomes of these
promises, and those kept over a reload."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterator
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from flux.scheduler.checkpoint import in_parts

if TYPE_CHECKING:
    from flux.scheduler.checkpoint import Checkpoints
    from flux.scheduler.policies.ranks import BackfillPolicy
    from flux.scheduler.requests import PendingJob

#: KVS key of the stored latest starts, and minimum seconds between writes:
#: promises of the last minute before a crash are lost.
KEY = "checkpoint.sched-promises"
SAVE_INTERVAL_S = 60.0

#: Seconds after the start to wait for jobs with a latest start, before other jobs may start in
#: their place.
WAIT_FOR_KNOWN_S = 5.0

#: Number of latest starts kept for jobs whose requests were withdrawn: those of a stopped queue
#: return, canceled ones do not.
WITHDRAWN_MAX = 16384

#: Reason why a promise cannot be kept -> text. The job gets another promise, and its user is told.
VOID_CAUSES = {
    "resources": "nodes went down, were drained or left, or a reservation or preemption took them",
    "extended": "a running job was given more time",
    "late": "a running job has outlived its limit",
    "priority": "a job of higher priority went before",
    "deferred": "the job itself is deferred: by an admission rule, or until jobs are ended for it",
    "unloaded": "it could not be kept over a time without a scheduler or in a stopped queue, or with a new time limit",
}


class LatestStarts:
    """The latest starts promised to pending jobs, and statistics of all promises.

    Their resources are in the plan, under the job ids.
    """

    def __init__(self) -> None:
        self._times: dict[int, tuple[float, PendingJob]] = {}
        self._order: list[tuple[float, int]] = []  # (latest start, job id), ascending
        #: id of a job whose latest start has passed, and which any pass may start -> whether its
        #: promise is void
        self.overdue: dict[int, bool] = {}
        self.changes = 0  # grows with each promise made or removed
        #: numbers of promises: made; restored to jobs that have returned; kept; and violated, broken
        #: without a cause, which is a bug
        self.counts = dict.fromkeys(("made", "restored", "kept", "violated"), 0)
        self.void: dict[str, int] = Counter()  # cause -> number of void ones; see `VOID_CAUSES`
        self.spare = 0.0  # total seconds by which jobs started before their latest starts

    def __len__(self) -> int:
        return len(self._times)

    def __iter__(self) -> Iterator[PendingJob]:
        """Return the jobs, in any order."""
        return iter([job for _, job in self._times.values()])

    def __contains__(self, job: object) -> bool:
        """Whether a job (or job id) has a latest start."""
        return getattr(job, "jobid", job) in self._times

    def when(self, job: PendingJob) -> float:
        """Return the latest start of a job, seconds since the epoch. Raises KeyError if the job has
        none."""
        return self._times[job.jobid][0]

    def make(self, job: PendingJob, when: float, how: str = "made") -> None:
        """Promise a job to start by `when`, seconds since the epoch, or ("restored") promise it
        again to a job that has returned. Replaces a previous promise."""
        self.counts[how] += 1
        self._enter(job, when)

    def _enter(self, job: PendingJob, when: float) -> None:
        self.drop(job)
        self._times[job.jobid] = (when, job)
        insort(self._order, (when, job.jobid))

    def put_off(self, job: PendingJob, now: float) -> float:
        """Move a latest start that has passed to `now`, whether void or not yet. Return the latest
        start."""
        when, overdue = self.when(job), self.overdue.get(job.jobid)
        if when >= now:
            return when
        self._enter(job, now)
        if overdue is not None:
            self.overdue[job.jobid] = overdue
        return now

    def drop(self, job: PendingJob) -> float | None:
        """Remove a job's promise. Return its latest start, or None if it had none."""
        self.changes += 1
        self.overdue.pop(job.jobid, None)
        found = self._times.pop(job.jobid, None)
        if found is None:
            return None
        del self._order[bisect_left(self._order, (found[0], job.jobid))]
        return found[0]

    def before(self, time: float) -> list[PendingJob]:
        """Return the jobs whose latest start is before a time (seconds since the epoch)."""
        found = self._order[: bisect_left(self._order, (time, -1))]
        return [self._times[jobid][1] for _, jobid in found]

    def started(self, job: PendingJob, now: float, grace: float) -> None:
        """Note that a job has started. Its promise was kept if it is not void and the start is at
        most `grace` seconds late."""
        void = self.overdue.get(job.jobid, False)
        when = self.drop(job)
        if when is not None and not void and now <= when + grace:
            self.counts["kept"] += 1
            self.spare += max(0.0, when - now)

    def next_due(self) -> float | None:
        """Return the first latest start in the future, or None."""
        for when, jobid in self._order:
            if jobid not in self.overdue:
                return when
        return None

    def due(self, now: float) -> list[PendingJob]:
        """Return the jobs whose latest start has come, in queue order."""
        if not self._order or self._order[0][0] > now:
            return []
        found = self._order[: bisect_right(self._order, (now, inf))]
        return sorted(self._times[jobid][1] for _, jobid in found)

    def stats(self) -> dict[str, Any]:
        """Return counts for ``stats``: made, kept, void by cause, violated, and the mean time to
        spare in seconds."""
        spare = self.spare / max(1, self.counts["kept"])
        return {**self.counts, "void": dict(self.void), "mean_spare": spare}


class StoredLatestStarts:
    """Latest starts of jobs whose requests are expected again: after a reload, or in a stopped
    queue."""

    def __init__(self, latest: LatestStarts, checkpoints: Checkpoints) -> None:
        self._latest = latest
        self._store = checkpoints.make(KEY, self.text, interval=SAVE_INTERVAL_S)
        self._saved = 0  # `LatestStarts.changes` when last stored
        #: job id -> latest start before the scheduler was loaded or the request was withdrawn, until
        #: the job arrives
        self._times: dict[int, float] = {}
        self._came: dict[int, PendingJob] = {}  # jobs of `_times` that have arrived
        #: time until which a newly loaded scheduler waits; None: not known yet
        self._wait_until: float | None = None

    def text(self) -> Iterator[str]:
        """Return all latest starts as JSON, in parts."""
        times = [(job.jobid, self._latest.when(job)) for job in self._latest]
        return in_parts({}, "latest", [*times, *self._times.items()])

    def save(self) -> None:
        """Store the latest starts if they have changed."""
        if self._latest.changes != self._saved:
            self._saved = self._latest.changes
            self._store.changed()

    def read(self) -> None:
        """Read the stored latest starts."""

        def parse(stored: Any) -> dict[int, float]:
            latest = {int(jobid): float(when) for jobid, when in stored["latest"]}
            if not all(isfinite(when) for when in latest.values()):
                raise ValueError("a latest start is not a time")
            return latest

        self._times = self._store.read(parse) or {}

    def awaits_jobs(self, policy: BackfillPolicy, pending: int) -> bool:
        """Return whether to wait for jobs with a stored latest start, in whose place another job
        could start. Those canceled meanwhile never arrive.

        Args:
            pending (int): number of jobs that have arrived
        """
        now = policy.now()
        if self._wait_until is None and self._times:
            self._wait_until = now + WAIT_FOR_KNOWN_S
            policy.call_at(self._wait_until, policy.look_again)
        if (
            self._wait_until is not None
            and now < self._wait_until
            and len(self._came) < len(self._times)
            and pending < policy.waiting_at_start
        ):
            return True
        self._wait_until = 0.0
        return False

    def arrives(self, job: PendingJob) -> None:
        """Note a job's request."""
        if job.jobid in self._times:
            self._came[job.jobid] = job

    def take_returned(self) -> dict[PendingJob, float]:
        """Return the jobs that have arrived since the last call, with their latest starts, and
        forget them."""
        came, self._came = self._came, {}
        return {job: self._times.pop(jobid) for jobid, job in came.items()}

    def when(self, job: PendingJob) -> float | None:
        """Return the latest start of a job that has not been taken; None if it has none."""
        return self._times.get(job.jobid)

    def withdrawn(self, job: PendingJob, when: float) -> None:
        """Keep the latest start of a job whose request was withdrawn."""
        self._times[job.jobid] = when
        if len(self._times) > WITHDRAWN_MAX:
            del self._times[next(iter(self._times))]

    def forget(self, job: PendingJob) -> None:
        """Forget a job."""
        self._times.pop(job.jobid, None)
        self._came.pop(job.jobid, None)
