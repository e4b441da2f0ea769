# SPDX-License-Identifier: LGPL-3.0-or-later
"""The base class of the subcommands of ``flux sched``, their connection to the scheduler, and
shared functions."""

from __future__ import annotations

import argparse
import errno
import json
import math
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import flux
from flux.cli.submit import SubmitCmd
from flux.job import JobID, JobspecV1
from flux.scheduler.attributes import printable
from flux.scheduler.command.new_file import replace_file
from flux.scheduler.times import duration_text, iso_time, local_zone_name


def format_duration(seconds: float | None) -> str:
    """Format a duration in at most two units: ``2h45m``.

    Rounded down, so that a job with the printed time limit fits into the duration; None and infinity
    give ``no end``.
    """
    if seconds is None or math.isinf(seconds):
        return "no end"
    return duration_text(max(0.0, seconds), 2)


def format_time(when: float | None, now: float, zone: str) -> str:
    """Format a time (seconds since the epoch) in a time zone: only the time of day if it is today,
    else date and time. None gives ``unknown``."""
    text = iso_time(when, zone)
    if text is None or when is None:
        return "unknown"
    today = iso_time(now, zone) or ""
    if text[:10] == today[:10]:
        return text[11:19]
    return text[:16].replace("T", " ")


def display_width(text: str) -> int:
    """Return the number of columns of a text on a terminal."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def format_table(
    head: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()
) -> list[str]:
    """Return the lines of a table, the header first, with two spaces between columns. None gives an
    empty cell; `right` has the names of right-aligned columns."""
    cells = [list(head)]
    cells += [[printable("" if value is None else value) for value in row] for row in rows]
    widths = [max(display_width(row[i]) for row in cells) for i in range(len(head))]
    lines = []
    for row in cells:
        parts = []
        for name, cell, width in zip(head, row, widths):
            space = " " * (width - display_width(cell))
            parts.append(space + cell if name in right else cell + space)
        lines.append("  ".join(parts).rstrip())
    return lines


def terminal_width() -> int:
    """Return the width of the terminal: COLUMNS, or that of the terminal; 80 if the output is not a
    terminal."""
    return max(20, shutil.get_terminal_size().columns)


#: Name -> letter, placeholder of the value (None: there is none), help.
_OPTIONS = {
    "ntasks": ("n", "N", "number of tasks (default: 1)"),
    "nodes": ("N", "N", "number of nodes for the tasks"),
    "cores-per-task": ("c", "N", "cores for each task (default: 1)"),
    "gpus-per-task": ("g", "N", "GPUs for each task"),
    "cores": ("", "N", "number of cores, instead of -n, -c and -g"),
    "tasks-per-node": ("", "N", "number of tasks on each node"),
    "tasks-per-core": ("", "N", "number of tasks on each core"),
    "gpus-per-node": ("", "N", "GPUs of each node"),
    "exclusive": ("x", None, "allocate whole nodes"),
    "time-limit": ("t", "MIN|FSD", "time limit: minutes, or such as 2h (default: none)"),
    "queue": ("q", "NAME", "queue of the job"),
    "bank": ("B", "NAME", "bank that is charged"),
    "requires": ("", "CONSTRAINT", "constraint, such as 'bigmem and not rack:3'"),
    "setattr": ("", "KEY[=VALUE]", "jobspec attribute; ^KEY=FILE: of a JSON file"),
}


def add_job_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that describe a job; `jobspec_from_options` reads them."""
    group = parser.add_argument_group("the job, as in flux submit")
    for name, (letter, metavar, text) in _OPTIONS.items():
        how: dict[str, Any] = {"action": "store_true"} if metavar is None else {"metavar": metavar}
        if name in ("requires", "setattr"):
            how["action"] = "append"
        group.add_argument(*[f"-{letter}"] * bool(letter), f"--{name}", help=text, **how)


def jobspec_from_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the jobspec (RFC 14) of a job with these options, or some of them. Raises ValueError if
    flux submit would refuse them."""
    submit = SubmitCmd("flux submit")
    given = submit.get_parser().parse_args(["true"])
    for name in _OPTIONS:
        key = name.replace("-", "_")
        setattr(given, key, getattr(options, key, None))
    try:
        spec: dict[str, Any] = submit.jobspec_create(given).jobspec
        JobspecV1(**spec)  # as flux submit checks it: hosts that the instance lacks, ...
    except (OSError, TypeError, ValueError) as exc:
        raise ValueError(f"flux submit would refuse the job: {exc}") from None
    del spec["attributes"]["system"]["environment"]
    return spec


def read_jobid(text: str) -> int:
    """Parse a job id given by a user. Raises ValueError if it is invalid."""
    try:
        return int(JobID(text))
    except ValueError:
        raise ValueError(f"{text!r} is not a job id") from None


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
    JSON."""

    help = ""  # description for ``--help``
    topic = ""  # topic of the request, without ``sched.``
    has_head = False  # whether it prints tables, whose heads ``--no-header`` removes

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add its own options."""

    def payload(self, options: argparse.Namespace) -> dict[str, Any]:
        """Return the request. Raises ValueError if an option has a bad value."""
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


#: Requests that change state, for the owner only.
CHANGES = ("reserve", "unreserve")


class CommandError(Exception):
    """An error that ends the command: printed on one line, with exit status 1."""

    def __init__(self, text: str, errno: int | None = None) -> None:
        super().__init__(text)
        self.errno = errno  # errno of a request that the scheduler refused


class Context:
    """The context of a subcommand: connection to the instance, and time zone of the output."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        #: IANA name of the time zone for printed times
        self.zone = "UTC" if options.utc else local_zone_name()
        self._handle: Any = None

    @property
    def handle(self) -> Any:
        """The Flux handle, connected at its first use. Raises CommandError if no instance is
        reachable."""
        if self._handle is None:
            try:
                self._handle = flux.Flux()
            except OSError as exc:
                text = f"cannot connect to a Flux instance: {exc.strerror or exc}"
                raise CommandError(text) from None
        return self._handle

    def ask(
        self,
        method: str,
        payload: dict[str, Any] | None = None,
        waiting: Callable[[], None] | None = None,
    ) -> dict[str, Any]:
        """Send a request to the scheduler and return its answer; `method` is the topic after
        ``sched.``. `waiting` is called all the time until there is one. Raises CommandError if the
        scheduler has no such service, or refuses."""
        try:
            future = self.handle.rpc(f"sched.{method}", payload or {})
            while waiting is not None and not future.is_ready():
                try:
                    future.wait_for(0.1)
                except TimeoutError:
                    waiting()
            answer = future.get()
        except OSError as exc:
            raise CommandError(self._explain(method, exc), exc.errno) from None
        return answer if isinstance(answer, dict) else {}

    def _explain(self, method: str, exc: OSError) -> str:
        if exc.errno == errno.ENOSYS:
            return (
                f"no scheduler answers this request ({method}): none is loaded, or the one that is "
                "loaded does not use flux.scheduler's PolicyScheduler; 'flux module list' shows it"
            )
        if exc.errno == errno.EPERM:
            who = "" if method in CHANGES else ", and users with the role admin,"
            return f"{method}: only the owner of the instance{who} may do this"
        return exc.strerror or str(exc)

    def time(self, when: float | None, now: float) -> str:
        return format_time(when, now, self.zone)
