# SPDX-License-Identifier: LGPL-3.0-or-later
"""The exceptions of a failed allocation."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any


class _ResourceError(OSError):
    """An OSError whose text is only the reason, without number and name of the errno."""

    code = 0
    default = ""

    def __init__(self, reason: str | Callable[[], str] | None = None) -> None:
        """Fail for a reason.

        Args:
            reason: text, or a function that returns it, called at the first access: most failed
                allocations are retried, and their text is never read.
        """
        super().__init__(self.code, self.default)
        self._reason = reason

    @property
    def reason(self) -> str:
        """A sentence: the scarce resource, and where."""
        if callable(self._reason):
            self._reason = self._reason()
        return self._reason or self.default

    def __str__(self) -> str:
        return self.reason

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.reason,))


class InsufficientResources(_ResourceError):
    """Not enough resources now: try again after some were freed or came up.

    ``errno`` is ``ENOSPC``. The sentence describes the pool when the text is first read, not when
    the exception was raised.
    """

    code = errno.ENOSPC
    default = "insufficient resources"


class InfeasibleRequest(_ResourceError):
    """The pool cannot satisfy the request even with all resources up and free.

    ``errno`` is ``EOVERFLOW``.
    """

    code = errno.EOVERFLOW
    default = "unsatisfiable request"
