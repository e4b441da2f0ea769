"""Output formats: ``-o '{id.f58:>12} ?:{queue:<8.8} {runtime!F:>8h}'``.

Python's format strings with what the commands add to them:

- conversions ``!d`` (epoch seconds as local date, a strftime format may stand before ``::``),
  ``!D`` (ISO date, empty for 0), ``!F`` (Flux Standard Duration), ``!H`` (H:MM:SS), ``!P``
  (percentage), ``!j`` (JSON);
- a width specification may end in ``+`` (mark what was cut) and ``h`` (``-`` for what is empty
  or zero);
- a field after ``?:`` is left out if it is empty in every line, one after ``+:`` is made as wide
  as its longest value, ``?+:`` does both;
- ``sort:KEY,-KEY `` in front orders the lines.
"""

import json
import os
import re
import string
import sys
import time

from flux_embedded.cmd.lib import times
from flux_embedded.cmd.lib.errors import CommandError

SENTINEL = re.compile(r"(\?\+:|\+:|\?:)$")
SPEC = re.compile(r"(.?[<>^=])?(\d+)?(\.\d+)?")
ZERO_VALUES = {"", "0s", "0.0", "0:00:00", "1970-01-01T00:00:00"}


class Date(float):
    """Epoch seconds that format with strftime."""

    def __format__(self, spec):
        pattern, _, rest = spec.partition("::")
        if "%" not in pattern:
            pattern, rest = "%Y-%m-%dT%H:%M:%S", spec
        if not self:
            return format("", rest)
        return format(time.strftime(pattern, time.localtime(self)), rest)


def _number(value):
    try:
        return float(value or 0)
    except (TypeError, ValueError):
        return 0.0


def convert(value, conversion):
    """Apply one ``!x`` conversion."""
    if conversion == "d":
        return Date(_number(value))
    if conversion == "D":
        number = _number(value)
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(number)) if number else ""
    if conversion == "F":
        return times.fsd(_number(value))
    if conversion == "H":
        return times.hms(_number(value))
    if conversion == "P":
        return "" if value == "" else f"{_number(value) * 100:.3g}%"
    if conversion == "j":
        return json.dumps(value)
    if conversion == "r":
        return repr(value)
    if conversion != "s":
        raise CommandError(f"Unknown conversion specifier {conversion}")
    return str(value)


class Field:
    """One replacement field with the literal text before it."""

    def __init__(self, literal, name, spec, conversion):
        self.collapse = self.expand = False
        match = SENTINEL.search(literal)
        if match:
            literal = literal[: match.start()]
            self.collapse = "?" in match.group()
            self.expand = "+" in match.group()
        self.literal = literal
        self.name = name
        self.conversion = conversion
        self.hyphen = spec.endswith("h")
        if self.hyphen:
            spec = spec[:-1]
        self.mark = spec.endswith("+") and len(spec) > 1
        if self.mark:
            spec = spec[:-1]
        self.spec = spec

    @property
    def layout(self):
        """The width part of the specification, without a date pattern."""
        return self.spec.rpartition("::")[2] if "::" in self.spec else self.spec

    def _fit(self, text, spec):
        if self.mark:
            match = SPEC.fullmatch(spec)
            if match and match.group(3):
                room = int(match.group(3)[1:])
                if len(text) > room:
                    text = text[: room - 1] + "+"
        return format(text, spec)

    def text(self, value):
        """The value as it is printed."""
        if value is None:
            value = ""
        if self.conversion:
            value = convert(value, self.conversion)
        elif isinstance(value, (dict, list)):
            value = json.dumps(value) if value else ""
        if self.hyphen:
            plain = format(value, "") if isinstance(value, Date) else str(value)
            if plain in ZERO_VALUES:
                value = "-"
            if isinstance(value, str):
                return self._fit(value, self.layout)
        if isinstance(value, (str, bool)):
            return self._fit(str(value), self.layout)
        try:
            return format(value, self.spec)
        except ValueError:
            return self._fit(str(value), self.layout)

    def heading(self, text):
        """A heading as wide and aligned as the values, but never cut."""
        match = re.match(r"(.?[<>^=])?0?(\d+)?", self.layout)
        align, width = match.groups() if match else (None, None)
        return format(text, f"{align or ('>' if self.layout[:1].isdigit() else '')}{width or ''}")

    @property
    def width(self):
        """The least width."""
        match = re.match(r"(?:.?[<>^=])?(\d+)?", self.layout)
        return int(match.group(1) or 0) if match else 0

    def widen(self, width):
        """Make the field width characters wide."""
        match = re.match(r"(.?[<>^=])?(\d+)?(.*)", self.layout)
        prefix = self.spec[: len(self.spec) - len(self.layout)]
        self.spec = f"{prefix}{match.group(1) or '<'}{width}{match.group(3)}"


