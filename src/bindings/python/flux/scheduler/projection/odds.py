# SPDX-License-Identifier: LGPL-3.0-or-later
"""The likely start of a job: the outcome of plays with drawn run times, corrected by their past
misses.

Plays are overconfident: later jobs overtake, and run times are correlated. So their outcome for a
job is compared with its start. The *miss* is the difference between the start and the median of the
plays, in widths of the odds; quantiles of recent misses correct further forecasts. This is
conformal prediction (Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005): if
future misses are like recent ones, nine of ten jobs start by the time told, regardless of the
distribution of run times.

Run times are drawn from `RunShares`, the fractions of their limits that recent jobs of each user
ran for: a prediction of `flux.scheduler.history` is one number, and odds need a distribution.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from math import inf, isfinite
from typing import Any, NamedTuple

from flux.scheduler.requests import RunningJob

#: Number of plays with drawn run times; minimum number, when time is short, below which there are
#: no odds.
PLAYS = 20
LEAST_PLAYS = 10

#: Fractions of similar jobs that start by the likely time, and by the nine-of-ten time.
LIKELY, SAFE = 0.5, 0.9

#: Number of plays without a start from which on a job has no nine-of-ten time.
MOST_WITHOUT_START = PLAYS - math.ceil(SAFE * PLAYS) + 1

#: Seconds added to the time between the median and the nine-of-ten time of the plays: equal plays
#: are not certainty.
LEAST_WIDTH_S = 600.0

#: Maximum number of misses kept.
MAX_MISSES = 400

#: Assumed miss in widths, as long as none is known: on most recorded traces nine of ten were
#: smaller.
UNKNOWN_MISS = 2.0
LEAST_MISSES = 9

#: Seconds within which only one miss per user is kept, that of the last job to start: jobs of a
#: burst start early or late together, so hundreds of them are one observation.
BURST_S = 3600.0


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that is not less than `share` of the values."""
    return sorted(values)[math.ceil(share * len(values) - 1e-9) - 1]


class Played(NamedTuple):
    """The outcome of plays for a job, in seconds since the epoch."""

    likely: float  # time by which it has started in half of them
    safe: float  # time by which it has started in nine of ten

    @classmethod
    def from_starts(cls, starts: Sequence[float]) -> Played | None:
        """Return the outcome for a job's starts in the plays (infinite: none); None if it starts in
        too few, or there are too few plays."""
        safe = quantile(starts, SAFE) if len(starts) >= LEAST_PLAYS else math.inf
        return cls(quantile(starts, LIKELY), safe) if safe < math.inf else None

    @property
    def width(self) -> float:
        """Unit of misses, seconds."""
        return self.safe - self.likely + LEAST_WIDTH_S


