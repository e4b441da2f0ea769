# SPDX-License-Identifier: LGPL-3.0-or-later
"""Tokens in a plan: counted resources beside nodes and cores, such as licences."""

from __future__ import annotations

from math import inf
from typing import Callable, Container

from flux.resource.plan.compiled import timeline
from flux.resource.plan.timeline import CountTimeline

#: Number of tokens of a job, by name.
Tokens = dict[str, int]


class TokenPlan:
    """Tokens available over time, beside the promised ones.

    Times are seconds since the epoch. The tokens of a running job come back when it ends; a job
    past its end is assumed to end now.

    Args:
        totals (dict): name to total number; other names are not planned
        running (dict): each of these names to {id of a running job: its number of them}; read at
            each query
        end_of: function giving the end of a running job's id; 0: unknown

    Attributes:
        promised (dict): job id to ``(tokens, start, end)`` of its promise
    """

    def __init__(
        self, totals: Tokens, running: dict[str, dict[int, int]], end_of: Callable[[int], float]
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
        without: Container[int | None] = (),
    ) -> bool:
        """Return whether the tokens are available throughout a span, beside all promises but those
        of some jobs."""
        return all(
            self._line(name, now, without).least(start, end) >= count
            for name, count in wanted.items()
            if name in self._totals
        )

    def _line(self, name: str, now: float, without: Container[int | None] = ()) -> CountTimeline:
        """Return the number of available tokens from now on."""
        held = self._running[name]
        line = timeline(now, self._totals[name] - sum(held.values()))
        for jobid, count in held.items():
            line.add(max(self._end_of(jobid) or inf, now), inf, count)
        for jobid, (tokens, start, end) in self.promised.items():
            if name in tokens and jobid not in without:
                line.add(start, end, -tokens[name])
        return line
