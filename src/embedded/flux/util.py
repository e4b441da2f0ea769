"""Helpers for commands and scripts."""

import argparse
import base64
import copy
import functools
import json
import logging
import os
import re
import stat
import sys
import time
from datetime import datetime, timedelta

from flux_embedded.broker.config import tomllib
from flux_embedded.cmd.lib import outfmt as _outfmt
from flux_embedded.cmd.lib import pyargs as _pyargs
from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.cmd.lib.tree import Tree
from flux_embedded.formats import fsd as _fsd
from flux_embedded.formats.dotted import lookup_path as get_treedict
from flux_embedded.formats.xdg import xdg_searchpath
from flux_embedded.kernel import message as _message

__all__ = [
    "CLIMain",
    "Fileref",
    "OutputFormat",
    "Tree",
    "UtilConfig",
    "check_future_error",
    "del_treedict",
    "dict_merge",
    "encode_payload",
    "encode_topic",
    "fsd",
    "get_treedict",
    "help_formatter",
    "parse_datetime",
    "parse_fsd",
    "set_treedict",
    "xdg_searchpath",
]


def encode_payload(payload):
    """The bytes that stand for a payload; None for none.

    Raises:
        TypeError: the payload is not serialisable
    """
    text = _message.payload_text(payload)
    return text if text is None else text.encode("utf-8", "surrogateescape")


def encode_topic(topic):
    """The bytes of a topic, a str or bytes.

    Raises:
        OSError: it is None (EINVAL)
        TypeError: it is something else
    """
    return _message.topic_text(topic).encode()


def check_future_error(func):
    """A method of futures whose OSError has the text that the future's peer sent."""

    @functools.wraps(func)
    def checked(future, *args, **kwargs):
        try:
            return func(future, *args, **kwargs)
        except OSError as exc:
            text = future.error_string()
            if text is None:
                raise
            raise OSError(exc.errno, text) from None

    return checked


def help_formatter(argwidth=40, raw_description=False):
    """A ``formatter_class`` for argparse in which options read ``-o, --long=ARG``.

    Args:
        argwidth (int): columns for the options
        raw_description (bool): leave the description as it is
    """
    bases = (_pyargs.Formatter,)
    if raw_description:
        bases += (argparse.RawDescriptionHelpFormatter,)
    cls = type("HelpFormatter", bases, {})
    return functools.partial(cls, max_help_position=argwidth, width=None)


