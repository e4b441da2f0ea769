# SPDX-License-Identifier: LGPL-3.0-or-later
"""Host names of a pool's ranks (RFC 29), kept as runs of numbered names.

The ``node[0-9999]`` of a cluster is one run here instead of 10,000 strings, so that a pool is made
from R and the R of an allocation is written without expanding the list.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from flux.resource.pool.masks import popcount, quote, runs

#: Names that a hostlist may stand for, as many as there may be ranks: a short text like
#: ``n[0-99999999]`` must not cost memory without bound.
MAX_NAMES = 1 << 20

if TYPE_CHECKING:
    #: ``(prefix, width, low, count)``; see ``name_pieces()``.
    Piece = tuple[str, int | None, int, int]

_EXPR = re.compile(r"([!-+\--Z\\^-~]*)(?:\[([0-9,-]+)\]([!-+\--Z\\^-~]*))?")
_PLAIN = re.compile(r"[A-Za-z0-9._-]+")
_ELEMENT = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_TAIL = re.compile(r"(.*?)([0-9]{1,18})", re.DOTALL)


def _split(text: str) -> list[str]:
    """Split a hostlist at the commas that are outside brackets."""
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


def name_pieces(text: Any) -> list[Piece]:
    """Decode a hostlist into pieces ``(prefix, width, low, count)``.

    A piece stands for ``count`` names, ``prefix`` and the numbers from ``low`` on printed at least
    ``width`` digits wide; ``width`` is None for one name that does not end in digits.

    Raises:
        ValueError: not a hostlist (RFC 29), or more than 2^20 names.
    """
    if not isinstance(text, str):
        raise ValueError(f"hostlist must be a string, got {quote(text)}")
    if _PLAIN.fullmatch(text):
        return [_name_piece(text)]
    pieces: list[Piece] = []
    total = 0
    for expr in _split(text):
        if not expr:
            continue
        match = _EXPR.fullmatch(expr)
        if match is None:
            raise ValueError(f"invalid hostlist {quote(text)}")
        prefix, inner, suffix = match.groups()
        if inner is None:
            pieces.append(_name_piece(prefix))
            total += 1
            continue
        first_width = None
        for element in inner.split(","):
            found = _ELEMENT.fullmatch(element)
            if found is None:
                raise ValueError(f"invalid hostlist {quote(text)}")
            low, high = found.groups()
            own = len(low) if low[0] == "0" and len(low) > 1 else 0
            if first_width is None:
                first_width = own
            count = int(high or low) - int(low) + 1
            total += count
            if count < 1 or total > MAX_NAMES:
                why = ": too many names" if count > 0 else ""
                raise ValueError(f"invalid hostlist {quote(text)}{why}")
            _add_pieces(pieces, prefix, own or first_width, int(low), count, suffix)
    if total > MAX_NAMES:
        raise ValueError(f"invalid hostlist {quote(text)}: too many names")
    return pieces


def _add_pieces(
    pieces: list[Piece], prefix: str, width: int, low: int, count: int, suffix: str
) -> None:
    if suffix or prefix[-1:].isdigit():
        # What the brackets list is not all of the digits at the end of the name.
        for number in range(low, low + count):
            pieces.append(_name_piece(f"{prefix}{number:0{width}d}{suffix}"))
    else:
        pieces.append((prefix, width, low, count))


def _name_piece(name: str) -> Piece:
    match = _TAIL.fullmatch(name)
    if match is None or match.group(1)[-1:].isdigit():
        return (name, None, 0, 1)
    prefix, digits = match.groups()
    return (prefix, len(digits) if digits[0] == "0" and len(digits) > 1 else 0, int(digits), 1)


def encode_pieces(pieces: Iterable[Piece]) -> str:
    """Encode pieces as one hostlist string, adjacent ones joined (RFC 29)."""
    done = []
    prefix, width = "", 0
    group: list[tuple[int, int]] = []
    for piece_prefix, piece_width, low, count in pieces:
        if piece_width is not None and low >= 10 ** max(piece_width - 1, 0):
            piece_width = 0  # no number in it has a leading zero
        if (
            group
            and piece_width is not None
            and piece_prefix == prefix
            and (piece_width == width or (piece_width == 0 and low >= 10 ** max(width - 1, 0)))
        ):
            if group[-1][1] + 1 == low:
                group[-1] = (group[-1][0], low + count - 1)
            else:
                group.append((low, low + count - 1))
            continue
        if group:
            done.append(_group_text(prefix, width, group))
            group = []
        if piece_width is None:
            done.append(piece_prefix)
        else:
            prefix, width = piece_prefix, piece_width
            group = [(low, low + count - 1)]
    if group:
        done.append(_group_text(prefix, width, group))
    return ",".join(done)


def _group_text(prefix: str, width: int, group: list[tuple[int, int]]) -> str:
    if len(group) == 1 and group[0][0] == group[0][1]:
        return f"{prefix}{group[0][0]:0{width}d}"
    runs = (
        f"{low:0{width}d}" if low == high else f"{low:0{width}d}-{high:0{width}d}"
        for low, high in group
    )
    return f"{prefix}[{','.join(runs)}]"


class HostNames:
    """Which host each rank is. Made once for an inventory, and shared by the copies of a pool.

    Args:
        ranks (int): mask of the ranks.
        nodelist: list of hostlists, in the order of the ranks, or None: then rank 7 is called
            ``rank7``.

    Raises:
        ValueError: a bad hostlist, or more or fewer hosts than ranks.
    """

    __slots__ = ("named", "_ranks", "_names", "_pairs")

    def __init__(self, ranks: int, nodelist: Any) -> None:
        self._ranks = ranks
        self._pairs: tuple[list[int], list[Piece]] | None = None
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
        """First ranks of the runs, ascending, and the pieces of names that belong to them."""
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
        """The host name of a rank of the pool."""
        starts, pieces = self._paired()
        at = bisect_right(starts, rank) - 1
        prefix, width, low, _ = pieces[at]
        if width is None:
            return prefix
        return f"{prefix}{low + rank - starts[at]:0{width}d}"

    def hostlist(self, ranks: int) -> str:
        """Hostlist text of a mask of ranks, in rank order."""
        chosen = []
        starts, pieces = self._paired()
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
        """Mask of the ranks whose host is in a hostlist; unknown names are ignored.

        Raises:
            ValueError: not a hostlist.
        """
        mask = 0
        wanted = name_pieces(text)
        by_prefix: dict[str, list[int]] = {}
        starts, pieces = self._paired()
        for at, piece in enumerate(pieces):
            by_prefix.setdefault(piece[0], []).append(at)
        for prefix, width, low, count in wanted:
            for at in by_prefix.get(prefix, ()):
                _, own_width, first, size = pieces[at]
                start = starts[at]
                if width is None or own_width is None:
                    if width is None and own_width is None:
                        mask |= 1 << start
                    continue
                begin = max(low, first)
                end = min(low + count, first + size)
                if begin >= end:
                    continue
                if width != own_width:
                    # 08 and 8 are two hosts; 10 is 10 at any width up to two.
                    begin = max(begin, 10 ** max(width - 1, own_width - 1, 0))
                    if begin >= end:
                        continue
                mask |= ((1 << (end - begin)) - 1) << (start + begin - first)
        return mask


def _pair(
    spans: Iterable[tuple[int, int]], names: Iterable[Piece]
) -> tuple[list[int], list[Piece]]:
    """Divide runs of ranks and pieces of names so that they go side by side."""
    starts = []
    pieces: list[Piece] = []
    source = iter(names)
    prefix, width, low, left = "", None, 0, 0  # what is left of a piece
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
