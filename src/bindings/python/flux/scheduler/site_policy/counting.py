# SPDX-License-Identifier: LGPL-3.0-or-later
"""Rules that count what jobs hold: limits, budgets, licences and fair share.

A job counts in a `Use` of each entry of the table that applies to it: from its request with its
minimum, and from its start to its final ``sched.free`` with what it holds. The entries of limits
and budgets have a `Scope`, which groups the jobs of a user, a bank or a queue by keys, and maxima.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, TypeVar

from flux.resource.ResourceCount import ResourceCount
from flux.scheduler.admission import CountedRule
from flux.scheduler.attributes import SystemAttributes
from flux.scheduler.disclosure import Owned
from flux.scheduler.host import name_of
from flux.scheduler.site_policy.fields import user_name
from flux.scheduler.site_policy.table_rule import JobsOver, TableRule

if TYPE_CHECKING:
    from typing_extensions import Self

    from flux.scheduler.admission import Change
    from flux.scheduler.host import ErrorReporter
    from flux.scheduler.query.answering import Caller
    from flux.scheduler.requests import PendingJob, RunningJob
    from flux.scheduler.rule_host import RuleHost
    from flux.scheduler.site_policy.fields import Fields
    from flux.scheduler.site_policy.holdings import Holding
    from flux.scheduler.site_policy.tables import QueueNames

N = TypeVar("N", int, float)

#: Jobs examined per step of an answer, if each costs a comparison.
JOBS_PER_STEP = 256

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
    """The jobs that a limit or a budget applies to.

    Attributes:
        queues, users, banks (tuple): only their jobs; empty: all jobs
        exempt_users, exempt_banks (tuple): jobs not included
    """

    per: str  # one of `PER`
    queues: tuple[str, ...]
    users: tuple[int, ...]
    banks: tuple[str, ...]
    exempt_users: tuple[int, ...]
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
        return bool(
            self.per not in ("user", "instance")
            or not self.in_reservations
            or self.queues
            or self.banks
            or self.exempt_banks
        )


def read_scope(
    table: Fields, read: Callable[[Fields, str], N | None], names: Iterable[str], example: str
) -> tuple[Scope, tuple[N | None, ...]]:
    """Take the keys of a scope from a table, and the maxima in ``max`` (None: no maximum).

    Args:
        read: method that takes a maximum
        names: the possible maxima, one of which is required
        example (str): example of ``max``

    Raises:
        ValueError: the entry is invalid; the text begins with the key
    """
    exempt = table.table("exempt")
    scope = Scope(
        table.choice("per", PER),
        queues=table.names("queues"),
        users=table.userids("users"),
        banks=table.names("banks"),
        exempt_users=() if exempt is None else exempt.userids("users"),
        exempt_banks=() if exempt is None else exempt.names("banks"),
        in_reservations=table.flag("in-reservations", True),
    )
    if exempt is not None:
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

    Attributes:
        rule (CountingRule): the entry's rule
        entry: the entry of the table
        key (tuple): what these jobs have in common
        jobs (int): number of pending and running jobs counted here
        waiting (dict): key of a deferral -> the needs of the jobs deferred with it
    """

    __slots__ = ("entry", "jobs", "key", "rule", "waiting")

    #: Whether it is kept without jobs.
    lasts = False

    def __init__(self, rule: Any, entry: Any, key: tuple[Any, ...]) -> None:
        self.rule, self.entry, self.key, self.jobs = rule, entry, key, 0
        self.waiting: dict[Any, Any] = {}

    def count_pending(self, known: Any, times: float) -> None:
        """Count the minimum of a pending job, by its record: `times` 1 when it arrives, -1 when it
        is pending no more."""

    def note_held(self, jobid: int, known: Any, ranks: int, more: Change, now: float) -> None:
        """Called when the resources that a job holds have changed.

        Args:
            known (Counted): the rule's record of the job
            ranks (int): mask of the ranks that it has taken or freed
            more (tuple): the numbers of nodes, cores and GPUs taken, below 0 if freed; and of jobs:
                1 if it has started, 0 if it has freed some resources, -1 if all
            now (float): the time, seconds since the epoch
        """

    def waits_no_more(self, jobid: int) -> None:
        """Called when a job has started or was canceled."""

    def forget(self) -> None:
        """Count one job less; without any, the use is dropped."""
        self.jobs -= 1
        if not self.jobs and not self.lasts:
            del self.rule.uses[self.entry.name, self.key]


