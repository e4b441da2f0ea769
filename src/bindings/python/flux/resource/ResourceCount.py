# SPDX-License-Identifier: LGPL-3.0-or-later
"""Counts of a jobspec: integers, idsets and ranges (RFC 14, RFC 45)."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

from flux.resource.pool.masks import intervals, quote

_NUMBER = "(0|[1-9][0-9]{0,18})"
_RANGE = re.compile(rf"{_NUMBER}(?:-{_NUMBER}|(\+))(?::{_NUMBER})?(?::([-+*^/a-z]))?")
#: Upper bound of counts: no instance has more of anything.
MAX_COUNT = 1 << 63
#: Maximum length of a count given as text.
MAX_TEXT = 256


class ResourceCount:
    """The set of values accepted by a ``count``.

    Attributes:
        min (int): the smallest accepted value.
        max (int or None): the largest value named, None if unbounded. It may not itself be accepted
            (``1-8:3`` accepts 1, 4, 7).
        operator (str): ``+``, ``*`` or ``^``: yields the next value.
        operand (int): the operator's second operand.
        values: ascending ``(low, high)`` intervals of an idset, else None.
        fixed (bool): whether exactly one value is accepted.
    """

    __slots__ = ("min", "max", "operator", "operand", "values", "fixed")

    def __init__(
        self,
        min: int,
        max: int | None = None,
        operator: str = "+",
        operand: int = 1,
        values: list[tuple[int, int]] | None = None,
    ) -> None:
        self.min = min
        self.max = max
        self.operator = operator
        self.operand = operand
        self.values = values
        self.fixed = max == min

    @classmethod
    def parse(cls, count: Any) -> ResourceCount:
        """Parse a count from its jobspec form.

        Args:
            count: integer, range dict, range string or idset string (RFC 14).

        Raises:
            ValueError: it has another form, or accepts no value.
        """
        if type(count) is int and 0 < count <= MAX_COUNT:
            return cls(count, count)
        if isinstance(count, bool):
            raise ValueError(f"RFC 14 count: expected a number, got {quote(count)}")
        if isinstance(count, int):
            return cls(_positive(count), count)
        if isinstance(count, ResourceCount):
            return count
        if isinstance(count, str):
            return cls._from_text(count)
        if isinstance(count, dict):
            return cls._from_dict(count)
        raise ValueError(f"RFC 14 count: expected integer, string or object, got {quote(count)}")

    @classmethod
    def _from_dict(cls, count: dict[str, Any]) -> ResourceCount:
        unknown = [key for key in count if key not in ("min", "max", "operator", "operand")]
        if unknown:
            raise ValueError(f"RFC 14 count: unknown key {quote(unknown[0])}")
        if "min" not in count:
            raise ValueError("RFC 14 count: a range needs min")
        if ("operator" in count) != ("operand" in count):
            raise ValueError("RFC 14 count: operator and operand must be given together")
        for key in ("min", "max", "operand"):
            if key in count and (isinstance(count[key], bool) or not isinstance(count[key], int)):
                raise ValueError(f"RFC 14 count: {key} must be an integer, got {quote(count[key])}")
        return cls._range(
            count["min"], count.get("max"), count.get("operator", "+"), count.get("operand", 1)
        )

    @classmethod
    def _from_text(cls, text: str) -> ResourceCount:
        if len(text) > MAX_TEXT:
            raise ValueError(f"RFC 14 count: {quote(text)} is longer than {MAX_TEXT} characters")
        inner = text
        if inner[:1] == "[" and inner[-1:] == "]":
            inner = inner[1:-1]
        match = _RANGE.fullmatch(inner)
        if match is not None:
            low, high, _, operand, operator = match.groups()
            if operator is not None and operand is None:
                raise ValueError(f"RFC 14 count: {quote(text)}: operator without operand")
            return cls._range(
                int(low),
                int(high) if high is not None else None,
                operator or "+",
                int(operand) if operand is not None else 1,
            )
        if not inner:
            raise ValueError("RFC 14 count: empty string")
        try:
            values = intervals(inner)
        except ValueError:
            raise ValueError(f"RFC 14 count: {quote(text)} is not a count") from None
        _positive(values[0][0])
        if len(values) == 1:
            return cls(*values[0])
        return cls(values[0][0], values[-1][1], values=values)

    @classmethod
    def _range(cls, low: int, high: int | None, operator: str, operand: int) -> ResourceCount:
        _positive(low)
        if high is not None:
            if high > MAX_COUNT:
                raise ValueError(f"RFC 14 count: {quote(high)} is too large")
            if high < low:
                raise ValueError(f"RFC 14 count: max must be >= min, got max={high} min={low}")
        if operator not in ("+", "*", "^"):
            raise ValueError(f"RFC 14 count: operator must be +, * or ^, got {quote(operator)}")
        if operand < 1 or operand > MAX_COUNT or (operand < 2 and operator != "+"):
            raise ValueError(
                f"RFC 14 count: operand {quote(operand)} is too small or too large for operator"
                f" {operator}"
            )
        if operator == "^" and low < 2:
            raise ValueError(f"RFC 14 count: operator ^ needs min >= 2, got {low}")
        return cls(low, high, operator, operand)

    @property
    def simple(self) -> bool:
        """True if every value from min to max is accepted."""
        return self.values is None and self.operator == "+" and self.operand == 1

    def floor(self, limit: int) -> int | None:
        """Return the largest accepted value up to ``limit``, or None."""
        if limit < self.min:
            return None
        if self.max is not None and limit > self.max:
            limit = self.max
        if self.values is not None:
            low, high = self.values[bisect_right(self.values, (limit, MAX_COUNT)) - 1]
            return min(limit, high)
        if self.operator == "+":
            return limit - (limit - self.min) % self.operand
        value = self.min
        # Both at least double: there are at most as many steps as bits in limit.
        for following in self._growing():
            if following > limit:
                break
            value = following
        return value

    def accepts(self, number: int) -> bool:
        """True if ``number`` is an accepted value."""
        return self.floor(number) == number

    def _growing(self) -> Iterator[int]:
        value = self.min
        while self.max is None or value <= self.max:
            yield value
            if self.operator == "+":
                value += self.operand
            elif self.operator == "*":
                value *= self.operand
            elif value.bit_length() * self.operand > 4096:
                return  # past every limit; the power itself might be huge
            else:
                value **= self.operand

    def __iter__(self) -> Iterator[int]:
        """Yield accepted values in ascending order; unbounded if the count is."""
        if self.values is None:
            yield from self._growing()
        for low, high in self.values or ():
            yield from range(low, high + 1)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.fixed and self.min == other
        if not isinstance(other, ResourceCount):
            return NotImplemented
        return self.canonical() == other.canonical()

    def __hash__(self) -> int:
        return hash(self.min) if self.fixed else hash(self.canonical())

    def canonical(self) -> tuple[Any, ...]:
        """Return a tuple that is equal for equivalent counts."""
        if self.fixed:
            return (self.min,)
        values = tuple(self.values) if self.values is not None else None
        return (self.min, self.max, self.operator, self.operand, values)

    def __str__(self) -> str:
        if self.fixed:
            return f"{self.min}"
        if self.values is not None:
            return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in self.values)
        text = f"{self.min}+" if self.max is None else f"{self.min}-{self.max}"
        if self.operator != "+":
            return f"{text}:{self.operand}:{self.operator}"
        return text if self.operand == 1 else f"{text}:{self.operand}"

    def __repr__(self) -> str:
        return f"ResourceCount({self})"


def _positive(number: int) -> int:
    if number < 1:
        raise ValueError(f"RFC 14 count: integer count must be >= 1, got {quote(number)}")
    if number > MAX_COUNT:
        raise ValueError(f"RFC 14 count: {quote(number)} is too large")
    return number


ONE = ResourceCount(1, 1)


class CountProduct(ResourceCount):
    """The product of two nested counts that are not plain numbers.

    ``floor()`` maximizes the outer count, then the inner one.
    """

    __slots__ = ("outer", "inner")

    def __init__(self, outer: ResourceCount, inner: ResourceCount) -> None:
        most = None
        if outer.max is not None and inner.max is not None:
            most = outer.max * inner.max
        super().__init__(outer.min * inner.min, most, "*", 1)
        self.outer = outer
        self.inner = inner

    @property
    def simple(self) -> bool:
        return False

    def split(self, limit: int) -> tuple[int, int] | None:
        """Return the outer and inner values chosen for ``limit``, or None."""
        outer = self.outer.floor(limit // self.inner.min)
        inner = None if outer is None else self.inner.floor(limit // outer)
        return None if outer is None or inner is None else (outer, inner)

    def floor(self, limit: int) -> int | None:
        chosen = self.split(limit)
        return None if chosen is None else chosen[0] * chosen[1]

    def __iter__(self) -> Iterator[int]:
        raise TypeError("the values of a product of two ranges cannot be listed: use floor()")

    def canonical(self) -> tuple[Any, ...]:
        return (self.outer.canonical(), self.inner.canonical())

    def __str__(self) -> str:
        return f"({self.outer})*({self.inner})"


def multiply(outer: ResourceCount, inner: ResourceCount) -> ResourceCount:
    """Return the count of ``inner`` things in each of ``outer`` things.

    Raises:
        ValueError: the product is more than any instance could have.
    """
    if outer.min * inner.min > MAX_COUNT:
        raise ValueError(f"RFC 14 count: {outer.min} times {inner.min} is too large")
    if outer.fixed and inner.fixed:
        return ResourceCount(outer.min * inner.min, outer.min * inner.min)
    count, other = (inner, outer) if outer.fixed else (outer, inner)
    if other.fixed:
        factor = other.min
        if factor == 1:
            return count
        if count.values is None and count.operator != "^" and type(count) is ResourceCount:
            return ResourceCount(
                count.min * factor,
                None if count.max is None else count.max * factor,
                count.operator,
                count.operand * factor if count.operator == "+" else count.operand,
            )
    return CountProduct(outer, inner)
