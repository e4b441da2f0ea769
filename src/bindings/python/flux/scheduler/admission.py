# SPDX-License-Identifier: LGPL-3.0-or-later
"""Admission rules: checks that may keep a fitting job from starting.

The pool decides whether there are resources for a job. A site has other reasons why a job may not
start now: its licences are in use, its user is over a limit, the window of its reservation has not
begun. Each of these is an `AdmissionRule`. A scheduler has a list of rules
(`PolicyScheduler.add_rule`) and asks each; it has no code for any one of them. A rule is called
when:

- a request comes (`~AdmissionRule.alloc`), or is denied or withdrawn (`~AdmissionRule.cancel`);
- a job is examined: may it start now, and if not, why and until when (`~AdmissionRule.check`)?
- a job starts (`~AdmissionRule.start`), frees resources (`~AdmissionRule.free`), gets another end
  (`~AdmissionRule.extended`), or was already running when the scheduler was loaded
  (`~AdmissionRule.hello`);
- a plan is made, into which the rule enters resources that it keeps (`~AdmissionRule.enter_plan`).

A job that a rule keeps from starting is *deferred*: it leaves the queue, it has no promise, and no
job waits behind it. It comes back when the rule readmits it (`AdmissionHost.readmit`).

Jobs with equal resource requests are refused together: when one does not fit, the others are not
examined. A rule that distinguishes between such jobs overrides `~AdmissionRule.signature`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Protocol

from flux.resource.errors import InsufficientResources

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.attributes import SystemAttributes
    from flux.scheduler.decision import Planning
    from flux.scheduler.host import Timer
    from flux.scheduler.requests import PendingJob, RunningJob


class Deferral(NamedTuple):
    """Why a rule keeps a job from starting now.

    Attributes:
        reason: for the job's user, in a sentence
        until: when the rule expects to let it start, seconds since the epoch; None: unknown
        key: identifies the cause, so that `AdmissionHost.readmit` can select the jobs that wait for
            one cause
        instead: from `AdmissionRule.second_look`: requests, for less or for other ranks, to try
            instead of the job's own
    """

    reason: str
    until: float | None = None
    key: Hashable = None
    instead: Iterable[Any] = ()


class JobDeferred(InsufficientResources):
    """An admission rule keeps a job from starting now.

    Attributes:
        rule (AdmissionRule): the rule
        deferral (Deferral): why, and until when
    """

    def __init__(self, rule: AdmissionRule, deferral: Deferral) -> None:
        super().__init__(deferral.reason)
        self.rule = rule
        self.deferral = deferral


class Cause(NamedTuple):
    """Why a rule keeps a job waiting.

    Attributes:
        rule: name of the rule
        reason: for the job's user, in a sentence
    """

    rule: str
    reason: str


class Admission(Protocol):
    """The interface of `flux.scheduler.admission_control.AdmissionControl` to rules."""

    def update(self) -> None:
        """`AdmissionRule.engaged` or `AdmissionRule.attributes` of a rule has changed."""

    def engage(self, rule: AdmissionRule, engaged: bool) -> bool:
        """Set `AdmissionRule.engaged` of a rule; returns whether it has changed."""

    def waiting(self, rule: AdmissionRule, key: Hashable) -> int:
        """The number of jobs that a rule has deferred with a key (`Deferral.key`)."""


class AdmissionHost(Protocol):
    """The interface of a scheduler to its rules."""

    planning: Planning

    @property
    def admission(self) -> Admission: ...

    @property
    def resources(self) -> ResourcePool: ...

    @property
    def log(self) -> Any: ...

    def now(self) -> float: ...

    def call_at(self, when: float, function: Callable[[], Any]) -> Timer: ...

    def readmit(
        self, rule: AdmissionRule, key: Hashable = None, most: int | None = None
    ) -> None: ...

    def prioritize(self, jobs: list[Any]) -> None: ...

    def pending(self, jobid: int) -> PendingJob | None: ...


class AdmissionRule:
    """Base of admission rules. The methods do nothing unless overridden.

    If a method that decides about a job's start raises an unexpected exception, the job is denied;
    exceptions of others are logged. The answers of a site's rules are checked
    (`flux.scheduler.rule_answers`).

    Args:
        host (AdmissionHost): the scheduler
    """

    #: The rule's name in statistics and answers.
    name = "rule"

    #: ``FILE:CLASS`` of a site's rule from the configuration or an argument, None of other rules.
    source: str | None = None

    #: Whether this rule has something to decide at present. While it is false, `check`, `allocate`,
    #: `second_look`, `end_of`, `why`, `start` and `free` are not called; and while no rule is
    #: engaged, no rule's `extended` is called. So an unused rule costs nothing; a rule that counts
    #: jobs is engaged while there is one. A rule that changes it calls ``host.admission.update()``,
    #: or ``engage()``.
    engaged = True

    #: `alloc` and `signature` are called for jobs with one of these system attributes in their
    #: jobspecs; others cost nothing. None: they are called for every job.
    attributes: tuple[str, ...] | None = None

    #: Whether this rule only restricts jobs, and never gives one resources that others of its shape
    #: cannot have. When the pool has no room for a job, those others are refused with it regardless
    #: of `signature`. Not for a rule whose `check` must be called for each job.
    only_takes_away = False

    #: Whether `allocate` may have resources to give at present. While this is false for all rules,
    #: jobs for which the pool has no room are not examined.
    adds = True

    #: Whether `promise_stays` is to be called, since this rule may pin promises.
    pins_promises = False

    def __init__(self, host: AdmissionHost) -> None:
        self.host = host

    # -- pending jobs ------------------------------------------------------------------------------

    def alloc(self, job: PendingJob, attributes: SystemAttributes) -> None:
        """A request came. The rule stores the properties of the job that it needs, by job id, until
        `cancel` is called or, if the job starts, until its final `free`.

        Args:
            job (PendingJob): the job
            attributes (SystemAttributes): its system attributes; not to be kept

        Raises:
            ValueError: the job can never run; the text is for its user
        """

    def as_queued(self, request: Any, attributes: SystemAttributes) -> Any:
        """The request as `alloc` would change it, of a job that is not submitted.

        Raises:
            ValueError: such a job can never run; the text is for the client
        """
        return request

    def signature(self, job: PendingJob) -> Hashable:
        """The properties of `job` on which this rule's answers depend; None: the rule ignores the
        job.

        Jobs with equal requests and equal signatures are refused together: when one cannot start,
        the others behind it are not examined. Called once for each request, after `alloc`.
        """
        return None

    def check(self, job: PendingJob) -> Deferral | None:
        """Whether `job` may start now: None, or why not. Called before the pool is asked, each time
        a job is examined, so it should cost no more than a look-up.

        Raises:
            InfeasibleRequest: it may never start; the job is denied
            InsufficientResources: not now, and it waits in the queue as for resources, since a plan
                knows when it can start
        """
        return None

    def allocate(self, job: PendingJob, plan: Plan) -> ResourcePool | None:
        """Allocate to `job` resources that this rule keeps for it.

        Args:
            job (PendingJob): a job that may start now
            plan (Plan): the plan through which jobs are started

        Returns:
            the allocation; None: there is none, and the job is allocated resources like any other
        """
        return None

    def kept_jobs(self) -> Iterable[int]:
        """The ids of the jobs for which `allocate` may find resources that others cannot have. A
        kept job that may start but fits nowhere is deferred with the reason `why`. Passes in an
        order of ranks, which examine only jobs that fit the generally free resources, try these
        after the others."""
        return ()

    def second_look(self, job: PendingJob, pool: Any, jobid: int) -> Deferral | None:
        """Whether `job` may start on exactly this allocation: None, or why not; then it is freed.

        Args:
            job (PendingJob): the job
            pool (ResourcePoolImplementation): the pool with the allocation: the scheduler's, or a
                copy made for a trial
            jobid (int): the id of the allocation in it
        """
        return None

    def taken_back(self, jobid: int) -> None:
        """This rule's allocation for a job (`allocate`) was freed: another rule does not let the
        job start."""

    def keeps_promise(self, job: PendingJob) -> bool:
        """Whether this rule is certain to let `job` start at its promised time. If not, the time is
        shown to its user as planned."""
        return True

    def promise_stays(self, job: PendingJob) -> bool:
        """Whether a promise to `job` must stay at its time, though it could move to an earlier one,
        because this rule depends on it. While `pins_promises` is true, called before anything else
        for a job with a promise."""
        return False

    def why(self, job: PendingJob) -> str | None:
        """Why this rule keeps a job waiting, in a sentence; None if it does not."""
        return None

    def cancel(self, jobid: int) -> None:
        """A pending job will not start: its request was denied or withdrawn."""

    # -- running jobs ------------------------------------------------------------------------------

    def start(self, job: PendingJob, alloc: ResourcePool) -> dict[str, Any] | None:
        """`job` starts on `alloc`; called before R is stored. Returns its annotations, under
        ``sched``; None: no annotations."""
        return None

    def wants_attributes(self) -> bool:
        """Whether `hello` needs the system attributes, which are looked up job by
        job."""
        return False

    def hello(self, job: RunningJob) -> None:
        """`job` was running when the scheduler was loaded (RFC 27 hello). Called for each such job
        when all of them are in the pool, before the first request.

        For a rule that comes into force later, when the configuration is reloaded, it is called for
        the jobs running then.
        """

    def free(self, jobid: int, R: Any, final: bool) -> None:
        """A job has freed resources.

        Args:
            jobid (int): the job
            R: the freed resources: an R object (RFC 20) or a ResourcePool
            final (bool): it has freed all
        """

    def extended(self, jobid: int, expiration: float) -> bool:
        """The end of a running job moves (seconds since the epoch; 0: it has none). Returns whether
        the rule has updated the pool; otherwise the caller does."""
        return False

    # -- the start, resources and plans ------------------------------------------------------------

    def pool_made(self) -> None:
        """The pool was made, and has no jobs yet. An exception ends the start of the scheduler."""

    def ready(self) -> None:
        """All running jobs were found, and no request has come yet; or the rule has come into
        force, or its table has changed, and it was told of all jobs."""

    def config_changed(self, config: dict[str, Any]) -> None:
        """The configuration of the instance was reloaded."""

    def ranks_changed(self, lost: bool) -> None:
        """Ranks came up or, if `lost`, went down, left or changed."""

    def enter_plan(self, plan: Plan | None) -> None:
        """Enter the resources that this rule keeps from jobs in the future into a plan without
        promises, as promises with negative ids; and update these until this is called with None:
        the plan is void."""

    # -- answers -----------------------------------------------------------------------------------

    def end_of(self, jobid: int, end: float) -> float:
        """The end of a starting or running job; `end` (seconds since the epoch; 0: not known) is
        its end in the pool. The value at its start is the expiration of its R."""
        return end

    def facts(self, job: PendingJob, expected_start: float | None, first: bool) -> dict[str, Any]:
        """Entries to add to the answer of ``sched.explain`` about `job`.

        Args:
            expected_start (float): the job's last estimate; None: it has none
            first (bool): it waits for no other job
        """
        return {}

    def stats(self) -> dict[str, Iterable[Any]]:
        """Entries to add to the answer of ``sched.stats``: lists by name. A list that is costly to
        make is a generator."""
        return {}
