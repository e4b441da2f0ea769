# SPDX-License-Identifier: LGPL-3.0-or-later
"""The reader of a site's policy tables.

A configuration table has *entries*: ``[limits.NAME]`` per limit, ``matlab = 40`` in ``[licenses]``.
An entry is read as a whole or not at all: a fault is logged in one line with its key; the previous
version of the entry, and all others, stay in force.

``[sched-limits]`` is the same as ``[limits]``. If both exist, the former takes precedence:
flux-core may some day give the shorter name another meaning.
"""

from __future__ import annotations

import pwd
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, Callable

from flux.resource.pool.constraint import parse_constraint
from flux.resource.ResourcePool import ResourcePool
from flux.scheduler.attributes import table_in
from flux.scheduler.host import ErrorReporter
from flux.scheduler.times import seconds_of


def meant(name: str, known: Iterable[str]) -> str:
    """Return ": is ... meant?" with the nearest of some names; empty if none is near."""
    near = get_close_matches(name, known, 1)
    return f": is {near[0]!r} meant?" if near else ""


class Fields:
    """A table from which keys are taken one by one; keys left at the end are unknown.

    Each method returns the value of a key, or `default` if it is missing. Raises ValueError if it
    is not a table, and in each method if the value is of another type; the text begins with the
    key, in a nested table with its `path`, such as ``max.``.
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


class QueueNames:
    """The parents of virtual queues.

    A virtual queue is another queue for the resources of its parent. In a site's tables, such as a
    limit, a parent's name includes its virtual queues; a virtual queue's name, or one that is not
    configured, stands only for itself.
    """

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def read(self, config: dict[str, Any]) -> bool:
        """Read the parents from the configuration, ``queues.NAME.parent``. Return whether one has
        changed."""
        queues = table_in(config, "queues")
        parents = {name: table_in(queues, name).get("parent") for name in queues}
        before = self._parents
        self._parents = {name: one for name, one in parents.items() if isinstance(one, str)}
        return self._parents != before

    def parent(self, queue: str | None) -> str | None:
        """Return the parent of a virtual queue, or None for other queues.  O(1)."""
        return None if queue is None else self._parents.get(queue)

    def any_covers(self, names: Iterable[str], queue: str | None) -> bool:
        """Whether one of some names includes a job's queue (None: it has none)."""
        return queue is not None and any(
            name in (queue, self._parents.get(queue)) for name in names
        )


PREFIX = "sched-"
#: Modules whose arguments could be expected in a table of their name.
MODULES = ("sched-backfill", "sched-fifo", "sched-simple")

Parser = Callable[[str, Any], Any]


def queues_missing(names: Iterable[str], config: dict[str, Any]) -> Iterator[str]:
    """Yield a sentence for each queue that is not configured."""
    if config.get("queues") == {}:
        return  # a simulation, with the queues of its trace
    known = list(table_in(config, "queues"))
    for name in names:
        if name not in known:
            yield f"there is no queue {name!r}{meant(name, known)}"


def properties_missing(constraint: dict[str, Any], pool: ResourcePool) -> Iterator[str]:
    """Yield a sentence for each property in a constraint (RFC 31) that no node has."""
    for operator, values in constraint.items():
        for value in values:
            if isinstance(value, dict):
                yield from properties_missing(value, pool)
            elif operator == "properties":
                name = value.lstrip("^")
                if not pool.ranks_matching({operator: [name]}):
                    yield f"properties={name!r}: no node has it"


