# SPDX-License-Identifier: LGPL-3.0-or-later
"""Code shared by the subcommands of ``flux sched``: the connection to the scheduler, and
refusals."""

from __future__ import annotations

import argparse
import errno
from typing import Any

import flux
from flux.scheduler.command.formatting import format_time
from flux.scheduler.reservations.times import local_zone_name

#: Requests that change state, for the owner only.
CHANGES = ("reserve", "unreserve")


class CommandError(Exception):
    """An error that ends the command: printed on one line, with exit status 1.

    Args:
        errno: errno of a request that the scheduler refused
    """

    def __init__(self, text: str, errno: int | None = None) -> None:
        super().__init__(text)
        self.errno = errno


class Context:
    """The context of a subcommand: connection to the instance, and time zone of the output.

    Attributes:
        zone (str): IANA name of the time zone for printed times
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
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

    def ask(self, method: str, payload: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request to the scheduler and return its answer; `method` is the topic after
        ``sched.``. Raises CommandError if the scheduler has no such service, or refuses."""
        try:
            answer = self.handle.rpc(f"sched.{method}", payload or {}).get()
        except OSError as exc:
            raise CommandError(self._explain(method, exc), exc.errno) from None
        return answer if isinstance(answer, dict) else {}

    def _explain(self, method: str, exc: OSError) -> str:
        """Explain a request's failure to the user."""
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
        """Format a time; see `format_time`."""
        return format_time(when, now, self.zone)
