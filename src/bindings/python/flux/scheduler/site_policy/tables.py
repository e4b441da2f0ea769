# SPDX-License-Identifier: LGPL-3.0-or-later
"""The reader of the tables by which a site sets its policy.

A table of the configuration has *entries*: ``[limits.NAME]`` for each limit, ``matlab = 40`` in
``[licenses]``. Each entry is read whole or not at all: a fault is one line with its key in the log,
the entry as it was before stays in force, and so do the others.

``[sched-limits]`` is the same as ``[limits]``. If the instance has both, it is the one that counts:
flux-core may use the shorter name for something else one day.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from flux.scheduler.host import ErrorReporter

PREFIX = "sched-"


class Findings:
    """What is wrong in a configuration that is only looked at; in place of an ErrorReporter.

    Attributes:
        faults (list of str): what keeps an entry from being used
    """

    def __init__(self) -> None:
        self.faults: list[str] = []

    def report(self, text: str, error: BaseException | None = None, trace: bool = False) -> None:
        self.faults.append(text if error is None else f"{text} {type(error).__name__}: {error}")


class PolicyTables:
    """Reads the tables of the features that have registered (`add`).

    Args:
        errors (ErrorReporter): where faults are reported
    """

    def __init__(self, errors: ErrorReporter | Findings) -> None:
        self._errors = errors
        self._parsers: dict[str, Callable[[str, Any], Any]] = {}
        #: what a table says beside the table itself, in the short form of another table
        self._others: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {}
        self._entries: dict[str, dict[str, Any]] = {}

    def add(
        self,
        table: str,
        parse: Callable[[str, Any], Any],
        elsewhere: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        """Register how a table is read.

        Args:
            table (str): its name, as ``"limits"``
            parse: ``parse(key, value)`` gives an entry as the feature uses it, which has to compare
                equal if nothing has changed. A ValueError, whose text begins with the key inside
                the entry, says what is wrong
            elsewhere: gives, for the whole configuration, further entries that are written in
                another place, by what errors are to call them
        """
        self._parsers[table] = parse
        if elsewhere is not None:
            self._others[table] = elsewhere
        self._entries[table] = {}

    def drop(self, table: str) -> None:
        """Forget a table and its entries: it is not read any more."""
        del self._parsers[table], self._entries[table]
        self._others.pop(table, None)

    def entries(self, table: str) -> dict[str, Any]:
        """The entries of a table that are in force, by key."""
        return self._entries[table]

    def read(self, config: dict[str, Any]) -> set[str]:
        """Read all tables; returns the names of those of which an entry has changed.

        What cannot be read is reported, and stays as it was.

        Args:
            config (dict): the configuration of the instance
        """
        changed = set()
        for table, parse in self._parsers.items():
            entries = self._read(table, config, parse)
            if entries != self._entries[table]:
                self._entries[table] = entries
                changed.add(table)
        return changed

    def doubts(self, config: dict[str, Any]) -> Iterator[str]:
        """What a site has probably not meant, though it can be read: a table whose name is nearly that
        of one of these, and queues that are not configured.

        Args:
            config (dict): the configuration of which the entries were read last
        """
        for written, table in config.items():
            name = written[len(PREFIX) :] if written.startswith(PREFIX) else written
            meant = get_close_matches(name, self._parsers, 1, 0.8)
            if meant and meant[0] != name:
                yield f"configuration: [{written}] is read by nobody: is [{meant[0]}] meant?"
            if name in self._parsers and table == {}:
                yield f"configuration: [{written}] is empty, and so switches nothing on"
        queues = config.get("queues")
        known = list(queues) if isinstance(queues, dict) else []
        for table, entries in self._entries.items():
            for key, entry in entries.items():
                for queue in getattr(entry, "queues", ()):
                    if queue not in known:
                        near = get_close_matches(queue, known, 1)
                        hint = f": is {near[0]!r} meant?" if near else ""
                        yield f"configuration: [{table}.{key}] there is no queue {queue!r}{hint}"

    def changes_to(self, other: PolicyTables) -> dict[str, dict[str, list[str]]]:
        """What would change if the entries of `other` were in force in place of these: by table, the
        keys of entries that are ``new``, ``changed`` and ``gone``; without tables that stay."""
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

    def _read(
        self, table: str, config: dict[str, Any], parse: Callable[[str, Any], Any]
    ) -> dict[str, Any]:
        """The entries of a table as they are now."""
        before = self._entries[table]
        written = PREFIX + table if PREFIX + table in config else table
        values = config.get(written, {})
        if not isinstance(values, dict):
            self._errors.report(f"configuration: {written}={values!r}: expected a table")
            return before
        places = {key: (f"[{written}.{key}]", value) for key, value in values.items()}
        if table in self._others:
            for key, value in self._others[table](config).items():
                places.setdefault(key, (key, value))
        entries = {}
        for key, (place, value) in places.items():
            try:
                entries[key] = parse(key, value)
            except Exception as exc:
                if isinstance(exc, ValueError):
                    self._errors.report(f"configuration: {place} {exc}")
                else:  # a bug of ours must not cost the site its scheduler
                    self._errors.report(f"configuration: {place}", exc)
                if key in before:
                    entries[key] = before[key]
        return entries
