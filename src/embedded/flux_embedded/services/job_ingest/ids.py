# SPDX-License-Identifier: LGPL-3.0-or-later
"""Job ids (RFC 19)."""


class IdGenerator:
    """Job ids (RFC 19): 40 bits of milliseconds since the start, 14 of generator, 10 of sequence."""

    def __init__(self, epoch, generator=0):
        self._epoch = epoch
        self._generator = generator
        # The first id is 1, not 0, which too much code takes for "none".
        self._ms = 0
        self._seq = 0

    def advance(self, id):
        """Make ids only above `id` from now on."""
        ms = id >> 24
        if ms >= self._ms:
            self._ms, self._seq = ms, max(id & 1023, self._seq if ms == self._ms else 0)

    def timestamp(self, now):
        """Milliseconds since the epoch of the ids."""
        return int((now - self._epoch) * 1000)

    def next(self, now):
        """An id above all before, whatever the clock does."""
        ms = self.timestamp(now)
        if ms > self._ms:
            self._ms, self._seq = ms, 0
        elif self._seq < 1023:
            self._seq += 1
        else:
            self._ms, self._seq = self._ms + 1, 0
        return self._ms << 24 | self._generator << 10 | self._seq
