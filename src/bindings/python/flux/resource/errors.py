# SPDX-License-Identifier: LGPL-3.0-or-later
"""The exceptions of a failed allocation."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any


class _ResourceError(OSError):
    """An OSError whose text is only the reason, without number and name of the errno.

    Its argument is the reason: text, or a function that returns it, called at the first access. Most
    failed allocations are retried, and their text is never read; so there is no ``__init__`` either.
    """

    errno = 0
    strerror = ""

    @property
    def reason(self) -> str:
        """A sentence: the scarce resource, and where."""
        # An error number before it, as in other OSErrors, does not count.
        reason: str | Callable[[], str] | None = self.args[-1] if self.args else None
        if callable(reason):
            reason = reason()
            self.args = (reason,)
        if isinstance(reason, str):  # as it is: a reason may be of a kind with less for guests
            return reason or self.strerror
        return self.strerror if reason is None else str(reason)

    def __str__(self) -> str:
        return self.reason

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.reason,))


class InsufficientResources(_ResourceError):
    """Not enough resources now: try again after some were freed or came up.

    ``errno`` is ``ENOSPC``. The sentence describes the pool when the text is first read, not when
    the exception was raised.
    """

    errno = errno.ENOSPC
    strerror = "insufficient resources"


class InfeasibleRequest(_ResourceError):
    """The pool cannot satisfy the request even with all resources up and free.

    ``errno`` is ``EOVERFLOW``.
    """

    errno = errno.EOVERFLOW
    strerror = "unsatisfiable request"
