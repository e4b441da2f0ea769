# SPDX-License-Identifier: LGPL-3.0-or-later
"""Admission rules: checks that may keep a fitting job from starting.

The pool decides whether there are resources for a job. A site has other reasons to keep a job from
starting: its licences are in use, its user is over a limit, the window of its reservation has not
begun. Each is an `AdmissionRule`. A scheduler has a list of rules (`PolicyScheduler.add_rule`), and
treats all alike.

A rule that counts the resources of jobs, such as a limit
(`flux.scheduler.site_policy.counting.CountingRule`), enters bounds for a job instead: it is asked
only while one of them is exceeded.

A job kept from starting by a rule is *deferred*: it leaves the queue, has no promise, and no job
waits behind it. It returns when the rule readmits it (`AdmissionHost.readmit`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Callable, NamedTuple, Protocol

from flux.resource.errors import InsufficientResources
from flux.resource.plan.plan import Plan
from flux.resource.ResourcePool import ResourcePool
from flux.scheduler.attributes import SystemAttributes
from flux.scheduler.host import Timer
from flux.scheduler.requests import PendingJob, RunningJob

#: Key of the deferral of a job that a rule lets start (`AdmissionControl.kept_for`), but that fits nowhere.
NO_ROOM = "no room"


class Deferral(NamedTuple):
    """A rule's reason to keep a job from starting now.

    Attributes:
        reason: for the job's user, in a sentence; of a rule of the library, also a function that
            returns it: most are not read
        until: the jobs deferred with this key are readmitted then, seconds since the epoch; None,
            or a past time: when the rule calls `AdmissionHost.readmit`
        key: identifies the cause; `AdmissionHost.readmit` selects jobs by it
        instead: from a counting rule's ``second_look``: requests to try, for less or other ranks
        over: of a limit: the exceeded quantity
    """

    reason: str | Callable[[], str]
    until: float | None = None
    key: Hashable = None
    instead: Iterable[Any] = ()
    over: Any = None

    @property
    def text(self) -> str:
        """The reason."""
        return self.reason if isinstance(self.reason, str) else self.reason()


class JobDeferred(InsufficientResources):
    """An admission rule keeps a job from starting now."""

    def __init__(self, rule: AdmissionRule, deferral: Deferral) -> None:
        super().__init__(deferral.reason)
        self.rule = rule
        self.deferral = deferral


class Cause(NamedTuple):
    """A rule's reason to keep a job waiting."""

    rule: str  # name of the rule
    reason: str  # for the job's user, in a sentence


