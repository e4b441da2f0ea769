# SPDX-License-Identifier: LGPL-3.0-or-later
"""Tokens in a plan: counted resources beside nodes and cores, such as licences."""

from __future__ import annotations

from math import inf
from typing import Callable, Container

#: Number of tokens of a job, by name.
Tokens = dict[str, int]


class TokenPlan:
    """Tokens available over time, beside the promised ones.

    Times are seconds since the epoch. The tokens of a running job come back when it ends; a job
    past its end is assumed to end now.

    Args:
        totals (dict): name to total number; other names are not planned
        running (dict): job id to the tokens of each running job; read at each query
        end_of: function giving the end of a running job's id; 0: unknown

    Attributes:
        promised (dict): job id to ``(tokens, start, end)`` of its promise
    """

    def __init__(
        self, totals: Tokens, running: dict[int, Tokens], end_of: Callable[[int], float]
    ) -> None:
        self._totals = totals
        self._running = running
        self._end_of = end_of
        self.promised: dict[int, tuple[Tokens, float, float]] = {}

    def copy(self) -> TokenPlan:
        """Return an independent plan of the same running jobs with the same promises."""
        new = TokenPlan(self._totals, self._running, self._end_of)
        new.promised = self.promised.copy()
        return new

    def earliest(self, wanted: Tokens, start: float, length: float, now: float) -> float:
        """Return the first time from `start` on at which the tokens are available for `length`
        seconds, beside all promises; infinity if never, as far as known.  O(jobs with tokens,
        log) per name."""
        time = start
        while True:
            before = time
            for name, count in wanted.items():
                time = self._first(name, count, time, length, now)
            if time in (before, inf):
                return time

    def fits(
        self, wanted: Tokens, start: float, end: float, now: float, without: Container[int] = ()
    ) -> bool:
        """Return whether the tokens are available throughout a span, beside all promises but those
        of some jobs."""
        return all(
            free >= count
            for name, count in wanted.items()
            for since, until, free in self._spans(name, now, without)
            if since < end and until > start
        )

    def _first(self, name: str, count: int, start: float, length: float, now: float) -> float:
        begin = start
        for _, until, free in self._spans(name, now):
            if until <= begin:
                continue
            if free < count:
                begin = until
            elif begin + length <= until:  # like the ends of promises, rounded
                return begin
        return inf if begin == inf else begin

    def _spans(
        self, name: str, now: float, without: Container[int] = ()
    ) -> list[tuple[float, float, int]]:
        """Return ``(since, until, free)`` from now on, ascending, without gaps."""
        total = self._totals.get(name)
        if total is None:
            return []
        changes: dict[float, int] = {}
        free = total
        for other, tokens in self._running.items():
            count = tokens.get(name)
            if count:
                free -= count
                end = self._end_of(other) or inf
                changes[max(end, now)] = changes.get(max(end, now), 0) + count
        for other, (tokens, start, end) in self.promised.items():
            count = tokens.get(name)
            if count and other not in without:
                start = max(start, now)
                changes[start] = changes.get(start, 0) - count
                changes[end] = changes.get(end, 0) + count
        spans = []
        since = now
        for time in sorted(changes):
            if time > since:
                spans.append((since, time, free))
                since = time
            free += changes[time]
        if since < inf:
            spans.append((since, inf, free))
        return spans
