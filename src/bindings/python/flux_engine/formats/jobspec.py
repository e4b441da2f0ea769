# SPDX-License-Identifier: LGPL-3.0-or-later
"""Checking a jobspec at the door (RFC 14, RFC 25).

`validate` is what ingest does by default: version 1 with integer counts, any
graph of resources, so that a pool which knows sockets or racks can be asked
for them (a real instance takes those too).
"""

import json

from flux_engine.formats import constraint
from flux_engine.formats.quote import quote

_KEYS = ("resources", "tasks", "attributes", "version")
_VERTEX_KEYS = frozenset(("type", "count", "unit", "exclusive", "with", "label", "id"))
_TASK_KEYS = frozenset(("command", "slot", "count", "attributes", "distribution"))
#: system attributes that have a type of their own; all others are free
_SYSTEM_TEXT = ("queue", "bank", "project", "cwd")
_SYSTEM_OBJECT = ("environment", "job", "files")


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
        ValueError: the first thing found wrong
    """
    if type(jobspec) is not dict:
        raise ValueError("jobspec must be an object")
    for key in _KEYS:
        if key not in jobspec:
            raise ValueError(f"Missing key ({key})")
    if len(jobspec) > len(_KEYS):
        extra = next(key for key in jobspec if key not in _KEYS)
        raise ValueError(f"Unknown key ({quote(extra)[1:-1]})")
    if jobspec["version"] != 1 or type(jobspec["version"]) is not int:
        raise ValueError("version must be 1")
    resources = jobspec["resources"]
    if type(resources) is not list:
        raise ValueError("resources must be an array")
    labels = set()
    # A list of what is left instead of recursion: a graph may be as deep as it likes.
    left = resources[::-1]
    while left:
        left.extend(reversed(_check_vertex(left.pop(), labels)))
    _check_tasks(jobspec["tasks"])
    _check_attributes(jobspec["attributes"])


def _check_vertex(vertex, labels):
    """Check a vertex; returns those below it."""
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


def _check_tasks(tasks):
    if type(tasks) is not list:
        raise ValueError("tasks must be an array")
    if len(tasks) > 1:
        raise ValueError(f"tasks must hold one task, not {len(tasks)}")
    for task in tasks:
        _check_task(task)


def _check_task(task):
    if type(task) is not dict:
        raise ValueError("task must be an object")
    for key in ("command", "slot", "count"):
        if key not in task:
            raise ValueError(f"Missing key ({key}) in task")
    if not _TASK_KEYS.issuperset(task):
        extra = next(key for key in task if key not in _TASK_KEYS)
        raise ValueError(f"unknown key {quote(extra)} in task")
    command = task["command"]
    if type(command) is list:
        if not command:
            raise ValueError("command array cannot have length of zero")
        for word in command:
            if type(word) is not str:
                raise ValueError("command must be an array of strings")
    elif type(command) is not str or not command:
        raise ValueError("command must be an array of strings")
    if type(task["slot"]) is not str:
        raise ValueError("task slot must be a string")
    count = task["count"]
    if type(count) is not dict:
        raise ValueError("task count must be an object")
    if len(count) != 1 or ("per_slot" not in count and "total" not in count):
        raise ValueError("task count must be one of per_slot, total")
    for key, value in count.items():
        if type(value) is not int or value < 1:
            raise ValueError(f"task count {key} must be an integer above 0")
        if key == "per_slot" and value != 1:
            raise ValueError("task count per_slot must be 1")


def _check_attributes(attributes):
    if type(attributes) is not dict:
        raise ValueError("attributes must be an object")
    for key, value in attributes.items():
        if key not in ("system", "user"):
            raise ValueError(
                f"unknown key {quote('attributes.' + str(key))}: expected system or user"
            )
        if type(value) is not dict:
            raise ValueError(f"attributes.{key} must be an object")
    system = attributes.get("system")
    if system is None:
        raise ValueError("Missing key (attributes.system)")
    for key in ("duration", "preemptible-after"):
        value = system.get(key, 0)
        if type(value) not in (int, float) or not 0 <= value < float("inf"):
            raise ValueError(f"attributes.system.{key} must be a number of seconds >= 0")
    for key in _SYSTEM_TEXT:
        if type(system.get(key, "")) is not str:
            raise ValueError(f"attributes.system.{key} must be a string")
    for key in _SYSTEM_OBJECT:
        if key in system and type(system[key]) is not dict:
            raise ValueError(f"attributes.system.{key} must be an object")
    for name, value in system.get("environment", {}).items():
        if value is not None and type(value) is not str:
            raise ValueError(
                f"attributes.system.environment.{quote(name)[1:-1]} must be a string or null"
            )
    if "constraints" in system:
        constraint.validate(system["constraints"])
    if "dependencies" in system:
        _check_dependencies(system["dependencies"])


def _check_dependencies(dependencies):
    if type(dependencies) is not list:
        raise ValueError("attributes.system.dependencies must be an array")
    for item in dependencies:
        if type(item) is not dict:
            raise ValueError("dependency must be an object")
        for key in ("scheme", "value"):
            if type(item.get(key)) is not str:
                raise ValueError(f"dependency {key} must be a string")


def count_resources(resources):
    """(nodes, cores, gpus) that a jobspec's resources ask for at least; nodes is 0 if it names none."""
    totals = {"node": 0, "core": 0, "gpu": 0}

    def walk(vertices, factor):
        for vertex in vertices:
            many = factor * minimum(vertex.get("count", 1))
            if vertex["type"] in totals:
                totals[vertex["type"]] += many
            walk(vertex.get("with", ()), many)

    walk(resources, 1)
    return totals["node"], totals["core"], totals["gpu"]


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
