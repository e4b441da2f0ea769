# SPDX-License-Identifier: LGPL-3.0-or-later
"""The arguments of a callback: a mapping of the job's data, read on demand."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from typing import Any


class CallbackArgs(Mapping[str, Any]):
    """A read-only mapping. A value is fetched from its source at its first use, and kept.

    Args:
        source: source of values: ``source.fetch(key)`` returns a value or raises KeyError,
            ``source.keys()`` lists the keys. None: there are only the values in `known`
        known (dict): values known in advance
    """

    __slots__ = ("_known", "_source", "__weakref__")

    def __init__(self, source: Any, known: dict[str, Any] | None = None) -> None:
        self._source = source
        self._known = {} if known is None else known

    def __getitem__(self, key: str) -> Any:
        known = self._known
        if key in known:
            return known[key]
        if self._source is None:
            raise KeyError(key)
        value = known[key] = self._source.fetch(key)
        return value

    def __contains__(self, key: Any) -> bool:
        try:
            self[key]
        except KeyError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> dict[str, Any]:
        if self._source is not None:
            for key in self._source.keys():
                self[key]
        return self._known

    def __repr__(self) -> str:
        return f"CallbackArgs({dict(self)!r})"

    def is_live(self) -> bool:
        """Whether the callback that received these arguments is still running."""
        return self._source is not None

    def source(self) -> Any:
        """The source of the values. Raises OSError (EINVAL) if the callback has returned."""
        if self._source is None:
            raise OSError(errno.EINVAL, "the callback that these args belong to has returned")
        return self._source

    def release(self, kept: bool) -> None:
        """Drop the source: the callback has returned.

        Args:
            kept (bool): whether the plugin has kept these arguments; all values are fetched then
        """
        if kept:
            self._all()
        self._source = None
