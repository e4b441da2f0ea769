# SPDX-License-Identifier: LGPL-3.0-or-later
"""A reservation: resources kept by an administrator for a group of jobs, for some time.

While one of its *windows* lasts (it has several if it repeats), no job outside the group holds the
resources. A job belongs to the group if its jobspec names the reservation
(``attributes.system.reservation``) and the reservation admits its user, queue and bank. A
reservation without a group keeps its resources idle: it is a maintenance window.

The resources are a number of nodes, chosen as late as possible; hosts by name; or all nodes that
meet a constraint. A number may be combined with a constraint.

`Reservation` is the administrator's request; `ReservationState` has its window, chosen nodes and
allocations. A planned window is a promise in the plan. An active one has ranks, held by an allocation
that belongs to no job and lent to the jobs of the group.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from math import inf
from typing import Any, NamedTuple

from flux.hostlist import Hostlist
from flux.resource.errors import InsufficientResources
from flux.resource.plan.plan import Plan
from flux.resource.pool.masks import idset_text, popcount
from flux.resource.ResourcePool import ResourcePool
from flux.scheduler.requests import PendingJob
from flux.scheduler.rule_host import RuleHost
from flux.scheduler.site_policy.holdings import holding_of
from flux.scheduler.site_policy.tables import Fields, QueueNames
from flux.scheduler.times import LATEST, Recurrence, local_zone_name, parse_duration, parse_time

#: Actions on the group's running jobs at the end of a window.
AT_END = ("cancel", "run")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Window(NamedTuple):
    """One occurrence of a reservation, from `start` up to but not including `end`."""

    index: int  # type: ignore[assignment]  # not the tuple's method
    start: float
    end: float


class Applicant(NamedTuple):
    """A job that names a reservation, by the properties that decide whether it is in the group."""

    userid: int
    queue: str | None
    bank: str | None


def whole_nodes(
    nodes: int, duration: float, constraint: dict[str, Any] | None, cores: int = 1
) -> dict[str, Any]:
    """Return a jobspec (RFC 14) that requests whole nodes with at least some cores each."""
    core = {"type": "core", "count": cores}
    slot = {"type": "slot", "count": 1, "label": "reservation", "with": [core]}
    node = {"type": "node", "count": nodes, "exclusive": True, "with": [slot]}
    constraints = {} if constraint is None else {"constraints": constraint}
    return {
        "version": 1,
        "resources": [node],
        "tasks": [{"command": ["true"], "slot": "reservation", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": duration, **constraints}},
    }


#: In place of a window, after the last.
OVER = Window(-1, inf, inf)


@dataclass(frozen=True)
class Reservation:
    """An administrator's request for a reservation; immutable."""

    name: str  # letters, digits, ``.``, ``_``, ``-``; at most 64
    recurrence: Recurrence  # starts of its windows
    duration: float  # duration of each, seconds
    nodes: int | None = None  # number of nodes; None: all in `hosts` or `requires`
    hosts: str | None = None  # the nodes, by host name (RFC 29); None: any
    #: constraint on the nodes (RFC 31), or None
    requires: dict[str, Any] | None = field(default=None, hash=False)
    users: tuple[int, ...] = ()  # the group's user ids; empty: any user
    queues: tuple[str, ...] = ()  # its queues, each with its virtual queues; empty: any queue
    banks: tuple[str, ...] = ()  # its banks; empty: any bank
    #: action on its running jobs at the end of a window; ``"cancel"`` makes that their expiration,
    #: with ``"run"`` they continue as ordinary jobs
    at_end: str = "cancel"
    #: whether to choose the ranks when the reservation is made, rather than as late as possible
    pin: bool = False
    #: time at which it was made, seconds since the epoch
    made: float = field(default=0.0, compare=False)

    # -- group -------------------------------------------------------------------------------------

    @property
    def is_maintenance(self) -> bool:
        """Whether it is a maintenance window, without a group."""
        return not (self.users or self.queues or self.banks)

    def admits(self, applicant: Applicant, queue_names: QueueNames) -> bool:
        """Whether a job that names this reservation belongs to its group. `queue_names`: resolves
        queue names: a parent's name includes its virtual queues."""
        return (
            not self.is_maintenance
            and (not self.users or applicant.userid in self.users)
            and (not self.queues or queue_names.any_covers(self.queues, applicant.queue))
            and (not self.banks or applicant.bank in self.banks)
        )

    # -- windows -----------------------------------------------------------------------------------

    def window_at(self, when: float) -> Window | None:
        """Return the window that is active at `when`, else the next one, or None after the last.
        O(1)."""
        found = self.recurrence.next_end_after(when, self.duration)
        if found is None:
            return None
        index, start = found
        return Window(index, start, start + self.duration)

    def window_after(self, window: Window) -> Window | None:
        """Return the window after `window`, or None after the last.  O(1)."""
        if self.recurrence.every is None:
            return None
        start = self.recurrence.begin(window.index + 1)
        if start > LATEST:
            return None
        return Window(window.index + 1, start, start + self.duration)

    # -- nodes -------------------------------------------------------------------------------------

    @property
    def named(self) -> int | None:
        """The number of hosts named; None if there are none, or there is a constraint too."""
        if self.hosts is None or self.requires is not None:
            return None
        return len(set(Hostlist(self.hosts)))

    @property
    def constraint(self) -> dict[str, Any] | None:
        """The constraint on its nodes, including host names (RFC 31), or None."""
        parts = []
        if self.hosts is not None:
            parts.append({"hostlist": [self.hosts]})
        if self.requires is not None:
            parts.append(self.requires)
        if len(parts) == 2:
            return {"and": parts}
        return parts[0] if parts else None

    # -- as data -----------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the reservation as JSON values, for `Reservation.from_dict`."""
        times = {key: getattr(self.recurrence, key) for key in _TIMES}
        own = {key: getattr(self, key) for key in _KEYS - {*_TIMES}}
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in sorted({**times, **own}.items())
            if value is not None and value != ()
        }

    @classmethod
    def from_dict(cls, entry: object, now: float) -> Reservation:
        """Make a reservation from an entry of a request, the KVS or the configuration: an object
        with the keys of `to_dict`. Times may be texts as for `times.parse_time` and
        `times.parse_duration`, users may be names, and a single user, queue or bank need not be a
        list. Raises ValueError if a key is missing, unknown, or conflicts with another; the text
        names it."""
        if not isinstance(entry, Mapping):
            raise ValueError("a reservation is an object with name, start, duration and nodes")
        name = entry.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(
                f"reservation name {name!r} is invalid: expected letters, digits, '.', '_' and "
                "'-', at most 64"
            )
        try:
            return cls._read(name, entry, now)
        except ValueError as exc:
            raise ValueError(f"reservation {name}: {exc}") from None

    @classmethod
    def _read(cls, name: str, entry: Mapping[str, Any], now: float) -> Reservation:
        unknown = sorted(set(entry) - _KEYS, key=str)
        if unknown:
            known = ", ".join(sorted(_KEYS - {"name", "made"}))
            raise ValueError(f"unknown key {unknown[0]!r}: expected {known}")
        for key in ("start", "duration"):
            if entry.get(key) is None:
                raise ValueError(f"{key} is missing")
        keys = Fields(entry)
        every = entry.get("every")
        zone = entry.get("zone")
        if zone is None:
            zone = local_zone_name()
        duration = keys.seconds("duration")
        if not duration:
            raise ValueError(
                f"duration={entry['duration']!r} is invalid: expected a length of time such as 90m or 4h"
            )
        recurrence = Recurrence(parse_time(_quoted(entry["start"]), now, zone), every, zone)
        if every is not None and duration > parse_duration(every):
            raise ValueError(f"duration {entry['duration']} is longer than every={every}")
        nodes = keys.whole("nodes", least=1)
        hosts, requires = ",".join(keys.names("hosts")) or None, keys.constraint("requires")
        if hosts is not None and not _is_hostlist(hosts):
            raise ValueError(f"hosts={hosts!r}: expected a hostlist such as node[1-4]")
        if nodes is not None and hosts is not None:
            raise ValueError("nodes and hosts exclude each other: the hosts are the nodes")
        if nodes is None and hosts is None and requires is None:
            raise ValueError("the resources are missing: give nodes, hosts or requires")
        return cls(
            name,
            recurrence,
            duration,
            nodes=nodes,
            hosts=hosts,
            requires=requires,
            users=tuple(sorted(set(keys.userids("users")))),
            queues=tuple(sorted(set(keys.names("queues")))),
            banks=tuple(sorted(set(keys.names("banks")))),
            at_end=keys.choice("at_end", AT_END, AT_END[0]),
            pin=keys.flag("pin"),
            made=keys.number("made", now) or 0.0,
        )