class ScopedUse(Use):
    """The use of an entry with a ``name``, a ``scope`` and maxima, ``most``; the key has user id,
    bank or queue of the jobs, or two of them.

    Attributes:
        userid (int or None): their user, if it is the same for all
        bounds (list): (index of a dimension, maximum) of limited dimensions
        promised (list): the same, in which starts are promised: none in strict order
        used (list): use per dimension
        pending (list): what all pending jobs may add together, per dimension in `promised`
    """

    __slots__ = ("bounds", "pending", "promised", "used", "userid")

    def __init__(self, rule: Any, entry: Any, key: tuple[Any, ...]) -> None:
        super().__init__(rule, entry, key)
        parts = PER[entry.scope.per]
        self.userid = key[parts.index("user")] if "user" in parts else None
        self.bounds = [(at, most) for at, most in enumerate(entry.most) if most is not None]
        self.promised: list[tuple[int, Any]] = []
        self.used: list[Any] = [0] * len(entry.most)
        self.pending: list[Any] = [0] * len(entry.most)

    def count_pending(self, known: Any, times: float) -> None:
        pending, least = self.pending, known.least
        for at, _ in self.promised:
            pending[at] += times * least[at]

    def over(self, more: Sequence[float]) -> int | None:
        """Return the first dimension in which `more` would exceed the maximum, or None."""
        used = self.used
        for at, most in self.bounds:
            if used[at] + more[at] > most:
                return at
        return None

    @property
    def whose(self) -> str:
        """Owner of the counted jobs, in words; empty: all jobs."""
        found = []
        for what, value in zip(PER[self.entry.scope.per], self.key):
            if what == "user":
                found.append(user_name(value))
            else:
                found.append(f"{what} {value or '(none)'}")
        return ", ".join(found)


class Counted:
    """The record of a job that an entry applies to.

    Attributes:
        uses (tuple): the `Use` objects in which it counts, in the order of entries
        userid (int): its user; -1 if unknown
        least: the minimum that it takes; 0 of all if it was found running
    """

    __slots__ = ("least", "userid", "uses")

    def __init__(self, uses: tuple[Any, ...], userid: int) -> None:
        self.uses, self.userid = uses, userid
        self.least: Any = (0, 0, 0, 0)


class Denied(ValueError):
    """A job that can never run. `entry`: name of the entry that denies it."""

    def __init__(self, text: str, entry: str) -> None:
        super().__init__(text)
        self.entry = entry


