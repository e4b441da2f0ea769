# SPDX-License-Identifier: LGPL-3.0-or-later
"""How far a reservation is: its window, the nodes chosen for it, and what keeps them."""

from __future__ import annotations

from flux.scheduler.reservations.reservation import Reservation, Window
from flux.scheduler.states import ACTIVE, PLANNED, WINDOW


class ReservationState:
    """A reservation, and how far it is.

    Attributes:
        reservation (Reservation): what was asked for
        configured (bool): it comes from the configuration, and cannot be given up by a request
        window (Window or None): the one that lasts, else the next; None: all are over
        state (str): of its window, one of `flux.scheduler.states.WINDOW`
        ranks (int): mask of the ranks chosen; 0 before it began, unless they are pinned
        placeholder (int or None): the id of the allocation that keeps what is free of them
        filler (int or None): the id of the allocation that keeps what is left of ranks which a job
            uses in part beyond the window, and which are to be chosen if it ends before
        keys (list): its promises in the plan
        parts (list): of its next window, pairs of a start and a number of nodes that these keep
        whole (bool): these keep all that it asks for; if not, they are made again at each release
    """

    __slots__ = (
        "configured",
        "filler",
        "keys",
        "parts",
        "ranks",
        "reservation",
        "state",
        "placeholder",
        "warned",
        "whole",
        "window",
    )

    def __init__(self, reservation: Reservation, configured: bool) -> None:
        self.reservation = reservation
        self.configured = configured
        self.window: Window | None = None
        self.state = PLANNED
        self.ranks = 0
        self.placeholder: int | None = None
        self.filler: int | None = None
        self.keys: list[int] = []
        self.parts: list[tuple[float, int]] = []
        self.whole = True
        self.warned = ""

    @property
    def active(self) -> bool:
        """Whether `window` has begun."""
        return self.state == ACTIVE

    def begin(self) -> None:
        """Its window begins."""
        self.state = WINDOW.after(self.state, "begin")

    def plan_next(self, window: Window | None) -> None:
        """`window` is the next one; None: there is none, it is over."""
        self.window = window
        self.state = WINDOW.after(self.state, "last" if window is None else "next")

    @property
    def name(self) -> str:
        return self.reservation.name

    @property
    def pinned(self) -> bool:
        """Whether its ranks are chosen before it begins. All that have a name or a property are
        known anyway."""
        return self.reservation.pin and self.reservation.nodes is not None
