# SPDX-License-Identifier: LGPL-3.0-or-later
"""The base class of the subcommands of ``flux sched``, their connection to the scheduler, and
shared functions."""

from __future__ import annotations

import argparse
import errno
import json
import sys
from collections.abc import Callable
from typing import Any

import flux
from flux.job import JobID
from flux.scheduler.command.formatting import format_table, format_time
from flux.scheduler.command.new_file import replace_file
from flux.scheduler.times import local_zone_name


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
