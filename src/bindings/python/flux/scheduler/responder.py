# SPDX-License-Identifier: LGPL-3.0-or-later
"""Requests with an answer: errors are answered, and do not propagate."""

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
    """Return the handler of a request, as a method of a scheduler: an exception is answered, and
    does not propagate.

    Args:
        answer: ``answer(scheduler, msg)`` sends the answer
        prefix (bool): whether the module's name precedes the topic
        guests (bool): whether guests may send it
        sees_all (bool): whether guests that see all (`messages.sees_all`) may send it
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
        limits (SizeLimits): limits on messages; None: they are already checked
    """

    def __init__(
        self, handle: Any, errors: ErrorReporter, limits: messages.SizeLimits | None
    ) -> None:
        self._handle = handle
        self._errors = errors
        self.limits = limits

    def serve(self, msg: Any, serve: Callable[[], Any]) -> None:
        """Call `serve`; if it raises, answer `msg` with an error."""
        try:
            serve()
        except ValueError as exc:  # the caller's mistake
            self.refuse(msg, str(exc))
        except BlockingIOError as exc:  # too many queries at once
            self.refuse(msg, str(exc.strerror), errno.EAGAIN)
        except RecursionError:  # also the caller's mistake
            self.refuse(msg, f"{msg.topic}: the payload is nested too deeply")
        except Exception as exc:
            self._errors.report(msg.topic, trace=True)
            # Its text may contain anything, and guests learn nothing of other users.
            shown = messages.sees_all(msg)
            self.refuse(
                msg, f"{type(exc).__name__}: {exc}" if shown else "the scheduler has failed"
            )

    def serve_if_sees_all(self, msg: Any, serve: Callable[[], Any]) -> None:
        """As `serve`; callers that may not see all are refused, as in flux-core."""
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
