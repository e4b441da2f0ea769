"""Inputs and replacement strings of ``flux bulksubmit``.

``:::`` begins a list of inputs, ``::::`` a list of files to read inputs from, ``:::+`` and
``::::+`` a list that goes in step with the one before. ``{}`` is the (first) input, ``{0}`` the
same, ``{1}`` that of the second list. After a number, or alone, come: ``.`` basename,
``%`` without suffix, ``.%`` both, ``.//`` dirname, ``./%`` as ``.%``; ``{seq}`` counts jobs from
0, ``{seq1}`` from 1, ``{cc}`` is left for ``--cc``.
"""

import itertools
import os
import re

from flux_embedded.cmd.lib.errors import CommandError

MARK = re.compile(r"(:::|::::)(\+?)$")
FIELD = re.compile(r"\{([^{}]*)\}")


def read(file, sep=None):
    """The inputs in a file: lines, or what sep divides."""
    text = file.read()
    parts = text.split(sep.encode().decode("unicode_escape")) if sep else text.splitlines()
    return [part for part in parts if part]


def split(words, sep=None):
    """Split words into the command and its input lists; None without any list."""
    command, lists = [], None
    current = None
    for word in words:
        match = MARK.fullmatch(word)
        if match:
            lists = lists if lists is not None else []
            current = (match.group(2) == "+", match.group(1) == "::::", [])
            lists.append(current)
        elif current is None:
            command.append(word)
        elif current[1]:
            if word == "-":
                import sys

                current[2].extend(read(sys.stdin, sep))
                continue
            try:
                with open(word, encoding="utf-8") as file:
                    current[2].extend(read(file, sep))
            except OSError as exc:
                raise CommandError(f"{word}: {exc.strerror}") from None
        else:
            current[2].append(word)
    if lists is None:
        return command, None
    merged = []
    for linked, _, items in lists:
        if linked and merged:
            merged[-1].append(items)
        else:
            merged.append([items])
    return command, merged


def combine(inputs):
    """Every combination, first list varying slowest; linked lists go round in step."""
    groups = []
    for group in inputs:
        columns = group if group and isinstance(group[0], list) else [group]
        longest = max(len(column) for column in columns)
        if not all(columns):
            return []
        groups.append([[column[n % len(column)] for column in columns] for n in range(longest)])
    return [sum(row, []) for row in itertools.product(*groups)]


class Filler:
    """Replaces the fields of a text for one row of inputs."""

    def __init__(self, row, number, defines=None):
        self.row = row
        self.number = number
        self.defines = defines or {}

    def __call__(self, text):
        return FIELD.sub(self._field, text)

    def _field(self, match):
        name = match.group(1)
        if name == "seq":
            return str(self.number)
        if name == "seq1":
            return str(self.number + 1)
        index = re.match(r"\d+", name)
        rest = name[index.end() :] if index else name
        column = int(index.group()) if index else 0
        if column >= len(self.row):
            return match.group()
        value = self.row[column]
        rest = rest[1:] if rest.startswith(".") and rest[1:] in self.defines else rest
        if rest in self.defines:
            # the caller's own expression, in the caller's own process
            return str(eval(self.defines[rest], {"x": value}))
        if rest == "":
            return value
        if rest in (".", "./"):
            return os.path.basename(value)
        if rest == "%":
            return os.path.splitext(value)[0]
        if rest in (".%", "./%"):
            return os.path.splitext(os.path.basename(value))[0]
        if rest in ("//", ".//"):
            return os.path.dirname(value)
        return match.group()
