"""Helpers for commands and scripts."""

import re
import time
from datetime import datetime, timedelta

from flux_embedded.cmd.lib import outfmt as _outfmt
from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.formats import fsd as _fsd
from flux_embedded.formats.dotted import lookup_path as get_treedict

__all__ = [
    "OutputFormat",
    "dict_merge",
    "fsd",
    "get_treedict",
    "parse_datetime",
    "parse_fsd",
    "set_treedict",
]


def parse_fsd(text):
    """Return the seconds (float) of a Flux Standard Duration such as ``1.5h`` (RFC 23).

    Raises:
        ValueError: ``invalid Flux standard duration``
    """
    return _fsd.parse(text)


def fsd(seconds):
    """Return a duration for people, such as ``59.95m``."""
    return _fsd.encode(seconds)


def set_treedict(tree, key, value):
    """Set a dotted key in nested dicts, making those on the way.

    Raises:
        ValueError: something on the way is not a dict
    """
    *path, last = key.split(".")
    for part in path:
        tree = tree.setdefault(part, {})
        if not isinstance(tree, dict):
            raise ValueError(f"{key}: {part} is not an object")
    tree[last] = value


def dict_merge(base, extra):
    """Lay `extra` over `base`, table by table; `base` is changed and returned."""
    for key, value in extra.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            dict_merge(base[key], value)
        else:
            base[key] = value
    return base


def parse_datetime(text, now=None):
    """Return the datetime of ``now``, ``+FSD``, ``-FSD`` or an ISO date with or without a time.

    Args:
        text (str): what to parse
        now (datetime): what offsets count from; default: the time now

    Raises:
        ValueError: it is none of these
    """
    now = datetime.fromtimestamp(time.time()).astimezone() if now is None else now
    if text == "now":
        return now
    if re.match(r"[+-][^-]*\Z", text):
        seconds = _fsd.parse(text[1:])
        return now + timedelta(seconds=-seconds if text[0] == "-" else seconds)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f'Invalid datetime: "{text}"') from None
    return when if when.tzinfo else when.astimezone()


class OutputFormat:
    """A format of lines, such as ``{name:>8} {state}``; the commands' documentation has all it can do.

    Args:
        fmt (str): the format
        headings (dict): heading of each field there is, by name
        prepend (str): accepted for the sake of the signature

    Raises:
        ValueError: the format is malformed or has an unknown field
    """

    headings = {}

    def __init__(self, fmt, headings=None, prepend=None):
        if headings is not None:
            self.headings = headings
        self.fmt = fmt
        try:
            self._layout = _outfmt.OutputFormat(fmt, self.headings, known=self.knows)
        except CommandError as exc:
            raise ValueError(str(exc)) from None

    @staticmethod
    def knows(name):
        """Whether a field that has no heading may be used."""
        return name.startswith(("annotations.", "sched.", "user."))

    @property
    def fields(self):
        """Names of the fields (list of str)."""
        return self._layout.names()

    @staticmethod
    def _value(item, name):
        for part in name.split("."):
            item = item.get(part, "") if isinstance(item, dict) else getattr(item, part)
        return "" if item is None else item

    def header(self):
        """The line of headings."""
        return self._layout.lines([], self._value)[0]

    def format(self, item):
        """The line of one item, which has the fields as attributes."""
        return "".join(self._layout.lines([item], self._value, header=False))

    def print_items(self, items, no_header=False, pre=None, post=None):
        """Print a line for each item; `pre` and `post` are called with each item, before and after."""
        lines = self._layout.lines(items, self._value, header=not no_header)
        if not no_header:
            print(lines.pop(0))
        for item, line in zip(items, lines):
            if pre is not None:
                pre(item)
            print(line)
            if post is not None:
                post(item)
