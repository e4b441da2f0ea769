# SPDX-License-Identifier: LGPL-3.0-or-later
"""Calls the admission rules of a scheduler, and keeps the jobs that they deferred."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Callable

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.resource.pool.placement import RoomCounts
from flux.resource.request import Remembered
from flux.scheduler.admission import (
    NO_ROOM,
    AdmissionRule,
    Cause,
    Deferral,
    GivingRule,
    JobDeferred,
    has_own,
)
from flux.scheduler.attributes import SystemAttributes
from flux.scheduler.host import NO_TIMER
from flux.scheduler.misspelled import is_ours
from flux.scheduler.requests import PendingJob
from flux.scheduler.site_policy.holdings import (
    FIRST_ID,
    NOTHING,
    Counted,
    Holding,
    Tally,
    holding_of,
)
from flux.scheduler.walk import JobGroup, OrderedJobs, entry_of

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.host import Timer
    from flux.scheduler.pools import RequestFacts
    from flux.scheduler.requests import Requests


class DeferredJobs:
    """The deferred jobs, grouped by rule, key and signature."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self.jobs = OrderedJobs()  # all of them
        #: job id -> deferred job, with its rule, deferral and group
        self.by_id: dict[int, tuple[PendingJob, AdmissionRule, Deferral, JobGroup]] = {}
        #: (rule, key) -> {signature: jobs deferred with these}
        self._waiting: dict[tuple[AdmissionRule, Hashable], dict[Any, JobGroup]] = {}
        #: ids of pending jobs that were queued again, until they are deferred again
        self.requeued: set[int] = set()
        #: (rule, key) -> timer for the first `Deferral.until`
        self._timers: dict[tuple[AdmissionRule, Hashable], Timer] = {}

    def __len__(self) -> int:
        return len(self.by_id)

    def __contains__(self, jobid: int) -> bool:
        """Whether a rule keeps this pending job from starting."""
        return jobid in self.by_id

    def is_readmitted(self, jobid: int) -> bool:
        """Whether the rule that deferred a job has readmitted it, and no pass has queued it yet."""
        found = self.by_id.get(jobid)
        return found is not None and not found[3].is_deferred

    def defer(self, job: PendingJob, why: JobDeferred) -> None:
        """Keep a job outside the queue until its rule readmits it."""
        self._requests.defer(job.jobid)
        self.requeued.discard(job.jobid)
        job.was_deferred = True
        group = self._enter(job, why.rule, why.deferral)
        group.is_deferred |= group.first is job  # else jobs ahead of it may be readmitted

    def readmit_at(self, rule: AdmissionRule, key: Hashable, when: float | None) -> None:
        """Readmit the jobs that a rule deferred with a key at a time, if it is in the future."""
        timer = self._timers.get((rule, key), NO_TIMER)
        if when is None or not rule.host.now() < when < timer.when:
            return
        timer.cancel()

        def readmit() -> None:
            del self._timers[rule, key]
            rule.host.readmit(rule, key)

        self._timers[rule, key] = rule.host.call_at(when, readmit)

    def regroup(self, job: PendingJob) -> None:
        """Move a deferred job whose signature changed to its new group."""
        _, rule, deferral, group = self.by_id[job.jobid]
        self.discard(job.jobid)
        self._enter(job, rule, deferral).is_deferred = group.is_deferred

    def _enter(self, job: PendingJob, rule: AdmissionRule, deferral: Deferral) -> JobGroup:
        """Add a job to the group of its rule, key and signature, and return the group."""
        groups = self._waiting.setdefault((rule, deferral.key), {})
        group = groups.get(job.signature)
        if group is None:
            group = JobGroup(job.signature)
            groups[job.signature] = group
        entry = entry_of(job)
        group.add(entry)
        self.jobs.add(entry)
        self.by_id[job.jobid] = (job, rule, deferral, group)
        return group

    def groups(self, rule: AdmissionRule, key: Hashable) -> Collection[JobGroup]:
        """Return the groups of jobs that a rule deferred with a key, one per signature."""
        return self._waiting.get((rule, key), {}).values()

    def count(self, rule: AdmissionRule, key: Hashable) -> int:
        """Return the number of jobs that a rule deferred with a key."""
        return sum([group.count for group in self.groups(rule, key)])

    def move(self, moves: dict[int, int]) -> None:
        """Set the priorities of deferred jobs ({job id: priority}), and compute their sort keys
        again."""
        found = [self.by_id[jobid] for jobid in moves]
        are_few = 4 * len(found) < len(self)
        for job, _, _, group in found:
            group.remove(job)
            if are_few:
                self.jobs.remove(job)
        for job, _, _, group in found:
            job.priority = moves[job.jobid]
            job.was_deferred |= group.is_deferred  # it still is
            entry = entry_of(job)
            group.add(entry)
            if are_few:
                self.jobs.add(entry)
        if not are_few:
            self.jobs = OrderedJobs(sorted([entry_of(one[0]) for one in self.by_id.values()]))

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
        entries = sorted([entry_of(job) for one in groups for job in one.head(most)])
        jobs = [job for _, _, job in entries[:most]]
        for job in jobs:
            self.take(job)
        return jobs

    def take(self, job: PendingJob) -> None:
        """Take a deferred job, to be queued again."""
        self.discard(job.jobid)
        self.requeued.add(job.jobid)
        self._requests.readmit(job.jobid)

    def requeue(self, job: PendingJob) -> None:
        """Queue a deferred job again."""
        self.take(job)
        self._requests.queue.push(job)

    def discard(self, jobid: int) -> None:
        """Remove a job, if it is deferred."""
        found = self.by_id.pop(jobid, None)
        if found is not None:
            job, rule, deferral, group = found
            group.remove(job)
            self.jobs.remove(job)
            if not group.count:
                groups = self._waiting[rule, deferral.key]
                del groups[group.signature]
                if not groups:
                    del self._waiting[rule, deferral.key]