#: Keys of `Reservation.to_dict`, of a request that makes a reservation, and of the configuration.
_TIMES = ("every", "start", "zone")
_KEYS = {one.name for one in fields(Reservation)} - {"recurrence"} | {*_TIMES}


def _quoted(value: object) -> object:
    """Return `value`, unless it is an unquoted TOML date: the broker passes that as
    ``{"iso-8601-ts": TEXT}``, without its offset from UTC. Raises ValueError if it is an unquoted
    date."""
    if isinstance(value, Mapping) and set(value) == {"iso-8601-ts"}:
        text = str(value["iso-8601-ts"]).rstrip("Z")
        raise ValueError(
            f'start={text}: write it in quotes, start = "{text}": a date without quotes loses its '
            "offset on the way here"
        )
    return value


def _is_hostlist(hosts: str) -> bool:
    try:
        return len(Hostlist(hosts)) > 0
    except (ValueError, OSError):
        return False


#: Number of windows per reservation entered into the plan; the last has no end.
WINDOWS_PLANNED = 64

#: Maximum seconds between a window's end and a job's end, or a planned start, that is attributed to
#: it.
SAME_TIME_S = 1.0


class Part(NamedTuple):
    """Nodes of a window that the plan keeps."""

    window: Window
    ranks: int  # mask of the only ranks; 0: any
    nodes: int


