# SPDX-License-Identifier: LGPL-3.0-or-later
"""The likely start of a job: the outcome of plays with drawn run times, corrected by their misses so far.

Plays are too sure of themselves: jobs that come later overtake, and run times hang together. So what they say of a job is
compared with its start. The *miss* is by how much it started after the median of its plays, in widths of its odds; the
quantiles of the last misses correct the next forecasts. This is conformal prediction (Vovk, Gammerman and Shafer, Algorithmic
Learning in a Random World, 2005): if misses to come are like the last ones, nine jobs of ten start by the time that is told,
however run times are distributed.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

#: How often the future is played with drawn run times; when time is short at least so often, or nothing is said.
PLAYS = 20
LEAST_PLAYS = 10

#: Of jobs like it, how many start by the likely time, and by the one that is told beside it.
LIKELY, SAFE = 0.5, 0.9

#: Plays without a start of a job from which on it has no nine-of-ten time.
MOST_WITHOUT_START = PLAYS - math.ceil(SAFE * PLAYS) + 1

#: Seconds added to the time from the median to the nine-of-ten time of the plays: plays that all say the same are
#: not certain.
LEAST_WIDTH_S = 600.0

#: Misses that are remembered.
MAX_MISSES = 400

#: Assumed miss, in widths, where none is known yet: nine of ten were smaller on most recorded jobs.
UNKNOWN_MISS = 2.0
LEAST_MISSES = 9

#: Of the jobs of a user that are asked about within so many seconds one miss is remembered, that of the job that started
#: last: jobs of one burst start early or late together, and hundreds of them are one observation.
BURST_S = 3600.0


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest of some values that is not less than `share` of them."""
    return sorted(values)[math.ceil(share * len(values) - 1e-9) - 1]


class Played(NamedTuple):
    """The outcome of plays for a job, seconds since the epoch.

    Attributes:
        likely (float): in half of them it has started by then
        safe (float): in nine of ten
    """

    likely: float
    safe: float

    @classmethod
    def of(cls, starts: Sequence[float]) -> Played | None:
        """Of its starts in the plays, infinite where it has none; None: in too many of them, or there are too few plays."""
        safe = quantile(starts, SAFE) if len(starts) >= LEAST_PLAYS else math.inf
        return cls(quantile(starts, LIKELY), safe) if safe < math.inf else None

    @property
    def width(self) -> float:
        """The unit of misses, seconds."""
        return self.safe - self.likely + LEAST_WIDTH_S


def _to_expect(misses: list[float], share: float) -> float:
    """The quantile of misses to come: with the next one they are one more, and it may be the largest."""
    return sorted(misses)[math.ceil(share * (len(misses) + 1) - 1e-9) - 1]


class Calibration:
    """The last misses: one for each user and `BURST_S`."""

    def __init__(self) -> None:
        # By user and the number of the span in which the job was asked about; the latest miss comes last.
        self._misses: OrderedDict[tuple[int | None, int], float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._misses)

    def learn(self, userid: int | None, asked: float, played: Played, start: float) -> None:
        """A job has started at a time, of which something was said at another (seconds since the epoch).  O(1)."""
        self._remember(userid, int(asked // BURST_S), (start - played.likely) / played.width)

    def _remember(self, userid: int | None, span: int, miss: float) -> None:
        self._misses[userid, span] = miss
        self._misses.move_to_end((userid, span))
        if len(self._misses) > MAX_MISSES:
            self._misses.popitem(last=False)

    def corrected(self, played: Played, limits: float | None) -> Played:
        """Return the corrected odds of a job.  O(misses log misses).

        Args:
            played (Played): the outcome of its plays
            limits (float): its start if all jobs run to their limits, which no miss that is only supposed exceeds; None: not known
        """
        known = list(self._misses.values())
        unknown = UNKNOWN_MISS
        if limits is not None:
            unknown = min(unknown, (limits - played.likely) / played.width)
        supposed = known + [unknown] * (LEAST_MISSES - len(known))
        likely = played.likely + (_to_expect(known, LIKELY) if known else 0.0) * played.width
        return Played(
            likely, max(likely, played.likely + _to_expect(supposed, SAFE) * played.width)
        )

    def stored(self) -> list[Any]:
        """The misses, for JSON: user id, span, miss; the latest comes last."""
        return [[userid, span, round(miss, 3)] for (userid, span), miss in self._misses.items()]

    def restore(self, stored: Any) -> None:
        """Restore the misses that `stored` gave.

        Raises:
            ValueError, TypeError: it is not that
        """
        read = [(userid, int(span), float(miss)) for userid, span, miss in stored]
        for userid, span, miss in read[-MAX_MISSES:]:
            if type(userid) not in (int, type(None)) or not math.isfinite(miss):
                raise ValueError(f"{userid!r}, {miss!r}: expected a user id and a number")
            self._remember(userid, span, miss)


class JobOdds(NamedTuple):
    """The forecast of a pending job.

    Attributes:
        made (float): when, seconds since the epoch
        played (Played): as the plays have it
        told (Played): as it is told
        limits (float): its start if all jobs run to their limits; None: not known
    """

    made: float
    played: Played
    told: Played
    limits: float | None

    def by(self, when: float) -> JobOdds:
        """The same of a job that is known to start by a time, seconds since the epoch."""
        told = self.told
        return self._replace(told=Played(min(when, told.likely), min(when, told.safe)))