class CLIMain:
    """Decorates the main function of a script: exceptions become an error message and exit code 1.

    Args:
        logger (logging.Logger): what says the error
    """

    def __init__(self, logger=None):
        self.logger = logger or logging.getLogger()

    def __call__(self, main_func):
        """Run it, and exit."""
        level = int(os.environ.get("FLUX_PYCLI_LOGLEVEL", logging.INFO))
        logging.basicConfig(level=level, format="%(name)s: %(levelname)s: %(message)s")
        code = 0
        try:
            main_func()
        except SystemExit as exc:
            code = exc.code
        except Exception as exc:
            code = 1
            text = getattr(exc, "strerror", None) or str(exc)
            where = getattr(exc, "filename", None)
            self.logger.error(f"{text}: '{where}'" if where else text)
            self.logger.debug("where it came from", exc_info=True)
        sys.exit(code)


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
        TypeError: something on the way is not a dict
    """
    *path, last = key.split(".")
    for part in path:
        tree = tree.setdefault(part, {})
        if not isinstance(tree, dict):
            raise TypeError(f"{type(tree).__name__!r} object does not support item assignment")
    tree[last] = value


def del_treedict(tree, key, remove_empty=False):
    """Remove a dotted key from nested dicts; KeyError if it is not there.

    Args:
        remove_empty (bool): and the dicts on the way that are empty then
    """
    part, dot, rest = key.partition(".")
    if not dot:
        del tree[part]
        return
    del_treedict(tree[part], rest, remove_empty)
    if remove_empty and not tree[part]:
        del tree[part]


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

    def set_sort_keys(self, sort_keys):
        """Order the lines by fields, ``KEY,-KEY``; ValueError if there is no such field."""
        keys = sort_keys.split(",")
        for key in keys:
            if key.lstrip("-") not in self.headings:
                raise ValueError(f"Invalid sort key: {key.lstrip('-')}")
        self._layout.sort = keys

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


class Fileref(dict):
    """A file as the jobspec has it (RFC 37).

    Args:
        data: an object that is stored as JSON; with an encoding the contents; else the path of a file
        perms (int): permissions; those of the file that is read are its own
        encoding (str): ``utf-8`` or ``base64``

    Raises:
        ValueError: another encoding
        OSError: the file cannot be read
    """

    def __init__(self, data, perms=0o600, encoding=None):
        super().__init__(mode=stat.S_IFREG | perms, data=data)
        if isinstance(data, dict):
            return
        if encoding is None:
            self["mode"] = os.stat(data).st_mode
            with open(data, "rb") as stream:
                contents = stream.read()
            self["size"] = len(contents)
            try:
                self["data"], encoding = contents.decode("utf-8"), "utf-8"
            except UnicodeDecodeError:
                self["data"], encoding = base64.b64encode(contents).decode("ascii"), "base64"
        elif encoding not in ("utf-8", "base64"):
            raise ValueError(f"invalid encoding: {encoding}")
        self["encoding"] = encoding


class UtilConfig:
    """The configuration of a script: ``NAME.toml`` and ``NAME.json`` in the directories of `xdg_searchpath`.

    A user's settings come before those of the system, and those before the initial ones.  The keys
    are attributes, too.

    Args:
        name (str): name of the files
        toolname (str): what FORMAT_DEFAULT variables are named after; default: name
        subcommand (str): a table of this name is the configuration, if there is one
        initial_dict (dict): initial settings
    """

    builtin_formats = {}

    def __init__(self, name, toolname=None, subcommand=None, initial_dict=None):
        self.name = name
        self.toolname = toolname
        self.subtable = subcommand
        self.dict = copy.deepcopy(initial_dict or {})
        self.config = self.dict
        self.searchpath = xdg_searchpath()[::-1]

    def load(self):
        """Read the files; returns self.

        Raises:
            ValueError: a file cannot be parsed; the text names it
        """
        for directory in self.searchpath:
            for suffix in (".json", ".toml"):
                path = directory / f"{self.name}{suffix}"
                if not path.exists():
                    continue
                text = path.read_text(encoding="utf-8")
                try:
                    table = json.loads(text) if suffix == ".json" else tomllib.loads(text)
                except ValueError as exc:
                    raise ValueError(f"{path}: {exc}") from None
                self.validate(str(path), table)
                dict_merge(self.dict, table)
        self.config = self.dict.get(self.subtable, self.dict)
        return self

    def validate(self, path, conf):
        """Check what a file says; for subclasses."""

    def validate_formats(self, path, formats):
        """Check a table of formats: NAME is a table with ``format`` and perhaps ``description``.

        Raises:
            ValueError: what is wrong with it
        """
        builtin = self.builtin_formats.get(self.subtable, self.builtin_formats)
        if not isinstance(formats, dict):
            raise ValueError(f"{path}: the 'formats' key must be a mapping")
        for name, entry in formats.items():
            if name in builtin:
                raise ValueError(f"{path}: override of builtin format '{name}' not permitted")
            if not isinstance(entry, dict):
                raise ValueError(f"{path}: 'formats.{name}' must be a mapping")
            if "format" not in entry:
                raise ValueError(f"{path}: formats.{name}: required key 'format' missing")
            if not isinstance(entry["format"], str):
                raise ValueError(f"{path}: formats.{name}: 'format' key must be a string")

    def get_format_string(self, format_name):
        """The format of a name in ``formats``, or the text itself if it is a format.

        The environment variable NAME_FORMAT_DEFAULT stands for ``default``.

        Raises:
            ValueError: there is no such format
        """
        if format_name == "default":
            tool = "_".join(filter(None, (self.toolname or self.name, self.subtable)))
            variable = tool.upper().replace("-", "_") + "_FORMAT_DEFAULT"
            format_name = os.environ.get(variable, format_name)
        if "{" in format_name:
            return format_name
        if format_name not in self.formats:
            fields = re.sub(r"\w+", r"{\g<0>}", format_name)
            raise ValueError(f"--format: No such format {format_name} (Did you mean '{fields}'?)")
        return self.formats[format_name]["format"]

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return self.config[name]
