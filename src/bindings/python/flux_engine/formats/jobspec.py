# SPDX-License-Identifier: LGPL-3.0-or-later
"""Jobspecs (RFC 14): the counts of their resources and tasks."""

import json
from collections import Counter


def decode(text):
    """Return the object of a jobspec's JSON text. ValueError: it is not one."""
    try:
        jobspec = json.loads(text)
    except (RecursionError, ValueError) as exc:
        raise ValueError(f"jobspec: invalid JSON: {exc}") from None
    if not isinstance(jobspec, dict):
        raise ValueError("jobspec: expected an object")
    return jobspec


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
    if "environment" not in system and "system" in attributes:
        return jobspec
    system = {key: value for key, value in system.items() if key != "environment"}
    return {**jobspec, "attributes": {**attributes, "system": system}}