def settings_of_queues(config: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of each queue with a table ``policy.scheduler``, and this table."""
    for name in table_in(config, "queues"):
        yield name, table_in(config, "queues", name, "policy", "scheduler")


class Findings:
    """The errors in a configuration that is only checked; replaces an ErrorReporter."""

    def __init__(self) -> None:
        self.faults: list[str] = []  # why entries are invalid

    def report(self, text: str, error: BaseException | None = None, trace: bool = False) -> None:
        self.faults.append(text if error is None else f"{text} {type(error).__name__}: {error}")


class PolicyTables:
    """Reads the tables of the registered features (`add`)."""

    def __init__(self, errors: ErrorReporter | Findings) -> None:
        self._errors = errors
        #: table -> its parser, and the key that a queue sets
        self._readers: dict[str, tuple[Parser, str | None]] = {}
        self._entries: dict[str, dict[str, Any]] = {}

    def add(self, table: str, parse: Parser, queues_set: str | None = None) -> None:
        """Register a table, with `TableRule.parse` and `TableRule.queues_set` of its rule."""
        self._readers[table] = parse, queues_set
        self._entries[table] = {}

    def begin_with(self, other: PolicyTables) -> None:
        """Take another reader's entries, which stay where those read next are invalid."""
        self._entries.update(other._entries)

    def drop(self, table: str) -> None:
        """Unregister a table, with its entries."""
        del self._readers[table], self._entries[table]

    def entries(self, table: str) -> dict[str, Any]:
        """Return the entries of a table in force, by key."""
        return self._entries[table]

    def read(self, config: dict[str, Any], *tables: str) -> set[str]:
        """Read some tables, by default all. Return the names of those with changed entries.

        An invalid entry is reported, and stays unchanged.
        """
        changed = set()
        for table in tables or self._readers:
            entries = self._read(table, config)
            if entries != self._entries[table]:
                self._entries[table] = entries
                changed.add(table)
        return changed

    def doubts(self, config: dict[str, Any]) -> Iterator[str]:
        """Yield probable mistakes in a valid configuration: a table with almost the name of a
        registered one, both names of one, a module's name, an unknown key of a queue, and
        unconfigured queues.
        """
        for written, table in config.items():
            name = written[len(PREFIX) :] if written.startswith(PREFIX) else written
            if written in MODULES:
                yield f"configuration: [{written}] is not read: arguments are {written}.args in [modules]"
            near = get_close_matches(name, self._readers, 1, 0.8)
            if near and near[0] != name:
                yield f"configuration: [{written}] is not a known table: is [{near[0]}] meant?"
            if written in self._readers and PREFIX + written in config:
                yield f"configuration: [{written}] is not read beside [{PREFIX}{written}]"
            if name in self._readers and table == {}:
                yield f"configuration: [{written}] is empty, and so switches nothing on"
        known = [table for table, (_, queues_set) in self._readers.items() if queues_set]
        for name, settings in settings_of_queues(config):
            for key in sorted(settings.keys() - known):
                place = f"queues.{name}.policy.scheduler.{key}"
                yield f"configuration: {place} is not a known key{meant(key, known)}"
        for table, entries in self._entries.items():
            for key, entry in entries.items():
                queues = getattr(getattr(entry, "scope", entry), "queues", ())
                for text in queues_missing(queues, config):
                    yield f"configuration: [{table}.{key}] {text}"

    def changes_to(self, other: PolicyTables) -> dict[str, dict[str, list[str]]]:
        """Return the changes if `other`'s entries replaced these: {table: {``new``, ``changed``,
        ``gone``: keys}}, without unchanged tables."""
        found = {}
        for table, before in self._entries.items():
            after = other._entries[table]
            kinds = {
                "new": sorted(after.keys() - before.keys()),
                "changed": sorted(k for k in after.keys() & before.keys() if after[k] != before[k]),
                "gone": sorted(before.keys() - after.keys()),
            }
            if any(kinds.values()):
                found[table] = kinds
        return found

    def _read(self, table: str, config: dict[str, Any]) -> dict[str, Any]:
        """Return the present entries of a table."""
        before, (parse, queues_set) = self._entries[table], self._readers[table]
        written = PREFIX + table if PREFIX + table in config else table
        values = config.get(written, {})
        if not isinstance(values, dict):
            self._errors.report(f"configuration: {written}={values!r}: expected a table")
            return before
        places = {key: (f"[{written}.{key}]", value) for key, value in values.items()}
        for queue, settings in settings_of_queues(config) if queues_set else ():
            if table in settings:
                place = f"queues.{queue}.policy.scheduler.{table}"
                entry = {queues_set: settings[table], "queues": [queue]}
                places.setdefault(place, (place, entry))
        entries = {}
        for key, (place, value) in places.items():
            try:
                entries[key] = parse(key, value)
            except Exception as exc:
                if isinstance(exc, ValueError):
                    self._errors.report(f"configuration: {place} {exc}")
                else:  # a bug here must not end the site's scheduler
                    self._errors.report(f"configuration: {place}", exc)
                if key in before:
                    entries[key] = before[key]
        return entries
