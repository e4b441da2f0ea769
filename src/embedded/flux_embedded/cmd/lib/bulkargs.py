"""Inputs and replacement strings of ``flux bulksubmit``.

``:::`` begins a list of inputs, ``::::`` a list of files to read inputs from, ``:::+`` and
``::::+`` a list that goes in step with the one before. ``{}`` is the next input, ``{0}`` that of the
first list, ``{1}`` that of the second. After a dot comes what is taken of it: ``{./}`` the basename,
``{.//}`` the dirname, ``{.%}`` all but the suffix, ``{./%}`` the basename without one, ``{.NAME}`` what
``--define=NAME=EXPR`` makes of it; ``{seq}`` counts jobs from 0, ``{seq1}`` from 1, ``{cc}`` is left for
``--cc``.
"""

import itertools
import os
import re

from flux_embedded.cmd.lib.errors import CommandError

MARK = re.compile(r"(:::|::::)(\+?)$")


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
        if not linked:
            merged.append([items])
        elif merged:
            merged[-1].append(items)
        else:
            # in step with nothing: no jobs
            merged.append([[]])
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


class Input(str):
    """One input, with what replacement strings can ask of it.

    Args:
        text: the input.
        defines: name -> expression of ``x``, evaluated in the caller's own process.
    """

    def __new__(cls, text, defines):
        one = super().__new__(cls, text)
        one.defines = defines
        return one

    def __getattr__(self, name):
        if name == "%":
            return os.path.splitext(self)[0]
        if name == "/":
            return os.path.basename(self)
        if name == "//":
            return os.path.dirname(self)
        if name == "/%":
            return os.path.basename(os.path.splitext(self)[0])
        if name not in self.defines:
            raise CommandError(f"Unknown input string method '.{name}'")
        value = eval(self.defines[name], {"x": str(self)})
        # a list becomes several words of the command
        return _LIST.join(map(str, value)) if isinstance(value, list) else value


_LIST = "\0"
_OPEN, _CLOSE = "\1", "\2"


class Filler:
    """Fills in the replacement strings of one job.

    Args:
        row: its inputs.
        number: its place among the jobs, from 0.
        defines: see `Input`.
    """

    def __init__(self, row, number, defines=None):
        self.inputs = [Input(text, defines or {}) for text in row]
        self.names = {"seq": number, "seq1": number + 1, "cc": "{cc}"}

    def __call__(self, text):
        """text with the inputs put in; what is in double braces stays.

        Raises:
            KeyError, IndexError: there is no such input
        """
        text = text.replace("{{", _OPEN).replace("}}", _CLOSE)
        return text.format(*self.inputs, **self.names).replace(_OPEN, "{{").replace(_CLOSE, "}}")

    def words(self, command):
        """The words of a command."""
        result = []
        for word in command:
            try:
                result += self(word).split(_LIST)
            except (KeyError, IndexError):
                raise CommandError(f"Invalid replacement string in command: '{word}'") from None
            except ValueError as exc:
                raise CommandError(f"{word}: {exc}") from None
        return result

    def option(self, name, value):
        """The value of an option, a text or a list of them."""
        try:
            return self(value) if isinstance(value, str) else [self(item) for item in value]
        except IndexError:
            raise CommandError(f"Invalid replacement index in {name}{value}'") from None
        except KeyError as exc:
            raise CommandError(f"Replacement key {exc} not found in '{name}{value}'") from None
        except ValueError as exc:
            raise CommandError(f"{name}{value}: {exc}") from None
