# SPDX-License-Identifier: LGPL-3.0-or-later
"""Hostlists (RFC 29) as runs of numbered names.

``node[0-9999]`` is one run here instead of 10,000 strings, so that R is read, and the R of an
allocation written, without expanding the list. The names of a pool's ranks are a ``HostNames``, in
``inventory.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Optional

from flux.resource.pool.masks import quote

#: Maximum number of names in a hostlist, equal to that of ranks: a short text like
#: ``n[0-99999999]`` must not cost unbounded memory.
MAX_NAMES = 1 << 20
#: Maximum length of a name outside brackets; no host has a longer one.
MAX_NAME = 255
#: Maximum number of digits of a number in a name; more belong to the prefix.
MAX_DIGITS = 18

#: ``(prefix, width, low, count)``; see ``name_pieces()``.
Piece = tuple[str, Optional[int], int, int]
#: The prefix of the last number of a name, its printed digits (0 if there is none), and the suffix.
#: Names are equal if their forms and numbers are.
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


def elements(text: Any) -> Iterator[tuple[str, int | None, int, int, str]]:
    """Decode a hostlist into ``(prefix, width, low, high, suffix)`` for each name and range.

    Numbers are printed at least ``width`` digits wide between prefix and suffix; ``width`` is None
    for a name without brackets, which is the prefix. The cost is per element, not per name. Raises
    ValueError if it is not a hostlist (RFC 29).
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
    ``width`` digits wide; ``width`` is None for one name that does not end in digits. Raises
    ValueError if it is not a hostlist (RFC 29), or has more than 2^20 names.
    """
    if isinstance(text, str) and _PLAIN.fullmatch(text):
        return [name_piece(text)]
    pieces: list[Piece] = []
    total = 0
    for prefix, width, low, high, suffix in elements(text):
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
    """Yield the number of lookups by `HostNames.find` for each element of a hostlist. Raises
    ValueError if it is not a hostlist."""
    for _, width, low, high, suffix in elements(text):
        yield high - low + 1 if width is not None and _DIGIT.search(suffix) else 1


def spans_of(
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
            yield from spans_of(f"{prefix}{number:0{width}d}{suffix}", None, 0, 0, "")
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
            done.append(group_text(group, spans))
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
        done.append(group_text(group, spans))
    return ",".join(done)


def group_text(prefix: str, spans: list[tuple[int, int, int]]) -> str:
    """Return hostlist text of a prefix and its numbers, as ``(low, high, width)``."""
    if len(spans) == 1 and spans[0][0] == spans[0][1]:
        return prefix + str(spans[0][0]).zfill(spans[0][2])
    runs = [
        str(low).zfill(width) + (f"-{str(high).zfill(width)}" if high > low else "")
        for low, high, width in spans
    ]
    return f"{prefix}[{','.join(runs)}]"
