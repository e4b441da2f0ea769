"""Sets of non-negative integers (RFC 22)."""

from flux.constants import IDSET_FLAG_BRACKETS, IDSET_FLAG_RANGE, IDSET_INVALID_ID
from flux_embedded.formats import idset as _format

__all__ = ["IDset"]


def _bounds(arg):
    """The bounds of whatever can stand for a set."""
    if isinstance(arg, IDset):
        return arg.bounds
    if isinstance(arg, str):
        try:
            return _format.decode(arg)
        except ValueError:
            raise ValueError(f"IDset(): Invalid argument: {arg}") from None
    if isinstance(arg, int):
        raise TypeError("an idset is made from a string or an iterable of integers, not from int")
    ids = []
    for i in arg:
        ids.append(_check(i))
    return _format.from_ids(ids)


def _check(i):
    if isinstance(i, bool) or not isinstance(i, int):
        raise TypeError(f"idset member {i!r} is not an integer")
    if not 0 <= i <= _format.MAX_ID:
        raise ValueError(f"idset member {i} is not between 0 and {_format.MAX_ID}")
    return i


class IDset:
    """A set of ids from 0 to 4294967295, kept as ranges.

    Args:
        arg: idset string (``"0-3,7"``, brackets allowed), iterable of int, or IDset
        flags (int): how `encode` writes: IDSET_FLAG_RANGE, IDSET_FLAG_BRACKETS

    Raises:
        ValueError: malformed string or id out of range
        TypeError: a member is not an integer
    """

    __slots__ = ("bounds", "_flags")
    __hash__ = None

    def __init__(self, arg="", flags=IDSET_FLAG_RANGE):
        # Mutators replace the list, so that copies may share it.
        self.bounds = _bounds(arg)
        self._flags = flags

    @classmethod
    def _make(cls, bounds, flags=IDSET_FLAG_RANGE):
        self = cls.__new__(cls)
        self.bounds = bounds
        self._flags = flags
        return self

    # -- changing it -----------------------------------------------------------

    def set(self, a, b=None):
        """Add id `a`, or all from `a` to `b`; returns self."""
        return self._change(a, b, _format.UNION)

    def clear(self, a, b=None):
        """Remove id `a`, or all from `a` to `b`; returns self."""
        return self._change(a, b, _format.DIFFERENCE)

    def _change(self, a, b, how):
        for i in (a, b):
            if isinstance(i, int) and i < 0:
                name = "set" if how is _format.UNION else "clear"
                raise ValueError(f"negative index passed to IDset.{name}")
        _check(a)
        b = a if b is None else _check(b)
        if b < a:
            a, b = b, a
        self.bounds = _format.combine(self.bounds, [a, b + 1], how)
        return self

    def add(self, other):
        """Add the members of another set; returns self."""
        self.bounds = _format.combine(self.bounds, _bounds(other), _format.UNION)
        return self

    def subtract(self, other):
        """Remove the members of another set; returns self."""
        self.bounds = _format.combine(self.bounds, _bounds(other), _format.DIFFERENCE)
        return self

    # -- asking it -------------------------------------------------------------

    def test(self, i):
        """Whether `i` is a member."""
        return self._index(_check(i)) & 1 == 1

    def _index(self, i):
        """How many bounds are at or below `i`; odd inside a range."""
        bounds = self.bounds
        low, high = 0, len(bounds)
        while low < high:
            middle = (low + high) // 2
            if bounds[middle] <= i:
                low = middle + 1
            else:
                high = middle
        return low

    def count(self):
        """The number of members."""
        return _format.count(self.bounds)

    def first(self):
        """The least member; 4294967294 if there is none."""
        return self.bounds[0] if self.bounds else IDSET_INVALID_ID

    def last(self):
        """The greatest member; 4294967294 if there is none."""
        return self.bounds[-1] - 1 if self.bounds else IDSET_INVALID_ID

    def next(self, i):
        """The least member above `i`; 4294967294 if there is none."""
        i = _check(i) + 1
        at = self._index(i)
        if at & 1:
            return i
        return self.bounds[at] if at < len(self.bounds) else IDSET_INVALID_ID

    def equal(self, other):
        """Whether another set has the same members."""
        return self.bounds == _bounds(other)

    def copy(self):
        return self._make(self.bounds, self._flags)

    def expand(self):
        """The members as a list."""
        return list(_format.members(self.bounds))

    def encode(self, flags=None):
        """The set as a string; `flags` in place of those it was made with."""
        if flags is None:
            flags = self._flags
        return _format.encode(
            self.bounds, bool(flags & IDSET_FLAG_BRACKETS), bool(flags & IDSET_FLAG_RANGE)
        )

    def set_flags(self, flags):
        """Change how `encode` writes."""
        self._flags = flags

    # -- combining sets --------------------------------------------------------

    def _combined(self, others, how):
        bounds = self.bounds
        for other in others:
            bounds = _format.combine(bounds, _bounds(other), how)
        return self._make(bounds, self._flags)

    def union(self, *others):
        return self._combined(others, _format.UNION)

    def intersect(self, *others):
        return self._combined(others, _format.INTERSECT)

    def difference(self, *others):
        return self._combined(others, _format.DIFFERENCE)

    def __or__(self, other):
        return self.union(other)

    __add__ = __or__

    def __and__(self, other):
        return self.intersect(other)

    def __sub__(self, other):
        return self.difference(other)

    # -- as a container --------------------------------------------------------

    def __contains__(self, i):
        return self.test(i)

    def __len__(self):
        return self.count()

    def __bool__(self):
        return bool(self.bounds)

    def __iter__(self):
        return _format.members(self.bounds)

    def __getitem__(self, i):
        """Whether `i` is a member."""
        return self.test(i)

    def __eq__(self, other):
        if not isinstance(other, IDset):
            raise TypeError(f"cannot compare an IDset with {type(other).__name__}")
        return self.bounds == other.bounds

    def __str__(self):
        return self.encode()

    def __repr__(self):
        return f"IDset('{self.encode()}')"
