# SPDX-License-Identifier: LGPL-3.0-or-later
"""The pending jobs that admission rules keep from starting, apart from the queue."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any, Callable

from flux.scheduler.admission import Cause
from flux.scheduler.walk import JobGroup, entry_of

if TYPE_CHECKING:
    from flux.scheduler.admission import AdmissionRule, Deferral, JobDeferred
    from flux.scheduler.requests import PendingJob, Requests


class DeferredJobs:
    """Has the deferred jobs, by what they wait for and what they ask for.

    Args:
        requests (Requests): where the states of jobs are kept
        family_of: gives the part of a signature that says who is refused together on a full machine

    Attributes:
        by_id (dict): by job id, the deferred jobs, each with its rule, its deferral and its group
    """

    def __init__(self, requests: Requests, family_of: Callable[[Any], Hashable]) -> None:
        self._requests = requests
        self._family_of = family_of
        self.by_id: dict[int, tuple[PendingJob, AdmissionRule, Deferral, JobGroup]] = {}
        #: by rule and key, the jobs that wait for that, by their signatures
        self._waiting: dict[tuple[AdmissionRule, Hashable], dict[Any, JobGroup]] = {}

    def __len__(self) -> int:
        """How many jobs are deferred."""
        return len(self.by_id)

    def __contains__(self, jobid: int) -> bool:
        """Whether a rule keeps this pending job from starting."""
        return jobid in self.by_id

    def in_order(self) -> list[PendingJob]:
        """The deferred jobs, in the order of the queue.  Costs a sort of them."""
        return sorted(found[0] for found in self.by_id.values())

    def cause_of(self, job: PendingJob) -> Cause | None:
        """What a deferred job waits for; None: it is not deferred."""
        found = self.by_id.get(job.jobid)
        if found is None:
            return None
        # Numbers in the reason change while the job waits, so the rule is asked again.
        _, rule, deferral, _ = found
        return Cause(rule.name, rule.why(job) or deferral.reason)

    def defer(self, job: PendingJob, why: JobDeferred) -> None:
        """Keep a job apart from the queue until its rule readmits it."""
        self._requests.defer(job.jobid)
        job.was_deferred = True
        self._enter(job, why.rule, why.deferral).is_shut = True

    def regroup(self, job: PendingJob) -> None:
        """A deferred job has another signature."""
        _, rule, deferral, group = self.by_id[job.jobid]
        self.discard(job.jobid)
        self._enter(job, rule, deferral).is_shut = group.is_shut

    def _enter(self, job: PendingJob, rule: AdmissionRule, deferral: Deferral) -> JobGroup:
        """Have a job wait, among those that ask for the same, and return these."""
        groups = self._waiting.setdefault((rule, deferral.key), {})
        group = groups.get(job.signature)
        if group is None:
            group = JobGroup(job.signature, self._family_of(job.signature))
            groups[job.signature] = group
        group.add(entry_of(job))
        self.by_id[job.jobid] = (job, rule, deferral, group)
        return group

    def groups(self, rule: AdmissionRule, key: Hashable) -> Iterable[JobGroup]:
        """The jobs that wait for something of a rule's, by what they ask for."""
        return self._waiting.get((rule, key), {}).values()

    def move(self, moves: dict[int, int]) -> None:
        """Give deferred jobs their priorities, by job id: they ask for their orders again."""
        found = [self.by_id[jobid] for jobid in moves]
        for job, _, _, group in found:
            group.remove(job)
        for job, _, _, group in found:
            job.priority = moves[job.jobid]
            group.add(entry_of(job))

    def readmit(
        self, rule: AdmissionRule, key: Hashable = None, most: int | None = None
    ) -> list[PendingJob]:
        """Take jobs that a rule has deferred, to be put into the queue again.

        Args:
            rule: which rule
            key: only jobs that wait for this; None: all of the rule
            most: the first so many in the order of the queue; None: all

        Returns:
            the jobs, in the order of the queue.  O(jobs that wait for `key`); with `most` O(`most`) for
            each kind of request
        """
        keys = (
            [(rule, key)] if key is not None else [one for one in self._waiting if one[0] is rule]
        )
        groups = [group for one in keys for group in self.groups(*one)]
        jobs = sorted([job for one in groups for job in one.head(most)])[:most]
        for job in jobs:
            self.take(job)
        return jobs

    def take(self, job: PendingJob) -> None:
        """Take a deferred job, to be put into the queue again."""
        self.discard(job.jobid)
        self._requests.readmit(job.jobid)

    def come_back(self, job: PendingJob) -> None:
        """Put a deferred job into the queue again."""
        self.take(job)
        self._requests.queue.push(job)

    def discard(self, jobid: int) -> None:
        """A job is not deferred any more, if it was."""
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
        """Compare the deferred jobs with their states; AssertionError with what is wrong."""
        groups = [group for found in self._waiting.values() for group in found.values()]
        waiting = {job.jobid for group in groups for job in group}
        assert waiting == set(self.by_id), f"{waiting} wait, {set(self.by_id)} are deferred"
        for jobid in self.by_id:
            state = self._requests.state_of(jobid)
            assert state == "deferred", f"{jobid}: deferred, and {state}"
