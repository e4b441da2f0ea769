# SPDX-License-Identifier: LGPL-3.0-or-later
"""Which running jobs have to end so that a waiting one can start.

The rule, which gives the same answer wherever it is asked:

1. jobs are added one by one: those of the lowest rank first, then those that lose least (nodes x
   time run), the youngest, the highest id; until the waiting job fits;
2. then, from the last that was added to the first, each is spared without which it still fits.

No job of the answer can be left out, so it is *minimal*. It need not be the one with the fewest
jobs or the least loss there is: to find that is as hard as covering a set with the fewest of given
subsets. Whether a job fits is never counted: it is tried, by the pool's own allocation on a copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from flux.scheduler.site_policy.preemption.trial import Trial


class Candidate(NamedTuple):
    """A running job that may be ended.

    Attributes:
        jobid: its id
        rank: of its class
        nodes: on which it holds something
        start: when it started, seconds since the epoch
    """

    jobid: int
    rank: float
    nodes: int
    start: float

    def loss(self, now: float) -> float:
        """What is lost if it ends now, in node-seconds."""
        return self.nodes * max(0.0, now - self.start)


def in_order(candidates: Iterable[Candidate], now: float) -> list[Candidate]:
    """Candidates in the order in which they are added.

    Args:
        now: seconds since the epoch
    """
    return sorted(candidates, key=lambda one: (one.rank, one.loss(now), -one.start, -one.jobid))


def choose(candidates: Iterable[Candidate], trial: Trial, now: float) -> list[Candidate] | None:
    """The jobs that have to end, in the order in which they were added.

    That fewer jobs do not leave more room is taken for granted: the last job to be added is found
    by bisection. Costs a sort of the candidates, and about as many trials as jobs are added.

    Args:
        candidates: the jobs that may end
        trial: as things are; afterwards, the chosen jobs are out of it
        now: seconds since the epoch

    Returns:
        None if it would not fit even without all of them; nothing is out of the trial then
    """
    ordered = in_order(candidates, now)
    # It does not fit without the first `low`, which was tried before if that is 0. These are doubled
    # until it fits, without the first `high`: so the cost grows with those that are needed.
    low = out = 0
    while True:
        if out == len(ordered):
            for one in ordered:
                trial.put_back(one.jobid)
            return None
        low = out
        for one in ordered[low : max(1, 2 * low)]:
            trial.take_out(one.jobid)
            out += 1
        if trial.fits():
            break
    high = out
    while high - low > 1:
        middle = (low + high) // 2
        while out > middle:
            out -= 1
            trial.put_back(ordered[out].jobid)
        while out < middle:
            trial.take_out(ordered[out].jobid)
            out += 1
        if trial.fits():
            high = middle
        else:
            low = middle
    while out < high:
        trial.take_out(ordered[out].jobid)
        out += 1
    while out > high:
        out -= 1
        trial.put_back(ordered[out].jobid)
    left = needed([one.jobid for one in ordered[:high]], trial)
    return [one for one in ordered[:high] if one.jobid in left]


def needed(jobids: Sequence[int], trial: Trial) -> set[int]:
    """Of jobs that are out of a trial, in which it fits, those that have to be: from the last to the
    first, each is put back without which it still fits."""
    left = set(jobids)
    for jobid in reversed(jobids):
        trial.put_back(jobid)
        if trial.fits():
            left.discard(jobid)
        else:
            trial.take_out(jobid)
    return left
