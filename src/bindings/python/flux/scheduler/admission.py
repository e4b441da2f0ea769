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

from collections.abc import Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Protocol

from flux.resource.errors import InsufficientResources
from flux.scheduler.attributes import SystemAttributes
from flux.scheduler.requests import Requests
from flux.scheduler.walk import JobGroup, entry_of

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.resource.ResourcePool import ResourcePool
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
    """

    reason: str
    until: float | None = None
    key: Hashable = None


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


class AdmissionHost(Protocol):
    """What a rule may use of its scheduler."""

    admission: AdmissionControl
    planning: Planning

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
    #: `allocate`, `does_not_fit`, `latest_end`, `end_of`, `why`, `start` and `free` are not called;
    #: and while no rule is engaged, nor is `extended` of any. So a rule that is not used costs
    #: nothing; one that keeps count of jobs is engaged as long as there is one. A rule that changes
    #: it calls ``host.admission.update()``, or `AdmissionControl.engage`.
    engaged = True

    #: The system attributes that a jobspec must have one of for `alloc` and `signature` to be
    #: called, so that other jobs cost nothing; None: they are called for every job.
    attributes: tuple[str, ...] | None = None

    #: Whether this rule never has resources for a job where jobs that it does not tell apart from it
    #: find none: it only takes away. When the pool has no room for a job at all, such others are
    #: refused together with it, whatever `signature` says. Not for a rule that has to hear of each
    #: (`check`, `does_not_fit`).
    only_takes_away = False

    #: Whether `allocate` may have something to give at present. While no rule has, jobs for which the pool
    #: has no room are not examined.
    adds = True

    #: Whether `does_not_fit` has something to do at present. While it has for no rule, jobs for which
    #: the pool has no room at all are not examined.
    parts_jobs = True

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
        """The ids of the jobs that `allocate` may find resources for where others find none. Passes
        in an order of ranks, which ask only jobs that fit what is free for everybody, try these
        after the others."""
        return ()

    def second_look(self, job: PendingJob, alloc: ResourcePool) -> Deferral | None:
        """Whether `job` may start on just what the pool offers it, which it holds already: None, or
        why not. What it was offered is given back then."""
        return None

    def objection(self, job: PendingJob, pool: Any, jobid: int) -> str | None:
        """Why `job` could not start on what another id holds in a copy of the pool, in a sentence;
        None: it could. For those who try beforehand what `second_look` would say.

        Args:
            job (PendingJob): the job
            pool (ResourcePoolImplementation): the copy
            jobid (int): the id
        """
        return None

    def waits_by_choice(self, job: PendingJob) -> str | None:
        """What `job` waits for by the wish of its user, though it could do without, in a sentence;
        None: nothing. No job is ended for such a one."""
        return None

    def other_requests(self, job: PendingJob) -> Iterator[Any]:
        """After `second_look` has said no: requests, for less or for other ranks, that are tried in
        the place of the job's own."""
        return iter(())

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

    def does_not_fit(self, job: PendingJob) -> Deferral | None:
        """`job` may start now and does not fit: None, or why it waits apart from the queue. Asked while
        `parts_jobs` is true."""
        return None

    def latest_end(self, job: PendingJob) -> float | None:
        """The latest end that `job` may be given when it starts now, in seconds since the epoch;
        None if the rule sets none."""
        return None

    def why(self, job: PendingJob) -> str | None:
        """What a job waits for because of this rule, in a sentence; None if for nothing."""
        return None

    def cancel(self, jobid: int) -> None:
        """A job that waited will not start: its request was denied or withdrawn."""

    # -- a job that runs ---------------------------------------------------------------------------

    def start(self, job: PendingJob, alloc: ResourcePool) -> None:
        """`job` starts on `alloc`; before R is stored."""

    def annotations(self, job: PendingJob) -> dict[str, Any]:
        """What a job that was just `start` is annotated with, under ``sched``."""
        return {}

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
        """All jobs that run were found, and no request has come yet."""

    def config_changed(self, config: dict[str, Any]) -> None:
        """The configuration of the instance was loaded anew."""

    def ranks_changed(self, lost: bool) -> None:
        """Ranks came up or, if `lost`, went down, left or changed."""

    def enter_plan(self, plan: Plan) -> None:
        """Enter into a plan without promises what this rule keeps from jobs in time to come, as
        promises with ids below zero; and keep it up to date until `plan_void`."""

    def request_changed(self, job: PendingJob) -> None:
        """A pending job asks for something else from now on, by another rule (`ask_for`)."""

    def plan_void(self) -> None:
        """The plan of `enter_plan` is used no more."""

    # -- answers -----------------------------------------------------------------------------------

    def end_of(self, jobid: int, end: float) -> float:
        """When a running job ends, of which the pool says `end` (seconds since the epoch; 0: not
        known)."""
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


