# SPDX-License-Identifier: LGPL-3.0-or-later
"""The base class of the subcommands of ``flux sched``, and shared functions."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from flux.job import JobID
from flux.scheduler.command.context import CommandError, Context
from flux.scheduler.command.formatting import format_table
from flux.scheduler.command.new_file import replace_file


def read_jobid(text: str) -> int:
    """Parse a job id given by a user. Raises CommandError if it is invalid."""
    try:
        return int(JobID(text))
    except ValueError:
        raise CommandError(f"{text!r} is not a job id") from None


def write_file(path: str, text: str) -> None:
    """Write a file with `replace_file`; ``-`` is standard output. Raises CommandError if it cannot
    be written."""
    if path == "-":
        sys.stdout.write(text)
        return
    try:
        replace_file(path, text)
    except OSError as exc:
        raise CommandError(f"{path}: {exc.strerror}") from None


def until_text(end: float | None, now: float, context: Context) -> str:
    """Return ``until 12:00:00`` for an end in seconds since the epoch (None: unknown)."""
    return "without a known end" if end is None else f"until {context.time(end, now)}"


class Subcommand:
    """A subcommand: it queries a service of the scheduler, and shows the answer or prints it as
    JSON.

    Attributes:
        help (str): description for ``--help``
        topic (str): topic of the request, without ``sched.``
        has_head (bool): whether it prints tables, whose heads ``--no-header`` removes
    """

    help = ""
    topic = ""
    has_head = False

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add its own options."""

    def payload(self, options: argparse.Namespace) -> dict[str, Any]:
        """Return the request. Raises CommandError or ValueError if an option has a bad value."""
        return {}

    def ask(self, context: Context) -> dict[str, Any]:
        """Return the answer. Raises CommandError if there is none."""
        return context.ask(self.topic, self.payload(context.options))

    def run(self, context: Context) -> Any:
        """Run the subcommand and return the answer. Raises CommandError or ValueError if it
        fails."""
        answer = self.ask(context)
        if context.options.json:
            json.dump(answer, sys.stdout, ensure_ascii=False)
            sys.stdout.write("\n")
        else:
            self.show(answer, context)
        return answer

    def show(self, answer: dict[str, Any], context: Context) -> None:
        """Print an answer for humans."""

    def print_table(self, context: Context, *table: Any) -> None:
        """Print a table; arguments are those of `format_table`."""
        lines = format_table(*table)
        for line in lines[1:] if self.has_head and context.options.no_header else lines:
            print(line)
