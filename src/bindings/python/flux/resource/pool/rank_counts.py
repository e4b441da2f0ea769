# SPDX-License-Identifier: LGPL-3.0-or-later
"""Counts of jobs, or of other things, on ranks."""

from __future__ import annotations


class RankCounts:
    """Counts of jobs on each rank.

    The counts are binary numbers whose digits are masks of ranks: adding a job costs some
    operations on masks, on any number of ranks.

    Attributes:
        ranks (int): mask of the ranks with a job
    """

    __slots__ = ("_digits", "ranks")

    def __init__(self) -> None:
        self._digits: list[int] = []
        self.ranks = 0

    def add(self, ranks: int) -> None:
        """Add a job on each of these ranks (a mask).  O(log jobs on a rank) masks."""
        self.ranks |= ranks
        digits = self._digits
        carry = ranks
        for at, digit in enumerate(digits):
            digits[at] = digit ^ carry
            carry &= digit
            if not carry:
                return
        if carry:
            digits.append(carry)

    def remove(self, ranks: int) -> None:
        """Remove a job from each of these ranks, which all have one.  O(log jobs on a rank)
        masks."""
        digits = self._digits
        borrow = ranks
        left = 0
        for at, digit in enumerate(digits):
            digits[at] = digit = digit ^ borrow
            borrow &= digit
            left |= digit
        while digits and not digits[-1]:
            digits.pop()
        self.ranks &= left | ~ranks
