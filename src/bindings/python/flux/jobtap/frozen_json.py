# SPDX-License-Identifier: LGPL-3.0-or-later
"""Immutable JSON objects and arrays.

All plugins share the values in the arguments of a callback. They behave as a dict and a list that
raise on changes; ``copy.deepcopy()`` returns plain ones.
"""

from __future__ import annotations

import copy
from typing import Any, NoReturn


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(
        "the arguments of a callback cannot be changed: make a copy with copy.deepcopy()"
    )


class FrozenDict(dict[str, Any]):
    """An immutable dict."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def copy(self) -> Any:
        return dict(self)

    __copy__ = copy

    def __deepcopy__(self, memo: Any) -> Any:
        return {key: copy.deepcopy(value, memo) for key, value in self.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


class FrozenList(list[Any]):
    """An immutable list."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def copy(self) -> Any:
        return list(self)

    __copy__ = copy

    def __deepcopy__(self, memo: Any) -> Any:
        return [copy.deepcopy(value, memo) for value in self]

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


def freeze(value: Any) -> Any:
    """Return a deeply immutable copy of a JSON value.  O(size)."""
    if isinstance(value, dict):
        return FrozenDict((key, freeze(inner)) for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        return FrozenList(freeze(inner) for inner in value)
    return value