@dataclass(eq=False)
class ReservationState:
    """A reservation and its state.

    The free part of the ranks of an active window belongs to a *placeholder*: an allocation with a
    negative id. Jobs of the group are placed on its resources. In the pool they last as long as the
    window, since the resources that they free earlier are reserved; their own ends are in
    `AdmissionControl.own_ends`.
    """

    host: RuleHost
    entries: dict[str, ReservationState]  # all that are enforced, by name
    reservation: Reservation  # the administrator's request
    configured: bool = False  # whether it comes from the configuration, and no request gives it up
    window: Window = OVER  # the active window, else the next
    active: bool = False  # whether `window` has begun
    ranks: int = 0  # mask of the chosen ranks; 0 before it begins, unless pinned
    # id of the allocation that keeps their free part; in a list, which is empty if there is none
    placeholder: list[int] = field(default_factory=list)
    # part kept in the plan -> its id there
    planned: dict[Part, int] = field(default_factory=dict)
    inside: set[int] = field(default_factory=set)  # ids of the running jobs started in the window
    warned: str = ""

    def __post_init__(self) -> None:
        self.name = self.reservation.name
        self.set_window(self.host.now())

    def set_window(self, now: float) -> None:
        """Set the window that is active, else the next."""
        self.window = self.reservation.window_at(now) or OVER

    @property
    def shown(self) -> Window:
        """The present window or, after the last, the first."""
        begin = self.reservation.recurrence.start
        first = Window(0, begin, begin + self.reservation.duration)
        return first if self.window is OVER else self.window

    @property
    def pinned(self) -> bool:
        """Whether its ranks are chosen before it begins. Hosts by name, and all nodes that meet a
        constraint, need no choice."""
        return self.reservation.pin and self.reservation.nodes is not None

    @property
    def matching(self) -> int:
        """The mask of the ranks that it could use, up or down."""
        return self.host.resources.ranks_matching(self.reservation.constraint or {})

    @property
    def up(self) -> int:
        """The mask of the ranks that are up and that it could use."""
        return self.matching & self.host.resources.eligible_ranks()

    @property
    def wanted(self) -> int:
        """The number of its nodes: as given, or all that meet its constraint."""
        if self.reservation.nodes is not None:
            return self.reservation.nodes
        return max(popcount(self.matching), self.reservation.named or 0)

    @property
    def lacks(self) -> int:
        """The number of nodes missing from the active window. Down nodes do not count as missing
        from a maintenance window: nothing runs there."""
        short = self.wanted - popcount(self.ranks)
        if self.reservation.is_maintenance:
            short -= popcount(self.matching & ~self.up)
        return max(0, short)

    def request(self, nodes: int, duration: float, ranks: int = 0) -> Any:
        """Return a request for some of its nodes, for some seconds (infinite: no end), on some
        ranks (a mask; 0: all that meet the constraint)."""
        constraint = {"ranks": [idset_text(ranks)]} if ranks else self.reservation.constraint
        return self.host.parse(whole_nodes(nodes, 0 if duration == inf else duration, constraint))

    # -- planned windows ---------------------------------------------------------------------------

    def update_plan(self) -> bool:
        """Enter the parts to keep for it into the plan through which jobs start, and withdraw the
        others. Return whether all entered parts are free at their times.

        A window has a fixed start. Nodes that are in use then are kept as well, so that no other
        job starts on them.
        """
        plan = self.host.planning.made()
        if plan is None:
            return True
        wanted, planned, is_free = list(self._parts()), self.planned, True
        for part in planned.keys() - set(wanted):
            plan.cancel(planned.pop(part))
        for part in wanted:
            if part not in planned:
                start = max(part.window.start, self.host.now())
                request = self.request(part.nodes, part.window.end - start, part.ranks)
                planned[part], plan.stays_bound = self.host.placeholders.next_id(), True
                is_free &= plan.keep_free(planned[part], request, start)
        return is_free

    def _parts(self) -> Iterator[Part]:
        """Yield the parts to keep: the nodes missing from the active window, so that no job starts
        on them when they are freed, and the next windows; the last of many without an end."""
        window: Window | None = None if self.window is OVER else self.window
        wanted, chosen = self.wanted, self.ranks if self.pinned else 0
        if window is not None and self.active:
            # Its own ranks are in use until its end, which may precede the ends of jobs.
            others = self.matching & ~self.ranks if self.ranks else 0
            yield from _some(window, others, wanted - popcount(self.ranks))
            window, chosen = self.reservation.window_after(window), 0
        for number in range(1, WINDOWS_PLANNED + 1):
            if window is None:
                break
            following = self.reservation.window_after(window)
            if number == WINDOWS_PLANNED and following is not None:
                window = window._replace(end=inf)
            yield from _some(window, chosen, popcount(chosen))
            yield from _some(window, 0, wanted - popcount(chosen))
            window = following

    @property
    def ranks_planned(self) -> int:
        """The mask of the ranks that the plan keeps for the active or next window; 0 if the plan
        only counts."""
        plan, ranks = self.host.planning.made(), 0
        for part, key in self.planned.items():
            if plan is not None and part.window.index == self.window.index:
                ranks |= plan.ranks_of(key) or 0
        return ranks

    # -- choice of ranks ---------------------------------------------------------------------------

    def restore(self, ranks: int) -> None:
        """Take the ranks that an earlier scheduler chose (a mask), if they suit its present form."""
        if self.pinned or self.window.start <= self.host.now():
            self.ranks = ranks & self.matching if popcount(ranks) <= self.wanted else 0

    def pin(self) -> None:
        """Choose the ranks of a pinned reservation that has none, or too few that are up: free ones
        first, then those in use; in the minimum number of groups (such as racks), else the lowest.

        If there are groups, ranks whose jobs end before the window begins count as free: otherwise
        the window would be scattered over the ranks that are free now.
        """
        if not self.pinned or self.active or self.window is OVER:
            return
        pool = self.host.resources
        room = self.matching & pool.eligible_ranks()
        before = self.ranks
        chosen = before & room
        wanted = self.wanted
        if popcount(chosen) < wanted:
            free = pool.idle_ranks
            if pool.packing:
                free = pool.ranks
                for jobid, end in pool.job_end_times():
                    if not end or end > self.window.start:
                        free &= ~pool.held_ranks(jobid)
            for some in (free, pool.ranks):
                some = self._room_outside(room & some & ~chosen)
                chosen |= self._choose(some, wanted - popcount(chosen), chosen)
        self.ranks = chosen
        if before & ~chosen:
            gone, come = idset_text(before & ~chosen), idset_text(chosen & ~before)
            instead = f"rank {come} instead" if come else "no other instead"
            self.host.log.warning(f"reservation {self.name}: rank {gone} is down: {instead}")

    def fill(self) -> bool:
        """Choose missing ranks, first the ones that the plan keeps for it, and keep the free part of
        the chosen ones. Return whether others were chosen, which may be promised to jobs."""
        pool, planned = self.host.resources, self.ranks_planned
        usable = self.up
        held = self.held_inside
        self.host.placeholders.free(self.placeholder)
        idle = pool.idle_ranks
        # A rank used by other jobs does not count yet, even if it was chosen before.
        before = self.ranks = (self.ranks & usable & idle) | held
        wanted = self.wanted
        missing = wanted - popcount(self.ranks)
        if missing > 0:
            room = self._room_outside(usable & idle & ~self.ranks)
            for some in (room & planned, room & ~planned):
                chosen = self._choose(some, missing, self.ranks)
                self.ranks |= chosen
                missing -= popcount(chosen)
        self._hold()
        short = self.lacks
        text = f"{short} of {wanted} nodes are in use or down" if short > 0 else ""
        if text and text != self.warned:
            self.host.log.warning(f"reservation {self.name}: {text}")
        self.warned = text
        return bool(self.ranks & ~before & ~planned)

    def _choose(self, ranks: int, count: int, beside: int) -> int:
        """Choose `count` of some ranks, or all if there are fewer.

        Uses the minimum number of groups: those with ranks of the reservation (`beside`) come
        first, those without a rank in use or chosen for any window last. Without groups, the lowest
        ranks.
        """
        pool = self.host.resources
        idle = pool.idle_ranks
        for one in self.entries.values():
            idle &= ~one.ranks
        return pool.choose_nodes(ranks, count, idle, beside)

    def _room_outside(self, idle: int) -> int:
        """Return the ranks of `idle` that no other reservation has chosen for an overlapping window;
        named hosts are chosen when it is made, but do not exclude each other."""
        for other in self.entries.values():
            window = other.window
            if (
                other is not self
                and window.start < self.window.end
                and (other.active or self.window.start < window.end)
            ):
                has_choice = self.reservation.nodes is not None and other.reservation.nodes is None
                idle &= ~(other.matching if has_choice else other.ranks)
        return idle

    # -- placeholders ------------------------------------------------------------------------------

    def _hold(self) -> None:
        """Allocate the free part of the chosen ranks to a placeholder."""
        hold = self.host.placeholders.hold_free
        self.placeholder = hold(self.ranks, self.window.end)

    def dismiss(self) -> None:
        """Free the placeholder of a window that is over. The jobs inside become ordinary jobs."""
        self.host.placeholders.free(self.placeholder)
        for jobid in self.inside:
            self.host.resources.update_expiration(jobid, self.host.admission.own_ends.pop(jobid))
        self.inside.clear()
        self.ranks, self.warned = 0, ""

    # -- jobs inside -------------------------------------------------------------------------------

    def allocate(self, job: PendingJob, plan: Plan) -> ResourcePool | None:
        """Place a job of the group on the reserved ranks. Return None if it does not fit there
        now."""
        pool = self.host.resources
        window = self.window
        if not self.placeholder:
            return None
        request = job.resource_request
        length = request.duration
        end = self.host.now() + length if length > 0 else pool.expiration
        if self.reservation.at_end == "cancel":
            end = min(end or window.end, window.end)
        last = end or inf
        if not plan.has_tokens(job.jobid, request, last, beside_open=False):
            return None
        ranks = pool.held_ranks(self.placeholder[0]) & ~plan.closed_now(request)
        self.host.placeholders.free(self.placeholder)
        try:
            if last > window.end:
                ranks = self._beside_windows(job, ranks, plan)
            alloc = pool.alloc_on(job.jobid, request, ranks)
            self.host.admission.check_allocation(job, pool)
        except InsufficientResources:
            return None  # the ranks outside may be others
        finally:
            self._hold()
        self.note_inside(job.jobid, end)
        plan.note_started(job.jobid, request)
        return alloc

    def _beside_windows(self, job: PendingJob, ranks: int, plan: Plan) -> int:
        """Return the ranks, of some, for a job that outlives the window, beside other reservations.
        Raises InsufficientResources if it does not fit."""
        own = self.planned.values()
        others = plan.on_copy([key for key in plan.promises() if key >= 0 or key in own])
        alloc = others.alloc(job.jobid, job.resource_request.on_ranks(ranks))
        return int(alloc.ranks)

    @property
    def held_inside(self) -> int:
        """The mask of ranks held by jobs of the group that were started inside."""
        held = 0
        for jobid in self.inside:
            held |= holding_of(self.host.resources, jobid).ranks
        return held

    def found_inside(self, jobid: int) -> None:
        """Register a running job of a group that was started by an earlier scheduler: it is inside
        the window if it is on the ranks which that chose; where these are unknown, unless it is on
        ranks that the reservation cannot have, or lasts although the window ends the jobs inside."""
        pool = self.host.resources
        held, end = pool.held_ranks(jobid), pool.job_end(jobid)
        last = self.window.end + SAME_TIME_S
        lasts = self.reservation.at_end == "cancel" and not 0 < end <= last
        if not held & ~(self.ranks or self.matching) and (self.ranks or not lasts):
            self.note_inside(jobid, end)

    def note_inside(self, jobid: int, end: float) -> None:
        """Register a job that runs inside a window until `end`; in the pool it lasts at least as
        long as the window."""
        self.inside.add(jobid)
        self.host.admission.own_ends[jobid] = end
        pool_end = max(end, self.window.end) if end else 0.0
        self.host.resources.update_expiration(jobid, pool_end)

    def ended(self, jobid: int) -> None:
        """Forget a job inside that has freed all resources."""
        self.inside.discard(jobid)
        del self.host.admission.own_ends[jobid]


def _some(window: Window, ranks: int, nodes: int) -> list[Part]:
    return [Part(window, ranks, nodes)] if nodes > 0 else []
