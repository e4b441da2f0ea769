# SPDX-License-Identifier: LGPL-3.0-or-later
"""A reservation: resources kept by an administrator for a group of jobs, for some time.

While one of its *windows* lasts (it has several if it repeats), no job outside the group holds the
resources. A job belongs to the group if its jobspec names the reservation
(``attributes.system.reservation``) and the reservation admits its user, queue and bank. A
reservation without a group keeps its resources idle: it is a maintenance window.

The resources are a number of nodes, chosen as late as possible; hosts by name; or all nodes that
meet a constraint. A number may be combined with a constraint.

`Reservation` is the administrator's request; `windows.ReservationState` has its window, chosen nodes
and allocations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from flux.hostlist import Hostlist
from flux.scheduler.site_policy.fields import Fields
from flux.scheduler.times import LATEST, Recurrence, local_zone_name, parse_duration, parse_time

if TYPE_CHECKING:
    from flux.scheduler.site_policy.tables import QueueNames


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
        """Make a reservation from an entry of a request, the KVS or the configuration.

        Args:
            entry: an object with the keys of `to_dict`; times may be texts as for
                `times.parse_time` and `times.parse_duration`, users may be names, and a single
                user, queue or bank need not be a list

        Raises:
            ValueError: a key is missing, unknown, or conflicts with another; the text names it
        """
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
        hosts, requires = ",".join(keys.names("hosts")) or None, keys.mapping("requires")
        if hosts is not None and not _is_hostlist(hosts):
            raise ValueError(f"hosts={hosts!r}: expected a hostlist such as node[1-4]")
        if nodes is not None and hosts is not None:
            raise ValueError("nodes and hosts exclude each other: the hosts are the nodes")
        if nodes is None and hosts is None and requires is None:
            raise ValueError("what is reserved is missing: give nodes, hosts or requires")
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
