# SPDX-License-Identifier: LGPL-3.0-or-later
"""What the pool says about requests, remembered by their shape."""

from __future__ import annotations

from typing import Any, Callable

from flux.resource.pool.remembered import Remembered
from flux.resource.ResourcePool import ResourcePool


class RequestFacts:
    """Answers of the pool about the requests of pending jobs.

    Jobs come in series that ask for the same, so an answer is remembered by the shape of the
    request. Each method costs a look-up for all jobs of one shape but the first.

    Args:
        pool: function giving the scheduler's pool
    """

    def __init__(self, pool: Callable[[], ResourcePool]) -> None:
        self._pool = pool
        self._matching: Remembered[Any, int] = Remembered()
        self._down: Remembered[Any, bool] = Remembered()
        self._numbers: Remembered[Any, dict[str, Any]] = Remembered()
        self._generation = -1  # of the pool, when `_numbers` were found

    def __len__(self) -> int:
        """How many shapes are remembered at most in one of the tables."""
        return max(len(self._matching), len(self._down), len(self._numbers))

    def ranks_of(self, request: Any) -> int:
        """Mask of the ranks that a request could use, whatever is up or free."""
        shape = getattr(request, "shape", request)
        mask = self._matching.get(shape)
        if mask is None:
            mask = self._pool().match_mask(request)
            self._matching[shape] = mask
        return mask

    def waits_for_down_ranks(self, request: Any) -> bool:
        """Whether a request could not be satisfied by the ranks that are up if all jobs had
        ended."""
        shape = getattr(request, "shape", request)
        waits = self._down.get(shape)
        if waits is None:
            waits = self._pool().waits_for_ranks(request)
            self._down[shape] = waits
        return waits

    def explain(self, request: Any) -> dict[str, Any]:
        """What ``ResourcePool.explain()`` says; the pool is asked again when it has changed."""
        generation = self._pool().generation
        if generation != self._generation:
            self._generation = generation
            self._numbers.clear()
        shape = getattr(request, "shape", request)
        numbers = self._numbers.get(shape)
        if numbers is None:
            numbers = self._pool().explain(request)
            self._numbers[shape] = numbers
        return numbers

    def explained(self) -> int:
        """For how many shapes `explain` has an answer ready."""
        return len(self._numbers)

    def clear(self) -> None:
        """Ranks came up, went down, left or changed: the pool's answers may be different now."""
        self._matching.clear()
        self._down.clear()