class AdmissionHost(Protocol):
    """The interface of a scheduler to its rules."""

    planning: Any  # a `Planning`, which reads this file

    @property
    def admission(self) -> Any: ...  # an AdmissionControl, which reads this file

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
    """Base class of admission rules. Methods have no effect unless overridden.

    If a method that decides on a job's start raises an unexpected exception, the job is denied;
    exceptions of other methods are logged. Answers of a site's rules are checked
    (`flux.scheduler.rule_answers`).

    Args:
        host (AdmissionHost): the scheduler
    """

    #: The rule's name in statistics and answers.
    name = "rule"

    #: ``FILE:CLASS`` of a site's rule, as configured or given as an argument; None for other rules.
    source: str | None = None

    #: Whether this rule may have an effect at present. While false, `check`,
    #: `why`, `start` and `free` are not called; while no rule is engaged, no rule's
    #: `extended` is called. So an unused rule costs nothing; a rule that counts jobs is
    #: engaged while it has any. After a change the rule calls ``host.admission.update()``, or uses
    #: ``engage()``.
    engaged = True
    has_more = False  # the same of `GivingRule.allocate`

    #: System attributes of a jobspec for which `alloc` and `signature` are called; jobs without any
    #: of them cost nothing. If None, they are called for every job.
    attributes: tuple[str, ...] | None = None

    #: Whether `alloc` may change the request of a job, so that it is called, and then `cancel`, for
    #: one that is not submitted, without request and user.
    changes_requests = False

    #: Whether this rule defers a job only because of its nodes and its limit, so that a smaller or
    #: shorter one could start.
    by_shape = False

    def __init__(self, host: AdmissionHost) -> None:
        self.host = host

    # -- pending jobs ------------------------------------------------------------------------------

    def alloc(self, job: PendingJob, attributes: SystemAttributes) -> None:
        """Called when a request arrives. The rule stores the properties of the job that it needs,
        by job id, until `cancel` or, if the job starts, its final `free`.

        Args:
            job (PendingJob): the job
            attributes (SystemAttributes): its system attributes; do not keep them

        Raises:
            ValueError: the job can never run; the text is for its user
        """

    def signature(self, job: PendingJob) -> Hashable:
        """Return the properties of `job` that this rule's answers depend on, or None if the rule
        ignores the job.

        Jobs with equal requests and signatures are refused together: when one cannot start, those
        behind it are not examined. Called once per request, after `alloc`.
        """
        return None

    def check(self, job: PendingJob) -> Deferral | None:
        """Return None if `job` may start now, else the reason. Called before the pool is asked,
        each time the job is examined: it should cost no more than a look-up.

        Raises:
            InfeasibleRequest: the job may never start; it is denied
            InsufficientResources: the job waits in the queue, as a plan has its start
        """
        return None

    def why(self, job: PendingJob) -> str | None:
        """Return why this rule keeps a job waiting, in a sentence, or None."""
        return None

    def cancel(self, jobid: int) -> None:
        """Called when a pending job will not start: its request was denied or withdrawn; or before
        `alloc` with another request, which a rule has changed."""

    # -- running jobs ------------------------------------------------------------------------------

    def start(self, job: PendingJob, alloc: ResourcePool) -> dict[str, Any] | None:
        """Called when `job` starts on `alloc`, before R is stored. Return annotations under
        ``sched``, or None."""
        return None

    def hello(self, job: RunningJob) -> None:
        """Called for each job that was running when the scheduler was loaded (RFC 27 hello), once
        all of them are in the pool, before the first request. Their system attributes are looked
        up, which costs a request for each, unless `TableRule.needs` leaves them out.

        A rule that comes into force when the configuration is reloaded is told of the jobs running
        then.
        """

    def free(self, jobid: int, R: Any, final: bool) -> None:
        """Called when a job has freed resources.

        Args:
            jobid (int): the job
            R: the freed resources: an R object (RFC 20) or a ResourcePool
            final (bool): whether the job has freed all
        """

    def extended(self, jobid: int, expiration: float) -> None:
        """Called when the end of a running job has changed (seconds since the epoch; 0: none), in
        the pool too."""

    # -- the start, resources and plans ------------------------------------------------------------

    def ranks_changed(self, lost: bool) -> None:
        """Called when ranks came up or, if `lost`, went down, left or changed."""

    # -- answers -----------------------------------------------------------------------------------

    def facts(self, job: PendingJob) -> dict[str, Any]:
        """Return entries to add to the answer of ``sched.explain`` about `job`."""
        return {}

    def stats(self) -> dict[str, Iterable[Any]]:
        """Return entries to add to the answer of ``sched.stats``: lists by name. A costly list may
        be a generator."""
        return {}


class GivingRule(AdmissionRule):
    """A rule of the library that may have resources to give to a job. While it does
    (``host.admission.engage()``), jobs without room in the pool are examined, too."""

    def allocate(self, job: PendingJob, plan: Plan) -> ResourcePool | None:
        """Allocate to `job`, which may start now, resources that this rule keeps for it, if all
        rules let it start there (``host.admission.check_allocation``). None: it is allocated
        generally free resources. `plan`: the one through which jobs are started."""
        return None

    def keeps_promise(self, job: PendingJob) -> bool:
        """Whether this rule is certain to let `job` start at its promised time. If not, the time is
        shown as planned."""
        return True


def has_own(rule: AdmissionRule, method: Callable[..., Any]) -> bool:
    """Whether a rule overrides a method of `AdmissionRule`."""
    return getattr(getattr(rule, method.__name__), "__func__", None) is not method
