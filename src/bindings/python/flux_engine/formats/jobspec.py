# SPDX-License-Identifier: LGPL-3.0-or-later
"""Checking a submitted jobspec (RFC 14, RFC 25).

`validate` is the default check of ingest: version 1 with integer counts and any
graph of resources, so that jobs can request sockets or racks from a pool that
knows them (a real instance accepts those too).
"""

import json
from collections import Counter

from flux.resource.pool.constraint import parse_constraint
from flux_engine.formats import form
from flux_engine.formats.quote import quote

_VERTEX_KEYS = frozenset(("type", "count", "unit", "exclusive", "with", "label", "id"))


def _seconds(value):
    form.check(value, float, "a duration")
    if not 0 <= value < float("inf"):
        raise ValueError("expected a number of seconds >= 0")


def _command(value):
    if not (value and (type(value) is str or type(value) is list)):
        raise ValueError("expected an array of strings")
    for word in value:
        form.check(word, str, "each of them")


def _task_count(value):
    form.check(value, form.Table({"per_slot?": int, "total?": int}), "it")
    if len(value) != 1 or value.get("per_slot", 1) != 1 or value.get("total", 1) < 1:
        raise ValueError("expected per_slot, which must be 1, or total, which must be above 0")


_TASK = form.Table(
    {
        "command": _command,
        "slot": str,
        "count": _task_count,
        "attributes?": object,
        "distribution?": object,
    }
)
#: System attributes that have a form of their own; all others are free.
_SYSTEM = {
    "duration?": _seconds,
    "preemptible-after?": _seconds,
    **dict.fromkeys(("queue?", "bank?", "project?", "cwd?"), str),
    **dict.fromkeys(("environment?", "job?", "files?"), dict),
    "constraints?": parse_constraint,
    "dependencies?": [{"scheme": str, "value": str}],
}
_JOBSPEC = form.Table(
    {
        "resources": list,
        "tasks": [_TASK],
        "attributes": form.Table({"system": _SYSTEM, "user?": dict}),
        "version": int,
    }
)


def decode(text):
    """Return the object of a jobspec's JSON text.

    Raises:
        ValueError: ``jobspec: invalid JSON: ...``
    """
    body = text.lstrip()
    if body[:1] not in ("{", "["):
        near = f"near '{body.split()[0][:40]}'" if body else "near end of file"
        raise ValueError(f"jobspec: invalid JSON: '[' or '{{' expected {near}")
    try:
        jobspec = json.loads(body)
    except RecursionError:
        raise ValueError("jobspec: invalid JSON: nested too deeply") from None
    except ValueError as exc:
        raise ValueError(f"jobspec: invalid JSON: {exc}") from None
    if not isinstance(jobspec, dict):
        raise ValueError("jobspec: expected an object")
    return jobspec


def validate(jobspec):
    """Check a jobspec of version 1.

    Raises:
        ValueError: the first error found
    """
    form.check(jobspec, _JOBSPEC, "jobspec")
    if jobspec["version"] != 1:
        raise ValueError("version must be 1")
    if len(jobspec["tasks"]) > 1:
        raise ValueError(f"tasks must hold one task, not {len(jobspec['tasks'])}")
    labels = set()
    # An explicit stack instead of recursion: the depth of the graph is not limited.
    left = jobspec["resources"][::-1]
    while left:
        left.extend(reversed(_check_vertex(left.pop(), labels)))


def _check_vertex(vertex, labels):
    """Check a vertex; returns its children."""
    if type(vertex) is not dict:
        raise ValueError("resource must be an object")
    kind = vertex.get("type")
    if type(kind) is not str or not kind:
        raise ValueError("resource type must be a string")
    count = vertex.get("count")
    if type(count) is not int:
        if "count" not in vertex:
            raise ValueError(f"resource count is missing for type {quote(kind)}")
        raise ValueError(
            f"resource count must be an integer for type {quote(kind)} (got '{type(count).__name__}')"
        )
    if count < 0:
        raise ValueError(f"resource count must not be negative for type {quote(kind)}")
    children = vertex.get("with")
    label = vertex.get("label")
    if kind == "slot":
        if type(label) is not str or not label:
            raise ValueError("slot must have a label")
        if children is None:
            raise ValueError(f"slot {quote(label)} must have contents ('with')")
    if len(vertex) > 2:
        if not _VERTEX_KEYS.issuperset(vertex):
            extra = next(key for key in vertex if key not in _VERTEX_KEYS)
            raise ValueError(f"unknown key {quote(extra)} for resource type {quote(kind)}")
        if "exclusive" in vertex and type(vertex["exclusive"]) is not bool:
            raise ValueError(f"exclusive must be true or false for type {quote(kind)}")
        if label is not None:
            if type(label) is not str:
                raise ValueError(f"label must be a string for type {quote(kind)}")
            if label in labels:
                raise ValueError(f"label {quote(label)} is not unique")
            labels.add(label)
        for key in ("unit", "id"):
            if key in vertex and type(vertex[key]) is not str:
                raise ValueError(f"{key} must be a string for type {quote(kind)}")
        if children is not None:
            if type(children) is not list or not children:
                raise ValueError(f"'with' must be a non-empty array for type {quote(kind)}")
    return children or ()


def walk(resources, factor=1):
    """Yield each vertex of a jobspec's resources, with its minimum number."""
    for vertex in resources:
        many = factor * minimum(vertex.get("count", 1))
        yield vertex, many
        yield from walk(vertex.get("with", ()), many)


def count_resources(resources):
    """The minimum number of each type that a jobspec's resources request (Counter)."""
    totals = Counter()
    for vertex, many in walk(resources):
        totals[vertex["type"]] += many
    return totals


def minimum(count):
    """The least a count allows (RFC 14: an integer, a range object or text)."""
    if isinstance(count, dict):
        return count.get("min", 1)
    if isinstance(count, str):
        digits = (
            count.strip("[]").replace("-", "+").replace(",", "+").replace(":", "+").split("+")[0]
        )
        return int(digits) if digits.isdigit() else 1
    return count


def count_tasks(jobspec, nslots):
    """Number of tasks of a job with `nslots` slots."""
    total = 0
    for task in jobspec["tasks"]:
        count = task["count"]
        total += count["total"] if "total" in count else count.get("per_slot", 1) * nslots
    return total


def without_environment(jobspec):
    """The jobspec as the scheduler and plugins see it: the environment is large and private."""
    attributes = jobspec["attributes"]
    system = attributes.get("system") or {}
    if "environment" not in system:
        if "system" in attributes:
            return jobspec
    system = {key: value for key, value in system.items() if key != "environment"}
    return {**jobspec, "attributes": {**attributes, "system": system}}
