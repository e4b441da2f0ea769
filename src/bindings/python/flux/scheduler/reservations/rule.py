# SPDX-License-Identifier: LGPL-3.0-or-later
"""Reservations as an admission rule, which keeps reserved resources from jobs outside the group.

*Before a window begins*, it is a promise in the plan with a fixed start: a number of whole nodes, a
start and a duration. Every start or promise made through that plan respects it, and ranks are chosen
as late as for any promise. Nodes that running jobs hold beyond its start are kept as well: no other
job starts on them, and promises to jobs give way. Repeating windows are entered
`reservation.WINDOWS_PLANNED` ahead, the last without an end, so that no job outlives it.

*When it begins*, the ranks are chosen, and their free part is allocated to a *placeholder*, which
belongs to no job (its id is negative): the pool sees allocated resources, and the plan sees when
they are freed. Nodes still in use are added as they become free. *When it ends*, the placeholder is
freed, and blocked jobs are examined.

*A job of the group* that starts inside is placed on the placeholder's resources; the placeholder
keeps the rest, and takes the job's resources back at its end. It gets a new id each time, since a
plan identifies an allocation by id and end. A job that does not fit inside may use idle resources
outside, but none are kept for it there and no job waits behind it: it is deferred until a release.

Reservations made by request are stored in the KVS under `KEY` before the request is answered. Those
in the configuration, ``[reservations.NAME]``, are read when it is loaded or reloaded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from math import inf
from typing import Any

from flux.resource.errors import InfeasibleRequest
from flux.resource.plan.plan import Plan
from flux.resource.pool.masks import idset_text, popcount, to_mask
from flux.resource.ResourcePool import ResourcePool
from flux.scheduler.admission import NO_ROOM, Deferral, GivingRule
from flux.scheduler.attributes import SystemAttributes
from flux.scheduler.checkpoint import VERSION, read_stored
from flux.scheduler.host import Timer, counted, name_of
from flux.scheduler.pools import missing_hosts
from flux.scheduler.query.answering import Caller, Entries, Steps, payload_of, read
from flux.scheduler.requests import PendingJob, RunningJob
from flux.scheduler.reservations.answers import ReservationAnswers
from flux.scheduler.reservations.reservation import (
    OVER,
    WINDOWS_PLANNED,
    Applicant,
    Reservation,
    ReservationState,
)
from flux.scheduler.rule_host import RuleHost
from flux.scheduler.site_policy.tables import properties_missing, queues_missing
from flux.scheduler.times import duration_text, iso_time

#: KVS key of the stored reservations.
KEY = "checkpoint.sched-reservations"

#: Maximum number of reservations: each release of resources iterates over all of them.
MAX_RESERVATIONS = 1000

#: Key of the deferral of a job that fits between no two windows of a reservation.
NO_GAP = "no gap"

#: Maximum number of deferred jobs examined again after a release. Each costs a search of the pool,
#: and the cost of a release must not grow with the number of jobs that wait for a reservation.
DEFERRED_JOBS_RETRIED = 32


class ReservationRule(GivingRule):
    """Keeps reserved resources from jobs outside the group, and allocates them to those inside."""

    name = "reservation"
    attributes = ("reservation",)
    engaged = False  # there are no reservations yet
    by_shape = True

    host: RuleHost

    def __init__(self, host: RuleHost) -> None:
        super().__init__(host)
        self.entries: dict[str, ReservationState] = {}  # name -> reservation
        self.answers = ReservationAnswers(host, self.entries)  # reasons and descriptions
        self.group_jobs = self.answers.group_jobs
        #: whether the running jobs are in the pool, so that free resources may be taken
        self._open = False
        #: whether other ranks were chosen since they were stored
        self._chosen = False
        self._timer: Timer | None = None
        #: names of reservations that repeat -> the start of their next window, and the longest time
        #: between two
        self._gaps: dict[tuple[str, ...], tuple[float, float]] = {}
        self.service = ReservationService(host, self)

    def _engage(self) -> None:
        """Update `engaged` after the reservations, or the pending jobs that name one, have
        changed."""
        self._gaps.clear()
        adds = bool(self.group_jobs)
        self.host.admission.engage(self, adds or bool(self.entries), adds)

    def _wake(self) -> None:
        """Let deferred jobs be examined after a window began or ended, or a reservation was made or
        given up."""
        self._gaps.clear()
        self.host.readmit(self)
        deferred = self.host.admission.deferred
        for jobid in self.group_jobs:
            if jobid in deferred:  # by a limit, which may let it start in its window
                deferred.requeue(deferred.by_id[jobid][0])
        self.host.look_again()

    # -- the table ---------------------------------------------------------------------------------

    def add(self, entry: ReservationState) -> None:
        """Enforce a reservation from now on, even if some of its nodes are not in the instance at
        present. Raises ValueError if the name is in use, or all its windows are over."""
        self.check_new(entry)
        self.entries[entry.name] = entry
        self._engage()
        self._plan(entry)
        if self._open and not self.tick():
            self._wake()  # promises and estimates may have changed
        self._store_chosen()
        self._arm()

    def check_new(self, entry: ReservationState) -> None:
        """Check that a reservation can be added; exceptions are those of `add`."""
        name, recurrence = entry.name, entry.reservation.recurrence
        if name in self.entries:
            raise ValueError(f"reservation {name} exists already: unreserve it first")
        if entry.window is OVER:
            end = recurrence.start + entry.reservation.duration
            raise ValueError(f"reservation {name}: its last window ended at {iso_time(end)}")
        expiration = self.host.resources.expiration
        if expiration and recurrence.start >= expiration:
            raise ValueError(f"reservation {name}: the instance ends before it begins")

    def check_nodes(self, entry: ReservationState) -> None:
        """Raise ValueError if the instance lacks nodes of a reservation."""
        name, nodes = entry.name, entry.wanted
        missing = missing_hosts(self.host.resources, entry.reservation.hosts or "")
        if missing:
            raise ValueError(f"reservation {name}: hosts={missing}: not in this instance")
        if not nodes:
            raise ValueError(f"reservation {name}: no node of this instance meets its constraint")
        try:
            request = entry.request(nodes, entry.reservation.duration)
            self.host.resources.check_feasibility(request)
        except InfeasibleRequest as exc:
            raise ValueError(f"reservation {name}: {exc}") from None

    def remove(self, name: str) -> None:
        """Give up a reservation; jobs inside continue as ordinary jobs. Raises ValueError if there
        is no such reservation."""
        entry = self.entries.pop(name, None)
        if entry is None:
            raise ValueError(f"there is no reservation {name}")
        self._engage()
        entry.dismiss()
        entry.window, entry.active = OVER, False
        entry.update_plan()
        self.refill()  # other reservations may be short of its nodes
        self._wake()
        self._arm()

    # -- time --------------------------------------------------------------------------------------

    def tick(self) -> bool:
        """Begin and end the windows that are due, and add nodes that became free. Return whether
        resources were freed for others, or deferred jobs may start."""
        if not self._open:
            return False
        now = self.host.now()
        changed = False
        # Windows that are over end first: others may be short of their nodes.
        for entry in self.entries.values():
            while entry.window.end <= now:
                changed = True
                self._end_window(entry, now)
        begun = [one for one in self.entries.values() if one.window.start <= now and not one.active]
        for entry in begun:
            entry.active = True
        if changed or begun:
            self.refill(begun)
            self._wake()
        return changed or bool(begun)

    def _arm(self) -> None:
        """Schedule `tick` for when it is due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        entries = self.entries.values()
        times = [one.window.end if one.active else one.window.start for one in entries]
        if min(times, default=inf) < inf:
            self._timer = self.host.call_at(min(times), self._fired)

    def _fired(self) -> None:
        self.host.errors.guard("reservations", self.tick)
        self._arm()

    def _end_window(self, entry: ReservationState, now: float) -> None:
        log = self.host.log
        if entry.active:
            log.info(f"reservation {entry.name}: the window has ended")
        entry.dismiss()
        entry.active = False
        entry.set_window(now)
        self._plan(entry)
        if entry.window is OVER:
            log.info(f"reservation {entry.name} is over")

    def _plan(self, entry: ReservationState) -> None:
        """Choose the ranks of a pinned reservation, and have the plan keep its windows."""
        before = entry.ranks
        if self._open:
            entry.pin()
            self._chosen |= entry.ranks != before
        if not entry.update_plan():
            self.host.planning.check_promises()

    def attach(self, plan: Plan | None) -> None:
        """Enter all windows into the plan, which is new; None: the previous plan is void."""
        for entry in self.entries.values():
            entry.planned = {}
            entry.update_plan()

    # -- resources ---------------------------------------------------------------------------------

    @property
    def _are_short(self) -> bool:
        """Whether windows lack room, so that nodes in use are kept for them."""
        plan = self.host.planning.made()
        return plan is not None and plan.is_short

    def refill(self, begun: Collection[ReservationState] = ()) -> None:
        """Take reserved resources that were released or came up, or whose windows have `begun`,
        before any job is examined."""
        has_others = False
        for entry in self.entries.values():
            if entry.active:
                before = entry.ranks
                has_others |= entry.fill()
                if entry.ranks != before or entry in begun:
                    self._chosen |= entry.ranks != before
                    has_others |= not entry.update_plan()
        # A window may have begun on other nodes than those planned, or others may be kept for it
        # now. Promises on these are void, and must be dropped before they cause a job to be refused.
        if has_others or self._are_short:
            self.host.planning.check_promises()
        self.host.readmit(self, NO_ROOM, DEFERRED_JOBS_RETRIED)
        self._store_chosen()

    def _store_chosen(self) -> None:
        """Store the chosen ranks, if there are others."""
        if self._chosen:
            self._chosen = False
            self.service.store()

    # -- a job that waits --------------------------------------------------------------------------

    def alloc(self, job: PendingJob, attributes: SystemAttributes) -> None:
        name = attributes.reservation
        if name is not None:
            userid = -1 if job.userid is None else job.userid
            applicant = Applicant(userid, attributes.queue, attributes.bank)
            self.group_jobs[job.jobid] = (name, applicant)
            self.host.admission.kept_for[job.jobid] = self
            self._engage()

    def signature(self, job: PendingJob) -> Hashable:
        return self.answers.reservation_of(job)

    def check(self, job: PendingJob) -> Deferral | None:
        _, reason = self.answers.state_of(job)
        if reason is None and (reason := self._fits_no_gap(job)) is not None:
            return Deferral(reason, key=NO_GAP)
        return None if reason is None else Deferral(reason)

    def _fits_no_gap(self, job: PendingJob) -> str | None:
        """Return why a job can start at no time while reservations repeat, or None: outside of
        their windows too few nodes remain for as long as its limit, before the next one and between
        any two."""
        entries = [one for one in self.entries.values() if one.reservation.recurrence.every]
        if not entries or job.jobid in self.group_jobs:
            return None
        request = job.resource_request
        length = getattr(request, "duration", 0.0) or inf
        if not self._are_close(entries, length):
            return None
        wanted = outside = self.host.facts.ranks_of(request)
        in_the_way, close = [], []
        for entry in entries:
            ranks = entry.matching
            nodes = entry.wanted
            is_all = nodes >= popcount(ranks)
            left = wanted & ~ranks if is_all else wanted
            kept = 0 if is_all else max(0, nodes - popcount(ranks & ~wanted))
            if not self._suffice(left, request, kept):
                in_the_way.append(entry)
            if is_all and wanted & ranks and self._are_close([entry], length):
                close.append(entry)
                outside &= ~ranks
        if not self._are_close(in_the_way, length):
            if self._suffice(outside, request):
                return None
            in_the_way = close
        names = " or ".join(entry.name for entry in in_the_way)
        what = "time limit too long" if length < inf else "no time limit: it would not end"
        return f"{what} between two windows of reservation {names}"

    def _suffice(self, ranks: int, request: Any, kept: int = 0) -> bool:
        """Whether idle ranks (a mask) without the smallest `kept` of them suffice for a request."""
        shape = getattr(request, "shape", None)
        if shape is None:
            return popcount(ranks) - kept >= max(1, getattr(request, "nnodes", 1))
        of_nodes = shape.node_count is not None
        left: int = (shape.node_count if of_nodes else shape.slot_count).min
        for slots, mask in sorted(self.host.resources.slots_by_rank(shape)):
            less = min(kept, popcount(mask & ranks))
            left -= (1 if of_nodes else slots) * (popcount(mask & ranks) - less)
            kept -= less
        return left <= 0

    def _are_close(self, entries: list[ReservationState], length: float) -> bool:
        """Whether a time is longer than that before the next window of some reservations that
        repeat, and between any two of their windows."""
        names, now = tuple(entry.name for entry in entries), self.host.now()
        if names not in self._gaps:
            first, longest, time = inf, 0.0, now
            for _ in range(WINDOWS_PLANNED * len(entries)):
                found = [entry.reservation.window_at(time) for entry in entries]
                windows = [one for one in found if one is not None]
                if not windows:
                    longest = inf
                    break
                window = min(windows, key=lambda one: one.start)
                longest = max(longest, window.start - time) if first < inf else longest
                first = min(first, window.start)
                time = max(time, window.end)
            self._gaps[names] = first, longest
        first, longest = self._gaps[names]
        return longest < length and first < now + length

    def allocate(self, job: PendingJob, plan: Plan) -> ResourcePool | None:
        entry, _ = self.answers.state_of(job)
        if entry is None or not entry.active:
            return None  # it is placed inside the active window only
        return entry.allocate(job, plan)

    def jobs_in_windows(self) -> set[PendingJob]:
        """Return the pending jobs of groups whose windows have begun.  O(jobs of groups)."""
        begun = {name for name, entry in self.entries.items() if entry.active}
        ids = [jobid for jobid, (name, _) in self.group_jobs.items() if name in begun]
        return {job for job in map(self.host.pending, ids) if job is not None}

    def keeps_promise(self, job: PendingJob) -> bool:
        """Whether no job of a group can delay a promised start by running on after its window."""
        plan, ranks = self.host.planning.made(), self.host.facts.ranks_of(job.resource_request)
        start = plan.start_of(job.jobid) if plan is not None and plan.has(job.jobid) else inf
        return not any(
            entry.window.end <= start and entry.matching & ranks
            for entry in self.entries.values()
            if entry.reservation.at_end == "run" and not entry.reservation.is_maintenance
        )

    def why(self, job: PendingJob) -> str | None:
        return self._fits_no_gap(job) or self.answers.cause_of_wait(job)[0]

    def cancel(self, jobid: int) -> None:
        if self.group_jobs.pop(jobid, None) is not None:
            del self.host.admission.kept_for[jobid]
            self._engage()

    def start(self, job: PendingJob, alloc: ResourcePool) -> None:
        self.cancel(job.jobid)
        # Promises of resources that the window's end would free may break.
        inside = self._inside(job.jobid)
        if inside and not 0 < self.host.admission.own_ends[job.jobid] <= inside.window.end:
            self.host.planning.doubt()

    def _inside(self, jobid: int) -> ReservationState | None:
        """Return the reservation in whose window a running job was started, or None."""
        if jobid not in self.host.admission.own_ends:
            return None
        return next((one for one in self.entries.values() if jobid in one.inside), None)

    # -- a job that runs ---------------------------------------------------------------------------

    def hello(self, job: RunningJob) -> None:
        entry = self.entries.get(job.attributes.reservation or "")
        if entry is not None and not entry.reservation.is_maintenance:
            if entry.window.start <= job.start:
                entry.found_inside(job.jobid)

    def free(self, jobid: int, R: Any, final: bool) -> None:
        inside = self._inside(jobid) if final else None
        if inside is not None:
            inside.ended(jobid)
        if self.entries:
            self.refill()

    def extended(self, jobid: int, expiration: float) -> None:
        inside = self._inside(jobid)
        if inside is not None:
            inside.note_inside(jobid, expiration)
        # Reaching into a window is allowed, and logged.
        for entry in self.entries.values():
            if any(job["id"] == jobid for job in self.answers.in_the_way(entry)):
                zone = entry.reservation.recurrence.zone
                end = f"ends at {iso_time(expiration, zone)}" if expiration else "has no end"
                self.host.log.warning(
                    f"{name_of(jobid)} {end} now and is in the way of reservation {entry.name}, "
                    f"which begins at {iso_time(entry.window.start, zone)}: allowed"
                )
        if self._are_short:
            self.refill()  # a window may be short of this job's nodes

    # -- the start, resources and plans ------------------------------------------------------------

    def open(self) -> None:
        """Begin windows: all running jobs are known, so that the pool shows no node of theirs as
        free."""
        self._open = True
        for entry in self.entries.values():
            self._plan(entry)
        self.tick()
        self._store_chosen()
        self._arm()

    def ranks_changed(self, lost: bool) -> None:
        if self.entries:
            self.host.readmit(self, NO_GAP)
            for entry in self.entries.values():
                self._plan(entry)
            self.host.planning.check_promises()  # the windows take ranks that have come up
            self.refill()

    # -- answers -----------------------------------------------------------------------------------

    def facts(self, job: PendingJob) -> dict[str, Any]:
        return self.answers.facts(job)

    def stats(self) -> dict[str, Iterable[Any]]:
        return {"reservations": map(self.answers.describe, list(self.entries.values()))}


