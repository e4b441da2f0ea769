# SPDX-License-Identifier: LGPL-3.0-or-later
"""The callbacks of one plugin: selection by topic, and interpretation of return values."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from typing import Any

from flux.jobtap import validation
from flux.jobtap.errors import JobtapError, Rejected, refusal

#: Size of the cache of callbacks by topic; limited, since plugins may invent any number of topics.
MAX_REMEMBERED_TOPICS = 1000


class Handlers:
    """A plugin's callbacks by topic or glob. If several match, the first registered is called."""

    def __init__(self) -> None:
        self._entries: list[tuple[str, Callable[..., Any]]] = []
        self._found: dict[str, Callable[..., Any] | None] = {}

    def add(self, pattern: str, callback: Callable[..., Any]) -> None:
        self._entries.append((pattern, callback))
        self._found.clear()

    def remove(self, pattern: str) -> None:
        """Remove the first handler registered for exactly `pattern`, if any."""
        for entry in self._entries:
            if entry[0] == pattern:
                self._entries.remove(entry)
                break
        self._found.clear()

    def find(self, topic: str) -> Callable[..., Any] | None:
        """Return the callback for `topic`, or None."""
        try:
            return self._found[topic]
        except KeyError:
            return self._search(topic)

    def _search(self, topic: str) -> Callable[..., Any] | None:
        if len(self._found) >= MAX_REMEMBERED_TOPICS:
            self._found.clear()
        callback = next(
            (
                callback
                for pattern, callback in self._entries
                if pattern == topic or fnmatch.fnmatchcase(topic, pattern)
            ),
            None,
        )
        self._found[topic] = callback
        return callback

    @property
    def callbacks(self) -> list[Callable[..., Any]]:
        """Return all callbacks, in order of registration."""
        return [callback for _, callback in self._entries]

    def has(self, pattern: str) -> bool:
        """Whether a handler is registered for exactly `pattern`."""
        return any(entry[0] == pattern for entry in self._entries)


def read_answer(answer: Any, topic: str, name: str) -> dict[str, Any] | None:
    """Check the return value of a callback.

    Args:
        answer: the return value. None, True and integers from 0 mean success; False and negative
            integers are a refusal without a text; a dict is an answer

    Returns:
        dict: a copy of the answer, as JSON values; None if there is none

    Raises:
        JobtapError: the callback refuses; `Rejected` if the topic concerns a new job
        TypeError: the value is of another type
        OSError: EINVAL: the dict is not representable in JSON
    """
    if answer is None or answer is True:
        return None
    if answer is False or (isinstance(answer, int) and answer < 0):
        about_job = topic.startswith(("job.create", "job.validate", "job.dependency."))
        raise (Rejected if about_job else JobtapError)(refusal(topic, name))
    if isinstance(answer, int):
        return None
    if not isinstance(answer, dict):
        raise TypeError(f"expected None, an integer or a dict, got {type(answer).__name__}")
    if len(answer) == 1 and type(answer.get("priority")) is int:
        if -(1 << 63) <= answer["priority"] < 1 << 63:
            return dict(answer)
    plain: dict[str, Any] = validation.plain(answer, "answer")
    return plain
