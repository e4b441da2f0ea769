# SPDX-License-Identifier: LGPL-3.0-or-later
"""The exceptions with which an allocation fails."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any


class _ResourceError(OSError):
    """An OSError whose text is the reason alone, without the number and the name of the errno."""

    code = 0
    default = ""

    def __init__(self, reason: str | Callable[[], str] | None = None) -> None:
        """Fail for a reason.

        Args:
            reason: text, or a callable that makes it when it is first read: most allocations that
                fail are tried again later, and no text is asked for.
        """
        super().__init__(self.code, self.default)
        self._reason = reason

    @property
    def reason(self) -> str:
        """One sentence: which resource was short, and where."""
        if callable(self._reason):
            self._reason = self._reason()
        return self._reason or self.default

    def __str__(self) -> str:
        return self.reason

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.reason,))


class InsufficientResources(_ResourceError):
    """Not enough resources now: try again after something was freed or came up.

    ``errno`` is ``ENOSPC``. The sentence describes the pool as it is when the exception is first
    made into text, not when it was raised.
    """

    code = errno.ENOSPC
    default = "insufficient resources"


class InfeasibleRequest(_ResourceError):
    """The pool could not satisfy the request if all of it were up and free.

    ``errno`` is ``EOVERFLOW``.
    """

    code = errno.EOVERFLOW
    default = "unsatisfiable request"