class CountingRule(CountedRule, TableRule):
    """Counts jobs by the entries of its table. A subclass implements:

    - ``uses_of(userid, attributes)``: return the uses in which a job counts;
    - ``read_job(job, known, attributes)``: fill in the record of a new pending job, or raise
      ValueError if it can never run;
    - ``room(use, key, needs)``: the number of jobs deferred with a key for which there can be room;
    - for `jobs_over`, ``text_if_over(use)``: the use in words if running jobs exceed the maximum,
      else None, and ``objection(job, names)``: the first of some entries with too little left for a
      job, and why, or None.
    """

    new_job: Callable[..., Any] = Counted
    uses_of: Callable[..., tuple[Any, ...]]
    read_job: Callable[..., None]
    room: Callable[..., float]
    text_if_over: Callable[..., str | None]
    objection: Callable[..., tuple[str, str] | None]

    def __init__(self, host: RuleHost, errors: ErrorReporter) -> None:
        super().__init__(host, errors)
        self.uses: dict[Any, Any] = {}  # key -> `Use`
        #: job id -> {name of a rule: `Counted`}, in a trial only of this rule
        self.counted = host.admission.counted

    def configure(self, entries: dict[str, Any]) -> None:
        self.uses.clear()
        for records in self.counted.values():
            records.pop(self.name, None)
        self.host.admission.recount()

    # -- the life of a job -------------------------------------------------------------------------

    def alloc(self, job: PendingJob, attributes: SystemAttributes) -> None:
        userid = -1 if job.userid is None else job.userid
        uses = self.uses_of(userid, attributes)
        if uses:
            known = self.new_job(uses, userid)
            self.read_job(job, known, attributes)
            self._enter(job.jobid, known)

    def _enter(self, jobid: int, known: Any) -> None:
        self.counted.setdefault(jobid, {})[self.name] = known
        for use in known.uses:
            use.jobs += 1
            use.count_pending(known, 1)

    def cancel(self, jobid: int) -> None:
        known = self.counted.get(jobid, {}).pop(self.name, None)
        if known is not None:
            for use in known.uses:
                use.count_pending(known, -1)
                use.waits_no_more(jobid)
            was_readmitted = jobid in self.host.admission.deferred.requeued
            for use in known.uses:
                if was_readmitted:  # perhaps ahead of others
                    self.readmit_for(use)
                use.forget()

    def known(self, jobid: int) -> Any:
        """Return the record of a job, or None."""
        return self.counted.get(jobid, {}).get(self.name)

    def records(self) -> Iterator[tuple[int, Any]]:
        """Return the records of jobs, with their ids."""
        name = self.name
        return ((jobid, by[name]) for jobid, by in self.counted.items() if name in by)

    def counted_in(self, job: PendingJob) -> tuple[Any, ...]:
        """Return the uses in which a job counts."""
        return self.uses_by_id(job.jobid)

    def uses_by_id(self, jobid: int) -> tuple[Any, ...]:
        """Return the uses in which a job with this id counts."""
        known = self.known(jobid)
        return () if known is None else known.uses

    def hello(self, job: RunningJob) -> None:
        userid = job.userid if isinstance(job.userid, int) else -1
        uses = self.uses_of(userid, job.attributes)
        if uses:
            jobid, held = job.jobid, self.host.admission.held_by(job.jobid)
            known = self.new_job(uses, userid)
            self.found(jobid, known, job.attributes)
            self._enter(jobid, known)
            if self in self.host.admission.rules:  # this is not a trial
                self.host.admission.holds[jobid] = held
            for use in uses:
                use.note_held(jobid, known, held.ranks, (*held[1:], 1), self.host.now())

    def found(self, jobid: int, known: Any, attributes: SystemAttributes) -> None:
        """Fill in the record of a job found running."""

    def readmit_for(self, use: Any) -> None:
        """Readmit the jobs that wait for a use and may start now."""
        groups_of = self.host.admission.deferred.groups
        for key, needs in list(use.waiting.items()):
            if not groups_of(self, key):
                del use.waiting[key]
                continue
            room = self.room(use, key, needs)
            if room >= 1:
                self.host.readmit_in_turn(self, key, room)

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

    def waiting(self, use: Any) -> int:
        """Return the number of jobs that wait for a use."""
        return sum(self.host.admission.waiting(self, key) for key in use.waiting)

    def jobs_over(
        self,
        entries: dict[str, Any],
        names: list[str],
        running: list[RunningJob],
        pending: list[PendingJob],
    ) -> Iterator[JobsOver | None]:
        rule = self.trial(entries, names)
        for run in running:
            rule.hello(run)
            yield None
        for use in rule.uses.values():
            text = rule.text_if_over(use) if use.entry.name in names else None
            if text is not None:
                its = [name_of(id) for id, known in rule.records() if use in known.uses]
                yield JobsOver(use.entry.name, text, "running", its)
        for job in pending:
            found = rule.objection(job, names)
            if found is not None:
                yield JobsOver(*found, "pending", [job.name])
            yield None

    def trial(self, entries: dict[str, Any], names: list[str]) -> Self:
        """Return a rule of this class for a trial of some new or changed entries, without jobs."""
        rule = type(self)(self.host, self.errors)
        rule.counted, rule.entries = {}, {name: entries[name] for name in names}
        return rule


