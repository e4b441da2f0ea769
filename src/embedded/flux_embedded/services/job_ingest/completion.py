# SPDX-License-Identifier: LGPL-3.0-or-later
"""Completion of jobspecs by defaults and queue constraints (RFC 33), and the access rules of queues."""

import errno
import grp
import pwd

from flux_engine.formats import fsd, policy


class Completion:
    """The rules of one configuration."""

    def __init__(self, config):
        self.config = config
        self._defaults = {}

    def complete(self, jobspec, userid):
        """`jobspec` with defaults and its queue's constraint; the same object if nothing is missing."""
        system = jobspec["attributes"]["system"]
        queue = system.get("queue")
        if queue is not None and not isinstance(queue, str):
            raise OSError(errno.EINVAL, "attributes.system.queue: expected a string")
        key = (queue, not system.get("duration"))
        found = self._defaults.get(key)
        if found is None:
            found = self._defaults[key] = self._find_defaults(queue)
        defaults, requires, access = found
        if access is not None:
            self._check_access(defaults.get("queue", queue), access, userid)
        changes = {}
        for name, value in defaults.items():
            # A submission without a time limit has a duration of 0.
            if name not in system or (name == "duration" and not system[name] and value):
                changes[name] = value
        if requires:
            constraints = system.get("constraints") or {}
            if not isinstance(constraints, dict) or not isinstance(
                constraints.get("properties", []), list
            ):
                raise OSError(errno.EINVAL, "attributes.system.constraints: expected an object")
            given = constraints.get("properties", [])
            more = [name for name in requires if name not in given]
            if constraints and "properties" not in constraints:
                changes["constraints"] = {"and": [constraints, {"properties": more}]}
            else:
                changes["constraints"] = {**constraints, "properties": [*given, *more]}
        if not changes:
            return jobspec
        attributes = {**jobspec["attributes"], "system": {**system, **changes}}
        return {**jobspec, "attributes": attributes}

    def _find_defaults(self, queue):
        """(default system attributes, required properties, access table) for jobs of `queue`."""
        queues = self.config.get("queues", {})
        defaults = dict(_defaults(self.config))
        default_queue = defaults.pop("queue", None)
        extra = {}
        if queues:
            if queue is None:
                if default_queue is None:
                    raise OSError(errno.EPERM, "no queue specified")
                queue = extra["queue"] = default_queue
            if queue not in queues:
                raise OSError(errno.EPERM, f"Invalid queue '{queue}' specified")
        access = None
        for table, name in policy.tables_of(self.config, queue):
            access = table.get("policy", {}).get("access", access)
            if name is not None:
                defaults.update(_defaults(table))
        requires = policy.requires_of(queues, queue) if queue in queues else []
        if "duration" in defaults:
            try:
                text = defaults["duration"]
                defaults["duration"] = fsd.parse(text) if isinstance(text, str) else text
            except ValueError as exc:
                raise OSError(
                    errno.EINVAL, f"policy.jobspec.defaults.system.duration: {exc}"
                ) from None
        return {"duration": 0, **defaults, **extra}, requires, access

    def _check_access(self, queue, access, userid):
        try:
            name = pwd.getpwuid(userid).pw_name
        except KeyError:
            name = str(userid)
        if name in access.get("allow-user", ()):
            return
        for group in access.get("allow-group", ()):
            try:
                entry = grp.getgrnam(group)
            except KeyError:
                continue
            if name in entry.gr_mem or entry.gr_gid == self._primary_group(userid):
                return
        where = f"queue '{queue}'" if queue else "this instance"
        raise OSError(errno.EPERM, f"user {name} may not submit jobs to {where}")

    @staticmethod
    def _primary_group(userid):
        try:
            return pwd.getpwuid(userid).pw_gid
        except KeyError:
            return None


def _defaults(table):
    """The default system attributes that a table, the configuration or one of its queues, gives to jobs."""
    return table.get("policy", {}).get("jobspec", {}).get("defaults", {}).get("system", {})


def with_system(jobspec):
    """`jobspec` with an object ``attributes.system``, also if the validator is disabled.

    Raises:
        OSError: EINVAL, it cannot be a jobspec
    """
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
