# SPDX-License-Identifier: LGPL-3.0-or-later
"""Shared by several commands: requests, and tables whose columns the user chooses."""

import os

import flux
from flux.idset import IDset
from flux.util import AltField, OutputFormat, UtilConfig
from flux_engine.command.errors import CommandError, error_text


class Formats(UtilConfig):
    """The named formats of a command such as ``flux-jobs``, {name: (description, format)}, and those configured by the user."""

    def __init__(self, name, formats, subcommand=None):
        table = {
            "formats": {
                key: {"description": text, "format": form} for key, (text, form) in formats.items()
            }
        }
        table = {subcommand: table} if subcommand else table
        super().__init__(name=name, subcommand=subcommand, initial_dict=table)

    def layout(self, text, headings):
        """Return the `OutputFormat` of a format or its name; ``help`` prints the names and exits."""
        return OutputFormat(self.load().get_format_string(text), headings=headings)


def print_table(layout, rows, args):
    """Print rows as a table. `CommandError`: the format does not suit the type of a column."""
    try:
        layout.print_items(rows, no_header=args.no_header)
    except (AttributeError, LookupError, TypeError) as exc:
        raise CommandError(f"Error in user format: {exc}") from None


class RankSet:
    """The columns of a line about several ranks, of which `hosts` (Hostlist) are the hosts."""

    COLUMNS = ("nnodes", "ranks", "nodelist")

    def __init__(self, ranks, hosts):
        self._ranks, self._hosts = IDset(str(ranks)), hosts

    @property
    def nnodes(self):
        return len(self._ranks)

    @property
    def ranks(self):
        return str(self._ranks)

    @property
    def nodelist(self):
        return str(self._hosts[self._ranks])

    def add(self, other):
        self._ranks.add(other.ranks)


def color(is_good=None):
    """The terminal's code for green or red text; that of normal text for None."""
    return "\033[0;0m" if is_good is None else f"\033[01;3{2 if is_good else 1}m"


def mark(is_good):
    return AltField("✔", "y") if is_good else AltField("✗", "n")


def words(options):
    """Return the items of a repeatable option whose values are comma-separated lists."""
    return [word for text in options or () for word in text.split(",")]


def ask(topic, payload=None, what=None, plain=False):
    """Send a request and return its answer. Raises CommandError, whose text begins with `what` or the topic.

    With `plain`, only the errno counts, as in a command that flux-core has in C.
    """
    handle = flux.Flux()
    try:
        return handle.rpc(topic, payload).get()
    except OSError as exc:
        text = os.strerror(exc.errno) if plain else error_text(exc)
        raise CommandError(f"{what or topic}: {text}") from None
