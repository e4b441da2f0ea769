# SPDX-License-Identifier: LGPL-3.0-or-later
"""Storage of the past use of resources by jobs, across reloads of the scheduler and restarts of the
instance. It is kept in the KVS, and completed from ``job-list`` with jobs that ended while no
scheduler was loaded."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, isfinite
from typing import Any, Callable, Tuple

from flux.scheduler.attributes import SystemAttributes
from flux.scheduler.checkpoint import Checkpoint, in_parts
from flux.scheduler.history import ask_for_ended_jobs
from flux.scheduler.requests import RunningJob

#: Attributes to query of jobs that ended while no scheduler was loaded.
ATTRIBUTES = ["userid", "bank", "queue", "ncores", "nnodes", "t_run", "t_inactive"]

#: Key of an amount: str, int or None, so that it can be stored.
Key = Tuple[Any, ...]


class UsageStore:
    """Stores the past use counted by a rule.

    Args:
        rule (CountingRule): the rule. ``amounts(time)`` returns its keys, each with its amount at a
            time, in units times seconds; ``load(key, amount, through)`` is called for each stored
            amount and its time. ``add_past(rates, since, until)`` of its uses counts what a
            job with these numbers of nodes, cores and GPUs has used in a span of time
        key (str): its KVS key
        is_key: whether a tuple is a valid key

    Attributes:
        through (float): time up to which the use of running jobs was counted when the amounts were
            stored or counting stopped, seconds since the epoch; 0: never
        has_changed (bool): whether amounts have changed since they were stored
    """

    def __init__(self, rule: Any, key: str, is_key: Callable[[Key], bool]) -> None:
        self._rule, self._host, self._key, self._is_key = rule, rule.host, key, is_key
        self.through, self.has_changed = 0.0, False
        #: None: jobs are not counted yet, or only for a query
        self._checkpoint: Checkpoint | None = None
        #: time at which ``job-list`` was queried, and the jobs running then
        self._asked_at = inf
        self._found: set[int] = set()

    def touch(self) -> None:
        """Note that amounts have changed since they were stored."""
        self.has_changed = True
        if self._checkpoint is not None:
            self._checkpoint.changed()

    def text(self) -> Iterator[str]:
        """Return the amounts as JSON text, in parts."""
        self.has_changed = False
        now = self._host.now()
        return in_parts({"through": now}, "used", map(list, self._rule.amounts(now)))

    def restore(self, stored: Any) -> None:
        """Load the parsed output of `text`. Raises ValueError if it has another form; other
        exceptions in `flux.scheduler.checkpoint.DAMAGES` mean the same."""
        through = float(stored["through"])
        used = {tuple(key): float(amount) for key, amount in stored["used"]}
        if not all(map(isfinite, (through, *used.values()))):
            raise ValueError("expected finite numbers")
        if not all(map(self._is_key, used)):
            raise ValueError("expected other keys")
        self.through = through
        for key, amount in used.items():
            self._rule.load(key, amount, through)

    def begin(self) -> None:
        """Start counting jobs: load the amounts stored by an earlier scheduler."""
        if self._checkpoint is not None:
            return
        self._checkpoint = self._host.checkpoint(self._key, self.text)
        self.has_changed = False
        self._checkpoint.read(self.restore)
        if self.through and self._host.reads_files:
            self._asked_at = self._host.now()
            ask_for_ended_jobs(self._host, self.through, ATTRIBUTES, self._learn)

    def hello(self, job: RunningJob) -> None:
        """Count the use by a job found running that no scheduler has counted yet."""
        self._found.add(job.jobid)
        since, now = max(self._host.running[job.jobid].start, self.through), self._host.now()
        held = self._host.admission.held_by(job.jobid)
        for use in self._rule.uses_by_id(job.jobid):
            use.add_past(held[1:], since, now)

    def _learn(self, jobs: list[dict[str, Any]]) -> None:
        for job in jobs:
            begin, end = job.get("t_run"), job.get("t_inactive")
            if not begin or not end or begin > self._asked_at or job["id"] in self._found:
                continue  # it did not run, or is already counted
            since = max(begin, self.through)
            if end > since:
                attributes = SystemAttributes({name: job.get(name) for name in ("queue", "bank")})
                for use in self._rule.uses_of(job["userid"], attributes):
                    use.add_past((job.get("nnodes", 0), job.get("ncores", 0), 0), since, end)
        self._found.clear()
        self.touch()
