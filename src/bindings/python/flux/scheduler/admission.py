# SPDX-License-Identifier: LGPL-3.0-or-later
"""Admission rules: what may keep a job from starting although it fits.

The pool says whether there are resources for a job. A site has other reasons why a job may not
start now: its licences are in use, its user is over a limit, the window of its reservation has not
begun. Each of these is an `AdmissionRule`. A scheduler has a list of them
(`PolicyScheduler.add_rule`) and asks each; it knows nothing of any one. A rule is told what it
needs to keep count:

- a request came (`~AdmissionRule.alloc`), and was denied or withdrawn (`~AdmissionRule.cancel`);
- may the job start now, and if not, why and until when (`~AdmissionRule.check`)?
- it starts (`~AdmissionRule.start`), it gives resources back (`~AdmissionRule.free`), its end
  moves (`~AdmissionRule.extended`), it was running already when the scheduler came
  (`~AdmissionRule.hello`);
- a plan is made, from which the rule keeps what is not for every job (`~AdmissionRule.enter_plan`).

A job that a rule keeps from starting is *deferred*: it leaves the queue, it is promised nothing,
and no job waits behind it. It comes back when the rule says that what it waits for has changed
(`AdmissionHost.readmit`).

Jobs that ask for the same resources are refused together: when one does not fit, the others are not
examined. A rule that tells such jobs apart says by what (`~AdmissionRule.signature`).
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
        until: when the rule expects to let it start, seconds since the epoch; None: it cannot tell
        key: what the job waits for, so that `AdmissionHost.readmit` can leave out jobs that wait
            for something else
        instead: from `AdmissionRule.second_look`: requests, for less or for other ranks, that are
            tried in the place of the job's own
    """

    reason: str
    until: float | None = None
    key: Hashable = None
    instead: Iterable[Any] = ()


class JobDeferred(InsufficientResources):
    """An admission rule keeps a job from starting now.

    Attributes:
        rule (AdmissionRule): which
        deferral (Deferral): why, and until when
    """

    def __init__(self, rule: AdmissionRule, deferral: Deferral) -> None:
        super().__init__(deferral.reason)
        self.rule = rule
        self.deferral = deferral


class Cause(NamedTuple):
    """What a job waits for because of a rule.

    Attributes:
        rule: name of the rule
        reason: for the job's user, in a sentence
    """

    rule: str
    reason: str


class Admission(Protocol):
    """What a rule may say to those that ask it (`flux.scheduler.admission_control`)."""

    def update(self) -> None:
        """`AdmissionRule.engaged` or `AdmissionRule.attributes` of a rule has changed."""

    def engage(self, rule: AdmissionRule, engaged: bool) -> bool:
        """There is something to ask a rule about, or there is nothing; returns whether that is new."""

    def waiting(self, rule: AdmissionRule, key: Hashable) -> int:
        """How many jobs wait for something of a rule's (`Deferral.key`)."""


