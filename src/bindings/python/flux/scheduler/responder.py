# SPDX-License-Identifier: LGPL-3.0-or-later
"""Requests with an answer: a fault of one is answered, and goes no further."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, Callable

from flux.brokermod import request_handler
from flux.scheduler import messages
from flux.scheduler.attributes import printable

if TYPE_CHECKING:
    from flux.scheduler.host import ErrorReporter


def served_by(
    topic: str,
    answer: Callable[[Any, Any], Any],
    prefix: bool = False,
    guests: bool = False,
    sees_all: bool = False,
) -> Callable[[Any, Any], None]:
    """Make the handler of a request, a method of a scheduler: an exception is answered, and goes no further.

    Args:
        topic (str): of the request
        answer: ``answer(scheduler, msg)`` answers it
        prefix (bool): whether the name of the module comes before the topic
        guests (bool): whether guests may ask
        sees_all (bool): whether guests may that see all (`messages.sees_all`)
    """

    @request_handler(topic, prefix=prefix, allow_guest=guests or sees_all)
    def handle(self: Any, msg: Any) -> None:
        responder: Responder = self._responder
        serve = responder.serve_if_sees_all if sees_all else responder.serve
        serve(msg, lambda: answer(self, msg))

    return handle


class Responder:
    """Serves requests.

    Args:
        handle: the Flux handle
        errors (ErrorReporter): where bugs are reported
        limits (SizeLimits): of messages; None: they were checked before
    """

    def __init__(
        self, handle: Any, errors: ErrorReporter, limits: messages.SizeLimits | None
    ) -> None:
        self._handle = handle
        self._errors = errors
        self.limits = limits

    def serve(self, msg: Any, serve: Callable[[], Any]) -> None:
        """Call `serve`; answer `msg` with an error if it raises."""
        try:
            serve()
        except ValueError as exc:  # the caller's mistake
            self.refuse(msg, str(exc))
        except BlockingIOError as exc:  # more is asked at once than is answered
            self.refuse(msg, str(exc.strerror), errno.EAGAIN)
        except RecursionError:  # the caller's mistake as well
            self.refuse(msg, f"{msg.topic}: the payload is nested too deeply")
        except Exception as exc:
            self._errors.report(msg.topic, trace=True)
            # Its text can name anything, and a guest is told nothing of others.
            shown = messages.sees_all(msg)
            self.refuse(
                msg, f"{type(exc).__name__}: {exc}" if shown else "the scheduler has failed"
            )

    def serve_if_sees_all(self, msg: Any, serve: Callable[[], Any]) -> None:
        """As `serve`; callers that may not see all are refused, as by flux-core."""
        if messages.sees_all(msg):
            self.serve(msg, serve)
        else:
            self.refuse(msg, "Request requires owner credentials", errno.EPERM)

    def refuse(self, msg: Any, text: str, errnum: int = errno.EINVAL) -> None:
        """Answer with an error."""
        try:
            self._handle.respond_error(msg, errnum, printable(text))
        except Exception as exc:
            self._errors.report(f"{msg.topic}: cannot answer: {exc}")