class OutputFormat:
    """A compiled format.

    Args:
        text: the format string.
        headings: field name -> column heading; also the set of fields that exist.
        known: function that accepts further field names (``annotations.x``).

    Raises:
        CommandError: unknown field or bad syntax.
    """

    def __init__(self, text, headings, known=None, error_prefix=""):
        self.headings = headings
        self.known = known
        self.sort = []
        match = re.match(r"sort:([-\w.,]+)\s+", text)
        if match:
            self.sort = match.group(1).split(",")
            text = text[match.end() :]
        self.fields = []
        self.tail = ""
        try:
            parts = list(string.Formatter().parse(text))
        except ValueError as exc:
            raise CommandError(f"{error_prefix}{exc}") from None
        for literal, name, spec, conversion in parts:
            if name is None:
                self.tail += literal
                continue
            if name and not self.exists(name):
                raise CommandError(f"{error_prefix}Unknown format field: {name}")
            self.fields.append(Field(self.tail + literal, name, spec or "", conversion))
            self.tail = ""

    @classmethod
    def named(cls, text, named, headings, command, table="", **more):
        """The format for ``-o``, or None after ``help`` and ``get-config``, which are answered here.

        Args:
            text: a format string, the name of a format, ``help``, ``get-config=NAME``, or None for the default.
            named: name -> (description, format string); ``default`` among them.
            headings, more: as for the class.
            command: the command's name, ``jobs``.
            table: its subcommand, where that has formats of its own.

        Raises:
            CommandError: there is no such format
        """
        chosen = _choose(text, named, command, table)
        return None if chosen is None else cls(chosen, headings, **more)

    def exists(self, name):
        """Whether there is such a field."""
        return name in self.headings or bool(self.known and self.known(name))

    def names(self):
        return [field.name for field in self.fields]

    def heading(self, name):
        if name.startswith("annotations."):
            return self.headings.get(name, name[len("annotations.") :].upper())
        return self.headings.get(name, name.upper())

    def lines(self, items, value, header=True):
        """The lines to print.

        Args:
            items: what is listed.
            value: ``value(item, field name)``.
            header: with a line of headings.
        """
        items = list(items)
        for key in reversed(self.sort):
            name = key.lstrip("-")
            if not self.exists(name):
                raise CommandError(f"Invalid sort key: {name}")
            items.sort(
                key=lambda item: (value(item, name) in ("", None), value(item, name)),
                reverse=key.startswith("-"),
            )
        fields = self.fields
        rows = [[value(item, field.name) for field in fields] for item in items]
        dropped = set()
        for column, field in enumerate(fields):
            if not (field.collapse or field.expand):
                continue
            layout, mark = field.spec, field.mark
            if field.expand:
                field.spec, field.mark = layout[: len(layout) - len(field.layout)], False
            texts = [field.text(row[column]).strip() for row in rows]
            field.spec, field.mark = layout, mark
            if field.collapse and not any(texts) and rows:
                dropped.add(column)
            elif field.collapse and not rows:
                dropped.add(column)
            elif field.expand:
                longest = max([len(text) for text in texts], default=0)
                name = self.heading(field.name) if header else ""
                field.widen(max(longest, len(name), field.width))
        kept = [(n, f) for n, f in enumerate(fields) if n not in dropped]
        out = []
        if header:
            text = self._join(kept, lambda n, f: f.heading(self.heading(f.name)))
            out.append(text)
        try:
            for row in rows:
                line = self._join(kept, lambda n, f: f.text(row[n]))
                if line.strip():
                    out.append(line)
        except (CommandError, ValueError) as exc:
            # what came before is printed all the same
            sys.stdout.writelines(f"{line}\n" for line in out)
            raise CommandError(str(exc)) from None
        return out

    def show(self, items, value, header=True):
        """Print the lines; arguments as for `lines`. Returns 0, a command's exit code."""
        for line in self.lines(items, value, header):
            print(line)
        return 0

    def _join(self, kept, text):
        return "".join([field.literal + text(n, field) for n, field in kept]) + self.tail


def _choose(text, named, command, table):
    """The format string for `OutputFormat.named`, or None."""
    if text is None:
        parts = ["FLUX", command, table, "FORMAT_DEFAULT"]
        text = os.environ.get("_".join(part.upper() for part in parts if part), "default")
    if text == "help":
        print(f"\nConfigured flux-{command} output formats:\n")
        for name, (doc, _) in named.items():
            print(f"  {name:<12} {doc}")
        return None
    show = text.startswith("get-config=")
    name = text[len("get-config=") :] if show else text
    if "{" in name:
        return name
    if name not in named:
        hint = "" if show else f" (Did you mean '{{{name}}}'?)"
        raise CommandError(f"--format: No such format {name}{hint}")
    doc, layout = named[name]
    if not show:
        return layout
    print(f"[{table}.formats.{name}]" if table else f"[formats.{name}]")
    print(f'description = "{doc}"\nformat = "{layout}"')
    return None