class AdmissionHost(Protocol):
    """What a rule may use of its scheduler."""

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
    """Base of admission rules. No method does anything unless it is overridden.

    What a method raises that is asked whether a job may start costs that job: it is denied. What is
    raised by another is logged. The answers of a site's rules are checked
    (`flux.scheduler.rule_answers`).

    Args:
        host (AdmissionHost): the scheduler
    """

    #: What the rule is called in statistics and answers.
    name = "rule"

    #: ``FILE:CLASS``, if it is a site's and comes from the configuration or an argument.
    source: str | None = None

    #: Whether there is anything to ask this rule about at present. While it is false, `check`,
    #: `allocate`, `second_look`, `end_of`, `why`, `start` and `free` are not called;
    #: and while no rule is engaged, nor is `extended` of any. So a rule that is not used costs
    #: nothing; one that keeps count of jobs is engaged as long as there is one. A rule that changes
    #: it calls ``host.admission.update()``, or ``engage()``.
    engaged = True

    #: The system attributes that a jobspec must have one of for `alloc` and `signature` to be
    #: called, so that other jobs cost nothing; None: they are called for every job.
    attributes: tuple[str, ...] | None = None

    #: Whether this rule never has resources for a job where jobs that it does not tell apart from it
    #: find none: it only takes away. When the pool has no room for a job at all, such others are
    #: refused together with it, whatever `signature` says. Not for a rule that has to hear of each
    #: (`check`).
    only_takes_away = False

    #: Whether `allocate` may have something to give at present. While no rule has, jobs for which the pool
    #: has no room are not examined.
    adds = True

    #: Whether there are promises that `promise_stays` is to be asked about.
    pins_promises = False

    def __init__(self, host: AdmissionHost) -> None:
        self.host = host

    # -- a job that waits --------------------------------------------------------------------------

    def alloc(self, job: PendingJob, attributes: SystemAttributes) -> None:
        """A request came. The rule keeps what it has to know of the job, by its id, until `cancel`
        is called or, if the job starts, until it has given everything back (`free`).

        Args:
            job (PendingJob): the job
            attributes (SystemAttributes): what its jobspec says beside resources; not to be kept

        Raises:
            ValueError: the job can never run; the text is told to its user
        """

    def as_queued(self, request: Any, attributes: SystemAttributes) -> Any:
        """What `alloc` would make of the request of a job that is not submitted.

        Raises:
            ValueError: such a job can never run; the text is told to who asks
        """
        return request

    def signature(self, job: PendingJob) -> Hashable:
        """What this rule goes by when it is asked about `job`; None: the job does not concern it.

        Jobs with equal requests and equal signatures are refused together: when one cannot start,
        the others behind it are not examined. Called once for each request, after `alloc`.
        """
        return None

    def check(self, job: PendingJob) -> Deferral | None:
        """Whether `job` may start now: None, or why not. Asked before the pool is, each time a job
        is examined, so it should cost a look-up.

        Raises:
            InfeasibleRequest: it may never start; the job is denied
            InsufficientResources: not now, and it waits in the queue as for resources: a plan knows
                when it can start
        """
        return None

    def allocate(self, job: PendingJob, plan: Plan) -> ResourcePool | None:
        """Give `job` resources that this rule keeps for it.

        Args:
            job (PendingJob): a job that may start now
            plan (Plan): the one through which jobs are started

        Returns:
            what the pool answered; None: the job takes what is there for everybody
        """
        return None

    def kept_jobs(self) -> Iterable[int]:
        """The ids of the jobs that `allocate` may find resources for where others find none. One that
        may start and fits nowhere waits apart from the queue, for what `why` says. Passes in an order of
        ranks, which ask only jobs that fit what is free for everybody, try these after the others."""
        return ()

    def second_look(self, job: PendingJob, pool: Any, jobid: int) -> Deferral | None:
        """Whether `job` may start on just what it is offered: None, or why not. What it was offered is
        given back then.

        Args:
            job (PendingJob): the job
            pool (ResourcePoolImplementation): where that is held: the scheduler's, or a copy, in which
                it is tried whether the job could start
            jobid (int): the id that holds it there
        """
        return None

    def taken_back(self, jobid: int) -> None:
        """What this rule has allocated to a job (`allocate`) was given back: another rule does not
        let the job start."""

    def keeps_promise(self, job: PendingJob) -> bool:
        """Whether it is certain that this rule will let `job` start when its promised time has
        come. If not, its user is told that the time is planned."""
        return True

    def promise_stays(self, job: PendingJob) -> bool:
        """Whether a promise to `job` is to stay at its time, though it could move to an earlier one:
        this rule counts on it. Asked before anything else about a job that has one, while
        `pins_promises` is true."""
        return False

    def why(self, job: PendingJob) -> str | None:
        """What a job waits for because of this rule, in a sentence; None if for nothing."""
        return None

    def cancel(self, jobid: int) -> None:
        """A job that waited will not start: its request was denied or withdrawn."""

    # -- a job that runs ---------------------------------------------------------------------------

    def start(self, job: PendingJob, alloc: ResourcePool) -> dict[str, Any] | None:
        """`job` starts on `alloc`; before R is stored. Returns what it is annotated with, under
        ``sched``; None: with nothing."""
        return None

    def wants_attributes(self) -> bool:
        """Whether `hello` needs the system attributes, which have to be looked up job by
        job."""
        return False

    def hello(self, job: RunningJob) -> None:
        """`job` was running when the scheduler came (RFC 27 hello). Called for each such job when
        all of them are in the pool, before any request comes.

        A rule that comes into force later, when the configuration is loaded anew, is told of the
        jobs that run then.
        """

    def free(self, jobid: int, R: Any, final: bool) -> None:
        """A job has given resources back to the pool.

        Args:
            jobid (int): the job
            R: what came back: an R object (RFC 20) or a ResourcePool
            final (bool): it holds nothing more
        """

    def extended(self, jobid: int, expiration: float) -> bool:
        """The end of a running job moves (seconds since the epoch; 0: it has none). Returns whether
        the rule has told the pool, which is done for it otherwise."""
        return False

    # -- the start, resources and plans ------------------------------------------------------------

    def pool_made(self) -> None:
        """There is a pool, and no job in it yet. What is raised ends the start of the scheduler."""

    def ready(self) -> None:
        """All jobs that run were found, and no request has come yet; or the rule has come into force, or its
        table has changed, and it was told of all jobs."""

    def config_changed(self, config: dict[str, Any]) -> None:
        """The configuration of the instance was loaded anew."""

    def ranks_changed(self, lost: bool) -> None:
        """Ranks came up or, if `lost`, went down, left or changed."""

    def enter_plan(self, plan: Plan | None) -> None:
        """Enter into a plan without promises what this rule keeps from jobs in time to come, as
        promises with ids below zero; and keep it up to date until this is called with None: that plan is
        used no more."""

    # -- answers -----------------------------------------------------------------------------------

    def end_of(self, jobid: int, end: float) -> float:
        """When a job ends that starts or runs, if `end` (seconds since the epoch; 0: not known) is what
        the pool says. What is said when it starts is the end of its R."""
        return end

    def facts(self, job: PendingJob, expected_start: float | None, first: bool) -> dict[str, Any]:
        """What ``sched.explain`` adds to its answer about `job`.

        Args:
            expected_start (float): what the job was told; None: nothing
            first (bool): it waits for no other job
        """
        return {}

    def stats(self) -> dict[str, Iterable[Any]]:
        """What ``sched.stats`` adds to its answer: lists by their names. One whose entries cost
        something is a generator."""
        return {}
