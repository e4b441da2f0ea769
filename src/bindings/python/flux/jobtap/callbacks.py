# SPDX-License-Identifier: LGPL-3.0-or-later
"""Callbacks: their selection by topic, their arguments, and their return values.

The arguments are a mapping of the job's data, read on demand. All plugins share the values in it:
they behave as a dict and a list that raise on changes; ``copy.deepcopy()`` returns plain ones.
"""

from __future__ import annotations

import copy
import errno
import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, NoReturn

from flux.jobtap import validation
from flux.jobtap.errors import JobtapError, Rejected, refusal


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(
        "the arguments of a callback cannot be changed: make a copy with copy.deepcopy()"
    )


class CallbackArgs(Mapping[str, Any]):
    """A read-only mapping. A value is fetched at its first use, and kept: ``source.fetch(key)``
    returns it or raises KeyError, ``source.keys()`` lists the keys. Without a source there are only
    the values known in advance."""

    __slots__ = ("_known", "_source", "__weakref__")
    __setitem__ = __delitem__ = _refuse

    def __init__(self, source: Any, known: dict[str, Any] | None = None) -> None:
        self._source = source
        self._known = {} if known is None else known

    def __getitem__(self, key: str) -> Any:
        known = self._known
        if key in known:
            return known[key]
        if self._source is None:
            raise KeyError(key)
        value = known[key] = self._source.fetch(key)
        return value

    def __contains__(self, key: Any) -> bool:
        try:
            self[key]
        except KeyError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> dict[str, Any]:
        if self._source is not None:
            for key in self._source.keys():
                self[key]
        return self._known

    def __repr__(self) -> str:
        return f"CallbackArgs({dict(self)!r})"

    def is_live(self) -> bool:
        """Whether the callback that received these arguments is still running."""
        return self._source is not None

    def source(self) -> Any:
        """The source of the values. Raises OSError (EINVAL) if the callback has returned."""
        if self._source is None:
            raise OSError(errno.EINVAL, "the callback that these args belong to has returned")
        return self._source

    def release(self, kept: bool) -> None:
        """Drop the source: the callback has returned. If the plugin has kept these arguments, all
        values are fetched."""
        if kept:
            self._all()
        self._source = None


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


#: Whether a pattern is a glob, not a topic.
_GLOB = re.compile(r"[*?[]").search


class Handlers:
    """A plugin's callbacks by topic or glob. If several match, the first registered is called."""

    def __init__(self) -> None:
        self._entries: list[tuple[str, Callable[..., Any]]] = []

    def add(self, pattern: str, callback: Callable[..., Any]) -> None:
        self._entries.append((pattern, callback))

    def remove(self, pattern: str) -> bool:
        """Remove the first handler registered for exactly `pattern`. Return whether there was
        one."""
        for entry in self._entries:
            if entry[0] == pattern:
                self._entries.remove(entry)
                return True
        return False

    def find(self, topic: str) -> Callable[..., Any] | None:
        """Return the callback for `topic`, or None."""
        for pattern, callback in self._entries:
            if pattern == topic or (_GLOB(pattern) and fnmatch.fnmatchcase(topic, pattern)):
                return callback
        return None

    def exactly(self, pattern: str) -> Callable[..., Any] | None:
        """Return the first callback registered for exactly `pattern`, or None."""
        return next((callback for known, callback in self._entries if known == pattern), None)


#: Topics that the host calls. Below `OPEN_TOPICS` there are more, by names that others choose.
TOPICS = (
    "job.create", "job.validate", "job.new", "job.state.depend", "job.state.priority", "job.state.sched",
    "job.state.run", "job.state.cleanup", "job.state.inactive", "job.priority.get", "job.inactive-add",
    "job.inactive-remove", "job.destroy", "job.update", "conf.update", "plugin.query", "plugin.exit",
)  # fmt: skip
OPEN_TOPICS = ("job.dependency.", "job.event.", "job.update.")
_UPDATES = ("attributes.", "resources", "tasks")
#: Keys of the answer to a topic of the job manager.
ANSWERS = ("priority", "annotations", "R", "validated", "feasibility", "updates")
#: Topics in whose answers flux-core's job manager ignores these keys.
_WITHOUT_EFFECT = ("job.create", "job.validate", *OPEN_TOPICS)
_IGNORED = ("R", "annotations", "priority")


def why_never_called(topic: str) -> str | None:
    """Return why a handler for `topic` is never called, or None if it may be. Topics of plugins'
    own do not begin with ``job.``."""
    head = topic.partition("*")[0].partition("?")[0].partition("[")[0]
    if head != topic:
        known = any(fnmatch.fnmatchcase(name, topic) for name in TOPICS)
        if known or any(name.startswith(head) or head.startswith(name) for name in OPEN_TOPICS):
            return None
    elif topic in TOPICS:
        return None
    elif topic.startswith("job.update."):
        key = topic[len("job.update.") :]
        if key.startswith(_UPDATES):
            return None
        return f"updates have no key {key}{_meant('attributes.system.' + key)}"
    elif topic.startswith(OPEN_TOPICS):
        return None
    near = get_close_matches(topic, TOPICS, 1, 0.6 if topic.startswith("job.") else 0.8)
    if topic.startswith(("job.", "conf.", "plugin.")) or near:
        return f"no callback has this topic{_meant(*near)}"
    return None


def _meant(name: str = "") -> str:
    return f": did you mean {name}?" if name else ""


def _check_keys(keys: Iterable[str]) -> None:
    for key in keys:
        if key not in ANSWERS:
            near = (
                _meant(*get_close_matches(str(key), ANSWERS, 1))
                or f": not one of {', '.join(ANSWERS)}"
            )
            raise TypeError(f"answer: {key!r}{near}")


def read_answer(answer: Any, topic: str, name: str) -> dict[str, Any] | None:
    """Return a copy of a callback's answer, a dict of JSON values; None if it returned none: None,
    True or an integer from 0.

    False and negative integers are a refusal without a text, which raises JobtapError, or Rejected
    if the topic concerns a new job. Other types, a priority outside of a dict and keys unknown to
    the job manager raise TypeError, values not representable in JSON OSError (EINVAL).
    """
    if answer is None or answer is True:
        return None
    if answer is False or (isinstance(answer, int) and answer < 0):
        about_job = topic.startswith(("job.create", "job.validate", "job.dependency."))
        raise (Rejected if about_job else JobtapError)(refusal(topic, name))
    if isinstance(answer, int):
        if answer and topic in ("job.state.priority", "job.priority.get"):
            raise TypeError(f"expected {{'priority': {answer}}}, got {answer}")
        return None
    if not isinstance(answer, dict):
        raise TypeError(f"expected None, an integer or a dict, got {type(answer).__name__}")
    if len(answer) == 1 and type(answer.get("priority")) is int:
        if -(1 << 63) <= answer["priority"] < 1 << 63:
            return dict(answer)
    if topic.startswith("job."):
        _check_keys(answer)
    plain: dict[str, Any] = validation.plain(answer, "answer")
    return plain


def drop_ignored(answer: dict[str, Any], topic: str) -> str | None:
    """Remove keys without effect in the topic from an answer. Return a text for the log, or None if
    there were none."""
    if not topic.startswith(_WITHOUT_EFFECT):
        return None
    ignored = [key for key in _IGNORED if answer.pop(key, None) is not None]
    return f"{', '.join(ignored)}: without effect in this topic" if ignored else None
