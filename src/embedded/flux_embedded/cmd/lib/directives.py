"""Submission directives: options on the comment lines of a batch script (RFC 36).

``#flux: -N2`` or ``# FLUX: -N2``: anything that is no word character, then the tag, then options in shell syntax, on which
a ``#`` starts a comment.  All directives of a script begin alike.  An option's value may go over several such lines
between triple quotes.
"""

import re
import shlex

_LINE = re.compile(r"(\W*)(flux:|FLUX:)(.*)")
_QUOTES = ('"""', "'''")


def parse(text):
    """The options in a script's directives (list of str), in order.

    Raises:
        ValueError: what is wrong, and in which line
    """
    words = []
    sentinel = ended = None
    block = None
    for number, line in enumerate(text.splitlines(), start=1):
        match = _LINE.match(line)
        if match is None:
            if block is not None:
                raise ValueError(
                    f"line {number}: unterminated multi-line quote at line {block.number}: "
                    f"`{block.start.strip()}'"
                )
            if sentinel and not ended and line.strip():
                prefix = sentinel.rpartition(match_tag(sentinel))[0].rstrip()
                if not line.startswith(prefix):
                    ended = number - 1
            continue
        prefix, tag, value = match.groups()
        if ended:
            raise ValueError(
                f"line {number}: orphan '{tag}' detected: directives disabled after line {ended}"
            )
        if sentinel not in (None, prefix + tag):
            raise ValueError(
                f"line {number}: sentinel changed from '{sentinel}' to '{prefix + tag}'"
            )
        sentinel = prefix + tag
        if block is not None:
            value = block.add(value)
            if value is None:
                continue
            first, block = block.number, None
        else:
            value = _paired(value, number)
            first = number
            if value.rstrip().endswith(_QUOTES):
                block = _Block(value.rstrip(), number)
                continue
        words += _split(value, first)
    if block is not None:
        raise ValueError(
            f"line {block.number}: unterminated multi-line quote: `{block.start.strip()}'"
        )
    return words


def match_tag(sentinel):
    """The tag that a sentinel ends in."""
    return sentinel[-len("flux:") :]


class _Block:
    """A value between triple quotes, line by line."""

    def __init__(self, value, number):
        self.quotes = value[-3:]
        self.start = value
        self.number = number
        self.indent = value[: len(value) - len(value.lstrip())]
        self.lines = []

    def add(self, value):
        """Take one more line; returns the whole directive when it was the last."""
        if value.startswith(self.indent):
            value = value[len(self.indent) :]
        if not value.endswith(self.quotes):
            self.lines.append(value)
            return None
        self.lines.append(value[:-3])
        return self.start[:-3] + shlex.quote("\n".join(self.lines))


def _paired(value, number):
    """A directive in which values between triple quotes on one line are quoted as the shell does."""
    for quotes in _QUOTES:
        parts = value.split(quotes)
        if len(parts) == 2 and parts[1].strip():
            raise ValueError(
                f"line {number}: {value}: a triple quote ends the line, or has a partner"
            )
        if len(parts) > 2:
            if len(parts) % 2 == 0:
                raise ValueError(f"line {number}: {value}: triple quotes do not pair up")
            value = "".join(
                shlex.quote(part) if place % 2 else part for place, part in enumerate(parts)
            )
    return value


def _split(value, number):
    """The words of one directive; none of them: fine."""
    lexer = shlex.shlex(value, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.escapedquotes = "\"'"
    try:
        words = list(lexer)
    except ValueError as exc:
        raise ValueError(f"line {number}: {value}: {exc}") from None
    if words and not words[0].startswith("-"):
        raise ValueError(f"line {number}: Unknown directive: {value}")
    return words
