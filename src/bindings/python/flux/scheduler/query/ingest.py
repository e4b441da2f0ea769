# SPDX-License-Identifier: LGPL-3.0-or-later
"""A jobspec as it would reach the scheduler: with what the instance adds when a job is
submitted."""

from __future__ import annotations

import copy
from typing import Any

from flux.scheduler.reservations.times import parse_duration


def as_submitted(jobspec: Any, config: dict[str, Any]) -> Any:
    """A jobspec with its queue's constraint, and the defaults of the configuration.

    Args:
        jobspec (dict): RFC 14; it is not changed
        config (dict): the instance's configuration: ``queues`` (RFC 33),
            ``policy.jobspec.defaults``

    Raises:
        ValueError: the jobspec names a queue that there is not
    """
    if not isinstance(jobspec, dict):
        return jobspec
    jobspec = copy.deepcopy(jobspec)
    attributes = jobspec.setdefault("attributes", {})
    system = attributes.setdefault("system", {}) if isinstance(attributes, dict) else None
    if not isinstance(system, dict):
        return jobspec
    queues = _table(config, "queues")
    defaults = _table(config, "policy", "jobspec", "defaults", "system")
    if queues and "queue" not in system and isinstance(defaults.get("queue"), str):
        system["queue"] = defaults["queue"]
    name = system.get("queue")
    if name is not None and not (isinstance(name, str) and name in queues):
        raise ValueError(
            f"there is no queue {name!r}" + (f": {', '.join(queues)}" if queues else "")
        )
    queue = _table(queues, name) if name is not None else {}
    parent = queue.get("parent")
    if not system.get("duration"):
        own = _table(queue, "policy", "jobspec", "defaults", "system").get("duration")
        limit = own if own is not None else defaults.get("duration")
        if limit is not None:
            system["duration"] = parse_duration(limit) if isinstance(limit, str) else float(limit)
    own_nodes = _table(queues, parent) if isinstance(parent, str) else queue
    parts = []
    if isinstance(own_nodes.get("requires"), list):
        parts.append({"properties": own_nodes["requires"]})
    if isinstance(own_nodes.get("hosts"), str):
        parts.append({"hostlist": [own_nodes["hosts"]]})
    if parts and isinstance(system.get("constraints"), dict):
        parts.insert(0, system["constraints"])
    if parts:
        system["constraints"] = {"and": parts} if len(parts) > 1 else parts[0]
    return jobspec


def _table(config: Any, *keys: str) -> dict[str, Any]:
    for key in keys:
        config = config.get(key) if isinstance(config, dict) else None
    return config if isinstance(config, dict) else {}
