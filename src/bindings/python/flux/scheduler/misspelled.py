# SPDX-License-Identifier: LGPL-3.0-or-later
"""Methods of a policy that nobody calls, since what would be called is spelled otherwise."""

from __future__ import annotations

import types
from collections.abc import Iterator
from difflib import SequenceMatcher


def misspelled(kind: type) -> Iterator[str]:
    """Yield a line for each method that looks like an override of one of the library's, and is none.

    One that the class calls itself is a method of its own, and so is one whose name only adds to another's (``allocate``).

    Args:
        kind (type): the class of a policy or a rule
    """
    ours = [base for base in kind.__mro__ if _is_ours(base)]
    known = {
        name
        for base in ours
        for name, value in vars(base).items()
        if isinstance(value, types.FunctionType) and not name.startswith("_")
    }
    for base in kind.__mro__:
        if base in ours:
            continue
        functions = {
            name: value
            for name, value in vars(base).items()
            if isinstance(value, types.FunctionType)
        }
        used = {name for one in functions.values() for name in one.__code__.co_names}
        for name in sorted(functions.keys() - known - used):
            if name.startswith("_"):
                continue
            meant = _nearest(name, known)
            if meant is not None:
                yield f"{base.__name__}.{name}() is called by nobody: is {meant}() meant?"


def _is_ours(base: type) -> bool:
    return base is object or base.__module__.partition(".")[0] == "flux"


def _nearest(name: str, known: set[str]) -> str | None:
    near = [
        (SequenceMatcher(None, name, one).ratio(), one)
        for one in known
        if name not in one and one not in name
    ]
    likeness, found = max(near, default=(0.0, ""))
    return found if likeness > 0.85 else None
