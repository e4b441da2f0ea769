# SPDX-License-Identifier: LGPL-3.0-or-later
"""What the subcommands of ``flux sched`` have in common: the connection to the scheduler, and how it refuses."""

from __future__ import annotations

import argparse
import errno
from typing import Any

import flux
from flux.scheduler.command.formatting import format_time
from flux.scheduler.reservations.times import local_zone_name

#: Requests that change something, which is for the owner alone.
CHANGES = ("reserve", "unreserve")


class CommandError(Exception):
    """An error that ends the command: it is printed on one line, and the exit status is 1.

    Attributes:
        errno (int): the error number of a request that the scheduler refused; 0 if it was something
            else
    """

    errno = 0

    @classmethod
    def from_refusal(cls, text: str, error: OSError) -> CommandError:
        """The error for a request that was refused.

        Args:
            text: what is printed
            error: with which the request failed
        """
        refusal = cls(text)
        refusal.errno = error.errno or 0
        return refusal


class Context:
    """What every subcommand needs: the connection to the instance, and the time zone for output.

    Args:
        options: the parsed command line

    Attributes:
        zone (str): IANA name of the time zone in which times are shown
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.zone = "UTC" if options.utc else local_zone_name()
        self._handle: Any = None

    @property
    def handle(self) -> Any:
        """The Flux handle; the connection is made when it is first used.

        Raises:
            CommandError: no instance can be reached
        """
        if self._handle is None:
            try:
                self._handle = flux.Flux()
            except OSError as exc:
                raise CommandError(
                    f"cannot connect to a Flux instance: {exc.strerror or exc}"
                ) from None
        return self._handle

    def ask(self, method: str, payload: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request to the scheduler and return its answer.

        Args:
            method: what follows ``sched.`` in the topic
            payload: the request; None: an empty one

        Raises:
            CommandError: the scheduler has no such service, or refuses
        """
        try:
            answer = self.handle.rpc(f"sched.{method}", payload or {}).get()
        except OSError as exc:
            raise CommandError.from_refusal(self._explain(method, exc), exc) from None
        return answer if isinstance(answer, dict) else {}

    def _explain(self, method: str, exc: OSError) -> str:
        """What a request's failure means for the user."""
        text = exc.strerror or str(exc)
        if exc.errno == errno.ENOSYS:
            return (
                f"no scheduler answers this request ({method}): none is loaded, or the one that is "
                "loaded does not use flux.scheduler's PolicyScheduler; 'flux module list' shows it"
            )
        if exc.errno == errno.EPERM:
            who = "" if method in CHANGES else ", and users with the role admin,"
            return f"{method}: only the owner of the instance{who} may do this"
        return text

    def time(self, when: float | None, now: float) -> str:
        """A point in time as text; see `format_time`."""
        return format_time(when, now, self.zone)
