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
from collections.abc import Iterator
from math import isfinite
from typing import Any, Callable, NamedTuple

from flux.resource.pool.masks import quote
from flux.scheduler.admission import AdmissionRule, Deferral
from flux.scheduler.host import ErrorReporter
from flux.scheduler.misspelled import check_begun, is_ours, mentions


class Answer(NamedTuple):
    """The valid answers of a method."""

    expected: str  # description, for the log
    #: whether a value is valid; may raise TypeError or ValueError for an invalid one
    right: Callable[[Any], Any]
    #: returns the replacement of an invalid answer; without it the job is denied
    instead: Callable[[], Any] | None = None


def _is_deferral(value: Any) -> bool:
    return value is None or (
        isinstance(value, Deferral)
        and hash(value.key) is not None
        and isinstance(value.reason, str)
        and (value.until is None or (type(value.until) in (int, float) and isfinite(value.until)))
    )


def _is_json(value: Any, kind: type) -> bool:
    json.dumps(value, allow_nan=False)
    return isinstance(value, kind)


_DEFERRAL = Answer(
    "a Deferral, with a text for its reason, a finite number or None for `until` and a key that can be hashed; or None",
    _is_deferral,
)
_NOTHING = Answer("nothing", lambda value: True, lambda: None)

#: Methods of a rule -> valid answers.
ANSWERS: dict[str, Answer] = {
    "alloc": Answer("nothing, or a ValueError to deny the job", lambda one: one is None),
    "signature": Answer("something that can be hashed", lambda value: hash(value) or True),
    "check": _DEFERRAL,
    "why": Answer("text or None", lambda one: isinstance(one, (str, type(None))), lambda: None),
    "start": Answer(
        "a dict that JSON can have, or None",
        lambda one: one is None or _is_json(one, dict),
        lambda: None,
    ),
    **dict.fromkeys(("cancel", "hello", "free", "extended"), _NOTHING),
    **dict.fromkeys(("ready", "ranks_changed"), _NOTHING),
    "facts": Answer("a dict that JSON can have", lambda one: _is_json(one, dict), dict),
    "stats": Answer(
        "a dict of lists that JSON can have",
        lambda one: (
            _is_json(one, dict) and all(isinstance(of, (list, tuple)) for of in one.values())
        ),
        dict,
    ),
    # of a TableRule
    "parse": Answer("the entry", lambda one: one is not None),
    "needs": Answer("names", lambda one: _is_json(one, tuple), tuple),
    "report": Answer(
        "dicts that JSON can have, or None",
        lambda one: _is_json(one, list) and all(isinstance(of, (dict, type(None))) for of in one),
        list,
    ),
}


def check_answers(rule: AdmissionRule, errors: ErrorReporter) -> None:
    """Wrap the methods of a rule that are defined by a site's class with checks, once. Raises
    RuntimeError if the class does not call ``super().__init__()``."""
    if "answers_checked" in vars(rule):
        return
    check_begun(rule, "host")
    for name, value in vars(rule).items():
        is_method = isinstance(getattr(AdmissionRule, name, None), types.FunctionType)
        if is_method and not callable(value):
            errors.report(
                f"admission rule {rule.name}: self.{name}={quote(value)} takes the place of the method {name}(): "
                "give it another name"
            )
    rule.__dict__["answers_checked"] = True
    if any(not isinstance(one, str) or "." in one for one in rule.attributes or ()):
        errors.report(
            f"admission rule {rule.name}: attributes={rule.attributes!r}: expected names below system, without dots"
        )
    if isinstance(rule.attributes, str):
        errors.report(
            f"admission rule {rule.name}: attributes={rule.attributes!r}: expected names in a tuple: "
            f"({rule.attributes!r},)"
        )
        rule.attributes = (rule.attributes,)
    for name, answer in ANSWERS.items():
        defining = next((base for base in type(rule).__mro__ if name in vars(base)), None)
        if defining is not None and not is_ours(defining):
            setattr(rule, name, _checked(rule, name, answer, errors))


def _checked(
    rule: AdmissionRule, name: str, answer: Answer, errors: ErrorReporter
) -> Callable[..., Any]:
    what = f"admission rule {rule.name}: {name}()"
    method: Callable[..., Any] = getattr(rule, name)
    readmits = mentions(type(rule), "readmit")
    told = False
    #: A rule that readmitted jobs whenever it is asked would be asked for ever.
    asked = None if answer is _NOTHING or name in ("alloc", "start") else rule

    @functools.wraps(method)
    def checked(*args: Any) -> Any:
        nonlocal told
        rule.host.admission.asked = asked
        try:
            value = method(*args)
            if isinstance(value, Iterator):
                value = list(value)
            elif name == "stats" and isinstance(value, dict):
                value = {
                    title: list(of) if isinstance(of, Iterator) else of
                    for title, of in value.items()
                }
            if not _is_right(answer, value):
                raise WrongAnswer(f"{what} returned {quote(value)}: expected {answer.expected}")
            if isinstance(value, Deferral) and not told:
                until = value.until
                if until is None and not readmits:
                    told = True
                    errors.log.warning(f"{what} gives no time, and the rule never calls readmit()")
                elif until is not None and until <= rule.host.now():
                    told = True
                    errors.log.warning(
                        f"{what} returned until={until}, a past time, in seconds since the epoch:"
                        " such jobs wait for readmit()"
                    )
            return value
        except (Exception, SystemExit) as exc:
            is_wrong = isinstance(exc, WrongAnswer)
            if answer.instead is None:
                if is_wrong:
                    errors.report(str(exc))
                if isinstance(exc, SystemExit):
                    raise RuntimeError(f"{what} exits") from exc
                raise
            if not told:
                told = True
                errors.report(str(exc) if is_wrong else what, None if is_wrong else exc)
            return answer.instead()
        finally:
            rule.host.admission.asked = None

    return checked


class WrongAnswer(ValueError):
    """An invalid answer; it was logged."""


def _is_right(answer: Answer, value: Any) -> Any:
    try:
        return answer.right(value)
    except (TypeError, ValueError, RecursionError):
        return False
