"""How far a reservation is: its window, the nodes chosen for it, and what keeps them."""

from __future__ import annotations

from typing import Optional

from flux.scheduler.reservations.reservation import Reservation, Window


class ReservationState:
    """A reservation, and how far it is.

    Attributes:
        reservation (Reservation): what was asked for
        configured (bool): it comes from the configuration, and cannot be given up by a request
        window (Window or None): the one that lasts, else the next; None: all are over
        active (bool): `window` has begun
        ranks (int): mask of the ranks chosen; 0 before it began, unless they are pinned
        stand_in (int or None): the id of the allocation that keeps what is free of them
        keys (list): its promises in the plan
        parts (list): of its next window, pairs of a start and a number of nodes that these keep
        whole (bool): these keep all that it wants; if not, they are made anew at each release
    """

    __slots__ = (
        "active",
        "configured",
        "keys",
        "parts",
        "ranks",
        "reservation",
        "stand_in",
        "warned",
        "whole",
        "window",
    )

    def __init__(self, reservation: Reservation, configured: bool) -> None:
        self.reservation = reservation
        self.configured = configured
        self.window: Optional[Window] = None
        self.active = False
        self.ranks = 0
        self.stand_in: Optional[int] = None
        self.keys: list[int] = []
        self.parts: list[tuple[float, int]] = []
        self.whole = True
        self.warned = ""

    @property
    def name(self) -> str:
        return self.reservation.name

    @property
    def pinned(self) -> bool:
        """Whether its ranks are chosen before it begins. All that have a name or a property are
        known anyway."""
        return self.reservation.pin and self.reservation.nodes is not None
