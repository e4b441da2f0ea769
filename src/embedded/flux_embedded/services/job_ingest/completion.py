# SPDX-License-Identifier: LGPL-3.0-or-later
"""Completion of jobspecs by the defaults and the constraint of their queue (RFC 33)."""

import errno

from flux_engine.formats import fsd, policy


class Completion:
    """The rules of one configuration."""

    def __init__(self, config):
        self._config = config
        self._queues = config.get("queues", {})

    def complete(self, jobspec):
        """`jobspec` with defaults and its queue's constraint; the same object if nothing is missing."""
        system = jobspec["attributes"]["system"]
        queue = system.get("queue")
        if queue is not None and not isinstance(queue, str):
            raise OSError(errno.EINVAL, "attributes.system.queue: expected a string")
        defaults, requires = self._rules_of(queue)
        changes = {}
        for name, value in defaults.items():
            # A submission without a time limit has a duration of 0.
            if name not in system or (name == "duration" and not system[name] and value):
                changes[name] = value
        if requires:
            changes["constraints"] = _constrained(system.get("constraints") or {}, requires)
        if not changes:
            return jobspec
        attributes = {**jobspec["attributes"], "system": {**system, **changes}}
        return {**jobspec, "attributes": attributes}

    def _rules_of(self, queue):
        """(default system attributes, required properties) of the jobs of a queue; of the default queue for None."""
        defaults = {"duration": 0, **_defaults(self._config)}
        if self._queues:
            queue = defaults.get("queue") if queue is None else queue
            if queue is None:
                raise OSError(errno.EPERM, "no queue specified")
            if queue not in self._queues:
                raise OSError(errno.EPERM, f"Invalid queue '{queue}' specified")
            for table in policy.tables_of(self._config, queue)[1:]:
                defaults.update(_defaults(table))
        requires = policy.requires_of(self._queues, queue) if queue in self._queues else ()
        if defaults["duration"]:
            defaults["duration"] = fsd.parse(defaults["duration"])
        return defaults, requires


def _defaults(table):
    """The default system attributes that a table, the configuration or one of its queues, gives to jobs."""
    return table.get("policy", {}).get("jobspec", {}).get("defaults", {}).get("system", {})


def _constrained(constraints, requires):
    """The constraint of a job, also by the properties that its queue requires."""
    if not isinstance(constraints, dict) or not isinstance(constraints.get("properties", []), list):
        raise OSError(errno.EINVAL, "attributes.system.constraints: expected an object")
    given = constraints.get("properties", [])
    more = [name for name in requires if name not in given]
    if constraints and "properties" not in constraints:
        return {"and": [constraints, {"properties": more}]}
    return {**constraints, "properties": [*given, *more]}


def with_system(jobspec):
    """`jobspec` with an object ``attributes.system``, also if the validator is disabled; EINVAL if it cannot be one."""
    if not isinstance(jobspec, dict):
        raise OSError(errno.EINVAL, "jobspec: expected an object")
    attributes = jobspec.get("attributes")
    if isinstance(attributes, dict) and isinstance(attributes.get("system"), dict):
        return jobspec
    if attributes is not None and not isinstance(attributes, dict):
        raise OSError(errno.EINVAL, "jobspec: attributes: expected an object")
    if (attributes or {}).get("system") is not None:
        raise OSError(errno.EINVAL, "jobspec: attributes.system: expected an object")
    return {**jobspec, "attributes": {**(attributes or {}), "system": {}}}