#: Id of a job that is not submitted.
TRIAL_ID = FIRST_ID + 1

#: Older names of rules' methods, from before they were named after a policy's methods.
OLDER_NAMES = {
    "queued": "alloc",
    "started": "start",
    "freed": "free",
    "found_running": "hello",
    "forget": "cancel",
}

#: Methods that are no longer called -> their replacements.
FORMER_METHODS = {
    "taken_back": "the pool offers what check() lets start",
    "config_changed": "a TableRule has configure()",
    "as_queued": "alloc() is, with changes_requests",
    "allocate": "the pool offers what check() lets start",
    "second_look": "check() is",
    "keeps_promise": "check() is, at the promised time",
    "released": "a Deferral has until, and readmit() is for other events",
    "ready": "a TableRule has it",
}


def use_older_names(rule: AdmissionRule) -> None:
    """Use a rule's methods that have older names, with a warning for each."""
    for older, name in OLDER_NAMES.items():
        method = getattr(rule, older, None)
        if callable(method) and getattr(type(rule), name) is getattr(AdmissionRule, name):
            setattr(rule, name, method)
            rule.host.log.warning(f"rule {rule.name}: {older}() is called {name}() now")
    for former, instead in FORMER_METHODS.items():
        defining = [base for base in type(rule).__mro__ if former in vars(base)]
        if defining and not any(map(is_ours, defining)):
            rule.host.log.warning(f"rule {rule.name}: {former}() is not called any more: {instead}")


def _for_the_same(one: Any, other: Any) -> bool:
    """Whether two requests of a job differ in their licences at most."""
    if hasattr(one, "shape"):
        return bool(one.shape is other.shape and one.claimant == other.claimant)
    return bool(one == other)


def _overriding(
    method: Callable[..., Any], rules: Iterable[AdmissionRule]
) -> list[tuple[AdmissionRule, Callable[..., Any]]]:
    """Return the rules that override a method, each with its override."""
    name = method.__name__
    return [(rule, getattr(rule, name)) for rule in rules if has_own(rule, method)]


def _is_engaged(rule: AdmissionRule, report: Callable[..., Any]) -> bool:
    """Return `AdmissionRule.engaged`; True if it raises, which is logged once."""
    try:
        return bool(rule.engaged)
    except Exception:
        report(f"admission rule {rule.name}: engaged", trace=True)
        type(rule).engaged = True  # it is asked no more
        return True


