"""A booking takes parts of ranks for a span of time; a promise is one that is made to a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flux.resource.plan.mask_timeline import INFINITY

if TYPE_CHECKING:
    from flux.resource.plan.counted_profile import CountedDemand
    from flux.resource.request import ResourceRequest

#: ``(mask of ranks, key)``: so many cores and GPUs on each of these ranks (for keys see
#: ``pool/rank_index.py``).
Part = tuple[int, int]


class Booking:
    """What is taken of some ranks for a span of time: here, by a job that runs already.

    Attributes:
        start, end (float): seconds since the epoch; the end is infinity for a job without a limit.
        parts (list): what is taken, as Parts; None of a promise that is counted.
    """

    __slots__ = ("start", "end", "parts")

    def __init__(self, start: float, end: float, parts: list[Part] | None) -> None:
        self.start = start
        self.end = end
        self.parts = parts


class Promise(Booking):
    """What is kept for a job that waits.  Never changed, but for ``parts``, once a plan has it.

    Attributes:
        request (ResourceRequest): what it is for.
        held (bool): kept from others from now on, since nobody knows when it will be wanted.
        units (CountedDemand): where promises are counted, which units it takes; else None.
        parts (list): where promises are bound to ranks, to which; empty if it cannot be kept any
            more. None where they are counted.
    """

    __slots__ = ("request", "held", "units")

    def __init__(
        self,
        start: float,
        end: float,
        request: ResourceRequest,
        held: bool = False,
        units: CountedDemand | None = None,
        parts: list[Part] | None = None,
    ) -> None:
        # As in Booking, without a call: a long queue is planned in thousands of them.
        self.start = start
        self.end = end
        self.parts = parts
        self.request = request
        self.held = held
        self.units = units

    def replace(self, **changes: Any) -> Promise:
        """A copy with some attributes changed."""
        new = Promise(self.start, self.end, self.request, self.held, self.units, self.parts)
        for name, value in changes.items():
            setattr(new, name, value)
        return new


def length_of(request: ResourceRequest) -> float:
    """Duration of a request in seconds; infinity if it has none."""
    return request.duration if request.duration > 0 else INFINITY
