# SPDX-License-Identifier: LGPL-3.0-or-later
"""A jobspec as it would reach the scheduler, if it would: with the instance's additions on submission,
and within ``policy.limits``."""

from __future__ import annotations

from collections import Counter
from typing import Any

from flux.resource.ResourceCount import ResourceCount
from flux.scheduler.attributes import table_in
from flux.scheduler.times import duration_text, seconds_of


def as_submitted(jobspec: Any, config: dict[str, Any]) -> Any:
    """Return a jobspec (RFC 14) with its queue's constraint, and the defaults configured by
    ``queues`` (RFC 33) and ``policy.jobspec.defaults``. A virtual queue (RFC 33) has the nodes of
    its parent, and its defaults where it sets none. The jobspec is not changed, and copied only as
    far as necessary. Raises ValueError if the queue or its parent does not exist, or none is given
    but required."""
    if not isinstance(jobspec, dict):
        return jobspec
    attributes = jobspec.get("attributes", {})
    system = attributes.get("system", {}) if isinstance(attributes, dict) else None
    if not isinstance(system, dict):
        return jobspec
    # Unchanged parts are shared: a jobspec may contain megabytes of files.
    system = dict(system)
    jobspec = {**jobspec, "attributes": {**attributes, "system": system}}
    queues = table_in(config, "queues")
    defaults = _defaults(config)
    if queues and "queue" not in system and isinstance(defaults.get("queue"), str):
        system["queue"] = defaults["queue"]
    name = system.get("queue")
    if queues and name is None or name is not None and name not in list(queues):
        wrong = "no queue specified" if name is None else f"there is no queue {name!r}"
        raise ValueError(wrong + (f": {', '.join(queues)}" if queues else ""))
    queue = {} if name is None else table_in(queues, name)
    # the queue that owns the nodes
    place, its_name = queue, name
    if "parent" in queue:
        its_name = queue["parent"]
        if not isinstance(its_name, str) or its_name not in queues:
            raise ValueError(f"queue {name!r}: parent queue {its_name!r} is not configured")
        place = table_in(queues, its_name)
    if not system.get("duration"):
        limit = {**defaults, **_defaults(place), **_defaults(queue)}.get("duration")
        if limit is not None:
            system["duration"] = seconds_of(limit) or 0.0  # "0" and "inf" are no limit
    requires = place.get("requires")
    properties = list(requires) if isinstance(requires, list) else []
    if "hosts" in place:
        # The instance assigns this property to the queue's hosts, so pending jobs follow changes of
        # these.
        properties.append(f"+{its_name}")
    if properties:
        system["constraints"] = _confined(system.get("constraints"), properties)
    return jobspec


def over_policy(jobspec: dict[str, Any], config: dict[str, Any]) -> str | None:
    """Return why flux-core refuses a job, by its jobspec from `as_submitted`, because of
    ``policy.limits`` (RFC 33), in its words, or None. A queue's limits precede those of its parent,
    and these the instance's."""
    system = table_in(jobspec, "attributes", "system")
    name = system.get("queue")
    queue = table_in(config, "queues", name or "")
    places = [queue, table_in(config, "queues", queue.get("parent", "")), config]

    def limit(*keys: str) -> Any:
        tables = (table_in(place, "policy", "limits", *keys[:-1]) for place in places)
        return next((table[keys[-1]] for table in tables if keys[-1] in table), None)

    where = "" if name is None else f" for queue {name}"
    counts: Counter[str] = Counter()
    _count(jobspec["resources"], 1, counts)
    for bound, verb in (("max", "exceeds"), ("min", "is under")):
        for kind in ("node", "core", "gpu"):
            most = limit("job-size", bound, f"n{kind}s")
            over = counts[kind] - most if isinstance(most, int) and most != -1 else 0
            if over > 0 if bound == "max" else over < 0:
                return f"requested n{kind}s ({counts[kind]}) {verb} policy limit of {most}{where}"
    most, asked = seconds_of(limit("duration")), system.get("duration") or 0.0
    if most and not 0 < asked <= most:  # "0" and "inf" are no limit
        requested = duration_text(asked) if asked else "unlimited"
        return (
            f"requested duration ({requested}) exceeds policy limit of {duration_text(most)}{where}"
        )
    return None


def _count(resources: list[dict[str, Any]], times: int, counts: Counter[str]) -> None:
    """Add the minimum number of each type of resource."""
    for vertex in resources:
        number = times * ResourceCount.parse(vertex["count"]).min
        counts[vertex["type"]] += number
        _count(vertex.get("with", []), number, counts)


def _confined(constraints: Any, properties: list[str]) -> Any:
    """Combine a job's own constraint with its queue's properties, as flux-core's ingest does."""
    if not isinstance(constraints, dict) or not constraints:
        return {"properties": properties}
    own = constraints.get("properties")
    if isinstance(own, list):
        return {**constraints, "properties": own + [p for p in properties if p not in own]}
    return {"and": [constraints, {"properties": properties}]}


def _defaults(table: dict[str, Any]) -> dict[str, Any]:
    """Return the default job attributes set by the configuration, or by a queue's table."""
    return table_in(table, "policy", "jobspec", "defaults", "system")