class AdmissionControl:
    """The rules of a scheduler, and the jobs that they deferred.

    Attributes:
        rules (list): the rules, in the order of checks
        engaged (bool): whether any rule is engaged
        attributes (set): the system attributes of all rules
        tells_of_all (bool): whether a rule is told of every job, with any attributes
        told (set): ids of the pending jobs that a rule was told of
        asks_each (bool): whether jobs without room are examined too: a rule may find some
        deferred (DeferredJobs): the deferred jobs
        kept_for (dict): job id -> rule whose `GivingRule.allocate` may find resources that other
            jobs cannot have. Such a job that fits nowhere is deferred, for `AdmissionRule.why`
        counted (dict): job id -> `Counted`, for a job that rules count, and a running one some of
            whose ranks have left: the pool forgets these, the job holds them
        offers (dict): (counting rule, key of a deferral because of the pool's offer) -> the shape of
            the next request; None: unknown
        assured (dict): id of a promised job -> the limits in which jobs behind it leave it its share
        watched (set): the uses in which a pending job may be over a bound, waits, or must leave
            others their share; in others a job costs its counters alone
        at_release (dict): uses whose jobs are readmitted when resources are released or a promise is
            given up, for schedulers with promises -> None
        own_ends (dict): id of a starting or running job whose resources are kept beyond its end ->
            this end, seconds since the epoch; 0: none. The end at its start is in its R
        asked (AdmissionRule): a site's rule that is answering, and must not readmit jobs
        pins: a rule's record of promises that must keep their times even if earlier ones are
            possible; None: there are none. ``stays(job)`` tells whether the promise to a job is
            such a one, and is asked first for each promised job; ``review()`` is called before a
            job is examined; ``renew(plan)`` makes them again in a new plan
    """

    pins: Any = None
    asked: AdmissionRule | None = None

    def __init__(self, requests: Requests, facts: RequestFacts) -> None:
        self._report = requests.report
        self._facts, self._pool = facts, facts.pool
        self.deferred = DeferredJobs(requests)
        self.rules: list[AdmissionRule] = []
        self.kept_for: dict[int, AdmissionRule] = {}
        self.own_ends: dict[int, float] = {}
        #: the last allocation offered to a job, its resources, and how they are counted
        self._offer: tuple[Any, Holding, Any] = (None, NOTHING, None)
        self.at_release: dict[Any, None] = {}
        self.assured: dict[int, list[Any]] = {}
        self.watched: set[Any] = set()
        #: shape of a request, and needs -> how such jobs are counted
        self._tallies: Remembered[Any, Tally] = Remembered()
        #: number of the last change of bounds
        self._version = 0
        self.counted: dict[int, Counted] = {}
        self.offers: dict[tuple[Any, Any], Any] = {}
        #: whether a rule's check is a question, after which the job is not deferred
        self.is_question = False
        self._counting: list[Any] = []
        self.told: set[int] = set()
        self.update()

    def add(self, rule: AdmissionRule, after: Iterable[AdmissionRule] | None = None) -> None:
        """Add a rule behind some others, if present, and ahead of the rest; by default last.

        `tell_of_pending` then tells it of the pending jobs.
        """
        use_older_names(rule)
        ahead = [at for at, one in enumerate(self.rules) if after is None or one in after]
        self.rules.insert(1 + max(ahead, default=-1), rule)
        self.update()

    def remove(self, rule: AdmissionRule) -> None:
        """Remove a rule, if present. It must have readmitted its jobs."""
        if rule in self.rules:
            self.rules.remove(rule)
            self.update()

    def update(self) -> None:
        """Update the caches after a rule was added or removed, or its `AdmissionRule.engaged` or
        `AdmissionRule.attributes` changed."""
        self.tells_of_all = any(rule.attributes is None for rule in self.rules)
        self.attributes = {name for rule in self.rules for name in rule.attributes or ()}
        #: the rules in the order in which they are told of a job: others read changed requests
        self._telling = sorted(self.rules, key=lambda rule: not rule.changes_requests)
        # Per method, the engaged rules that override it, with their methods: a rule costs nothing
        # where it overrides nothing.
        self._engaged = engaged = [rule for rule in self.rules if _is_engaged(rule, self._report)]
        self.engaged = bool(engaged)
        self._checking = _overriding(AdmissionRule.check, engaged)
        giving = [rule for rule in engaged if isinstance(rule, GivingRule)]
        #: the library's rules that count the resources of jobs (`site_policy.counting.CountingRule`)
        counting: list[Any] = [
            rule for rule in engaged if getattr(rule, "counted", None) is self.counted
        ]
        self._giving = [(rule, rule.allocate) for rule in giving if rule.has_more]
        self.asks_each = bool(self._giving)
        self._starting = _overriding(AdmissionRule.start, engaged)
        self._freeing = _overriding(AdmissionRule.free, engaged)
        self._promise_checks = _overriding(GivingRule.keeps_promise, giving)
        #: the rules that examine the pool's offer
        self.second_looks = [rule for rule in counting if hasattr(rule, "second_look")]
        if counting != self._counting:
            self._counting = counting
            self.recount()
        #: the rules that are asked about a job within its bounds
        self._asked_always = [one for one in self._checking if one[0] not in counting]

    def recount(self) -> None:
        """Make the bounds of pending jobs again when they are examined."""
        self._version += 1
        self._tallies.clear()

    def engage(self, rule: AdmissionRule, engaged: bool, has_more: bool = False) -> None:
        """Set `AdmissionRule.engaged` of a rule and, for a `GivingRule`, whether it may have
        resources to give."""
        if (engaged, has_more) != (rule.engaged, rule.has_more):
            rule.engaged, rule.has_more = engaged, has_more
            self.update()

    # -- one job -----------------------------------------------------------------------------------

    def as_queued(self, request: Any, jobspec: Any) -> Any:
        """Return the request of a job that is not submitted, changed as the rules would. Raises
        ValueError if such a job can never run."""
        attributes = SystemAttributes.from_jobspec(jobspec)
        job = PendingJob(TRIAL_ID, 0, 0.0, None, request)
        job.came = 0.0  # it has waited for all that it prefers
        for rule in self.rules:
            names = rule.attributes
            if rule.changes_requests and (names is None or attributes.names_any(names)):
                try:
                    rule.alloc(job, attributes)
                finally:
                    rule.cancel(TRIAL_ID)
        changed = job.resource_request
        if getattr(changed, "claimant", None) is not None:
            return changed.with_claimant(None)  # its user is unknown
        return changed

    def ask_anew(
        self,
        job: PendingJob,
        attributes: SystemAttributes,
        request: Any,
        told: Sequence[AdmissionRule],
    ) -> bool:
        """Give a pending job the request of its jobspec, as parsed, changed by the rules, of which
        those in `told` do not know the job. Return whether it differs from the previous one: then
        the job counts as withdrawn, and all rules except the ones that change requests must be
        notified (`tell_of_pending`). Raises ValueError if the job can never run."""
        self.told.add(job.jobid)
        before, job.resource_request, job.prefers = job.resource_request, request, None
        known = [rule for rule in self.rules if rule not in told]
        for rule in self.rules:
            if rule.changes_requests:
                if rule in known:
                    rule.cancel(job.jobid)
                if rule.attributes is None or attributes.names_any(rule.attributes):
                    rule.alloc(job, attributes)
        if _for_the_same(before, job.resource_request):
            job.resource_request = before  # with its licences
            return False
        for rule in known:
            if not rule.changes_requests:
                rule.cancel(job.jobid)
        return True

    def tell_of_pending(
        self, job: PendingJob, attributes: SystemAttributes, told: Sequence[AdmissionRule]
    ) -> Hashable:
        """Tell some rules of a job that they have not deferred, except rules whose attributes it
        lacks. Return the signatures of all rules; None if no rule distinguishes the job. Raises
        ValueError if it can never run."""
        self.told.add(job.jobid)
        marks: tuple[tuple[str, Hashable], ...] = ()
        job.tally = None
        for rule in self._telling:
            if rule.attributes is not None and not attributes.names_any(rule.attributes):
                continue
            if rule in told:
                rule.alloc(job, attributes)
            mark = rule.signature(job)
            if mark is not None:
                marks += ((rule.name, mark),)
        if self._counting and told is self.rules:  # it has just come, and is examined soon
            self._tally_of(job)
        return marks or None

    def _to_ask(self, job: PendingJob) -> list[tuple[AdmissionRule, Callable[..., Any]]]:
        """Return the rules that may keep a job from starting, with their checks; counting rules
        only if the job exceeds one of its bounds."""
        if self._counting:
            tally = job.tally
            if tally is None or tally.version != self._version:
                tally = self._tally_of(job)
            if self.watched and not self.watched.isdisjoint(tally.uses):
                for numbers, at, most in tally.bounds:
                    if numbers[at] > most:
                        return self._checking
        return self._asked_always

    def _tally_of(self, job: PendingJob) -> Tally:
        """Return the tally of a pending job, with its bounds."""
        known: Tally | None = job.tally
        if known is not None and known.version == self._version:
            return known
        facts, request, record = self._facts, job.resource_request, self.counted.get(job.jobid)
        needs = () if record is None else record.needs
        key = getattr(request, "shape", request), needs
        found = self._tallies.get(key)
        if found is None:
            least = facts.least_of(request)
            found = self._tallies[key] = Tally(needs, Holding(0, *least))
            found.version, found.is_exact = self._version, facts.takes_least(request)
            unlike = facts.unlike_nodes(request)
            sure = [use for use, each in needs if use.is_assured(each, unlike)]
            found.is_certain = len(sure) == len(needs)
            found.together = [
                (use, use.used, use.pending, *one) for use in found.uses for one in use.promised
            ]
            limits = [use for use in found.uses if use.promised and use.assures]
            found.assured = limits if set(limits) <= set(sure) else []
            for use, each in needs:
                bounds = use.bounds_for(job, each, least)
                found.bounds += bounds
                use.watch(bounds)
            Remembered.kept += 1024
        if record is not None:
            record.needs = found.needs
        job.tally = found
        return found

    def check(self, job: PendingJob) -> None:
        """Raise JobDeferred if a rule keeps `job` from starting now, InfeasibleRequest if it may
        never start."""
        if self.pins is not None:
            self.pins.review()
        self._ask(job, self._to_ask(job))

    def _ask(self, job: PendingJob, asked: list[tuple[AdmissionRule, Callable[..., Any]]]) -> None:
        for rule, check in asked:
            try:
                deferral = check(job)
            except InsufficientResources:
                self.defer_without_room(job)  # it waits for its resources, not in the queue
                raise
            if deferral is not None:
                self._pool().check_feasibility(job.resource_request)  # else it waits in vain
                raise JobDeferred(rule, deferral)

    def allocate(
        self, job: PendingJob, plan: Plan | None, pool: ResourcePool, only_kept: bool = False
    ) -> ResourcePool:
        """Allocate resources to a job, if it may start now: those that a rule keeps for it, else
        (unless `only_kept`) any, through a plan (None: the pool cannot plan). Raises JobDeferred if
        a rule keeps it from starting; other exceptions are those of `check` and of
        ``ResourcePool.alloc()``."""
        if self.pins is not None:
            self.pins.review()
        asked = self._to_ask(job)
        if asked:
            self._ask(job, asked)
        source: Plan | ResourcePool = pool if plan is None else plan
        alloc = None
        if self._giving and plan is not None:
            given = (allocate(job, plan) for _, allocate in self._giving)
            alloc = next((one for one in given if one is not None), None)
        if alloc is None:
            if only_kept:
                raise InsufficientResources("nothing is kept for it")
            try:
                alloc = source.alloc(job.jobid, job.resource_request)
            except InsufficientResources:
                if self.kept_for:
                    self.defer_without_room(job)
                raise
        if not self._counting:
            return alloc
        tally = job.tally
        if tally.is_exact:
            self._offer = alloc, tally.held, tally
            return alloc
        held, refused = holding_of(pool, job.jobid), None
        # Within its bounds it may be on any nodes.
        if asked is self._checking or held[2:] != tally.held[2:]:
            refused = self.second_look(job, pool, job.jobid, held)
        if refused is None:
            self._offer = alloc, held, tally.of(held)
            return alloc
        pool.free(job.jobid)
        for request in refused.deferral.instead:
            try:
                alloc = source.alloc(job.jobid, request)
                self.check_allocation(job, pool)
                return alloc
            except (OSError, ValueError):
                pass  # no room; and not the user's own request
        raise refused

    def defer_without_room(self, job: PendingJob) -> None:
        """Raise JobDeferred for a job that may start but does not fit, if a rule keeps resources
        for it (`kept_for`)."""
        rule = self.kept_for.get(job.jobid)
        if rule is not None:
            raise JobDeferred(rule, Deferral(rule.why(job) or "", key=NO_ROOM)) from None

    def second_look(
        self, job: PendingJob, pool: Any, jobid: int, held: Holding | None = None
    ) -> JobDeferred | None:
        """Return why a job that is within its bounds may not start on allocation `jobid` of a pool,
        or None. `held`: the resources of the allocation; None: to be looked up."""
        held = held or holding_of(pool, jobid)
        self.is_question = pool is not self._pool()
        try:
            if job.tally is None or held[1:] != job.tally.held[1:]:
                for rule in self.second_looks:
                    deferral = rule.second_look(job, held)
                    if deferral is not None:
                        return JobDeferred(rule, deferral)
        finally:
            self.is_question = False
        return None

    def check_allocation(self, job: PendingJob, pool: ResourcePool) -> None:
        """If a rule does not let a job start on its allocation, though it is within its bounds, free
        that and raise JobDeferred."""
        refused = self.second_look(job, pool, job.jobid)
        if refused is not None:
            pool.free(job.jobid)
            raise refused

    def keeps_promise(self, job: PendingJob) -> bool:
        """Whether all rules are certain to let a job start at its promised time."""
        for _, keeps_promise in self._promise_checks:
            if not keeps_promise(job):
                return False
        if not self._counting:
            return True
        tally = self._tally_of(job)
        full = [
            use for use, used, pending, at, most in tally.together if used[at] + pending[at] > most
        ]
        limits = tally.assured
        fit = not full or not any(use.assures for use in full)
        if limits and fit and job.jobid not in self.assured:
            self.assured[job.jobid] = limits
            for use in limits:
                use.assure(job)
        # One ahead of it may take more nodes than expected.
        return tally.is_certain and not full and not any(use.pending[-1] for use in limits)

    def fit_together(self, job: PendingJob, other: PendingJob) -> bool:
        """Whether two pending jobs are together within the limits that count both."""
        both = set(self._tally_of(job).uses).intersection(self._tally_of(other).uses)
        limits = [use for use in both if use.assures]
        return all(use.over(use.takes(job).plus(use.takes(other))) is None for use in limits)

    def why_not(self, job: PendingJob, now: float, ended: Iterable[int] = ()) -> str | None:
        """Return why a rule would keep a pending job from starting if some running jobs had ended,
        or None."""
        counted = [(jobid, self.counted[jobid]) for jobid in ended if jobid in self.counted]
        for one in counted:
            self.count(*one, -1, now)
        found = next((deferral.text for _, deferral in self.deferrals(job)), None)
        for one in counted:
            self.count(*one, 1, now)
        return found

    def assure_no_more(self, jobid: int) -> None:
        """Let jobs behind a promised one take its share of limits: it has started, is pending no
        more, or has lost its promise."""
        for use in self.assured.pop(jobid, ()):
            del use.assured[jobid]
            if use.claims[0]:
                use.outgrew()

    def start(
        self, job: PendingJob, alloc: ResourcePool, now: float, annotations: dict[str, Any]
    ) -> None:
        """Tell the rules that a job starts, and add their annotations to `annotations`."""
        record = self.counted.get(job.jobid)
        if record is not None:
            offered, held, tally = self._offer
            if offered is not alloc:
                held = holding_of(self._pool(), job.jobid)
                tally = self._tally_of(job).of(held)
            for numbers, at, less in tally.pending:
                numbers[at] -= less
            record.held, record.tally = held, tally
            self.count(job.jobid, record, 1, now)
            if job.jobid in self.assured:
                self.assure_no_more(job.jobid)
            if self.assured and tally is not job.tally:
                for use in job.tally.uses:
                    use.outgrew()
            if not self.watched.isdisjoint(tally.uses):
                self._tell_uses(tally.uses, "started", job.jobid)
        for one, start in self._starting:
            try:
                shown = start(job, alloc)
                if shown:
                    annotations.update(shown)
            except Exception:
                self._report(f"admission rule {one.name}: start", trace=True)

    def free(self, jobid: int, R: Any, final: bool, now: Callable[[], float]) -> None:
        """Tell the rules that a job has freed resources."""
        if self.offers:
            self.ask_again()
        record = self.counted.get(jobid)
        if record is not None:
            held = record.held
            if held is not None:
                tally = self.count(jobid, record, -1, now())
                if not final:
                    left = held.left_of(R) if held.ranks else holding_of(self._pool(), jobid)
                    record.held, record.tally = left, None
                    self.count(jobid, record, 1, now())
                if not self.watched.isdisjoint(tally.uses):
                    self._tell_uses([use for use in tally.uses if use in self.watched], "settle")
                for use in tally.dropped if final else ():
                    use.jobs -= 1
                    if not use.jobs:
                        use.without_jobs()
            if final:
                del self.counted[jobid]
        for one, free in self._freeing:
            try:
                free(jobid, R, final)
            except Exception:
                self._report(f"admission rule {one.name}: free", trace=True)

    def count(self, jobid: int, record: Counted, sign: int, now: float) -> Tally:
        """Count that a job holds ``record.held`` (`sign` is 1), or does not any more (-1). Return how
        it was counted."""
        tally = record.tally
        if tally is None:
            tally = record.tally = Tally(record.needs, record.held)
        if sign > 0:
            for use, used, at, number in tally.steps:
                used[at] = number = used[at] + number
                if number > use.lowest[at]:
                    self.watched.add(use)
        else:
            for _, used, at, number in tally.steps:
                used[at] -= number
        for use, noted in tally.told:
            try:
                use.note_held(jobid, record, noted, sign, now)
            except Exception:
                self._report(f"admission rule {use.rule.name}: note_held", trace=True)
        return tally

    def _tell_uses(self, uses: Iterable[Any], method: str, *args: Any) -> None:
        for use in uses:
            try:
                getattr(use, method)(*args)
            except Exception:
                self._report(f"admission rule {use.rule.name}: {method}", trace=True)

    def ask_again(self) -> None:
        """Readmit jobs that wait for another offer of the pool, as many as the free resources
        suffice for: its offers may have changed."""
        pool = self._pool()
        room = RoomCounts(pool) if self.offers and pool.can("plan") else None
        for (rule, key), shape in list(self.offers.items()):
            most = self.deferred.count(rule, key)
            if not most:
                del self.offers[rule, key]
                continue
            # A node may have room for several jobs that share it.
            if room is not None and shape and (shape.node_count is None or shape.exclusive):
                most = int(min(most, room.count(shape) // shape.least_count))
            if most or rule.are_promised:
                rule.host.readmit_in_turn(rule, key, most)

    def ranks_changed(self, lost: bool) -> None:
        """Tell the rules that ranks have changed (`AdmissionRule.ranks_changed`)."""
        self.recount()
        self.ask_again()
        self.tell(AdmissionRule.ranks_changed, lost)

    def released(self) -> None:
        """Called when resources were released, or a promise was given up."""
        uses, self.at_release = self.at_release, {}
        for use in uses:
            use.rule.readmit_for(use)

    def defer(self, job: PendingJob, why: JobDeferred) -> None:
        """Keep a job outside the queue until the rule that deferred it readmits it."""
        self.deferred.defer(job, why)
        self._note_cause(job, why.rule, why.deferral)

    def _note_cause(self, job: PendingJob, rule: AdmissionRule, deferral: Deferral) -> None:
        """Note why a job is deferred: it does not wait for its other uses."""
        self.deferred.readmit_at(rule, deferral.key, deferral.until)
        cause = deferral.over and deferral.over[0]
        if deferral.key != job.jobid:  # else it is to start soon
            self.assure_no_more(job.jobid)
        for use, _ in self.counted[job.jobid].needs if job.jobid in self.counted else ():
            if use is not cause:
                use.waits_no_more(job.jobid, cause)

    def moved(self) -> None:
        """Called when the order of pending jobs has changed: some may be ahead of the job that they
        waited behind."""
        for rule in self._counting if self.deferred else ():
            for use in [use for use in rule.uses.values() if use.waiting]:
                rule.readmit_for(use)

    def held_by(self, jobid: int) -> Holding:
        """Return the resources that a running job holds, also on ranks that have left."""
        record = self.counted.get(jobid)
        held = None if record is None else record.held
        return held if held is not None and held.ranks else holding_of(self._pool(), jobid)

    def ends(self) -> Iterator[tuple[int, float]]:
        """Yield (job id, end) of the jobs that hold resources; the end is in seconds since the
        epoch, 0: unknown.  O(jobs)."""
        for jobid, end in self._pool().job_end_times():
            if jobid >= 0:
                yield jobid, self.own_ends.get(jobid, end)

    def note_holding(self, jobid: int, held: Holding) -> None:
        """Note the resources of a running job: ranks have left, or are about to."""
        self.counted.setdefault(jobid, Counted()).held = held

    def why(self, job: PendingJob) -> Cause | None:
        """Return why a rule keeps `job` waiting, or None."""
        if self.deferred.is_readmitted(job.jobid):
            for rule, deferral in self.deferrals(job):
                return Cause(rule.name, rule.why(job) or deferral.text)
        elif job.jobid in self.deferred:
            # Numbers in the reason change while the job waits, so ask the rule again.
            _, rule, deferral, _ = self.deferred.by_id[job.jobid]
            return Cause(rule.name, rule.why(job) or deferral.text)
        for rule in self._engaged:
            reason = rule.why(job)
            if reason is not None:
                return Cause(rule.name, reason)
        return None

    def defers(self, job: PendingJob) -> bool:
        """Whether a rule keeps a job from starting, or will deny it in its turn."""
        for rule, _ in self._to_ask(job):
            if self._deferral(rule, job) is not None:
                return True
        return False

    def deferrals(self, job: PendingJob) -> Iterator[tuple[AdmissionRule, Deferral]]:
        """Yield the deferrals of all rules that keep a job from starting, in the order of
        checks, and of rules that will deny it in its turn."""
        for rule, _ in self._to_ask(job):
            deferral = self._deferral(rule, job)
            if deferral is not None:
                yield rule, deferral

    def _deferral(self, rule: AdmissionRule, job: PendingJob) -> Deferral | None:
        """Return why a rule keeps a job from starting, or None."""
        self.is_question = True
        try:
            return rule.check(job)
        except (InsufficientResources, InfeasibleRequest) as exc:
            return Deferral(exc.__str__)
        finally:
            self.is_question = False

    def tell(self, method: Callable[..., Any], *args: Any) -> None:
        """Call a method of every rule. `method`: a method of `AdmissionRule`, such as
        ``AdmissionRule.hello``."""
        for rule, told in _overriding(method, self.rules):
            try:
                told(*args)
            except Exception:
                self._report(f"admission rule {rule.name}: {method.__name__}", trace=True)

    # -- deferred jobs -----------------------------------------------------------------------------

    def requeue(self, job: PendingJob, is_offered: bool) -> None:
        """Queue a readmitted job again in its turn, unless its rule would defer it again: then the
        jobs of its group wait on. `is_offered`: whether the pool certainly has an offer for it; a
        job without one waits in the queue."""
        rule: Any
        _, rule, deferral, group = self.deferred.by_id[job.jobid]
        again = None
        if rule in self._counting:
            if deferral.until is None and not rule.has_room(job, deferral.key, is_offered):
                group.is_deferred = True
                return
            again = self._deferral(rule, job)
        if again is not None and again.key == deferral.key:
            first = group.first
            if first is not job and self._deferral(rule, first) is None:
                self.deferred.requeue(first)  # the walk has left it out: it waits for resources
                return
            shorter = group.shorter_since((job.order, job.jobid), job.limit)
            while shorter is not None:  # it may end before a promised job needs its part of a limit
                if self._deferral(rule, shorter) is None:
                    group.is_deferred = shorter is group.last
                    self.deferred.requeue(shorter)
                    return
                shorter = group.shorter_since((shorter.order, shorter.jobid), shorter.limit)
            self.deferred.by_id[job.jobid] = job, rule, again, group
            group.is_deferred = True
            self._note_cause(job, rule, again)
        else:
            self.deferred.requeue(job)
