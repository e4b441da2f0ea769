# SPDX-License-Identifier: LGPL-3.0-or-later
"""The fractions of their limits that jobs ran for, and run times drawn from them.

`flux.scheduler.history` predicts a job's run time as one number. Odds need its distribution: these
are recent jobs of each user, with any request.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flux.scheduler.requests import RunningJob

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
        if not isfinite(run) or run < 0 or limit <= 0:
            return
        limited = limit < inf
        self._remember(userid, limited, [min(1.0, run / limit) if limited else run])

    def _remember(self, userid: Any, limited: bool, shares: Iterable[float]) -> None:
        key = (userid, limited)
        known = self._of_user.get(key)
        if known is None:
            known = self._of_user[key] = deque(maxlen=JOBS_PER_USER)
        for share in shares:
            known.append(share)
            self._of_all[limited].append(share)
        self._of_user.move_to_end(key)
        if len(self._of_user) > MAX_USERS:
            self._of_user.popitem(last=False)

    def of(self, userid: Any, limited: bool) -> Iterator[list[float]]:
        """Yield the sorted shares that represent a user's job: the user's, if there are enough;
        then those of all users."""
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
        """Restore shares from `stored`.

        Raises:
            ValueError, TypeError: the value has another form
        """
        read = [
            (userid, bool(limited), list(map(float, shares))) for userid, limited, shares in stored
        ]
        if not all(isfinite(share) and share >= 0 for _, _, shares in read for share in shares):
            raise ValueError("a share is no number")
        for userid, limited, shares in read[-MAX_USERS:]:
            if type(userid) not in (int, type(None)):
                raise ValueError(f"{userid!r} is no user id")
            self._remember(userid, limited, shares[-JOBS_PER_USER:])


class Draws:
    """Random run times for one play.

    Args:
        shares (RunShares): the shares to draw from
        seed (int): seed of the play. Equal seeds give a job equal run times, regardless of other
            jobs in the query, so that answers a minute apart differ by events, not by chance
    """

    def __init__(self, shares: RunShares, seed: int) -> None:
        self._shares = shares
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
            known = self._sorted[key] = list(self._shares.of(job.userid, limited))
        for shares in known:
            at = bisect_right(shares, elapsed / scale)
            if at < len(shares):
                return scale * shares[at + int(self._chance(job.jobid) * (len(shares) - at))]
        return job.limit

    def _chance(self, jobid: int) -> float:
        """Return a number in [0, 1)."""
        text = hashlib.blake2b(f"{self._seed} {jobid}".encode(), digest_size=6).digest()
        return int.from_bytes(text, "big") / (1 << 48)
