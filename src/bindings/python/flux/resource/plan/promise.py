# SPDX-License-Identifier: LGPL-3.0-or-later
"""What a plan keeps: promises to jobs that wait, and bookings of parts of ranks.

A promise is kept in one of two ways (see ``strategy.py``): it is counted, or it is bound to ranks.
A booking takes parts of ranks for a span of time: a bound promise is one, and so is a job that was
started since the profile of running jobs was made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flux.resource.plan.mask_timeline import INFINITY

if TYPE_CHECKING:
    from flux.resource.plan.counted_profile import CountedDemand
    from flux.resource.request import ResourceRequest

#: ``(mask of ranks, key)``: so many cores and GPUs on each of these ranks (for keys see
#: ``pool/rank_index.py``).
Part = tuple[int, int]


class Booking:
    """What is taken of some ranks for a span of time.

    Attributes:
        start, end (float): seconds since the epoch; the end is infinity for a job without a limit.
        parts (list): what is taken, as Parts; None of a promise that is to be bound yet.
    """

    __slots__ = ("start", "end", "parts")

    def __init__(self, start: float, end: float, parts: list[Part] | None) -> None:
        self.start = start
        self.end = end
        self.parts = parts


class Promise:
    """What is kept for a job that waits.

    Attributes:
        start, end (float): seconds since the epoch; the end is infinity for a job without a limit.
        request (ResourceRequest): what it is for.
        is_open (bool): whether it is kept from now on, since nobody knows when it will be wanted.
    """

    __slots__ = ()

    start: float
    end: float
    request: ResourceRequest
    is_open: bool

    @property
    def ranks(self) -> int | None:
        """Mask of the ranks that it is bound to; None where ranks are not chosen yet."""
        return None


class CountedPromise(Promise):
    """A promise that is a number of units. Never changed.

    Attributes:
        demand (CountedDemand): which units, and how many.
    """

    __slots__ = ("start", "end", "request", "is_open", "demand")

    def __init__(
        self,
        start: float,
        end: float,
        request: ResourceRequest,
        demand: CountedDemand,
        is_open: bool = False,
    ) -> None:
        self.start = start
        self.end = end
        self.request = request
        self.is_open = is_open
        self.demand = demand


class BoundPromise(Booking, Promise):
    """A promise that is bound to ranks. Nothing but ``parts`` changes once a plan has it.

    Attributes:
        parts (list): what it takes on which ranks; empty if it cannot be kept any more, None before
            it is bound for the first time.
    """

    __slots__ = ("request", "is_open")

    def __init__(
        self,
        start: float,
        end: float,
        request: ResourceRequest,
        parts: list[Part] | None,
        is_open: bool = False,
    ) -> None:
        # As in Booking, without a call: a long queue is planned in thousands of them.
        self.start = start
        self.end = end
        self.parts = parts
        self.request = request
        self.is_open = is_open

    @property
    def ranks(self) -> int | None:
        return None if self.parts is None else ranks_of(self.parts)


def ranks_of(parts: list[Part]) -> int:
    """Mask of the ranks of some parts."""
    ranks = 0
    for mask, _ in parts:
        ranks |= mask
    return ranks


def length_of(request: ResourceRequest) -> float:
    """Duration of a request in seconds; infinity if it has none."""
    return request.duration if request.duration > 0 else INFINITY