class Calibration:
    """Recent misses: one per user and `BURST_S`."""

    def __init__(self) -> None:
        # (user, index of the `BURST_S` interval of the forecast) -> miss; the latest is last
        self._misses: OrderedDict[tuple[int | None, int], float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._misses)

    def learn(self, userid: int | None, asked: float, played: Played, start: float) -> None:
        """Add a job that has started, with a forecast made at `asked` (both seconds since the
        epoch).  O(1)."""
        self._remember(userid, int(asked // BURST_S), (start - played.likely) / played.width)

    def _remember(self, userid: int | None, span: int, miss: float) -> None:
        self._misses[userid, span] = miss
        self._misses.move_to_end((userid, span))
        if len(self._misses) > MAX_MISSES:
            self._misses.popitem(last=False)

    def corrected(self, played: Played, limits: float | None) -> Played:
        """Return the corrected odds of a job.  O(misses log misses). Its start if all jobs run to
        their limits (None: unknown) is an upper bound of assumed misses."""
        known = list(self._misses.values())
        unknown = UNKNOWN_MISS
        if limits is not None:
            unknown = min(unknown, (limits - played.likely) / played.width)
        supposed = known + [unknown] * (LEAST_MISSES - len(known))
        # The next miss adds to the sample, and may be the largest.
        middle = quantile([*known, inf], LIKELY) if known else 0.0
        likely = played.likely + middle * played.width
        safe = played.likely + quantile([*supposed, inf], SAFE) * played.width
        return Played(likely, max(likely, safe))

    def stored(self) -> list[Any]:
        """Return the misses for JSON: user id, interval, miss; the latest is last."""
        return [[userid, span, round(miss, 3)] for (userid, span), miss in self._misses.items()]

    def restore(self, stored: Any) -> None:
        """Restore misses from `stored`. Raises ValueError or TypeError if the value has another
        form."""
        read = [(userid, int(span), float(miss)) for userid, span, miss in stored]
        for userid, span, miss in read[-MAX_MISSES:]:
            if type(userid) not in (int, type(None)) or not math.isfinite(miss):
                raise ValueError(f"{userid!r}, {miss!r}: expected a user id and a number")
            self._remember(userid, span, miss)


class JobOdds(NamedTuple):
    """The forecast of a pending job."""

    made: float  # time of the forecast, seconds since the epoch
    played: Played  # the odds from the plays
    corrected: Played  # the same, corrected by past misses
    limits: float | None  # its start if all jobs run to their limits; None: unknown

    def by(self, when: float) -> JobOdds:
        """Return the forecast for a job that is known to start by a time, in seconds since the
        epoch."""
        corrected = self.corrected
        return self._replace(
            corrected=Played(min(when, corrected.likely), min(when, corrected.safe))
        )


#: Number of jobs kept per user, and for all users together.
JOBS_PER_USER = 60
JOBS_OF_ALL = 240

#: A user with fewer jobs is represented by all users; if these have fewer, there are no draws.
LEAST_JOBS = 8

#: Maximum number of users, those whose jobs ended most recently; about 3 kB each.
MAX_USERS = 1000

#: Significant digits of a share in the checkpoint.
STORED_DIGITS = 4


class RunShares:
    """Recent shares of each user, and of all.

    A job's share is its run time divided by its limit; for jobs without a limit, kept separately,
    it is the run time in seconds.
    """

    def __init__(self) -> None:
        # (user, whether there was a limit) -> shares; the user whose job ended last is last
        self._of_user: OrderedDict[tuple[Any, bool], deque[float]] = OrderedDict()
        self._of_all = {limited: deque[float](maxlen=JOBS_OF_ALL) for limited in (False, True)}

    @property
    def are_enough(self) -> bool:
        """Whether enough jobs have ended to draw from."""
        return max(map(len, self._of_all.values())) >= LEAST_JOBS

    def learn(self, userid: Any, limit: float, run: float) -> None:
        """Add a user's job that ended after `run` seconds; `limit` is infinite if it had none.
        O(1)."""
        if not 0 <= run < inf or limit <= 0:
            return
        limited = limit < inf
        if limited:
            run = run / limit if run < limit else 1.0
        self._remember(userid, limited, [run])

    def _remember(self, userid: Any, limited: bool, shares: Iterable[float]) -> None:
        key = (userid, limited)
        if key in self._of_user:
            self._of_user.move_to_end(key)
        else:
            self._of_user[key] = deque(maxlen=JOBS_PER_USER)
            if len(self._of_user) > MAX_USERS:
                self._of_user.popitem(last=False)
        for share in shares:
            self._of_user[key].append(share)
            self._of_all[limited].append(share)

    def representative(self, userid: Any, limited: bool) -> Iterator[list[float]]:
        """Yield the sorted shares that represent a user's job: first the user's own, if there
        are enough; then all users'."""
        own = self._of_user.get((userid, limited), ())
        if len(own) >= LEAST_JOBS:
            yield sorted(own)
        yield sorted(self._of_all[limited])

    # -- over a restart ----------------------------------------------------------------------------

    def stored(self) -> list[Any]:
        """Return the shares for JSON: user id, whether there was a limit, shares; the user whose
        job ended last is last."""
        return [
            [userid, limited, [float(f"{share:.{STORED_DIGITS}g}") for share in shares]]
            for (userid, limited), shares in self._of_user.items()
        ]

    def restore(self, stored: Any) -> None:
        """Restore shares from `stored`. Raises ValueError or TypeError if the value has another
        form."""
        read = [
            (userid, bool(limited), list(map(float, shares))) for userid, limited, shares in stored
        ]
        if not all(isfinite(share) and share >= 0 for _, _, shares in read for share in shares):
            raise ValueError("a share is not a number")
        for userid, limited, shares in read[-MAX_USERS:]:
            if type(userid) not in (int, type(None)):
                raise ValueError(f"{userid!r} is not a user id")
            self._remember(userid, limited, shares[-JOBS_PER_USER:])


class Draws:
    """Random run times for one play."""

    def __init__(self, shares: RunShares, seed: int) -> None:
        self._shares = shares  # the shares to draw from
        #: seed of the play. Equal seeds give a job equal run times, regardless of other jobs in the
        #: query, so that answers a minute apart differ by events, not by chance
        self._seed = seed
        self._sorted: dict[tuple[Any, bool], list[list[float]]] = {}

    def run_of(self, job: RunningJob, elapsed: float) -> float:
        """Return a job's run time in seconds: drawn from representative jobs that ran for longer
        than `elapsed`; its limit (infinite if it has none) if there is none of them."""
        limited = job.limit < inf
        scale = job.limit if limited else 1.0
        key = (job.userid, limited)
        known = self._sorted.get(key)
        if known is None:
            known = self._sorted[key] = list(self._shares.representative(job.userid, limited))
        for shares in known:
            at = bisect_right(shares, elapsed / scale)
            if at < len(shares):
                text = f"{self._seed} {job.jobid}".encode()
                drawn = int.from_bytes(hashlib.blake2b(text, digest_size=6).digest(), "big")
                return scale * shares[at + drawn * (len(shares) - at) // (1 << 48)]
        return job.limit
