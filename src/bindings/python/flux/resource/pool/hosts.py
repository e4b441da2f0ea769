# SPDX-License-Identifier: LGPL-3.0-or-later
"""Host names of a pool's ranks (RFC 29), as runs of numbered names.

``node[0-9999]`` is one run here instead of 10,000 strings, so that R is read, and the R of an
allocation written, without expanding the list.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from flux.resource.pool.masks import bracketed, lowest, popcount, quote, runs

#: Maximum number of names in a hostlist, equal to that of ranks: a short text like
#: ``n[0-99999999]`` must not cost unbounded memory.
MAX_NAMES = 1 << 20
#: Maximum length of a name outside brackets; no host has a longer one.
MAX_NAME = 255
#: Maximum number of digits of a number in a name; more belong to the prefix.
MAX_DIGITS = 18

if TYPE_CHECKING:
    #: ``(prefix, width, low, count)``; see ``name_pieces()``.
    Piece = tuple[str, int | None, int, int]
    #: The prefix of the last number of a name, its printed digits (0 if there is none), and the
    #: suffix. Names are equal if their forms and numbers are.
    NameForm = tuple[str, int, str]

_EXPR = re.compile(r"([!-+\--Z\\^-~]*)(?:\[([0-9,-]+)\]([!-+\--Z\\^-~]*))?")
_PLAIN = re.compile(r"[A-Za-z0-9._-]+")
_ELEMENT = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_TAIL = re.compile(r"(.*?)([0-9]{1,18})", re.DOTALL)
_DIGITS = "0123456789"
_DIGIT = re.compile("[0-9]")
#: A name read backwards: suffix, last number, prefix.
_BACKWARDS = re.compile(rf"([^0-9]*)([0-9]{{0,{MAX_DIGITS}}})(.*)", re.DOTALL)


def _split(text: str) -> list[str]:
    """Split a hostlist at the commas outside brackets."""
    if "," not in text or "[" not in text:
        return text.split(",")
    parts = []
    start = depth = 0
    for match in re.finditer(r"[\[\],]", text):
        mark = match.group()
        if mark == "[":
            depth += 1
        elif mark == "]":
            depth -= 1
        elif depth == 0:
            parts.append(text[start : match.start()])
            start = match.end()
    parts.append(text[start:])
    return parts


def _elements(text: Any) -> Iterator[tuple[str, int | None, int, int, str]]:
    """Decode a hostlist into ``(prefix, width, low, high, suffix)`` for each name and range.

    Numbers are printed at least ``width`` digits wide between prefix and suffix; ``width`` is None
    for a name without brackets, which is the prefix. The cost is per element, not per name.

    Raises:
        ValueError: it is not a hostlist (RFC 29).
    """
    if not isinstance(text, str):
        raise ValueError(f"hostlist must be a string, got {quote(text)}")
    for expr in _split(text):
        if not expr:
            continue
        match = _EXPR.fullmatch(expr)
        if match is None:
            raise ValueError(f"invalid hostlist {quote(text)}")
        prefix, inner, suffix = match.groups("")
        if len(prefix) + len(suffix) > MAX_NAME:
            raise ValueError(f"invalid hostlist {quote(text)}: a name is too long")
        if match.start(2) < 0:
            yield prefix, None, 0, 0, ""
            continue
        for element in inner.split(","):
            found = _ELEMENT.fullmatch(element)
            if found is None:
                raise ValueError(f"invalid hostlist {quote(text)}")
            low, high = found.groups()
            width = len(low) if low[0] == "0" and len(low) > 1 else 0
            if int(high or low) < int(low):
                raise ValueError(f"invalid hostlist {quote(text)}")
            yield prefix, width, int(low), int(high or low), suffix


def name_pieces(text: Any) -> list[Piece]:
    """Decode a hostlist into pieces ``(prefix, width, low, count)``.

    A piece is ``count`` names: ``prefix`` and the numbers from ``low`` on, printed at least
    ``width`` digits wide; ``width`` is None for one name that does not end in digits.

    Raises:
        ValueError: it is not a hostlist (RFC 29), or has more than 2^20 names.
    """
    if isinstance(text, str) and _PLAIN.fullmatch(text):
        return [name_piece(text)]
    pieces: list[Piece] = []
    total = 0
    for prefix, width, low, high, suffix in _elements(text):
        total += high - low + 1
        if total > MAX_NAMES:
            raise ValueError(f"invalid hostlist {quote(text)}: too many names")
        if width is None:
            pieces.append(name_piece(prefix))
        elif suffix or prefix[-1:].isdigit():
            # The brackets do not hold all digits at the end of the name.
            for number in range(low, high + 1):
                pieces.append(name_piece(f"{prefix}{number:0{width}d}{suffix}"))
        else:
            pieces.append((prefix, width, low, high - low + 1))
    return pieces


def name_piece(name: str) -> Piece:
    """Return a host name as a piece; see `name_pieces`."""
    match = _TAIL.fullmatch(name)
    if match is None or match.group(1)[-1:].isdigit():
        return (name, None, 0, 1)
    prefix, digits = match.groups()
    return (prefix, len(digits) if digits[0] == "0" and len(digits) > 1 else 0, int(digits), 1)


def look_ups(text: Any) -> Iterator[int]:
    """Yield the number of lookups by `HostNames.find` for each element of a hostlist.

    Raises:
        ValueError: it is not a hostlist.
    """
    for _, width, low, high, suffix in _elements(text):
        yield high - low + 1 if width is not None and _DIGIT.search(suffix) else 1


def _spans(
    prefix: str, width: int | None, low: int, high: int, suffix: str
) -> Iterator[tuple[NameForm, int, int]]:
    """Yield ``(form, low, high)`` of an element of a hostlist: names of one form, by their
    numbers."""
    if width is None:
        tail, digits, head = [part[::-1] for part in _BACKWARDS.fullmatch(prefix[::-1]).groups()]  # type: ignore[union-attr]
        number = int(digits or 0)
        yield (head, len(digits), tail), number, number
    elif _DIGIT.search(suffix):
        # The number in brackets is not the last of the name, or lacks digits of it.
        if high - low >= MAX_NAMES:
            raise ValueError(
                f"invalid hostlist {quote(f'{prefix}[{low}-{high}]{suffix}')}: too many names"
            )
        for number in range(low, high + 1):
            yield from _spans(f"{prefix}{number:0{width}d}{suffix}", None, 0, 0, "")
    else:
        digits = prefix[len(prefix.rstrip(_DIGITS)) :]
        while low <= high:
            own = max(width, len(str(low)))
            last = min(high, 10**own - 1)
            ahead = digits[-(MAX_DIGITS - own) :] if own < MAX_DIGITS else ""
            base = int(ahead or 0) * 10**own
            form = (prefix[: len(prefix) - len(ahead)], len(ahead) + own, suffix)
            yield form, base + low, base + last
            low = last + 1


def encode_pieces(pieces: Iterable[Piece]) -> str:
    """Return pieces as hostlist text, adjacent ones joined (RFC 29)."""
    done = []
    group = ""  # prefix of the numbers in `spans`
    spans: list[tuple[int, int, int]] = []  # (low, high, width)
    for prefix, width, low, count in pieces:
        if spans and (width is None or prefix != group):
            done.append(_group_text(group, spans))
            spans = []
        if width is None:
            done.append(prefix)
            continue
        group = prefix
        digits = len(str(low))
        if digits >= width:
            width = 0  # no number in it has a leading zero
        if spans:
            first, last, before = spans[-1]
            if last + 1 == low and max(width, digits) == max(before, digits):
                spans[-1] = (first, low + count - 1, before)
                continue
        spans.append((low, low + count - 1, width))
    if spans:
        done.append(_group_text(group, spans))
    return ",".join(done)


def _group_text(prefix: str, spans: list[tuple[int, int, int]]) -> str:
    if len(spans) == 1 and spans[0][0] == spans[0][1]:
        return prefix + str(spans[0][0]).zfill(spans[0][2])
    runs = [
        str(low).zfill(width) + (f"-{str(high).zfill(width)}" if high > low else "")
        for low, high, width in spans
    ]
    return f"{prefix}[{','.join(runs)}]"


class HostNames:
    """The host name of each rank. Made once per inventory, and shared by the copies of a pool.

    Args:
        ranks (int): mask of the ranks.
        nodelist: list of hostlists, in the order of the ranks; None: rank 7 is called ``rank7``.

    Raises:
        ValueError: a bad hostlist, or not as many hosts as ranks.
    """

    __slots__ = ("named", "_ranks", "_names", "_pairs", "_forms")

    def __init__(self, ranks: int, nodelist: Any) -> None:
        self._ranks = ranks
        self._pairs: tuple[list[int], list[Piece]] | None = None
        self._forms: dict[NameForm, list[_Series]] | None = None
        self.named = nodelist is not None
        names: list[Piece] = []
        self._names = names
        if nodelist is None:
            return
        if not isinstance(nodelist, (list, tuple)):
            raise ValueError(f"execution.nodelist: expected an array, got {quote(nodelist)}")
        for text in nodelist:
            names += name_pieces(text)
        hosts = sum([piece[3] for piece in names])
        if hosts != popcount(ranks):
            raise ValueError(f"execution.nodelist: {hosts} hosts for {popcount(ranks)} ranks")

    def _paired(self) -> tuple[list[int], list[Piece]]:
        """Return the first ranks of the runs, ascending, and their pieces of names."""
        if self._pairs is None:
            spans = runs(self._ranks)
            if self.named:
                self._pairs = _pair(spans, self._names)
            else:
                self._pairs = (
                    [low for low, _ in spans],
                    [("rank", 0, low, count) for low, count in spans],
                )
        return self._pairs

    def name(self, rank: int) -> str:
        """Return the host name of a rank of the pool."""
        starts, pieces = self._paired()
        at = bisect_right(starts, rank) - 1
        prefix, width, low, _ = pieces[at]
        if width is None:
            return prefix
        return f"{prefix}{low + rank - starts[at]:0{width}d}"

    def hostlist(self, ranks: int) -> str:
        """Return the hostlist text of a mask of ranks, in rank order."""
        starts, pieces = self._paired()
        prefix, width, first, _ = pieces[0] if len(pieces) == 1 and ranks else ("", None, 0, 0)
        if width is not None:  # numbered as the ranks are
            first -= starts[0]
            if first >= 0 and (width < 2 or lowest(ranks) + first >= 10 ** (width - 1)):
                return prefix + bracketed(ranks << first)  # no number is padded
            spans = [(first + low, first + low + count - 1, width) for low, count in runs(ranks)]
            return _group_text(prefix, spans)
        chosen = []
        for low, count in runs(ranks):
            at = bisect_right(starts, low) - 1
            while count:
                prefix, width, first, size = pieces[at]
                offset = low - starts[at]
                part = min(count, size - offset)
                chosen.append((prefix, width, first + offset, part))
                low += part
                count -= part
                at += 1
        return encode_pieces(chosen)

    def find(self, text: str) -> int:
        """Return a mask of the ranks whose host is in a hostlist; unknown names are ignored.

        Raises:
            ValueError: it is not a hostlist.
        """
        mask = 0
        forms = self._by_form()
        for element in _elements(text):
            for form, low, high in _spans(*element):
                for series in forms.get(form, ()):
                    mask |= series.between(low, high)
        return mask

    def _by_form(self) -> dict[NameForm, list[_Series]]:
        """Return all names by form. O(pieces of names) the first time."""
        if self._forms is None:
            forms: dict[NameForm, list[_Series]] = {}
            for start, (prefix, width, first, count) in zip(*self._paired()):
                for form, low, high in _spans(prefix, width, first, first + count - 1, ""):
                    known = forms.setdefault(form, [])
                    if not known or low < known[-1].highs[-1]:
                        known.append(_Series())
                    known[-1].add(start, low, high)
                    start += high - low + 1
            self._forms = forms
        return self._forms


class _Series:
    """Ranks with names of one form, by the numbers in these: two searches find all ranks between
    two numbers.
    """

    __slots__ = ("lows", "highs", "ranks", "mask")

    def __init__(self) -> None:
        self.lows: list[int] = []
        self.highs: list[int] = []
        self.ranks: list[int] = []  # first rank of each run
        self.mask = 0

    def add(self, rank: int, low: int, high: int) -> None:
        """Add a run of ranks, named with the numbers from ``low`` to ``high``."""
        self.lows.append(low)
        self.highs.append(high)
        self.ranks.append(rank)
        self.mask |= ((1 << (high - low + 1)) - 1) << rank

    def between(self, low: int, high: int) -> int:
        """Return a mask of the ranks with numbers from ``low`` to ``high``.  O(log runs) and one
        mask."""
        first = bisect_left(self.highs, low)
        last = bisect_right(self.lows, high) - 1
        if first > last:
            return 0
        begin = self.ranks[first] + max(low - self.lows[first], 0)
        end = self.ranks[last] + min(high, self.highs[last]) - self.lows[last]
        return self.mask & ((1 << (end - begin + 1)) - 1) << begin


def _pair(
    spans: Iterable[tuple[int, int]], names: Iterable[Piece]
) -> tuple[list[int], list[Piece]]:
    """Divide runs of ranks and pieces of names so that they correspond."""
    starts = []
    pieces: list[Piece] = []
    source = iter(names)
    prefix, width, low, left = "", None, 0, 0  # the rest of a piece
    for rank, count in spans:
        while count:
            if not left:
                prefix, width, low, left = next(source)
            part = min(left, count)
            starts.append(rank)
            pieces.append((prefix, width, low, part))
            rank += part
            count -= part
            left -= part
            low += part
    return starts, pieces
