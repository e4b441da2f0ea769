# SPDX-License-Identifier: LGPL-3.0-or-later
"""State kept across reloads of the scheduler and restarts of the instance: a value in the KVS,
written rarely.

A KVS keeps every version of a value. So a large value that changes all the time is written only
once in a while, and when the scheduler is unloaded. The owner of a checkpoint documents the loss if
the scheduler dies in between.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Callable, TypeVar

from flux.scheduler.host import Host, Timer, get_key_direct

Value = TypeVar("Value")


#: Version of the library's values, and default minimum number of seconds between writes of one.
VERSION = 1
SAVE_INTERVAL_S = 600.0

#: Exceptions from reading a damaged value: wrong types or keys, or nesting too deep for Python.
DAMAGES = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class NewerValue(ValueError):
    """A stored value was written by a newer scheduler."""


def read_stored(
    handle: Any, key: str, parse: Callable[[Any], Value], version: int | None = VERSION
) -> Value | None:
    """Return the value of a KVS key (parsed JSON), converted by `parse`, which raises any of
    `DAMAGES` for an unreadable value; None if there is no such key, or no KVS. Raises OSError if
    the KVS does not answer, ValueError if the value is unreadable, or of another version (None: it
    has none); the text names the key and how to remove it."""
    try:
        stored = get_key_direct(handle, key)
        if version is not None and not isinstance(stored, dict):
            raise ValueError("expected an object")
        if version is not None and stored["version"] != version:
            raise NewerValue(stored["version"])
        return parse(stored)
    except FileNotFoundError:
        return None
    except OSError as exc:
        if exc.errno == errno.ENOSYS:  # an instance without a KVS has nothing to restore
            return None
        raise
    except NewerValue as exc:
        raise NewerValue(
            f"{key} in the KVS is of version {exc}, of a newer scheduler: it is not read; "
            f"`flux kvs unlink {key}` removes it"
        ) from None
    except DAMAGES as exc:
        reason = " ".join(f"{type(exc).__name__}: {exc}".split())[:200]
        raise ValueError(
            f"{key} in the KVS cannot be read: {reason}; `flux kvs unlink {key}` removes it"
        ) from None


#: Number of entries per part, a millisecond of work.
ENTRIES_PER_PART = 100


def in_parts(head: dict[str, Any], name: str, entries: Iterable[Any]) -> Iterator[str]:
    """Yield an object as JSON text, in parts: ``version``, the items of `head`, and as item `name`
    the list of `entries`."""
    yield f'{json.dumps({"version": VERSION, **head})[:-1]}, "{name}": ['
    comma, left = "", iter(entries)
    while part := list(islice(left, ENTRIES_PER_PART)):
        yield comma + json.dumps(part)[1:-1]
        comma = ", "
    yield "]}"


class Checkpoint:
    """A value stored under a KVS key, every `interval` seconds at most. ``text()`` returns it as
    JSON text, in parts, each made in its own reactor turn, so that a large value delays no
    message."""

    def __init__(
        self, host: Host, key: str, interval: float, text: Callable[[], Iterator[str]]
    ) -> None:
        self.key = key
        self._host = host
        self._interval = interval
        self._text = text
        self._changed = False
        self._is_newer = False  # the stored value is a newer scheduler's, and is left as it is
        self._unchanged: str | None = None  # the text at first, until `changed` is called
        self._written_at = -interval
        self._timer: Timer | None = None  # the next write, or the next part of one

    @property
    def stores(self) -> bool:
        """Whether there is a KVS; a simulation has none."""
        return self._host.commits.stores

    def read(self, parse: Callable[[Any], Value], version: int | None = VERSION) -> Value | None:
        """Return the stored value, converted as by `read_stored`; None if there is none, or it is
        unreadable, which is logged."""
        if not self.stores:
            return None
        try:
            return read_stored(self._host.handle, self.key, parse, version)
        except (OSError, ValueError) as exc:
            self._is_newer = isinstance(exc, NewerValue)
            self._host.errors.report(
                str(exc) if isinstance(exc, ValueError) else f"{self.key}: {exc}"
            )
            return None

    def changed(self) -> None:
        """Note that the value has changed since it was stored."""
        self._unchanged = None
        if self._is_newer or not self.stores:
            return
        self._changed = True
        if self._timer is None:
            when = max(self._host.now(), self._written_at + self._interval)
            self._timer = self._host.call_at(when, self._write)

    def _write(self) -> None:
        self._changed = False
        self._written_at = self._host.now()
        self._make(self._text(), [])

    def _make(self, text: Iterator[str], made: list[str]) -> None:
        """Make the next part of the text; after the last, store it."""
        for part in text:
            made.append(part)
            self._timer = self._host.call_at(self._host.now(), lambda: self._make(text, made))
            return
        self._timer = None
        self._host.commits.put(self.key, "".join(made), lambda: None)
        if self._changed:
            self.changed()

    def finish(self) -> None:
        """Store the value now, and wait for that: the scheduler is ending."""
        if self._timer is not None:
            self._timer.cancel()
            try:
                self._host.commits.put_now(self.key, "".join(self._text()))
            except OSError as exc:
                why = exc.strerror if exc.errno != errno.ETIMEDOUT else "the KVS does not answer"
                self._host.errors.report(f"{self.key}: the last changes may be lost: {why}")
        elif self._unchanged is not None and self._unchanged != "".join(self._text()):
            self._host.errors.report(f"{self.key} is not stored: call changed() after a change")

    def load(self, load: Callable[[Any], Any]) -> None:
        """Pass the stored value of a site, if any, to `load`."""
        self.read(load, None)
        self._unchanged = "".join(self._text())


class Checkpoints:
    """The checkpoints of a scheduler."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._all: list[tuple[Checkpoint, Callable[[Any], Any] | None]] = []
        self.are_loaded = False

    def make(
        self,
        key: str,
        text: Callable[[], Iterator[str]],
        load: Callable[[Any], Any] | None = None,
        interval: float = SAVE_INTERVAL_S,
    ) -> Checkpoint:
        """Return a checkpoint that is also stored when the scheduler ends. `load` is called with
        the stored value once the scheduler has its pool; None: the caller reads it. Raises
        RuntimeError if `load` would not be called, since the stored values have been loaded, or
        another checkpoint has the key."""
        if load is not None and self.are_loaded:
            raise RuntimeError(f"{key}: stored values have been loaded: make it in __init__()")
        if load is not None and any(one.key == key for one, _ in self._all):
            raise RuntimeError(f"{key}: there is a checkpoint of this name")
        made = Checkpoint(self._host, key, interval, text)
        self._all.append((made, load))
        return made

    def load(self) -> None:
        self.are_loaded = True
        for one, load in self._all:
            if load is not None:
                self._host.errors.guard(one.key, one.load, load)

    def finish(self) -> None:
        for one, _ in self._all:
            self._host.errors.guard(one.key, one.finish)
