# SPDX-License-Identifier: LGPL-3.0-or-later
"""Ordered lists of host names as text (RFC 29)."""

import re

from flux_engine.formats.quote import quote

#: longest list that is expanded from text
MAX_HOSTS = 1 << 20

_CHARS = r"[!-+\--Z\\^-~]"  # printable, without space , [ ]
_EXPR = re.compile(rf"({_CHARS}*)(?:\[([0-9,-]*)\]({_CHARS}*))?")
_ELEMENT = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_REST = re.compile(r"(?:\[[^\]]*\]|[^\[\],])*")
_TRAILING = re.compile(r"[0-9]{1,18}\Z")


def decode(text):
    """Return the host names of a hostlist as a list of str.

    Args:
        text (str): for example ``"fluke[0-3,7],login"``; ``""`` is empty.

    Raises:
        ValueError: malformed, or more than `MAX_HOSTS` names.
    """
    found = list(ranges(text))
    if sum([high - low + 1 for _, low, high, _, _ in found]) > MAX_HOSTS:
        raise ValueError(f"hostlist {quote(text)}: more than {MAX_HOSTS} hosts")
    hosts = []
    for prefix, low, high, width, suffix in found:
        if width is None:
            hosts.append(prefix)
        else:
            hosts += [f"{prefix}{i:0{width}d}{suffix}" for i in range(low, high + 1)]
    return hosts


def ranges(text):
    """Yield the names of a hostlist without expanding it: prefix, first and last number, minimum
    printed width (None: a single name, the prefix), and suffix.

    Raises:
        ValueError: malformed.
    """
    pos, end = 0, len(text)
    while pos < end:
        if text[pos] == ",":
            pos += 1
            continue
        match = _EXPR.match(text, pos)
        stop = match.end()
        prefix, idlist, suffix = match.groups()
        if stop < end and text[stop] == "[" and idlist is not None:
            # Only the first range of a name is expanded; the rest is part of the name, as in flux-core.
            last = _REST.match(text, stop).end()
            suffix += text[stop:last]
            stop = last
        elif stop < end and text[stop] != ",":
            raise ValueError(
                f"hostlist {quote(text)}: unexpected {text[stop]!r} at position {stop}"
            )
        if idlist is None:
            yield prefix, 0, 0, None, ""
        else:
            for low, high, width in _numbers(text, idlist):
                yield prefix, low, high, width, suffix
        pos = stop + 1


def _numbers(text, idlist):
    """Yield the ranges in the brackets of a hostlist."""
    for element in idlist.split(","):
        match = _ELEMENT.fullmatch(element)
        if not match:
            raise ValueError(f"hostlist {quote(text)}: bad range {quote(element)}")
        low, high = match.groups()
        lo = int(low)
        hi = lo if high is None else int(high)
        if hi < lo:
            raise ValueError(f"hostlist {quote(text)}: range {quote(element)} descends")
        yield lo, hi, len(low) if low[0] == "0" and len(low) > 1 else 0


def split(name):
    """Return a name as (prefix, trailing digits)."""
    match = _TRAILING.search(name)
    if match is None:
        return name, ""
    return name[: match.start()], match.group()


def encode(hosts):
    """Return the canonical hostlist of an iterable of names.

    Neighbouring names with the same prefix share a group; order and repeats are kept.
    """
    out = []
    prefix = None  # of the open group
    start = 0  # length of that prefix, or 0 if the name must be split
    spans = []  # of the open group: [first, last, width]
    for name in hosts:
        digits = name[start:] if start and name.startswith(prefix) else ""
        if digits.isdigit() and digits.isascii() and len(digits) < 19:
            head = prefix
        else:
            head, digits = split(name)
        if not digits:
            if prefix is not None:
                out.append(_group(prefix, spans))
                prefix = None
                start = 0
            out.append(name)
            continue
        number = int(digits)
        if head == prefix:
            last = spans[-1]
            # A span goes on as long as its width gives back each name's own digits.
            if number == last[1] + 1 and len(digits) == max(len(str(number)), last[2]):
                last[1] = number
                continue
        else:
            if prefix is not None:
                out.append(_group(prefix, spans))
            prefix = head
            # All digits at the end of a name belong to its number, unless there are very many.
            start = 0 if head[-1:].isdigit() else len(head)
            spans = []
        padded = digits[0] == "0" and len(digits) > 1
        spans.append([number, number, len(digits) if padded else 0])
    if prefix is not None:
        out.append(_group(prefix, spans))
    return ",".join(out)


def _group(prefix, spans):
    if len(spans) == 1 and spans[0][0] == spans[0][1]:
        return f"{prefix}{spans[0][0]:0{spans[0][2]}d}"
    items = ",".join(
        [f"{lo:0{w}d}" if lo == hi else f"{lo:0{w}d}-{hi:0{w}d}" for lo, hi, w in spans]
    )
    return f"{prefix}[{items}]"


def sort_key(name):
    """Order by prefix, then by number, then by width."""
    prefix, digits = split(name)
    return prefix, int(digits) if digits else -1, len(digits)
