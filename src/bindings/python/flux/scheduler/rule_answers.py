# SPDX-License-Identifier: LGPL-3.0-or-later
"""Checks of the answers of a site's admission rules.

`check_answers` wraps each method of a rule that is defined by a site's class. If the answer decides
on a job, an invalid one denies the job, as if the rule had raised an exception, and is logged. An
invalid answer of another method, or an exception in it, counts as no answer, and is logged once per
method. The library's rules are not checked, and cost nothing.
"""

from __future__ import annotations

import functools
import json
import types
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from flux.resource.pool.masks import quote
from flux.resource.ResourcePool import ResourcePool
from flux.resource.ResourcePoolImplementation import ResourcePoolImplementation
from flux.scheduler.admission import AdmissionRule, Deferral
from flux.scheduler.misspelled import check_begun, is_ours

if TYPE_CHECKING:
    from flux.scheduler.host import ErrorReporter


class Answer(NamedTuple):
    """The valid answers of a method."""

    expected: str  # description, for the log
    #: whether a value is valid; may raise TypeError or ValueError for an invalid one
    right: Callable[[Any], Any]
    #: returns the replacement of an invalid answer, from the arguments; without it the job is denied
    instead: Callable[..., Any] | None = None
    parts: bool = False  # whether the answer is a sequence of such values, to be checked one by one


def _is_deferral(value: Any) -> bool:
    if value is None:
        return True
    return (
        isinstance(value, Deferral)
        and hash(value.key) is not None
        and isinstance(value.reason, str)
        and (value.until is None or type(value.until) in (int, float))
    )


def _is_json(kind: type) -> Callable[[Any], bool]:
    def right(value: Any) -> bool:
        json.dumps(value, allow_nan=False)
        return isinstance(value, kind)

    return right


_DEFERRAL = "a Deferral, whose key can be hashed and whose `until` is a number or None, or None"
_FLAG = Answer("True or False", lambda value: isinstance(value, bool), lambda *args: False)

#: Methods of a rule whose result does not matter.
EVENTS = (
    *("taken_back", "cancel", "hello", "free", "extended"),
    *("ready", "config_changed", "ranks_changed"),
)

#: Methods of a rule -> valid answers. Not included: `alloc`, which answers by raising.
ANSWERS: dict[str, Answer] = {
    "as_queued": Answer("a request", lambda one: hasattr(one, "duration")),
    "signature": Answer("something that can be hashed", lambda value: hash(value) or True),
    "check": Answer(_DEFERRAL, _is_deferral),
    "allocate": Answer(
        "what the pool has allocated, or None",
        lambda one: isinstance(one, (ResourcePool, ResourcePoolImplementation, type(None))),
    ),
    "second_look": Answer(_DEFERRAL, _is_deferral),
    "keeps_promise": _FLAG,
    "why": Answer(
        "text or None", lambda one: isinstance(one, (str, type(None))), lambda *args: None
    ),
    "start": Answer(
        "a dict that JSON can have, or None",
        lambda one: one is None or _is_json(dict)(one),
        lambda *args: None,
    ),
    **dict.fromkeys(EVENTS, Answer("nothing", lambda value: True, lambda *args: None)),
    "facts": Answer("a dict that JSON can have", _is_json(dict), lambda *args: {}),
    "stats": Answer("a dict of lists", lambda value: isinstance(value, dict), lambda *args: {}),
    # of a TableRule
    "needs": Answer("names", _is_json(tuple), lambda *args: ()),
    "further_entries": Answer("a dict", lambda value: isinstance(value, dict), lambda *args: {}),
    "report": Answer(
        "dicts that JSON can have, or None", _is_json(object), lambda *args: (), parts=True
    ),
}


def check_answers(rule: AdmissionRule, errors: ErrorReporter) -> None:
    """Wrap the methods of a rule that are defined by a site's class with checks, once. Raises
    RuntimeError if the class does not call ``super().__init__()``."""
    if "answers_checked" in vars(rule):
        return
    check_begun(rule, "host")
    for name, value in vars(rule).items():
        if isinstance(getattr(AdmissionRule, name, None), types.FunctionType) and not callable(
            value
        ):
            errors.report(
                f"admission rule {rule.name}: self.{name}={quote(value)} takes the place of the method {name}(): "
                "give it another name"
            )
    rule.__dict__["answers_checked"] = True
    if isinstance(rule.attributes, str):
        errors.report(
            f"admission rule {rule.name}: attributes={rule.attributes!r}: expected names in a tuple: "
            f"({rule.attributes!r},)"
        )
        rule.attributes = (rule.attributes,)
    for name, answer in ANSWERS.items():
        method = getattr(rule, name, None)
        if method is not None and _is_sites(type(rule), name):
            setattr(
                rule, name, _checked(f"admission rule {rule.name}: {name}", method, answer, errors)
            )


def _is_sites(kind: type, name: str) -> bool:
    for base in kind.__mro__:
        if name in vars(base):
            return not is_ours(base)
    return False


def _checked(
    what: str, method: Callable[..., Any], answer: Answer, errors: ErrorReporter
) -> Callable[..., Any]:
    told = False

    def wrong(error: Exception | None, text: str) -> None:
        nonlocal told
        if not told:
            told = True
            errors.report(f"{what}{text}", error)

    def parts_of(values: Iterator[Any], *args: Any) -> Iterator[Any]:
        try:
            for value in values:
                _expect(answer, value)
                yield value
        except Exception as exc:
            wrong(None if isinstance(exc, WrongAnswer) else exc, _text_of(exc))

    @functools.wraps(method)
    def checked(*args: Any) -> Any:
        if answer.instead is None:
            value = method(*args)
            try:
                _expect(answer, value)
            except WrongAnswer as exc:
                errors.report(f"{what}() {exc}")
                raise
            return value
        try:
            value = method(*args)
            if answer.parts:
                if not isinstance(value, Iterable):
                    raise WrongAnswer(answer, value)
                return parts_of(iter(value))
            _expect(answer, value)
            return value
        except Exception as exc:
            wrong(None if isinstance(exc, WrongAnswer) else exc, _text_of(exc))
            return answer.instead(*args)

    return checked


class WrongAnswer(ValueError):
    """An invalid answer; it was logged."""

    def __init__(self, answer: Answer, value: Any) -> None:
        super().__init__(f"returned {quote(value)}: expected {answer.expected}")


def _expect(answer: Answer, value: Any) -> None:
    """Raise WrongAnswer unless a value is a valid answer."""
    try:
        right = answer.right(value)
    except (TypeError, ValueError, RecursionError):
        right = False
    if not right:
        raise WrongAnswer(answer, value)


def _text_of(error: Exception) -> str:
    return f"() {error}" if isinstance(error, WrongAnswer) else "()"
