# SPDX-License-Identifier: LGPL-3.0-or-later
"""Tokens in a plan: counted resources beside nodes and cores, such as licences."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Dict, Optional, Tuple

from flux.resource.plan.compiled import timeline
from flux.resource.plan.timeline import CountTimeline

#: Number of tokens of a job, by name.
Tokens = dict[str, int]
#: Number of one name that a running job holds, and its end, seconds since the epoch.
Held = Tuple[int, float]
#: Promised tokens, with start and end, seconds since the epoch.
PromisedTokens = Tuple[Tokens, float, float]

#: Number of changes that `Holders` keeps beside as many as it has jobs.
MORE_CHANGES = 64


class Holders(Dict[int, Held]):
    """The running jobs that hold tokens of one name, by id; changed by `hold` only.

    Attributes:
        endless (int): the number of tokens held by jobs without an end
        changes (list): ``(number, end)``: tokens that came back, or (below 0) were taken, until `end`;
            another list when it would be long
    """

    endless = 0

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[Held] = []

    def hold(self, jobid: int, held: Held | None) -> None:
        """Set the tokens of a job; None: it has none any more.  O(1)."""
        if len(self.changes) > len(self) + MORE_CHANGES:  # reading all jobs costs no more
            self.changes = []
        for sign, one in ((1, self.pop(jobid, None)), (-1, held)):
            if one is not None:
                number, end = one
                self.changes.append((sign * number, end))
                self.endless -= sign * number if end == inf else 0
        if held is not None:
            self[jobid] = held


class TokenPlan:
    """Tokens available over time, beside the promised ones.

    Times are seconds since the epoch. The tokens of a running job come back when it ends; a job
    past its end is assumed to have ended.

    Args:
        totals (dict): name to total number; other names are not planned
        running (dict): each of these names to its `Holders`; read at each query

    Attributes:
        promised (dict): job id to ``(tokens, start, end)`` of its promise; changed by `enter` and
            `leave`
    """

    def __init__(self, totals: Tokens, running: dict[str, Holders]) -> None:
        self._totals, self._running = totals, running
        self.promised: dict[int, PromisedTokens] = {}
        #: name -> number available over time, made when it is first asked for; and the list of changes
        #: that it follows, with the number of those in it
        self._lines: dict[str, CountTimeline] = {}
        self._seen: dict[str, tuple[list[Held], int]] = {}

    def copy(self) -> TokenPlan:
        """Return an independent plan of the same running jobs with the same promises."""
        new, lines = self.blank(), {name: line.copy() for name, line in self._lines.items()}
        seen, promised = self._seen.copy(), self.promised.copy()
        new.__dict__.update(promised=promised, _lines=lines, _seen=seen)
        return new

    def blank(self) -> TokenPlan:
        """Return a plan of the same running jobs without promises."""
        return TokenPlan(self._totals, self._running)

    def enter(self, jobid: int, tokens: Tokens, start: float, end: float) -> None:
        """Promise tokens to a job without promised ones."""
        self.promised[jobid] = tokens, start, end
        self._add(self.promised[jobid], -1)

    def leave(self, jobid: int) -> Optional[PromisedTokens]:
        """Drop the promise of tokens to a job, and return it; None if there is none."""
        promise = self.promised.pop(jobid, None)
        if promise is not None:
            self._add(promise, 1)
        return promise

    def earliest(self, wanted: Tokens, start: float, length: float, now: float) -> float:
        """Return the first time from `start` on at which the tokens are available for `length`
        seconds, beside all promises; infinity if never, as far as known.  Per name O(changes of
        its holders since the last query), and a search of the timeline."""
        time = start
        while True:
            before = time
            for name, count in wanted.items():
                if name in self._totals:
                    time = self._line(name, now).first(count, length, time)
            if time in (before, inf):
                return time

    def fits(
        self,
        wanted: Tokens,
        start: float,
        end: float,
        now: float,
        without: Iterable[int | None] = (),
    ) -> bool:
        """Return whether the tokens are available throughout a span, beside all promises but those
        of some jobs.  Costs as `earliest`, and O(`without`)."""
        lines = [(self._line(name, now), wanted[name]) for name in wanted.keys() & self._totals]
        left_out = [self.promised[one] for one in without if one in self.promised]
        for promise in left_out:
            self._add(promise, 1)
        fits = all(line.least(start, end) >= count for line, count in lines)
        for promise in left_out:
            self._add(promise, -1)
        return fits

    def without_endless(self, wanted: Tokens) -> Tokens:
        """Return how many tokens to look for, if those of running jobs without an end are not to be
        in the way."""
        held = {name: self._running.get(name, {}).values() for name in wanted}
        return {
            name: count - sum([n for n, end in held[name] if end == inf])
            for name, count in wanted.items()
        }

    def endless_since(self, wanted: Tokens, now: float) -> float:
        """Return the first start after now of a promise without an end of some of the tokens;
        infinity if there is none."""
        starts = [
            start
            for tokens, start, end in self.promised.values()
            if end == inf and start > now and not tokens.keys().isdisjoint(wanted)
        ]
        return min(starts, default=inf)

    def are_free(self, wanted: Tokens, now: float) -> bool:
        """Return whether the tokens are not in use now, promised or not."""
        return all(
            self._totals[name] - sum([n for n, end in self._running[name].values() if end > now])
            >= count
            for name, count in wanted.items()
            if name in self._totals
        )

    def _add(self, promise: PromisedTokens, sign: int) -> None:
        """Add promised tokens (`sign` is 1), or take them away (-1)."""
        tokens, start, end = promise
        for name in self._lines.keys() & tokens:
            self._lines[name].add(start, end, sign * tokens[name])

    def _line(self, name: str, now: float) -> CountTimeline:
        """Return the number of available tokens from now on."""
        held, (followed, count) = self._running[name], self._seen.get(name, (None, 0))
        changes = held.changes[count:]
        if followed is not held.changes:
            self._lines[name] = timeline(now, self._totals[name])
            for tokens, start, end in self.promised.values():
                if name in tokens:
                    self._lines[name].add(start, end, -tokens[name])
            changes = [(-number, end) for number, end in held.values()]
        line, self._seen[name] = self._lines[name], (held.changes, len(held.changes))
        for number, end in changes:
            line.add(-inf, end, number)
        line.forget(now)
        return line
