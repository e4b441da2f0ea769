# SPDX-License-Identifier: LGPL-3.0-or-later
"""The state of a reservation: its window, chosen nodes and allocations; its nodes in the pool's
terms; and the pending jobs of its group."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Callable

from flux.hostlist import Hostlist
from flux.resource.errors import InfeasibleRequest
from flux.resource.pool.masks import idset_text, popcount
from flux.scheduler.requests import PendingJob
from flux.scheduler.reservations.reservation import Asker, Reservation, Window, whole_nodes
from flux.scheduler.states import ACTIVE, PLANNED, WINDOW

if TYPE_CHECKING:
    from flux.scheduler.rule_host import RuleHost
    from flux.scheduler.site_policy.queue_names import QueueNames


@dataclass
class Planned:
    """A reservation's windows in a plan."""

    keys: list[int] = field(default_factory=list)  # keys of their promises
    # (start, number of nodes) of the promises for the active and the next window
    parts: list[tuple[float, int]] = field(default_factory=list)
    # whether these cover all of its nodes; otherwise they are made again at each release
    whole: bool = True


@dataclass(eq=False)
class ReservationState:
    """A reservation and its state."""

    reservation: Reservation  # the administrator's request
    configured: bool  # whether it comes from the configuration, and cannot be given up by a request
    window: Window | None = None  # the active window, else the next; None after the last
    state: str = PLANNED  # state of the window, one of `flux.scheduler.states.WINDOW`
    ranks: int = 0  # mask of the chosen ranks; 0 before it begins, unless pinned
    # id of the allocation that keeps their free part; in a list, which is empty if there is none
    placeholder: list[int] = field(default_factory=list)
    # the same of ranks used by a job beyond the window; they are chosen if the job ends early
    filler: list[int] = field(default_factory=list)
    planned: Planned = field(default_factory=Planned)
    warned: str = ""

    @property
    def active(self) -> bool:
        """Whether `window` has begun."""
        return self.state == ACTIVE

    def begin(self) -> None:
        """Mark its window begun."""
        self.state = WINDOW.after(self.state, "begin")

    def plan_next(self, window: Window | None) -> None:
        """Set the next window; None: the reservation is over."""
        self.window = window
        self.state = WINDOW.after(self.state, "last" if window is None else "next")

    @property
    def name(self) -> str:
        return self.reservation.name

    @property
    def pinned(self) -> bool:
        """Whether its ranks are chosen before it begins. Hosts by name, and all nodes that meet a
        constraint, need no choice."""
        return self.reservation.pin and self.reservation.nodes is not None


class NodeSelector:
    """Translates reservations into the pool's terms."""

    def __init__(self, host: RuleHost, parse: Callable[[Any], Any]) -> None:
        self._host = host
        self._parse = parse

    def request(self, reservation: Reservation, nodes: int, duration: float, ranks: int = 0) -> Any:
        """Return a resource request for some of a reservation's nodes.

        Args:
            reservation (Reservation): the reservation, with the constraint
            duration: seconds; infinite: no end
            ranks: mask of the only ranks; 0: all that meet the constraint
        """
        constraint = {"ranks": [idset_text(ranks)]} if ranks else reservation.constraint
        return self._parse(whole_nodes(nodes, 0 if duration == inf else duration, constraint))

    def nodes(self, reservation: Reservation) -> int:
        """Return the number of nodes of a reservation: as given, or all that meet its
        constraint."""
        if reservation.nodes is not None:
            return reservation.nodes
        return max(popcount(self.ranks(reservation)), reservation.named or 0)

    def missing_hosts(self, reservation: Reservation) -> str:
        """Return the hosts named by a reservation that are not in the instance (RFC 29)."""
        if reservation.hosts is None:
            return ""
        pool = self._host.resources
        names = Hostlist(reservation.hosts)
        if popcount(pool.ranks_matching(_on(reservation.hosts))) == len(set(names)):
            return ""
        missing = [name for name in names if not pool.ranks_matching(_on(name))]
        return str(Hostlist(missing).encode()) if missing else ""

    def ranks(self, reservation: Reservation) -> int:
        """Return the mask of ranks that a reservation could use, up or down."""
        return self._host.resources.ranks_matching(reservation.constraint or {})

    def ranks_up(self, reservation: Reservation) -> int:
        """Return the mask of ranks that are up and that a reservation could use."""
        return self.ranks(reservation) & self._host.resources.eligible_ranks()

    def lacks(self, entry: ReservationState) -> int:
        """Return the number of nodes missing from an active window. Down nodes do not count as
        missing from a maintenance window: nothing runs there."""
        reservation = entry.reservation
        short = self.nodes(reservation) - popcount(entry.ranks)
        if reservation.for_nobody:
            short -= popcount(self.ranks(reservation) & ~self.ranks_up(reservation))
        return max(0, short)


def _on(hosts: str) -> dict[str, Any]:
    """Return the constraint to these hosts (RFC 31)."""
    return {"hostlist": [hosts]}


class ReservationPart:
    """A part of the reservations' rule."""

    def __init__(
        self, host: RuleHost, entries: dict[str, ReservationState], selector: NodeSelector
    ) -> None:
        self._host = host
        self._entries = entries  # name -> reservation
        self._selector = selector


class GroupJobs(dict[int, tuple[str, Asker]]):
    """The pending jobs that name a reservation: id -> its name, and the job's user, queue and
    bank."""

    def __init__(self, entries: dict[str, ReservationState], queue_names: QueueNames) -> None:
        super().__init__()
        self._entries = entries
        self._queue_names = queue_names

    def reservation_of(self, job: PendingJob) -> str | None:
        """Return the name of the reservation in which a pending job is to run, or None."""
        found = self.get(job.jobid)
        return None if found is None else found[0]

    def standing(self, job: PendingJob) -> tuple[ReservationState | None, str | None]:
        """Return the reservation to whose group a job belongs, and why the job cannot run now.

        Returns:
            the `ReservationState` or None, and a reason or None

        Raises:
            InfeasibleRequest: the reservation does not admit the job
        """
        found = self.get(job.jobid)
        if found is None:
            return None, None
        name, asker = found
        entry = self._entries.get(name)
        if entry is None:
            return None, f"reservation {name} does not exist"
        if not entry.reservation.admits(asker, self._queue_names):
            raise InfeasibleRequest(
                f"reservation {name} is not for this job's user, queue and bank"
            )
        if entry.window is None:
            return entry, f"reservation {name} is over"
        return entry, None
