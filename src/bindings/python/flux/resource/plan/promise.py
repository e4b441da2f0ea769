"""A promise: a span of time, and what a job will need then."""

from flux.resource.plan.timeline import INFINITY


class Promise:
    """What is kept for a job.  Never changed, but for ``parts``, once a plan has it.

    Attributes:
        start, end (float): seconds since the epoch; the end is infinity for a job without a limit
        request: what it is for; None for a job that runs already
        held (bool): kept from others from now on, since nobody knows when it will be wanted
        units (Units): where promises are counted, which units it takes; else None
        parts (list): where it is bound to ranks, ``(mask of ranks, key)``: so many cores and GPUs on
            each (for keys see ``rankindex.py``); else None
    """

    __slots__ = ("start", "end", "request", "held", "units", "parts")

    def __init__(self, start, end, request, held=False, units=None, parts=None):
        self.start = start
        self.end = end
        self.request = request
        self.held = held
        self.units = units
        self.parts = parts

    def replace(self, **changes):
        """A copy with some attributes changed."""
        new = Promise(self.start, self.end, self.request, self.held, self.units, self.parts)
        for name, value in changes.items():
            setattr(new, name, value)
        return new


def length_of(request):
    """Duration of a request in seconds; infinity if it has none."""
    return request.duration if request.duration > 0 else INFINITY