class ScopedRule(CountingRule):
    """Counts jobs by the scopes of its entries. A subclass also implements:

    - ``new_use(rule, entry, key)``, which returns a `ScopedUse`;
    - ``adds(use, job, held=None)``: what a job would add to a use with `held` or (None) its minimum;
    - ``sentence(use, at, job)``: why too little is left for a job in a dimension; None: for any job;
    - ``figures(use)``: its fields in `report`.
    """

    new_use: Callable[..., Any]
    adds: Callable[..., Sequence[float]]
    sentence: Callable[..., str]
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

    def report(self, caller: Caller) -> Iterator[dict[str, Any] | None]:
        own: set[Any] = set()
        for number, (_, known) in enumerate([] if caller.sees_all else list(self.records())):
            if known.userid == caller.userid:
                own.update(known.uses)
            if number % JOBS_PER_STEP == 0:
                yield None
        order = list(self.entries)
        for use in sorted(
            self.uses.values(), key=lambda use: (order.index(use.entry.name), str(use.key))
        ):
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

    def binding(self, uses: Sequence[Any]) -> Sequence[Any]:
        """Return those of some uses that a job may not exceed."""
        return uses

    def first_over(
        self, job: PendingJob, uses: Iterable[Any], held: Holding | None = None
    ) -> tuple[Any, int] | None:
        """Return the first of some uses with too little left for a job, and the dimension; None:
        there is none. `held`: its resources; None: the minimum."""
        for use in uses:
            at = use.over(self.adds(use, job, held))
            if at is not None:
                return use, at
        return None

    def is_certain(self, job: PendingJob, known: Any) -> bool:
        # It is certain to start if all pending jobs fit together. The numbers of cores and GPUs are
        # unknown for whole nodes of several kinds.
        cores, gpus = self.host.facts.unlike_nodes(job.resource_request)
        for use in self.binding(known.uses):
            if cores and use.entry.most[1] is not None or gpus and use.entry.most[2] is not None:
                return False
            if use.over(use.pending) is not None:
                return False
        return True

    def why(self, job: PendingJob) -> str | None:
        found = self.first_over(job, self.binding(self.counted_in(job)))
        return found and self.sentence(*found, job)

    def text_if_over(self, use: Any) -> str | None:
        at = use.over([0] * len(use.used))
        return None if at is None else str(self.sentence(use, at, None))

    def objection(self, job: PendingJob, names: list[str]) -> tuple[str, str] | None:
        try:
            self.alloc(job, SystemAttributes.of_job(job))
        except Denied as exc:
            return exc.entry, str(exc)
        found = self.first_over(job, self.counted_in(job))
        return found and (found[0].entry.name, str(self.sentence(*found, job)))


def no_more(request: Any, least: Sequence[float], left: Sequence[float]) -> Any:
    """Return a range request reduced to the remaining nodes, cores and GPUs; None if it is not a
    range, or its minimum, `least`, is too much."""
    shape = getattr(request, "shape", None)
    if shape is None:  # that of a site's own pool
        return None
    changes: dict[str, Any] = {}
    for first, key in enumerate(("node_count", "slot_count")):
        count = getattr(shape, key)
        if count is None or count.fixed:
            continue
        # Slots take no certain number of nodes.
        amounts = zip(left[first:], least[first:])
        rooms = [int(rest * count.min / each) for rest, each in amounts if rest < inf and each]
        # With two ranges the slots keep their minimum: this is certain to be within the limit.
        chosen = count.floor(min(rooms)) if rooms and not changes else count.min
        if chosen is None:
            return None
        changes[key] = ResourceCount.parse(chosen)
    return request.with_shape(shape.replace(**changes)) if changes else None
