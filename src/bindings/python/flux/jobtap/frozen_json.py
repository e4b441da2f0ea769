# SPDX-License-Identifier: LGPL-3.0-or-later
"""JSON values that nobody can change.

What callbacks are handed is shared between them: plugins read the very objects that were made for the first of
them. Reading is that of a dict and a list; ``copy.deepcopy`` gives plain ones.
"""

from __future__ import annotations

import copy
from typing import Any, NoReturn


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError("what a callback is handed cannot be changed: copy.deepcopy() it first")


class FrozenDict(dict[str, Any]):
    """A dict that refuses to be changed."""

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
    """A list that refuses to be changed."""

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
    """A copy of a JSON value that cannot be changed, at any depth. Costs one visit of each element."""
    if isinstance(value, dict):
        return FrozenDict((key, freeze(inner)) for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        return FrozenList(freeze(inner) for inner in value)
    return value
