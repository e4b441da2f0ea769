# SPDX-License-Identifier: LGPL-3.0-or-later
"""State that a scheduler keeps over its reload and over a restart of the instance: a value in the KVS,
written rarely.

A KVS keeps every version of a value, so a value that is large and changes all the time is
written once in a while, and when the scheduler is unloaded. The owner of a checkpoint says what is
lost if the scheduler dies in between.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Callable, TypeVar

from flux.scheduler.host import get_key_direct

if TYPE_CHECKING:
    from flux.scheduler.host import Committer, ErrorReporter, Timer

Value = TypeVar("Value")


#: Exceptions of reading a damaged value: other types, other keys, nested so deeply
#: that Python gives up.
DAMAGES = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def read_stored(handle: Any, key: str, parse: Callable[[Any], Value]) -> Value | None:
    """Read the value of a key of the KVS.

    Args:
        handle: the Flux handle
        key (str): the key
        parse: converts the value (parsed JSON); it raises any of `DAMAGES` for a
            value that it cannot read

    Returns:
        the result of `parse`; None: there is no such key, or no KVS

    Raises:
        OSError: the KVS does not answer
        ValueError: the value cannot be read; the text names the key and how to be rid of it
    """
    try:
        return parse(get_key_direct(handle, key))
    except FileNotFoundError:
        return None
    except OSError as exc:
        if exc.errno == errno.ENOSYS:  # an instance without a KVS has none to restore
            return None
        raise
    except DAMAGES as exc:
        reason = " ".join(f"{type(exc).__name__}: {exc}".split())[:200]
        raise ValueError(
            f"{key} in the KVS cannot be read: {reason}; `flux kvs unlink {key}` removes it"
        ) from None


def in_parts(head: dict[str, Any], name: str, parts: Iterable[list[Any]]) -> Iterator[str]:
    """Yield an object as JSON, in parts: the items of `head`, and under `name` the list of which each of `parts`
    is one part."""
    yield f'{json.dumps(head)[:-1]}, "{name}": ['
    comma = ""
    for part in parts:
        if part:
            yield comma + json.dumps(part)[1:-1]
            comma = ", "
    yield "]}"


class Checkpoint:
    """A value under a key of the KVS.

    Args:
        handle: the Flux handle
        key (str): where it is stored
        interval (float): at most how often it is written, in seconds
        text: function giving the value as JSON text, in parts: each is made in a reactor turn of its
            own, so that a large value holds up nothing
        commits (Committer): stores in the KVS
        call_at: function that has a function called at a time
        now: function giving the time, seconds since the epoch
        errors (ErrorReporter): where trouble is reported
    """

    def __init__(
        self,
        handle: Any,
        key: str,
        interval: float,
        text: Callable[[], Iterator[str]],
        commits: Committer,
        call_at: Callable[[float, Callable[[], None]], Timer],
        now: Callable[[], float],
        errors: ErrorReporter,
    ) -> None:
        self.key = key
        self._handle = handle
        self._interval = interval
        self._text = text
        self._commits = commits
        self._call_at = call_at
        self._now = now
        self._errors = errors
        self._changed = False
        self._written_at = -interval
        self._timer: Timer | None = None  # when it is written next, or a part of it

    @property
    def stores(self) -> bool:
        """Whether there is a KVS; in a simulation there is none."""
        return self._commits.stores

    def read(self, parse: Callable[[Any], Value]) -> Value | None:
        """The stored value, converted as by `read_stored`; None: there is none, or it
        cannot be read, which is logged."""
        if not self._commits.stores:
            return None
        try:
            return read_stored(self._handle, self.key, parse)
        except (OSError, ValueError) as exc:
            self._errors.report(str(exc) if isinstance(exc, ValueError) else f"{self.key}: {exc}")
            return None

    def changed(self) -> None:
        """The value has changed since it was stored."""
        if not self._commits.stores:
            return
        self._changed = True
        if self._timer is None:
            when = max(self._now(), self._written_at + self._interval)
            self._timer = self._call_at(when, self._write)

    def _write(self) -> None:
        self._changed = False
        self._written_at = self._now()
        self._make(self._text(), [])

    def _make(self, text: Iterator[str], made: list[str]) -> None:
        """Make the next part of the text; store it all if there is none."""
        for part in text:
            made.append(part)
            self._timer = self._call_at(self._now(), lambda: self._make(text, made))
            return
        self._timer = None
        self._commits.put(self.key, "".join(made), lambda: None)
        if self._changed:
            self.changed()

    def finish(self) -> None:
        """Store the value now, and wait for it: the scheduler ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._commits.put_now(self.key, "".join(self._text()))


class Checkpoints:
    """The checkpoints of a scheduler; arguments as for `Checkpoint`."""

    def __init__(
        self,
        handle: Any,
        commits: Committer,
        call_at: Callable[[float, Callable[[], None]], Timer],
        now: Callable[[], float],
        errors: ErrorReporter,
    ) -> None:
        self._host = (commits, call_at, now, errors)
        self._handle = handle
        self._errors = errors
        self._all: list[tuple[Checkpoint, Callable[[Any], Any] | None]] = []

    def make(
        self,
        key: str,
        interval: float,
        text: Callable[[], Iterator[str]],
        load: Callable[[Any], Any] | None = None,
    ) -> Checkpoint:
        """Return a checkpoint that is stored when the scheduler ends, too.

        Args:
            key, interval, text: as for `Checkpoint`
            load: is called with the stored value when the scheduler has its pool; None: who made the
                checkpoint reads it
        """
        made = Checkpoint(self._handle, key, interval, text, *self._host)
        self._all.append((made, load))
        return made

    def load(self) -> None:
        """There is a pool: read the stored value."""
        for one, load in self._all:
            if load is not None:
                self._errors.guard(one.key, one.read, load)

    def finish(self) -> None:
        """The scheduler ends."""
        for one, _ in self._all:
            self._errors.guard(one.key, one.finish)
