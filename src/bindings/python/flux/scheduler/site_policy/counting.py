# SPDX-License-Identifier: LGPL-3.0-or-later
"""Rules that count the resources of jobs: limits, budgets, licences and fair share.

A job counts in a `Use` of each entry of the table that applies to it: from its request with its
minimum, and from its start to its final ``sched.free`` with its resources. The entries of limits
and budgets have a `Scope`, which groups the jobs of a user, a bank or a queue by keys, and maxima.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from copy import copy
from math import inf
from operator import gt
from typing import TYPE_CHECKING, Any, Callable, List, NamedTuple, Tuple, TypeVar

from flux.resource.ResourceCount import ResourceCount
from flux.scheduler.admission import Deferral
from flux.scheduler.attributes import SystemAttributes
from flux.scheduler.disclosure import Owned
from flux.scheduler.host import ErrorReporter, name_of
from flux.scheduler.query.answering import JOBS_PER_STEP, Caller
from flux.scheduler.requests import PendingJob, RunningJob
from flux.scheduler.rule_host import RuleHost
from flux.scheduler.site_policy.holdings import Counted, Holding
from flux.scheduler.site_policy.table_rule import JobsOver, TableRule
from flux.scheduler.site_policy.tables import Fields, QueueNames, user_name

if TYPE_CHECKING:
    from typing_extensions import Self

N = TypeVar("N", int, float)

#: ``(numbers, index, maximum)``: a job may start while ``numbers[index]`` is not above the maximum.
Bound = Tuple[List[Any], int, float]

#: Keys by which jobs are counted together -> the parts of the key.
PER: dict[str, tuple[str, ...]] = {
    "user": ("user",),
    "bank": ("bank",),
    "queue": ("queue",),
    "user+queue": ("user", "queue"),
    "bank+queue": ("bank", "queue"),
    "instance": (),
}


class Scope(NamedTuple):
    """The jobs that a limit or a budget applies to."""

    per: str  # one of `PER`
    queues: tuple[str, ...]  # only jobs of these queues, users and banks; empty: of all
    users: tuple[int, ...]
    banks: tuple[str, ...]
    exempt_users: tuple[int, ...]  # jobs of these users and banks are not included
    exempt_banks: tuple[str, ...]
    in_reservations: bool  # whether jobs that name a reservation are included

    def key_of(
        self, userid: int, attributes: SystemAttributes, names: QueueNames
    ) -> tuple[Any, ...] | None:
        """Return the key under which a job is counted: user id, bank or queue, or two of them; None
        if the job is not included."""
        if self.queues and not names.any_covers(self.queues, attributes.queue):
            return None
        if self.users and userid not in self.users or userid in self.exempt_users:
            return None
        if self.banks or self.exempt_banks:
            bank = attributes.bank or ""
            if self.banks and bank not in self.banks or bank in self.exempt_banks:
                return None
        if not self.in_reservations and attributes.reservation is not None:
            return None
        key: tuple[Any, ...] = ()
        for part in PER[self.per]:
            if part == "user":
                key += (userid,)
            elif part == "bank":
                key += (attributes.bank or "",)
            else:  # a virtual queue counts as its parent
                queue = attributes.queue
                key += (names.parent(queue) or queue or "",)
        return key

    @property
    def needs_jobspec(self) -> bool:
        """Whether `key_of` needs more than the user."""
        by_user = self.per in ("user", "instance") and self.in_reservations
        return not by_user or bool(self.queues or self.banks or self.exempt_banks)


def read_scope(
    table: Fields, read: Callable[[Fields, str], N | None], names: Iterable[str], example: str
) -> tuple[Scope, tuple[N | None, ...]]:
    """Take the keys of a scope from a table, and the maxima in ``max`` (None: no maximum), each by
    the method `read`; one of `names` is required. `example`: one of ``max``. Raises ValueError if
    the entry is invalid; the text begins with the key."""
    exempt = table.table("exempt") or Fields({})
    scope = Scope(
        table.choice("per", PER),
        queues=table.names("queues"),
        users=table.userids("users"),
        banks=table.names("banks"),
        exempt_users=exempt.userids("users"),
        exempt_banks=exempt.names("banks"),
        in_reservations=table.flag("in-reservations", True),
    )
    exempt.end()
    most = table.table("max")
    if most is None:
        raise ValueError(f"max is missing: expected a table such as {example}")
    maxima = tuple(read(most, name) for name in names)
    most.end()
    if all(one is None for one in maxima):
        raise ValueError(f"max: expected one of {', '.join(names)}")
    return scope, maxima


class Use:
    """The use of an entry by the jobs of one key.

    The needs of a job are recorded when its request arrives (`Counted.needs`).

    Attributes:
        rule (CountingRule): the entry's rule
        entry: the entry of the table
        key (tuple): the properties shared by these jobs
        jobs (int): number of pending and running jobs counted here, of a use that is not kept
        is_kept (bool): whether it is kept without jobs
        used (list): use per dimension
        bounds (list): (index of a dimension, maximum) of limited dimensions
        promised (list): the same, in which starts are promised: none in strict order
        assures (bool): whether jobs behind a promised one may have to leave it its share
        pending (list): sum of the minimums of all pending jobs, per dimension in `promised`
        waiting (dict): key of a deferral -> {use: the needs of each job deferred with it}
        lowest (list): the lowest maximum in a pending job's bounds, per dimension
    """

    assures = is_kept = False

    def __init__(
        self, rule: Any, entry: Any, key: tuple[Any, ...], most: Sequence[float | None] = ()
    ) -> None:
        self.rule, self.entry, self.key, self.jobs = rule, entry, key, 0
        self.bounds = [(at, one) for at, one in enumerate(most) if one is not None]
        self.promised: list[tuple[int, Any]] = []
        self.used: list[Any] = [0] * len(most)
        self.pending: list[Any] = [0] * len(most)
        self.waiting: dict[Any, dict[Use, Any]] = {}
        self.lowest: list[float] = [inf] * len(most)

    def bounds_for(self, job: PendingJob, needs: Any, least: tuple[int, int, int]) -> list[Bound]:
        """Return the bounds within which a pending job may start with the minimum numbers of cores
        and GPUs of its request, on any nodes. `least`: these, and the minimum number of nodes."""
        return []

    def watch(self, bounds: Iterable[Bound] = ()) -> None:
        """Note bounds of a pending job. Watch this use (`AdmissionControl.watched`) if one of all
        is exceeded."""
        for numbers, at, most in bounds:
            if numbers is self.used and most < self.lowest[at]:
                self.lowest[at] = most
        if any(map(gt, self.used, self.lowest)):
            self.rule.host.admission.watched.add(self)

    def is_calm(self) -> bool:
        """Whether this use need not be watched."""
        return not self.waiting and not any(map(gt, self.used, self.lowest))

    def adds(
        self, needs: Any, job: PendingJob | None = None, held: Holding | None = None
    ) -> Sequence[float]:
        """Return the amount per dimension that a job would add, with `held` or (None) its minimum;
        without `job` a lower bound."""
        added: Sequence[float] = needs
        return added

    def over(self, more: Sequence[float]) -> int | None:
        """Return the first dimension in which `more` would exceed the maximum, or None."""
        used = self.used
        for at, most in self.bounds:
            if used[at] + more[at] > most:
                return at
        return None

    def room(self, needs: Any) -> float:
        """Return the number of jobs with these needs that could start."""
        each, used, room = self.adds(needs), self.used, inf
        for at, most in self.bounds:
            need, left = each[at], most - used[at]
            if left < need:
                return 0
            if need > 0 and left < need * room:
                room = left // need
        return room

    def count_pending(self, needs: Any, times: float) -> None:
        """Count the minimum of a pending job: `times` 1 when it arrives, -1 when it is pending no
        more."""
        for at, number in self.needs_pending(needs):
            self.pending[at] += times * number

    def needs_pending(self, needs: Any) -> list[tuple[int, float]]:
        """Return the pairs ``(index, number)`` that a pending job adds to `pending`."""
        return [(at, needs[at]) for at, _ in self.promised]

    def counts(self, needs: Any, held: Holding) -> list[tuple[int, int]]:
        """Return the pairs ``(index, number)`` that a job with the resources `held` adds to `used`,
        apart from those counted by `note_held`."""
        return []

    def notes(self, needs: Any, held: Holding) -> Any:
        """Return the argument `noted` of `note_held` for a job that holds `held`; None: it is not called."""
        return None

    def note_held(self, jobid: int, record: Counted, noted: Any, sign: int, now: float) -> None:
        """Called when a job holds ``record.held`` (`sign` is 1), or does not hold it any more (-1):
        when it starts and ends, and both if it frees a part. `noted`: from `notes`."""

    def is_assured(self, needs: Any, unlike: tuple[bool, bool]) -> bool:
        """Whether a job with a promise is certain to start if all pending jobs fit together.
        `unlike`: whether its numbers of cores, and of GPUs, depend on its nodes."""
        return True

    def outgrew(self) -> None:
        """Called when a job has started with other numbers than the minimum."""

    def started(self, jobid: int) -> None:
        """Called when a job has started, if one of its uses is watched."""

    def settle(self) -> None:
        """Called of a watched use when a job has freed resources: readmit jobs that wait for it."""
        if self.waiting:
            self.rule.readmit_for(self)
        if self.is_calm():
            self.rule.host.admission.watched.discard(self)

    def waits_no_more(self, jobid: int, cause: Use | None = None) -> None:
        """Called when a job has started, was canceled, or is deferred for another cause: a use, or
        None."""

    def without_jobs(self) -> None:
        """Called when its last job has ended or was canceled: drop it."""
        self.rule.uses.pop((self.entry.name, self.key), None)
        self.rule.host.admission.watched.discard(self)


class ScopedUse(Use):
    """The use of an entry with a ``name``, a ``scope`` and maxima, ``most``; the key has user id,
    bank or queue of the jobs, or two of them."""

    def __init__(self, rule: Any, entry: Any, key: tuple[Any, ...]) -> None:
        super().__init__(rule, entry, key, entry.most)
        parts = PER[entry.scope.per]
        #: their user, if it is the same for all, else None
        self.userid = key[parts.index("user")] if "user" in parts else None

    def is_assured(self, needs: Any, unlike: tuple[bool, bool]) -> bool:
        most = self.entry.most
        return not any(unlike[at - 1] and most[at] is not None for at in (1, 2))

    def left_for(self, needs: Any) -> list[float]:
        """Return the numbers of nodes, cores and GPUs that are left for a job; infinite: unlimited."""
        left = [inf] * len(self.used)
        for at, most in self.bounds:
            left[at] = max(0, most - self.used[at])
        return left

    @property
    def whose(self) -> str:
        """Owner of the counted jobs, in words; empty: all jobs."""
        return ", ".join(
            user_name(value) if what == "user" else f"{what} {value or '(none)'}"
            for what, value in zip(PER[self.entry.scope.per], self.key)
        )


class Denied(ValueError):
    """A job that can never run. `entry`: name of the entry that denies it."""

    def __init__(self, text: str, entry: str) -> None:
        super().__init__(text)
        self.entry = entry


class CountingRule(TableRule):
    """Counts the resources of jobs, by the entries of its table. Its `check` is called only while one of a
    job's bounds (`Use.bounds_for`) is exceeded; when these change, it calls
    ``host.admission.recount()``. A subclass implements:

    - ``read(key, value)``: parse an entry of the table, as `parse`;
    - ``uses_of(userid, attributes)``: return the uses in which a job counts;
    - ``read_job(job, uses, attributes)``: return the needs of a new pending job, by use, or
      raise ValueError if it can never run;
    - ``found(job, uses, attributes)``: the same of a job found running;
    - ``sentence(use, at, job)``: why too little is left for a job in a dimension; None: for any job;
    - ``defer(use, at, job, uses, held)``: return the deferral of a job, with these uses, for which
      too little is left of `use` in dimension `at`; unless that is a question
      (``host.admission.is_question``), it is noted to wait (`wait`). `held`: the pool's offer
      to it; None: its minimum is too much.

    Attributes:
        are_promised (bool): whether a job that waits for another offer of the pool is readmitted
            without room, to be promised a start
        counted (dict): job id -> `Counted`, of all rules; in a trial only of this rule
    """

    are_promised = False
    read: Callable[[str, Any], Any]
    uses_of: Callable[..., tuple[Any, ...]]
    read_job: Callable[..., dict[Any, Any]]
    found: Callable[..., dict[Any, Any]]
    sentence: Callable[..., str]
    defer: Callable[..., Deferral]

    def __init__(self, host: RuleHost, errors: ErrorReporter) -> None:
        super().__init__(host, errors)
        self.uses: dict[Any, Any] = {}  # key -> `Use`
        self.counted: dict[int, Counted] = host.admission.counted

    def parse(self, key: str, value: Any) -> Any:
        if not self.host.planning.pool_can("held_counts"):
            raise ValueError("the pool of this scheduler cannot count what jobs hold")
        return self.read(key, value)

    def configure(self, entries: dict[str, Any]) -> None:
        self.host.admission.watched.difference_update(self.uses.values())
        self.uses.clear()
        for record in self.counted.values():
            self._take_out(record)
        self.host.admission.recount()

    # -- the life of a job -------------------------------------------------------------------------

    def alloc(self, job: PendingJob, attributes: SystemAttributes) -> None:
        userid = -1 if job.userid is None else job.userid
        uses = self.uses_of(userid, attributes)
        if uses:
            self._enter(job.jobid, self.read_job(job, uses, attributes))

    def _enter(self, jobid: int, uses: dict[Any, Any], pending: int = 1) -> Counted:
        """Count a job in its uses, given with its needs of each. `pending`: 1 if it is pending, else 0."""
        record = self.counted.get(jobid)
        if record is None:
            record = self.counted[jobid] = Counted()
        record.needs, record.tally = (*record.needs, *uses.items()), None
        for use, needs in uses.items():
            use.jobs += not use.is_kept
            use.count_pending(needs, pending)
        return record

    def cancel(self, jobid: int) -> None:
        uses = self.uses_by_id(jobid)
        if uses:
            self._take_out(self.counted[jobid])
            self.host.admission.assure_no_more(jobid)
            for use, needs in uses.items():
                use.count_pending(needs, -1)
                use.waits_no_more(jobid)
            was_readmitted = jobid in self.host.admission.deferred.requeued
            for use in uses:
                if was_readmitted:  # perhaps ahead of others
                    self.readmit_for(use)
                use.jobs -= not use.is_kept
                if not (use.jobs or use.is_kept):
                    use.without_jobs()

    def _take_out(self, record: Counted) -> None:
        """Take the uses of this rule out of a record."""
        record.needs = tuple([pair for pair in record.needs if pair[0].rule.name != self.name])
        record.tally = None

    def uses_by_id(self, jobid: int) -> dict[Any, Any]:
        """Return the uses in which a job counts, with its needs of each."""
        needs = self.counted[jobid].needs if jobid in self.counted else ()
        return {use: each for use, each in needs if use.rule.name == self.name}

    def counts_in(
        self, jobids: Iterable[int] | None = None
    ) -> Iterator[tuple[int, Counted, Any, Any]]:
        """Yield (job id, its record, use, its needs of that) of some jobs (None: all)."""
        for jobid in list(self.counted if jobids is None else jobids):
            record = self.counted.get(jobid)
            if record is not None:
                for use, needs in record.needs:
                    if use.rule.name == self.name:
                        yield jobid, record, use, needs

    def hello(self, job: RunningJob) -> None:
        userid = job.userid if isinstance(job.userid, int) else -1
        uses = self.uses_of(userid, job.attributes)
        if uses:
            admission, jobid, now = self.host.admission, job.jobid, self.host.now()
            held, needs = admission.held_by(jobid), self.found(job, uses, job.attributes)
            before = self.counted.get(jobid)
            if before is not None and before.held is not None:  # another rule counts it
                admission.count(jobid, before, -1, now)
            record = self._enter(jobid, needs, 0)
            record.held, record.end = held, job.end
            admission.count(jobid, record, 1, now)

    def binding(self, uses: dict[Any, Any]) -> dict[Any, Any]:
        """Return the uses whose limit a job may not exceed."""
        return uses

    def check(self, job: PendingJob) -> Deferral | None:
        uses = self.uses_by_id(job.jobid)
        found = self.first_over(job, self.binding(uses) if job.demoted else uses)
        return found and self.defer(*found, job, uses)

    def why(self, job: PendingJob) -> str | None:
        found = self.first_over(job, self.binding(self.uses_by_id(job.jobid)))
        return found and self.sentence(*found, job)

    def wait(self, uses: Iterable[Any], key: Hashable, needs: dict[Any, Any]) -> None:
        """Note in some uses that jobs deferred with a key wait until there is room for `needs`."""
        for use in uses:
            use.waiting[key] = needs
            self.host.admission.watched.add(use)

    def readmit_for(self, use: Any, waiting: Any = None) -> None:
        """Readmit the jobs that wait for a use and may start now. `waiting`: the items of
        `Use.waiting` to look at; None: all."""
        groups_of = self.host.admission.deferred.groups
        for key, needs in list(use.waiting.items()) if waiting is None else waiting:
            if not groups_of(self, key):
                del use.waiting[key]
                continue
            room = room_for(needs)
            if room >= 1:
                self.host.readmit_in_turn(self, key, 1 if room == inf else room)

    def has_room(self, job: PendingJob, key: Hashable, is_offered: bool) -> bool:
        """Whether there can be room for `job`, deferred with a key. `is_offered`: whether the pool
        certainly has an offer for it."""
        for use in self.uses_by_id(job.jobid):
            if key in use.waiting:
                return room_for(use.waiting[key]) >= 1
        return True

    def first_over(
        self, job: PendingJob, uses: dict[Any, Any], held: Holding | None = None
    ) -> tuple[Any, int] | None:
        """Return the first of some uses with too little left for a job, and the dimension; None:
        there is none. `held`: its resources; None: the minimum."""
        for use, needs in uses.items():
            at = use.over(use.adds(needs, job, held))
            if at is not None:
                return use, at
        return None

    def without_gpus(self, job: PendingJob) -> Iterator[Any]:
        """Yield the request of a job limited to nodes without GPUs, if there are others: whole
        nodes come with theirs."""
        request = job.resource_request
        if hasattr(request, "on_ranks"):
            ranks = self.host.facts.ranks_of(request)
            some = sum(mask for _, gpus, mask in self.host.resources.node_kinds() if not gpus)
            if 0 < ranks & some < ranks:
                yield request.on_ranks(some)

    # -- answers -----------------------------------------------------------------------------------

    def jobs_over(
        self,
        entries: dict[str, Any],
        names: list[str],
        running: list[RunningJob],
        pending: list[PendingJob],
    ) -> Iterator[JobsOver | None]:
        rule = self.trial(entries)
        for run in running:
            rule.hello(run)
            yield None
        for use in rule.uses.values():
            at = use.over([0] * len(use.used)) if use.entry.name in names else None
            if at is not None:
                its = [name_of(jobid) for jobid, _, one, _ in rule.counts_in() if one is use]
                text = str(rule.sentence(use, at, None))
                yield JobsOver(use.entry.name, text, "running", its)
        for one in pending:
            job = copy(one)  # a copy: rules may change its request
            try:
                rule.alloc(job, SystemAttributes.of_job(job))
            except ValueError as exc:
                yield JobsOver(getattr(exc, "entry", names[0]), str(exc), "pending", [job.name])
                continue
            uses = rule.uses_by_id(job.jobid).items()
            found = rule.first_over(job, {u: n for u, n in uses if u.entry.name in names})
            if found is not None:
                text = str(rule.sentence(*found, job))
                yield JobsOver(found[0].entry.name, text, "pending", [job.name])
            yield None

    def trial(self, entries: dict[str, Any]) -> Self:
        """Return a rule of this class for a trial of some entries, without jobs."""
        rule = type(self)(self.host, self.errors)
        rule.counted, rule.entries = {}, entries
        return rule


class ScopedRule(CountingRule):
    """Counts jobs by the scopes of its entries. A subclass also implements:

    - ``new_use(rule, entry, key)``, which returns a `ScopedUse`;
    - ``alternatives(use, at, job, uses)``: yield requests for less, or for other ranks, to try for a
      job with these uses, if it is offered too much of `use` in dimension `at`;
    - ``figures(use)``: its fields in `report`.
    """

    new_use: Callable[..., Any]
    alternatives: Callable[..., Iterator[Any]]
    figures: Callable[..., dict[str, Any]]

    def needs(self, entries: dict[str, Any]) -> tuple[str, ...]:
        return ("jobspec",) if any(one.scope.needs_jobspec for one in entries.values()) else ()

    def uses_of(self, userid: int, attributes: SystemAttributes) -> tuple[Any, ...]:
        uses = []
        for entry in self.entries.values():
            key = entry.scope.key_of(userid, attributes, self.host.queue_names)
            if key is not None:
                uses.append(self.use_of(entry, key))
        return tuple(uses)

    def use_of(self, entry: Any, key: tuple[Any, ...]) -> Any:
        """Return the use of an entry by the jobs of a key, made if there is none."""
        use = self.uses.get((entry.name, key))
        if use is None:
            use = self.uses[entry.name, key] = self.new_use(self, entry, key)
            if self.host.decision.looks_past_heads:
                use.promised = use.bounds
        return use

    def second_look(self, job: PendingJob, held: Holding) -> Deferral | None:
        """Return None if a job, which is within its bounds, may start with `held`, which is other than
        the minimum of its request, else the reason; the allocation is then freed."""
        uses = self.uses_by_id(job.jobid)
        binding, admission = self.binding(uses), self.host.admission
        found = self.first_over(job, binding, held)
        if found is None:
            return None
        deferral = self.defer(*found, job, uses, held)
        if not admission.is_question:
            shape = getattr(job.resource_request, "shape", None)
            admission.offers[self, deferral.key] = shape
        return deferral._replace(instead=self.alternatives(*found, job, binding))

    def fewer(self, request: Any, least: Sequence[float], uses: dict[Any, Any]) -> Iterator[Any]:
        """Yield a range request reduced to the nodes, cores and GPUs that are left of some uses;
        nothing if it is not a range, or its minimum, `least`, is too much."""
        shape: Any = getattr(request, "shape", None)
        changes: dict[str, Any] = {}
        left = [min(one) for one in zip(*[use.left_for(needs) for use, needs in uses.items()])][:3]
        for first, key in enumerate(("node_count", "slot_count")):
            count = getattr(shape, key, None)  # that of a site's own pool has none
            if count is None or count.fixed:
                continue
            # Slots take no certain number of nodes.
            amounts = zip(left[first:], least[first:])
            rooms = [int(rest * count.min / each) for rest, each in amounts if rest < inf and each]
            # With two ranges the slots keep their minimum: this is certain to be within the limit.
            chosen = count.floor(min(rooms)) if rooms and not changes else count.min
            if chosen is None:
                return
            changes[key] = ResourceCount.parse(chosen)
        if changes:
            yield request.with_shape(shape.replace(**changes))

    # -- answers -----------------------------------------------------------------------------------

    def report(self, caller: Caller) -> Iterator[dict[str, Any] | None]:
        own, order = set[Any](), list(self.entries)
        for number, (jobid, _, use, _) in enumerate(() if caller.sees_all else self.counts_in()):
            job = self.host.running.get(jobid) or self.host.pending(jobid)
            if job is not None and job.userid == caller.userid:
                own.add(use)
            if number % JOBS_PER_STEP == 0:
                yield None
        place = lambda use: (order.index(use.entry.name), str(use.key))
        for use in sorted(self.uses.values(), key=place):
            scope = use.entry.scope
            if caller.sees_all or use in own or scope.per in ("queue", "instance"):
                entry = {
                    self.name: use.entry.name,
                    "per": scope.per,
                    "whose": use.whose,
                    "queues": list(scope.queues),
                    **self.figures(use),
                    "waiting": self.waiting(use),
                }
                yield Owned(entry, use.userid)

    def facts_of(self, use: Any, at: int, **more: Any) -> dict[str, Any]:
        """Return the fields of `facts` about a use that keeps a job from starting."""
        entry = use.entry
        fields = {"name": entry.name, "whose": use.whose, "max": entry.most[at], **more}
        return {self.name: Owned(fields, use.userid)}

    def waiting(self, use: Any) -> int:
        """Return the number of jobs that wait for a use."""
        return sum(self.host.admission.deferred.count(self, key) for key in use.waiting)


def room_for(needs: dict[Any, Any]) -> float:
    """Return the number of jobs that could start with these needs of some uses."""
    return min([float(use.room(each)) for use, each in needs.items()])
