# SPDX-License-Identifier: LGPL-3.0-or-later
"""The reader of a site's policy tables.

A configuration table has *entries*: ``[limits.NAME]`` per limit, ``matlab = 40`` in ``[licenses]``.
An entry is read as a whole or not at all: a fault is logged in one line with its key; the previous
version of the entry, and all others, stay in force.

``[sched-limits]`` is the same as ``[limits]``. If both exist, the former takes precedence:
flux-core may some day give the shorter name another meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Callable

from flux.scheduler.site_policy.fields import meant

if TYPE_CHECKING:
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.host import ErrorReporter


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
        queues = config.get("queues")
        parents = {}
        for name, queue in queues.items() if isinstance(queues, dict) else ():
            parent = queue.get("parent") if isinstance(queue, dict) else None
            if isinstance(parent, str):
                parents[name] = parent
        changed = parents != self._parents
        self._parents = parents
        return changed

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
    queues = config.get("queues")
    known = list(queues) if isinstance(queues, dict) else []
    for name in names if queues != {} else ():  # {}: a simulation, with the queues of its trace
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
    queues = config.get("queues")
    for name, queue in queues.items() if isinstance(queues, dict) else ():
        policy = queue.get("policy") if isinstance(queue, dict) else None
        settings = policy.get("scheduler") if isinstance(policy, dict) else None
        if isinstance(settings, dict):
            yield name, settings


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
