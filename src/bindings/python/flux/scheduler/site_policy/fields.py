# SPDX-License-Identifier: LGPL-3.0-or-later
"""The keys of a configuration table, each checked once; and names of users."""

from __future__ import annotations

import pwd
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Callable

from flux.resource.pool.constraint import parse_constraint
from flux.scheduler.times import seconds_of


def meant(name: str, known: Iterable[str]) -> str:
    """Return ": is ... meant?" with the nearest of some names; empty if none is near."""
    near = get_close_matches(name, known, 1)
    return f": is {near[0]!r} meant?" if near else ""


class Fields:
    """A table from which keys are taken one by one; keys left at the end are unknown.

    Each method returns the value of a key, or `default` if it is missing.

    Args:
        table: a value from the configuration
        path (str): prefix of keys in errors, for a nested table: ``"max."``

    Raises:
        ValueError: it is not a table; from each method: the value is of another type. The text
            begins with the key
    """

    def __init__(self, table: Any, path: str = "") -> None:
        if not isinstance(table, dict):
            what = f"{path[:-1]}={table!r}: " if path else f"{table!r}: "
            raise ValueError(f"{what}expected a table")
        self._left = dict(table)
        self._path = path
        self._known: list[str] = []  # the keys taken, or missing

    def _pop(self, key: str, default: Any = None) -> Any:
        self._known.append(key)
        return self._left.pop(key, default)

    def _wrong(self, key: str, value: Any, expected: str) -> ValueError:
        return ValueError(f"{self._path}{key}={value!r}: expected {expected}")

    def _take(self, key: str, is_right: Callable[[Any], Any], expected: str) -> Any:
        value = self._pop(key)
        if value is not None and not is_right(value):
            raise self._wrong(key, value, expected)
        return value

    def choice(self, key: str, choices: Iterable[str], default: str | None = None) -> str:
        """Return one of some words; required unless there is a default. Raises ValueError if it is
        another word, or missing."""
        value = self._pop(key, default)
        choices = list(choices)
        if not isinstance(value, str) or value not in choices:
            expected = " or ".join(map(repr, choices))
            if value is None:
                raise ValueError(f"{self._path}{key} is missing: expected {expected}")
            raise self._wrong(key, value, expected)
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """Return true or false."""
        value = self._pop(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def whole(self, key: str, default: int | None = None, least: int = 0) -> int | None:
        """Return a whole number."""
        value: int | None = self._take(
            key, lambda one: type(one) is int and one >= least, f"a whole number, {least} or more"
        )
        return default if value is None else value

    def number(self, key: str, default: float | None = None) -> float | None:
        """Return a number of 0 or more."""
        value = self._take(
            key, lambda one: type(one) in (int, float) and 0 <= one < 1e300, "a number, 0 or more"
        )
        return default if value is None else float(value)

    def seconds(self, key: str, default: float | None = None) -> float | None:
        """Return a duration in seconds: ``"10m"``, or a number of seconds; 0 is allowed."""
        value = self._take(
            key, lambda one: seconds_of(one) is not None, "a length of time such as '90m' or '4h'"
        )
        return default if value is None else seconds_of(value)

    def text(self, key: str, default: str | None = None) -> str | None:
        """Return a non-empty text."""
        value: str | None = self._take(key, lambda one: isinstance(one, str) and one, "text")
        return default if value is None else value

    def names(self, key: str) -> tuple[str, ...]:
        """Return a list of names, of which a single one need not be in a list; empty if the key is
        missing. Numbers are names."""
        value = self._pop(key)
        some = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
        names = tuple(str(one) if type(one) is int else one for one in some)
        if not all(isinstance(one, str) and one for one in names):
            raise self._wrong(key, value, "a list of names")
        return names

    def userids(self, key: str) -> tuple[int, ...]:
        """Return the ids of a list of users; empty if the key is missing."""
        names = self.names(key)
        try:
            return tuple(map(user_id, names))
        except ValueError as exc:
            raise ValueError(f"{self._path}{key}: {exc}") from None

    def constraint(self, key: str) -> dict[str, Any] | None:
        """Return a constraint (RFC 31), or None if the key is missing or the table empty."""
        value = self._pop(key)
        try:
            parse_constraint(value)
        except ValueError as exc:
            raise ValueError(f"{self._path}{key}={value!r}: {exc}") from None
        return value or None

    def table(self, key: str) -> Fields | None:
        """Return a nested table, or None if the key is missing."""
        is_missing = key not in self._left
        value = self._pop(key)
        return None if is_missing else Fields(value, f"{self._path}{key}.")

    def rest(self) -> dict[str, Any]:
        """Take all remaining keys."""
        left, self._left = self._left, {}
        return left

    def end(self) -> None:
        """Check that no key is left. Raises ValueError if a key is left."""
        for key in self._left:
            raise ValueError(f"{self._path}{key}: unknown key{meant(key, self._known)}")


_names: dict[int, str] = {}


def user_name(userid: int | None) -> str:
    """Return the name of a user, or the number if there is none. Cached."""
    if userid is None:
        return "nobody"
    name = _names.get(userid)
    if name is None:
        try:
            name = pwd.getpwuid(userid).pw_name
        except (KeyError, OverflowError):
            name = str(userid)
        _names[userid] = name
    return name


def user_id(name: str) -> int:
    """Return the user id for a name or number. Raises ValueError if there is no such user."""
    if name.isascii() and name.isdigit():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise ValueError(f"there is no user {name!r}") from None