#: What only rules are told that are engaged: one that keeps count of jobs is.
COUNTED = (AdmissionRule.start, AdmissionRule.free)


#: What events of a job were called in rules before they had the names that a policy has for them.
OLDER_NAMES = {
    "queued": "alloc",
    "started": "start",
    "freed": "free",
    "found_running": "hello",
    "forget": "cancel",
}


def take_older_names(rule: AdmissionRule) -> None:
    """Have a rule's methods with older names called, which is logged."""
    for older, name in OLDER_NAMES.items():
        method = getattr(rule, older, None)
        if callable(method) and getattr(type(rule), name) is getattr(AdmissionRule, name):
            setattr(rule, name, method)
            rule.host.log.warning(f"rule {rule.name}: {older}() is called {name}() now")


def has_own(rule: AdmissionRule, method: Callable[..., Any]) -> bool:
    """Whether a rule has a method of its own in place of that of a base, which does nothing."""
    return getattr(getattr(rule, method.__name__), "__func__", None) is not method


class AdmissionControl:
    """The rules of a scheduler, and the jobs that they have deferred.

    Args:
        requests (Requests): where the states of jobs are kept
        report: ``report(text, trace=True)`` logs and counts the exception that is being handled

    Attributes:
        rules (list): in the order in which they are asked
        engaged (bool): whether any of them has something to be asked about
        taking_away (set): names of those that only take away
    """

    def __init__(self, requests: Requests, report: Callable[..., None]) -> None:
        self._requests = requests
        self._report = report
        self.rules: list[AdmissionRule] = []
        self.engaged = False
        #: the system attributes for which a rule is told of a job, and whether one is told of every
        #: job
        self._names: set[str] = set()
        self._asks_always = False
        self.taking_away: set[str] = set()
        #: ids of the pending jobs that a rule was told of
        self._told: set[int] = set()
        #: by job id, the deferred jobs, and by which rule and why
        self._deferred: dict[int, tuple[PendingJob, AdmissionRule, Deferral, JobGroup]] = {}
        #: by rule and key, the jobs that wait for that, by their signatures
        self._waiting: dict[tuple[AdmissionRule, Hashable], dict[Any, JobGroup]] = {}
        # The rules that do something of their own when they are asked, as of the last `update`: a
        # rule costs nothing where it has nothing to say.
        self._checking: list[AdmissionRule] = []
        self._giving: list[AdmissionRule] = []
        self._looking: list[AdmissionRule] = []
        self._parting: list[AdmissionRule] = []
        self._ending: list[AdmissionRule] = []
        self._timing: list[AdmissionRule] = []
        self._annotating: list[AdmissionRule] = []
        self._doubting: list[AdmissionRule] = []
        self._pinning: list[AdmissionRule] = []
        #: by method of `AdmissionRule`, how the rules are told that have one of their own, and what
        #: to report of it
        self._tellings: dict[Callable[..., Any], list[tuple[str, Callable[..., Any]]]] = {}

    def add(self, rule: AdmissionRule) -> None:
        """Ask one more rule, after the others."""
        take_older_names(rule)
        self.rules.append(rule)
        self.update()

    def insert(self, rule: AdmissionRule, after: Iterable[AdmissionRule]) -> None:
        """Ask one more rule, after some others (that may be there or not) and before the rest.

        Of jobs that wait already it is told by `tell_of_pending`.
        """
        take_older_names(rule)
        ahead = [self.rules.index(other) for other in after if other in self.rules]
        self.rules.insert(1 + max(ahead, default=-1), rule)
        self.update()

    def remove(self, rule: AdmissionRule) -> None:
        """Do not ask a rule any more, if it was asked. It must have readmitted its jobs."""
        if rule in self.rules:
            self.rules.remove(rule)
            self.update()

    def update(self) -> None:
        """Rules were added or removed, or the `AdmissionRule.engaged` or
        `AdmissionRule.attributes` of one have changed."""
        self.engaged = any(rule.engaged for rule in self.rules)
        self._asks_always = any(rule.attributes is None for rule in self.rules)
        self._names = {name for rule in self.rules for name in rule.attributes or ()}
        self._checking = self._engaged_with(AdmissionRule.check)
        self._giving = self._engaged_with(AdmissionRule.allocate)
        self._looking = self._engaged_with(AdmissionRule.second_look)
        self._parting = self._engaged_with(AdmissionRule.does_not_fit)
        self._ending = self._engaged_with(AdmissionRule.latest_end)
        self._timing = self._engaged_with(AdmissionRule.end_of)
        self._annotating = self._engaged_with(AdmissionRule.annotations)
        self._doubting = self._engaged_with(AdmissionRule.keeps_promise)
        self._pinning = self._engaged_with(AdmissionRule.promise_stays)
        self._tellings = {}
        self.taking_away = {rule.name for rule in self.rules if rule.only_takes_away}

    def engage(self, rule: AdmissionRule, engaged: bool) -> bool:
        """There is something to ask a rule about, or there is nothing; returns whether that is new."""
        if engaged == rule.engaged:
            return False
        rule.engaged = engaged
        self.update()
        return True

    def _engaged_with(self, method: Callable[..., Any]) -> list[AdmissionRule]:
        """The engaged rules that have a method of their own."""
        return [rule for rule in self.rules if rule.engaged and has_own(rule, method)]

    # -- one job -----------------------------------------------------------------------------------

    def queued(self, job: PendingJob, jobspec: Any) -> Hashable:
        """Tell the rules of a request that came, each if it looks at such a job.

        Args:
            job (PendingJob): the job
            jobspec (dict): what it asks for (RFC 14)

        Returns:
            the part of the job's signature that is theirs; None if they do not tell it from others

        Raises:
            ValueError: the job can never run
        """
        try:
            if self._names.isdisjoint(jobspec["attributes"]["system"]) and not self._asks_always:
                return None
        except (KeyError, TypeError):
            pass  # a jobspec without system attributes
        return self.tell_of_pending(job, SystemAttributes.of(jobspec), self.rules)

    def as_queued(self, request: Any, jobspec: Any) -> Any:
        """What the rules would make of the request of a job that is not submitted.

        Raises:
            ValueError: such a job can never run
        """
        attributes = SystemAttributes.of(jobspec)
        for rule in self.rules:
            if rule.attributes is None or attributes.names_any(rule.attributes):
                request = rule.as_queued(request, attributes)
        return request

    def tell_of_pending(
        self, job: PendingJob, attributes: SystemAttributes, told: list[AdmissionRule]
    ) -> Hashable:
        """Tell some rules, of those that are asked, of a job that they have not deferred; returns the
        signatures of all rules, and raises as `queued`."""
        self._told.add(job.jobid)
        marks: tuple[tuple[str, Hashable], ...] = ()
        for rule in self.rules:
            if rule.attributes is not None and not attributes.names_any(rule.attributes):
                continue
            if rule in told:
                rule.alloc(job, attributes)
            mark = rule.signature(job)
            if mark is not None:
                marks += ((rule.name, mark),)
        return marks or None

    def family_of(self, signature: Any) -> Hashable:
        """A signature without what rules tell that only take away (`AdmissionRule.only_takes_away`)."""
        if isinstance(signature, tuple):
            shape, marks = signature
            rest = tuple(one for one in marks if one[0] not in self.taking_away)
            signature = (shape, rest) if rest else shape
        family: Hashable = signature
        return family

    def check(self, job: PendingJob) -> None:
        """Ask whether `job` may start now.

        Raises:
            JobDeferred: a rule keeps it from starting
            InfeasibleRequest: it may never start
        """
        for rule in self._checking:
            deferral = rule.check(job)
            if deferral is not None:
                raise JobDeferred(rule, deferral)

    @property
    def parts_jobs(self) -> bool:
        """Whether a rule has to be asked about jobs that do not fit (`AdmissionRule.does_not_fit`)."""
        for rule in self._parting:
            if rule.parts_jobs:
                return True
        return False

    @property
    def asks_each(self) -> bool:
        """Whether a job for which there is no room has to be examined all the same: a rule may find room
        for it, set it apart, or have it end earlier."""
        for rule in self._giving:
            if rule.adds and not rule.only_takes_away:
                return True
        return bool(self._ending) or self.parts_jobs

    def kept_jobs(self) -> list[int]:
        """The ids of the jobs that some rule keeps resources for."""
        return [jobid for rule in self.rules if rule.engaged for jobid in rule.kept_jobs()]

    def allocate(self, job: PendingJob, plan: Plan | None, pool: ResourcePool) -> ResourcePool:
        """Allocate to a job that may start now: what a rule keeps for it, else what is there.

        Args:
            job (PendingJob): the job
            plan (Plan): the one through which jobs are started; None: the pool cannot plan
            pool (ResourcePool): the scheduler's pool

        Raises:
            JobDeferred: it does not fit, and a rule lets it wait apart
            InsufficientResources, InfeasibleRequest, ValueError: as ``ResourcePool.alloc()``
        """
        giver, alloc = self._offered(job, plan, pool)
        refused = self._second_look(job, alloc)
        if refused is None:
            return alloc
        self._take_back(job, giver, pool)
        source: Plan | ResourcePool = pool if plan is None else plan
        for request in refused.rule.other_requests(job):
            try:
                alloc = source.alloc(job.jobid, request)
            except (OSError, ValueError):
                continue  # this one cannot be had now; it was not what the user has asked for
            if self._second_look(job, alloc) is None:
                return alloc
            self._take_back(job, None, pool)
        raise refused

    def _offered(
        self, job: PendingJob, plan: Plan | None, pool: ResourcePool
    ) -> tuple[AdmissionRule | None, ResourcePool]:
        """What a job would get, and which rule has given it (None: the pool). Raises as
        `allocate`."""
        if plan is not None:
            for rule in self._giving:
                alloc = rule.allocate(job, plan)
                if alloc is not None:
                    return rule, alloc
        try:
            source: Plan | ResourcePool = pool if plan is None else plan
            got: ResourcePool = source.alloc(job.jobid, job.resource_request)
            return None, got
        except InsufficientResources:
            self.part(job)
            raise

    def part(self, job: PendingJob) -> None:
        """Ask about a job that may start and does not fit.

        Raises:
            JobDeferred: it waits apart from the queue
        """
        for rule in self._parting:
            deferral = rule.does_not_fit(job) if rule.parts_jobs else None
            if deferral is not None:
                raise JobDeferred(rule, deferral) from None

    def _second_look(self, job: PendingJob, alloc: ResourcePool) -> JobDeferred | None:
        """Ask the rules about what a job was offered."""
        for rule in self._looking:
            deferral = rule.second_look(job, alloc)
            if deferral is not None:
                return JobDeferred(rule, deferral)
        return None

    def first_reason(self, question: Callable[..., str | None], *args: Any) -> Cause | None:
        """The first reason that an engaged rule gives; None: none gives any.

        Args:
            question: of `AdmissionRule`: ``why``, ``objection`` or ``waits_by_choice``
        """
        for rule in self.rules:
            reason = getattr(rule, question.__name__)(*args) if rule.engaged else None
            if reason is not None:
                return Cause(rule.name, reason)
        return None

    def _take_back(self, job: PendingJob, giver: AdmissionRule | None, pool: ResourcePool) -> None:
        """A job does not start on what it was offered."""
        pool.free(job.jobid)
        if giver is not None:
            giver.taken_back(job.jobid)

    def keeps_promise(self, job: PendingJob) -> bool:
        """Whether no rule could keep a job from starting at its promised time."""
        for rule in self._doubting:
            if not rule.keeps_promise(job):
                return False
        return True

    @property
    def pins_promises(self) -> bool:
        """Whether a rule may have promises stay at their times."""
        for rule in self._pinning:
            if rule.pins_promises:
                return True
        return False

    def promise_stays(self, job: PendingJob) -> bool:
        """Whether a rule has a promise to `job` stay at its time."""
        return any(rule.pins_promises and rule.promise_stays(job) for rule in self._pinning)

    def latest_end(self, job: PendingJob, end: float) -> float:
        """The end of a job that starts now, `end` or what a rule sets (seconds since the epoch; 0:
        none)."""
        for rule in self._ending:
            latest = rule.latest_end(job)
            if latest is not None:
                end = min(end or latest, latest)
        return end

    def annotations(self, job: PendingJob) -> dict[str, Any]:
        """What the rules have a job annotated with that has just started."""
        found: dict[str, Any] = {}
        for rule in self._annotating:
            found.update(rule.annotations(job))
        return found

    def why(self, job: PendingJob) -> Cause | None:
        """What `job` waits for because of a rule; None if no rule keeps it waiting."""
        found = self._deferred.get(job.jobid)
        if found is not None:
            # Numbers in the reason change while the job waits, so the rule is asked again.
            _, rule, deferral, _ = found
            return Cause(rule.name, rule.why(job) or deferral.reason)
        return self.first_reason(AdmissionRule.why, job)

    def all_reasons(self, job: PendingJob) -> Iterator[Cause]:
        """All that keeps a job from starting on account of rules, in the order of checks."""
        for rule in self._checking:
            try:
                deferral = rule.check(job)
            except InsufficientResources as exc:
                yield Cause(rule.name, str(exc))
                continue
            if deferral is not None:
                yield Cause(rule.name, deferral.reason)

    def tell(self, method: Callable[..., Any], *args: Any) -> None:
        """Call a method of every rule; one of `COUNTED`, of every rule that is engaged.

        Args:
            method: of `AdmissionRule`, such as ``AdmissionRule.free``
        """
        tellings = self._tellings.get(method)
        if tellings is None:
            name = method.__name__
            tellings = self._tellings[method] = [
                (f"admission rule {rule.name}: {name}", getattr(rule, name))
                for rule in self.rules
                if has_own(rule, method) and (rule.engaged or method not in COUNTED)
            ]
        for what, told in tellings:
            try:
                told(*args)
            except Exception:
                self._report(what, trace=True)

    def end_of(self, jobid: int, end: float) -> float:
        """When a running job ends, of which the pool says `end`."""
        for rule in self._timing:
            end = rule.end_of(jobid, end)
        return end

    @property
    def sets_ends(self) -> bool:
        """Whether a rule may say that a running job ends at another time than the pool says."""
        return bool(self._timing)

    # -- deferred jobs -----------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many jobs are deferred."""
        return len(self._deferred)

    def is_deferred(self, jobid: int) -> bool:
        """Whether a rule keeps this pending job from starting."""
        return jobid in self._deferred

    def deferred(self) -> list[PendingJob]:
        """The deferred jobs, in the order of the queue.  Costs a sort of them."""
        return sorted(found[0] for found in self._deferred.values())

    def defer(self, job: PendingJob, why: JobDeferred) -> None:
        """Keep a job apart from the queue until its rule readmits it."""
        self._requests.defer(job.jobid)
        job.was_deferred = True
        self._enter(job, why.rule, why.deferral).is_shut = True

    def regroup(self, job: PendingJob) -> None:
        """A deferred job has another signature."""
        _, rule, deferral, group = self._deferred[job.jobid]
        self._take(job.jobid)
        self._enter(job, rule, deferral).is_shut = group.is_shut

    def _enter(self, job: PendingJob, rule: AdmissionRule, deferral: Deferral) -> JobGroup:
        """Have a job wait, among those that ask for the same, and return these."""
        groups = self._waiting.setdefault((rule, deferral.key), {})
        group = groups.get(job.signature)
        if group is None:
            group = JobGroup(job.signature, self.family_of(job.signature))
            groups[job.signature] = group
        group.add(entry_of(job))
        self._deferred[job.jobid] = (job, rule, deferral, group)
        return group

    def waiting(self, rule: AdmissionRule, key: Hashable) -> int:
        """How many jobs wait for something of a rule's."""
        return sum([group.count for group in self.groups(rule, key)])

    def groups(self, rule: AdmissionRule, key: Hashable) -> Iterable[JobGroup]:
        """The jobs that wait for something of a rule's, by what they ask for."""
        return self._waiting.get((rule, key), {}).values()

    def move(self, moves: dict[int, int]) -> None:
        """Give deferred jobs their priorities, by job id: they ask for their orders again."""
        found = [self._deferred[jobid] for jobid in moves]
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
        self._take(job.jobid)
        self._requests.readmit(job.jobid)

    def come_back(self, job: PendingJob) -> None:
        """Put a deferred job into the queue again."""
        self.take(job)
        self._requests.queue.push(job)

    def answered(self, jobid: int, event: str) -> None:
        """A request has its answer."""
        if jobid in self._told:
            self._told.discard(jobid)
            self._take(jobid)
            if event != "success":
                self.tell(AdmissionRule.cancel, jobid)
        elif self._deferred:
            self._take(jobid)

    def _take(self, jobid: int) -> None:
        """A job is not deferred any more, if it was."""
        found = self._deferred.pop(jobid, None)
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
        assert waiting == set(self._deferred), f"{waiting} wait, {set(self._deferred)} are deferred"
        for jobid in self._deferred:
            state = self._requests.state_of(jobid)
            assert state == "deferred", f"{jobid}: deferred, and {state}"
