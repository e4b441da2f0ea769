# SPDX-License-Identifier: LGPL-3.0-or-later
"""Pending jobs deferred by admission rules, kept outside the queue."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

from flux.scheduler.admission import Cause
from flux.scheduler.walk import JobGroup, entry_of

if TYPE_CHECKING:
    from flux.scheduler.admission import AdmissionRule, Deferral, JobDeferred
    from flux.scheduler.requests import PendingJob, Requests


class DeferredJobs:
    """The deferred jobs, grouped by rule, key and signature."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        #: job id -> deferred job, with its rule, deferral and group
        self.by_id: dict[int, tuple[PendingJob, AdmissionRule, Deferral, JobGroup]] = {}
        #: (rule, key) -> {signature: jobs deferred with these}
        self._waiting: dict[tuple[AdmissionRule, Hashable], dict[Any, JobGroup]] = {}
        #: (rule, key, time) of each timer for `Deferral.until`
        self.due: set[tuple[AdmissionRule, Hashable, float]] = set()

    def __len__(self) -> int:
        return len(self.by_id)

    def __contains__(self, jobid: int) -> bool:
        """Whether a rule keeps this pending job from starting."""
        return jobid in self.by_id

    def in_order(self) -> list[PendingJob]:
        """Return the deferred jobs in queue order.  Costs a sort of them."""
        return sorted(found[0] for found in self.by_id.values())

    def cause_of(self, job: PendingJob) -> Cause | None:
        """Return why a deferred job waits; None if it is not deferred."""
        found = self.by_id.get(job.jobid)
        if found is None:
            return None
        # Numbers in the reason change while the job waits, so ask the rule again.
        _, rule, deferral, _ = found
        return Cause(rule.name, rule.why(job) or deferral.reason)

    def defer(self, job: PendingJob, why: JobDeferred) -> None:
        """Keep a job outside the queue until its rule readmits it."""
        self._requests.defer(job.jobid)
        job.was_deferred = True
        self._enter(job, why.rule, why.deferral).is_shut = True

    def regroup(self, job: PendingJob) -> None:
        """Move a deferred job whose signature changed to its new group."""
        _, rule, deferral, group = self.by_id[job.jobid]
        self.discard(job.jobid)
        self._enter(job, rule, deferral).is_shut = group.is_shut

    def _enter(self, job: PendingJob, rule: AdmissionRule, deferral: Deferral) -> JobGroup:
        """Add a job to the group of its rule, key and signature, and return the group."""
        groups = self._waiting.setdefault((rule, deferral.key), {})
        group = groups.get(job.signature)
        if group is None:
            group = JobGroup(job.signature)
            groups[job.signature] = group
        group.add(entry_of(job))
        self.by_id[job.jobid] = (job, rule, deferral, group)
        return group

    def groups(self, rule: AdmissionRule, key: Hashable) -> Iterable[JobGroup]:
        """Return the groups of jobs that a rule deferred with a key, one per signature."""
        return self._waiting.get((rule, key), {}).values()

    def move(self, moves: dict[int, int]) -> None:
        """Set the priorities of deferred jobs ({job id: priority}), and compute their sort keys
        again."""
        found = [self.by_id[jobid] for jobid in moves]
        for job, _, _, group in found:
            group.remove(job)
        for job, _, _, group in found:
            job.priority = moves[job.jobid]
            group.add(entry_of(job))

    def readmit(
        self, rule: AdmissionRule, key: Hashable = None, most: int | None = None
    ) -> list[PendingJob]:
        """Take the first `most` jobs (None: all) that a rule deferred with a key (None: any), to be
        queued again. Return them in queue order.  O(jobs deferred with `key`); with `most`,
        O(`most`) per signature."""
        keys = (
            [(rule, key)] if key is not None else [one for one in self._waiting if one[0] is rule]
        )
        groups = [group for one in keys for group in self.groups(*one)]
        jobs = sorted([job for one in groups for job in one.head(most)])[:most]
        for job in jobs:
            self.take(job)
        return jobs

    def take(self, job: PendingJob) -> None:
        """Take a deferred job, to be queued again."""
        self.discard(job.jobid)
        self._requests.readmit(job.jobid)

    def come_back(self, job: PendingJob) -> None:
        self.take(job)
        self._requests.queue.push(job)

    def discard(self, jobid: int) -> None:
        """Remove a job, if it is deferred."""
        found = self.by_id.pop(jobid, None)
        if found is not None:
            job, rule, deferral, group = found
            group.remove(job)
            if not group.count:
                groups = self._waiting[rule, deferral.key]
                del groups[group.signature]
                if not groups:
                    del self._waiting[rule, deferral.key]

    def _check(self) -> None:
        """Compare the deferred jobs with their states. Raises AssertionError if they differ."""
        groups = [group for found in self._waiting.values() for group in found.values()]
        waiting = {job.jobid for group in groups for job in group}
        assert waiting == set(self.by_id), f"{waiting} wait, {set(self.by_id)} are deferred"
        for jobid in self.by_id:
            state = self._requests.state_of(jobid)
            assert state == "deferred", f"{jobid}: deferred, and {state}"
