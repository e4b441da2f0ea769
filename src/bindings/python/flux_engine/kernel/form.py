"""What a payload must look like."""

import errno
import os

from flux_engine.formats.form import check


class Malformed(OSError):
    """A payload that is not what its method takes.

    The sender is told ``Protocol error`` and no more, as by a real service; what is wrong stands in the
    log at debug level.
    """

    def __init__(self, detail):
        super().__init__(errno.EPROTO, os.strerror(errno.EPROTO))
        self.detail = detail


def check_form(body, form, topic):
    """Check a payload at the door.

    Args:
        body: the payload, None for none, which is no object either
        form: see `flux_engine.formats.form`
        topic (str): for the text

    Raises:
        Malformed: what is wrong
    """
    try:
        check(body, form, topic)
    except ValueError as exc:
        raise Malformed(str(exc)) from None
