"""The two clocks of an instance.

Nothing inside the instance asks the operating system for the time: it asks the kernel, and the
kernel asks one of these.
"""

import time


class RealClock:
    """Wall clock time, in seconds since the epoch."""

    virtual = False

    def now(self):
        return time.time()


class VirtualClock:
    """A clock that stands still until it is told to advance.

    Args:
        start (float): where it starts, seconds since the epoch. The default is a fixed date, not
            today, so that two runs on the same input have the same timestamps.
    """

    virtual = True

    def __init__(self, start=1735689600.0):
        self._now = float(start)

    def now(self):
        return self._now

    def advance_to(self, when):
        """Move to `when`; a time in the past is ignored, since a clock never goes back. Return the time."""
        if when > self._now:
            self._now = when
        return self._now