class ReservationService:
    """Answers requests about reservations, and stores reservations across reloads."""

    table = "reservations"  # the table of the configuration

    def __init__(self, host: RuleHost, rule: ReservationRule) -> None:
        self._host, self._rule = host, rule
        #: by name of a reservation, the ranks (a mask) that the scheduler before this one chose
        self._restored: dict[str, int] = {}

    # -- the start ---------------------------------------------------------------------------------

    def load(self) -> None:
        """Read the reservations from the KVS. Raises ValueError if the stored text is unreadable;
        to ignore it would let jobs start on reserved nodes."""
        try:
            stored = read_stored(self._host.handle, KEY, self._parse)
        except ValueError as exc:
            hint = "where the instance does not start, in `flux start --recovery`"
            raise ValueError(f"{exc}; {hint}") from None
        for reservation in stored or ():
            if reservation.window_at(self._host.now()) is None:
                self._host.log.info(f"reservation {reservation.name} is over")
                continue
            self._add(reservation, configured=False)

    def _parse(self, stored: Any) -> list[Reservation]:
        now = self._host.now()
        self._restored = {name: to_mask(ids) for name, ids in stored.get("ranks", {}).items()}
        return [Reservation.from_dict(entry, now) for entry in stored.get("reservations", ())]

    def _add(self, reservation: Reservation, configured: bool) -> None:
        entry = ReservationState(self._host, self._rule.entries, reservation, configured)
        entry.restore(self._restored.pop(entry.name, 0))
        try:
            self._rule.add(entry)
        except ValueError as exc:
            where = "configuration: " if configured else ""
            self._host.log.warning(f"{where}{exc}")

    def configure(self, entries: dict[str, Reservation]) -> None:
        """Replace the reservations of the configuration by those in its table, except unchanged
        ones."""
        wanted = dict(entries)
        for name, entry in list(self._rule.entries.items()):
            if entry.configured:
                if wanted.get(name) == entry.reservation:
                    del wanted[name]
                else:
                    self._rule.remove(name)
        for reservation in wanted.values():
            self._add(reservation, configured=True)
        self._restored.clear()

    def _check_pool(self) -> None:
        if not self._host.planning.pool_can("plan"):
            raise ValueError("the pool of this scheduler cannot plan, so nothing can be reserved")

    def read_table(self, name: str, table: Any) -> Reservation:
        """Parse an entry of the table. Raises ValueError if it is invalid."""
        self._check_pool()
        if not isinstance(table, dict):
            raise ValueError(f"{table!r}: expected a table")
        now, entry = self._host.now(), {**table, "name": name}
        if "at-end" in entry:  # as in other tables, and as the option
            entry["at_end"] = entry.pop("at-end")
        try:
            reservation = Reservation.from_dict(entry, now)
        except ValueError as exc:
            raise ValueError(str(exc).replace(f"reservation {name}: ", "", 1)) from None
        if Reservation.from_dict(entry, now + 40 * 86400) != reservation:
            # each reload would move it
            raise ValueError(f"start={table['start']!r} depends on when it is read: give a date")
        return reservation

    def doubts(self, entries: dict[str, Reservation]) -> Iterator[str]:
        """Yield why valid entries of the table could not be reserved by ``sched.reserve``, and
        those without enough nodes beside others."""
        rule = self._rule
        others = [one for one in rule.entries.values() if not one.configured]
        for name, reservation in entries.items():
            entry = ReservationState(self._host, rule.entries, reservation)
            try:
                if name not in rule.entries:
                    rule.check_new(entry)
                rule.check_nodes(entry)
            except ValueError as exc:
                yield f"configuration: {exc}"
                continue
            others.append(entry)
            for text in self._doubts_of(entry, others):
                yield f"configuration: reservation {name}: {text}"

    def _doubts_of(
        self, entry: ReservationState, others: Iterable[ReservationState]
    ) -> Iterator[str]:
        """Yield the probable mistakes in a reservation that can be made beside others."""
        yield from properties_missing(entry.reservation.requires or {}, self._host.resources)
        names = self._rule.answers.overlapping(entry, others)
        if names:
            yield f"not enough nodes for it beside reservation {', '.join(names)}"

    # -- requests ----------------------------------------------------------------------------------

    def reserve(self, msg: Any) -> None:
        """Make a reservation, or with ``dry_run`` only report conflicts. Raises ValueError if it
        cannot be made; the text says why."""
        asked = read(payload_of(msg), reservation=None, dry_run=False)
        if not isinstance(asked["dry_run"], bool):
            raise ValueError(f"dry_run={asked['dry_run']!r} is invalid: expected true or false")
        scheduler, rule = self._host, self._rule
        self._check_pool()
        if len(rule.entries) >= MAX_RESERVATIONS:
            raise ValueError(f"there are {MAX_RESERVATIONS} reservations already")
        reservation = Reservation.from_dict(asked["reservation"], scheduler.now())
        new = ReservationState(scheduler, rule.entries, reservation)
        rule.check_new(new)
        rule.check_nodes(new)
        warnings = [*self._doubts_of(new, rule.entries.values())]
        warnings += queues_missing(reservation.queues, scheduler.configuration())
        if reservation.is_maintenance and reservation.at_end != "cancel":
            warnings.append("no job can be in it, so at_end has no effect")
        answer = {"now": scheduler.now(), "warnings": warnings}
        answer["conflicts"] = rule.answers.in_the_way(new)
        if not asked["dry_run"]:
            rule.add(new)
        answer["reservation"] = shown = rule.answers.describe(new)
        if asked["dry_run"]:
            scheduler.handle.respond(msg, answer)
            return
        start = iso_time(reservation.recurrence.start, reservation.recurrence.zone)
        scheduler.log.info(
            f"reservation {reservation.name} made: {counted(shown['nodes'], 'node')}, {start}, for "
            f"{duration_text(reservation.duration)}"
        )
        self.store(lambda: scheduler.handle.respond(msg, answer))

    def unreserve(self, msg: Any) -> None:
        """Give up a reservation. Raises ValueError if there is no such reservation, or it is
        configured."""
        asked = read(payload_of(msg), name=None)
        name = asked["name"]
        if not isinstance(name, str):
            raise ValueError("name is missing")
        entry = self._rule.entries.get(name)
        if entry is not None and entry.configured:
            raise ValueError(
                f"reservation {name} comes from the configuration: take out [reservations.{name}] "
                "and use flux config reload"
            )
        self._rule.remove(name)
        self._host.log.info(f"reservation {name} removed")
        self.store(lambda: self._host.handle.respond(msg, {"now": self._host.now()}))

    def list(self, payload: Any, caller: Caller) -> Steps:
        """List all reservations by start; for a guest without groups and the jobs in their way."""
        read(payload)
        shown = Entries(caller, "sched.reservations.reservations")
        entries = self._rule.entries.values()
        for entry in sorted(entries, key=lambda one: (one.shown.start, one.name)):
            one = self._rule.answers.describe(entry)
            if caller.sees_all:
                yield
                one["in_the_way"] = self._rule.answers.in_the_way(entry)
            else:
                one["group"] = "some" if one["group"] else ""
            shown.append(one)
            yield
        return {"now": self._host.now(), "reservations": shown}

    def store(self, stored: Callable[[], None] = lambda: None) -> None:
        """Store the reservations made by request, and the chosen ranks of all; then call
        ``stored()``."""
        entries = self._rule.entries.values()
        requested = [entry.reservation.to_dict() for entry in entries if not entry.configured]
        ranks = {entry.name: idset_text(entry.ranks) for entry in entries if entry.ranks}
        value = {"version": VERSION, "reservations": requested, "ranks": ranks}
        self._host.store(KEY, json.dumps(value), stored)
