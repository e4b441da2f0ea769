"""Which nodes a reservation asks for, in the terms of the pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from flux.hostlist import Hostlist
from flux.resource.pool.constraint import parse_constraint
from flux.resource.pool.masks import popcount
from flux.scheduler.reservations.reservation import Reservation
from flux.scheduler.reservations.state import ReservationState

if TYPE_CHECKING:
    from flux.scheduler.policy import PolicyScheduler


class NodeSelector:
    """What reservations ask of the pool, in its terms; and ids in it that are no job's.

    Args:
        scheduler (PolicyScheduler): whose
    """

    def __init__(self, scheduler: PolicyScheduler) -> None:
        self._scheduler = scheduler
        self._next_id = -1

    def request(
        self, reservation: Reservation, nodes: int, duration: float, ranks: Optional[str] = None
    ) -> Any:
        """A request for so many of a reservation's nodes.

        Args:
            reservation (Reservation): whose constraint they meet
            nodes: how many whole nodes
            duration: for how long, seconds; 0: without end
            ranks: of these ranks (an idset); None: of any that meet the constraint
        """
        return self._scheduler.parse_request(reservation.jobspec(nodes, duration, ranks))

    def nodes(self, reservation: Reservation) -> int:
        """How many nodes a reservation is for: as it says, or as many as meet its constraint."""
        if reservation.nodes is not None:
            return reservation.nodes
        return max(popcount(self.ranks(reservation)), reservation.named or 0)

    def missing_hosts(self, reservation: Reservation) -> str:
        """The hosts that a reservation names and the instance does not have (RFC 29)."""
        if reservation.hosts is None:
            return ""
        inventory = self._scheduler.resources.impl.inventory
        names = Hostlist(reservation.hosts)
        if popcount(inventory.matching(_on(reservation.hosts))) == len(set(names)):
            return ""
        missing = [name for name in names if not inventory.matching(_on(name))]
        return str(Hostlist(missing).encode()) if missing else ""

    def ranks(self, reservation: Reservation) -> int:
        """Mask of the ranks that a reservation could want, up or not."""
        request = self.request(reservation, 1, 1.0)
        mask: int = self._scheduler.resources.impl.match_mask(request)
        return mask

    def ranks_up(self, reservation: Reservation) -> int:
        """Mask of the ranks that a reservation could want and that are up."""
        impl = self._scheduler.resources.impl
        request = self.request(reservation, 1, 1.0)
        mask: int = impl.match_mask(request) & impl.eligible(request.shape.match)
        return mask

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


def _on(hosts: str) -> Any:
    """The constraint that a node is one of these hosts."""
    return parse_constraint({"hostlist": [hosts]})
