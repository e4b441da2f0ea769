# SPDX-License-Identifier: LGPL-3.0-or-later
"""Which nodes a reservation asks for, in the terms of the pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from flux.hostlist import Hostlist
from flux.resource.pool.masks import popcount
from flux.scheduler.reservations.reservation import Reservation
from flux.scheduler.reservations.state import ReservationState

if TYPE_CHECKING:
    from flux.scheduler.rule_host import RuleHost


class NodeSelector:
    """What reservations ask of the pool, in its terms; and ids in it that are no job's.

    Args:
        host (RuleHost): the scheduler
        parse: function giving the pool's request for a jobspec
    """

    def __init__(self, host: RuleHost, parse: Callable[[Any], Any]) -> None:
        self._host = host
        self._parse = parse
        self._next_id = -1

    def request(
        self, reservation: Reservation, nodes: int, duration: float, ranks: str | None = None
    ) -> Any:
        """A request for so many of a reservation's nodes.

        Args:
            reservation (Reservation): whose constraint they meet
            nodes: how many whole nodes
            duration: for how long, seconds; 0: without end
            ranks: of these ranks (an idset); None: of any that meet the constraint
        """
        return self._parse(reservation.jobspec(nodes, duration, ranks))

    def nodes(self, reservation: Reservation) -> int:
        """How many nodes a reservation is for: as it says, or as many as meet its constraint."""
        if reservation.nodes is not None:
            return reservation.nodes
        return max(popcount(self.ranks(reservation)), reservation.named or 0)

    def missing_hosts(self, reservation: Reservation) -> str:
        """The hosts that a reservation names and the instance does not have (RFC 29)."""
        if reservation.hosts is None:
            return ""
        pool = self._host.resources
        names = Hostlist(reservation.hosts)
        if popcount(pool.ranks_matching(_on(reservation.hosts))) == len(set(names)):
            return ""
        missing = [name for name in names if not pool.ranks_matching(_on(name))]
        return str(Hostlist(missing).encode()) if missing else ""

    def ranks(self, reservation: Reservation) -> int:
        """Mask of the ranks that a reservation could want, up or not."""
        request = self.request(reservation, 1, 1.0)
        return self._host.resources.match_mask(request)

    def ranks_up(self, reservation: Reservation) -> int:
        """Mask of the ranks that a reservation could want and that are up."""
        pool = self._host.resources
        request = self.request(reservation, 1, 1.0)
        return pool.match_mask(request) & pool.eligible_ranks(request)

    def lacks(self, entry: ReservationState) -> int:
        """How many nodes a reservation is short of, while its window lasts. One for nobody is not
        short of those that are down: nothing runs there."""
        reservation = entry.reservation
        short = self.nodes(reservation) - popcount(entry.ranks)
        if reservation.for_nobody:
            short -= popcount(self.ranks(reservation) & ~self.ranks_up(reservation))
        return max(0, short)

    def new_id(self) -> int:
        """An id that no job has: negative."""
        self._next_id -= 1
        return self._next_id


def _on(hosts: str) -> dict[str, Any]:
    """The constraint that a node is one of these hosts (RFC 31)."""
    return {"hostlist": [hosts]}
