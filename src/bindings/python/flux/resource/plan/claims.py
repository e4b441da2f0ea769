# SPDX-License-Identifier: LGPL-3.0-or-later
"""Claimed ranks in a plan: which jobs may not share a rank, now and later.

A running job may *claim* its ranks, which excludes jobs of another key (a user or bank) until it
ends, however much of the rank is free. To these, a rank opens at the latest end of the jobs that
exclude them, not core by core.

The promise of such a job is *pinned* to its ranks: by core counts alone, it could be moved to ranks
with jobs of another key.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterator, Mapping
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Callable

from flux.resource.plan.promise import length_of
from flux.resource.pool.rank_counts import RankCounts
from flux.resource.pool.remembered import Remembered

if TYPE_CHECKING:
    from flux.resource.plan.promise import Promise
    from flux.resource.plan.strategy import Strategy
    from flux.resource.pool.view import PoolWithView
    from flux.resource.request import Claimant, ResourceRequest

#: Start times of a job that are tried one by one; then every second, every fourth and so on, which
#: bounds the search. Its result is valid, but may be later than necessary.
TIMES_ONE_BY_ONE = 32

#: Later than all ends except those of endless jobs.
LAST = 1e300


class _Owners:
    """Ranks with a job of a key, and with a job of other keys."""

    __slots__ = ("_by_key", "_keys")

    def __init__(self) -> None:
        self._by_key: dict[Hashable, RankCounts] = {}  # jobs of the key on each rank
        self._keys = RankCounts()  # keys on each rank

    def enter(self, key: Hashable, ranks: int) -> None:
        """Put a job of a key on some ranks."""
        jobs = self._by_key.get(key)
        if jobs is None:
            jobs = self._by_key[key] = RankCounts()
        new = ranks & ~jobs.ranks
        jobs.add(ranks)
        if new:
            self._keys.add(new)

    def leave(self, key: Hashable, ranks: int) -> None:
        """Take a job of a key off some ranks."""
        jobs = self._by_key[key]
        before = jobs.ranks
        jobs.remove(ranks)
        if before != jobs.ranks:
            self._keys.remove(before & ~jobs.ranks)
            if not jobs.ranks:
                del self._by_key[key]

    def ranks_of(self, key: Hashable) -> int:
        """Return a mask of the ranks with a job of a key.  O(1)."""
        jobs = self._by_key.get(key)
        return 0 if jobs is None else jobs.ranks

    def ranks_of_others(self, key: Hashable) -> int:
        """Return a mask of the ranks with a job of another key.  O(1) masks."""
        keys = self._keys
        if not keys.ranks:
            return 0
        return keys.ranks & ~self.ranks_of(key) | keys.several


class Claims:
    """The running jobs with their claims.

    Jobs are counted by key as they come and go, so that the cost of a query does not grow with the
    number of keys.

    Attributes:
        running (dict): job id to its claimant and the mask of its ranks
        changes (int): grows with each change
    """

    def __init__(self) -> None:
        self.running: dict[int, tuple[Claimant, int]] = {}
        self.changes = 0
        #: for each kind of claim, the ranks with jobs, and the claimed ranks
        self._on: list[_Owners] = []
        self._claimed: list[_Owners] = []
        #: by claimant, results of `apart_from` since the last change
        self._apart: Remembered[Claimant, int] = Remembered()

    def enter(self, jobid: int, claimant: Claimant, ranks: int) -> None:
        """Add a job on some ranks."""
        if not ranks:
            return  # the last may be freed, or leave, before the job's final free
        if not self._on:
            self._on = [_Owners() for _ in claimant.keys]
            self._claimed = [_Owners() for _ in claimant.keys]
        self.running[jobid] = (claimant, ranks)
        for key, where, on, claimed in zip(*claimant, self._on, self._claimed):
            on.enter(key, ranks)
            if ranks & where:
                claimed.enter(key, ranks & where)
        self._changed()

    def leave(self, jobid: int, ranks: int) -> None:
        """Take a job off some of its ranks; forget it if it has no other."""
        claimant, held = self.running[jobid]
        left = held & ranks
        for key, where, on, claimed in zip(*claimant, self._on, self._claimed):
            if left:
                on.leave(key, left)
            if left & where:
                claimed.leave(key, left & where)
        if held & ~ranks:
            self.running[jobid] = (claimant, held & ~ranks)
        else:
            del self.running[jobid]
        self._changed()

    def _changed(self) -> None:
        self.changes += 1
        self._apart.clear()

    def by_claimant(self) -> Iterator[tuple[Claimant, int]]:
        """Yield each claimant with running jobs, and the mask of their ranks. O(running jobs)."""
        found: dict[Claimant, int] = {}
        for claimant, on in self.running.values():
            found[claimant] = found.get(claimant, 0) | on
        yield from found.items()

    def apart_from(self, claimant: Claimant) -> int:
        """Return a mask of the ranks closed to a job now: those that others claim, and those with
        others that it would claim itself.  O(kinds of claim) masks."""
        ranks = self._apart.get(claimant)
        if ranks is None:
            ranks = 0
            for key, where, on, claimed in zip(*claimant, self._on, self._claimed):
                if where:
                    ranks |= where & on.ranks_of_others(key)
                ranks |= claimed.ranks_of_others(key)
            self._apart[claimant] = ranks
        return ranks

    def own(self, claimant: Claimant) -> int:
        """Return a mask of the ranks that jobs of the same keys claim.  O(kinds of claim) masks."""
        ranks = 0
        for key, claimed in zip(claimant.keys, self._claimed):
            ranks |= claimed.ranks_of(key)
        return ranks


class _Leavings:
    """The ranks from which running jobs exclude a claimant, by the end of the last of these jobs;
    found as far as needed.

    Args:
        claimant (Claimant): the claimant
        running (dict): job id to the claimant and the mask of ranks of a running job
        ends: ``(end, job id)`` of jobs, the last end first
    """

    def __init__(
        self,
        claimant: Claimant,
        running: dict[int, tuple[Claimant, int]],
        ends: Iterator[tuple[float, int]],
    ) -> None:
        self._claimant, self._running, self._ends = claimant, running, ends
        self._apart: dict[int, int] = {}  # by id: most jobs of the same keys share one claimant
        self._free = -1
        self._found: list[tuple[float, int]] = []

    def after(self, time: float) -> list[tuple[float, int]]:
        """Return ``(end, ranks)``, the last end first; at least those after a time."""
        found, apart, running = self._found, self._apart, self._running
        if found and found[-1][0] <= time:
            return found
        for end, jobid in self._ends:
            if jobid in running:
                other, on = running[jobid]
                closed = apart.get(id(other))
                if closed is None:
                    closed = apart[id(other)] = self._claimant.apart_from(other)
                ranks = on & closed & self._free
                if ranks:
                    found.append((end, ranks))
                    self._free ^= ranks
            if end <= time:
                break
        return found


class ClaimPlan:
    """Ranks closed to a job, now and later.

    Times are seconds since the epoch. A job that ran past its end is assumed to end now.

    Args:
        claims (Claims): the running jobs' claims, which go on changing
        pool (PoolWithView): the plan's pool, which knows the ends of jobs; a job that is not in it
            (it may be a copy) has ended

    Attributes:
        promised (dict): job id to the request of a job with a promise, before the limit to open
            ranks
    """

    def __init__(self, claims: Claims, pool: PoolWithView) -> None:
        self._claims = claims
        self._pool = pool
        self.promised: dict[int, ResourceRequest] = {}
        #: whether all running jobs are in the pool
        self._live = True
        self._leaving: dict[Claimant, _Leavings] = {}
        #: ``(end, job id)`` of the pool's jobs with an end, ascending
        self._by_end: list[tuple[float, int]] = []
        #: the pool's generation and `Claims.changes` for which both are valid
        self._seen: tuple[int, int] | None = None

    def copy(self, pool: PoolWithView | None = None) -> ClaimPlan:
        """Return an independent copy with the same promises; for a copy of the pool, if given,
        without promises."""
        new = ClaimPlan(self._claims, self._pool if pool is None else pool)
        new._live = pool is None and self._live
        if pool is None:
            new.promised = self.promised.copy()
            new._leaving, new._seen, new._by_end = self._leaving, self._seen, self._by_end
        return new

    # -- closed ranks ------------------------------------------------------------------------------

    def own(self, claimant: Claimant) -> int:
        """Return a mask of the ranks that running jobs of the same keys claim."""
        return self._claims.own(claimant)

    def _in_step(self) -> None:
        """Take in changes of the pool and of the claims."""
        seen = (self._pool.generation, self._claims.changes)
        if seen != self._seen:
            self._seen, self._leaving, self._by_end = seen, {}, self._pool.jobs_by_end()

    def _leavings(self, claimant: Claimant, time: float) -> list[tuple[float, int]]:
        """Return ``(end, ranks)``, the last end first: the end of the last job that excludes a
        claimant from these ranks; at least those after a time.  O(jobs that end after it) after a
        change, else O(1)."""
        self._in_step()
        found = self._leaving.get(claimant)
        if found is None:
            endless = [(inf, jobid) for jobid in self._pool.endless_jobs()]
            ends = chain(endless, reversed(self._by_end))
            found = self._leaving[claimant] = _Leavings(claimant, self._claims.running, ends)
        return found.after(time)

    def closed(
        self,
        claimant: Claimant,
        start: float,
        end: float,
        promises: Mapping[int, Promise],
        jobid: int | None = None,
        among: int = -1,
    ) -> int:
        """Return a mask of the ranks closed to a job in a span, by jobs that run then or promises
        other than its own: of all ranks, or of those in `among` at least."""
        ranks = self._claims.apart_from(claimant) if self._live else -1
        self._in_step()
        # Until the first end, those of now are closed.
        if ranks & among and not (self._live and self._by_end and start < self._by_end[0][0]):
            ranks = 0
            for until, some in self._leavings(claimant, start):
                if until <= start:
                    break
                ranks |= some
        return ranks | self.closed_by_promises(claimant, start, end, promises, jobid)

    def closed_now(
        self,
        claimant: Claimant,
        end: float,
        now: float,
        promises: Mapping[int, Promise],
        jobid: int | None = None,
    ) -> int:
        """Return a mask of the ranks closed from now to `end` to a job about to start, including
        those of jobs that ran past their ends."""
        if self._live:
            ranks = self._claims.apart_from(claimant)
        else:
            ranks = 0
            for _, some in self._leavings(claimant, -inf):
                ranks |= some
        return ranks | self.closed_by_promises(claimant, now, end, promises, jobid)

    def closed_by_promises(
        self,
        claimant: Claimant,
        start: float,
        end: float,
        promises: Mapping[int, Promise],
        jobid: int | None = None,
    ) -> int:
        """Return the part of `closed` due to promises."""
        ranks = 0
        for other, request in self.promised.items():
            promise = promises.get(other)
            if other == jobid or promise is None or promise.start >= end or promise.end <= start:
                continue
            assert request.claimant is not None, "the others are not kept here"
            more = (promise.ranks or 0) & ~ranks
            if more:
                ranks |= more & claimant.apart_from(request.claimant)
        return ranks

    def broken(self, promises: Mapping[int, Promise], now: float) -> list[int]:
        """Return the jobs with a promise on ranks that running jobs keep closed beyond its start.
        Costs a mask for each promise and each end of the jobs that exclude its claimant."""
        found = []
        for jobid, request in self.promised.items():
            promise, claimant = promises.get(jobid), request.claimant
            assert claimant is not None, "the others are not kept here"
            if promise is None or promise.is_open:
                continue
            start, on = max(promise.start, now), promise.ranks or 0
            leavings = self._leavings(claimant, start)
            if any(until > start and ranks & on for until, ranks in leavings):
                found.append(jobid)
        return found

    def reopens(
        self, claimant: Claimant, time: float, promises: Mapping[int, Promise]
    ) -> list[float]:
        """Return the times after `time` at which ranks open to a claimant, ascending."""
        times = {until for until, _ in self._leavings(claimant, time) if time < until < inf}
        times.update(
            promises[other].end
            for other in self.promised
            if other in promises and time < promises[other].end < inf
        )
        return sorted(times)

    # -- requests ----------------------------------------------------------------------------------

    def beside(self, request: ResourceRequest, closed: int) -> ResourceRequest | None:
        """Return a copy of the request that excludes `closed` (a mask of ranks); None if no rank
        remains."""
        matching = self._pool.match_mask(request)
        if not matching & closed:
            return request
        return request.on_ranks(matching & ~closed) if matching & ~closed else None

    def earliest(
        self,
        request: ResourceRequest,
        start: float,
        now: float,
        promises: Mapping[int, Promise],
        find: Callable[[ResourceRequest, float, float, float], float],
    ) -> float:
        """Return the first time from `start` on at which a request fits on ranks open to it;
        infinity if never.

        Args:
            find: function giving the first time, from a given one on, at which a request fits if
                there were no claims; it may ignore times from its last argument on

        Costs a search for each time at which ranks open before it fits, up to `TIMES_ONE_BY_ONE`;
        then only few more.
        """
        claimant = request.claimant
        assert claimant is not None, "asked for such requests alone"
        length = length_of(request)
        time = find(request, start, now, inf)
        times: list[float] | None = None
        tried, step = 0, 1
        while time < inf:
            closed = self.closed(claimant, time, time + length, promises)
            if times is None:
                times = self.reopens(claimant, time, promises)
            tried += 1
            if tried > TIMES_ONE_BY_ONE:
                step *= 2
            at = min(bisect_right(times, time) + step - 1, len(times) - 1)
            opens = times[at] if at >= 0 and times[at] > time else inf
            # Later times are left out: more ranks are open by then.
            limited = self.beside(request, closed)
            found = inf if limited is None else find(limited, time, now, opens)
            if found <= time:
                return time
            time = min(found, opens)
        return inf

    def reserve(
        self, strategy: Strategy, jobid: int, request: ResourceRequest, start: float, end: float
    ) -> bool:
        """Make a promise pinned to ranks on which its job may be; return False if there are none."""
        claimant = request.claimant
        assert claimant is not None, "asked for such requests alone"
        closed = self.closed(claimant, start, end, strategy.promises, jobid)
        limited = self.beside(request, closed)
        if limited is None or not strategy.reserve(jobid, limited, start, end):
            return False
        strategy.pin(jobid)
        self.promised[jobid] = request
        return True
