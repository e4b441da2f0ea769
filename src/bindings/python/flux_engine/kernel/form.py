"""Checks of the form of payloads."""

import errno
import os

from flux_engine.formats.form import check


class Malformed(OSError):
    """A payload that its method does not accept.

    The sender is told ``Protocol error`` and no more, as by a real service; the details are logged
    at debug level.
    """

    def __init__(self, detail):
        super().__init__(errno.EPROTO, os.strerror(errno.EPROTO))
        self.detail = detail


def check_form(body, form, topic):
    """Check the payload of a request, by a form of `flux_engine.formats.form`. Malformed: it does not have that form."""
    try:
        check(body, form, topic)
    except ValueError as exc:
        raise Malformed(str(exc)) from None
