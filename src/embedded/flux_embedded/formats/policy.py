# SPDX-License-Identifier: LGPL-3.0-or-later
"""What the tables ``[policy]`` and ``[queues]`` may hold (RFC 33).

A key that nobody knows is an error: a limit with a typo would limit nothing.
"""

import errno

from flux_embedded.formats import constraint, fsd

#: What no property that a queue requires may contain.
BANNED = constraint.ILLEGAL | frozenset(" \t")


def validate(config):
    """Check both tables.

    Raises:
        OSError: EINVAL, with the table and the key
    """
    policy = config.get("policy")
    default = _policy(policy, "policy") if policy is not None else None
    queues = config.get("queues")
    if queues is not None:
        if not isinstance(queues, dict):
            raise _error("queues", "not a table")
        for name, entry in queues.items():
            _queue(entry, f"queues.{name}")
    if default is not None and default not in (queues or {}):
        text = f"the [policy] config table defines a default queue {default} that is not in [queues] table"
        raise OSError(errno.EINVAL, text)


def _error(where, text):
    return OSError(errno.EINVAL, f"error parsing [{where}] config table: {text}")


def _table(table, where, keys):
    return check_types(table, {}, f"error parsing [{where}] config table", keys)


#: What an error calls a value of a type that a key must have.
_NAMES = {dict: "object", list: "array", str: "string", int: "integer", bool: "true or false"}


def check_types(table, kinds, where, keys=None):
    """Check a table.

    Args:
        table: the table, None for an empty one
        kinds (dict): key -> type
        where (str): what the text begins with
        keys: all that it may have, None for any

    Returns:
        dict: the table

    Raises:
        OSError: EINVAL, ``WHERE: Expected TYPE, got TYPE``, or the keys that nobody knows
    """
    table = {} if table is None else table
    _check_type(table, dict, where)
    for key in kinds.keys() & table.keys():
        _check_type(table[key], kinds[key], where)
    unknown = [key for key in table if keys is not None and key not in keys]
    if unknown:
        text = f"{where}: {len(unknown)} object item(s) left unpacked: {', '.join(unknown)}"
        raise OSError(errno.EINVAL, text)
    return table


def _check_type(value, kind, where):
    if type(value) is not kind:
        text = f"{where}: Expected {_NAMES[kind]}, got {json_name(value)}"
        raise OSError(errno.EINVAL, text)


def json_name(value):
    """What JSON calls the type of a value."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    for kind, name in ((int, "integer"), (float, "real"), (str, "string"), (list, "array")):
        if isinstance(value, kind):
            return name
    return "object"


def _queue(entry, where):
    _table(entry, where, ("policy", "requires"))
    if "policy" in entry and _policy(entry["policy"], f"{where}.policy") is not None:
        raise _error(where, "'policy' must not define a default queue!")
    requires = entry.get("requires", [])
    if not _is_strings(requires) or any(not BANNED.isdisjoint(name) for name in requires):
        raise _error(where, "'requires' must be an array of property strings (RFC 20)")


def _policy(table, where):
    """Check a policy table; returns the default queue or None."""
    _table(table, where, ("jobspec", "limits", "access", "scheduler"))
    default = None
    if "jobspec" in table:
        default = _jobspec(table["jobspec"], f"{where}.jobspec")
    if "limits" in table:
        _limits(table["limits"], f"{where}.limits")
    if "access" in table:
        access = _table(table["access"], f"{where}.access", ("allow-user", "allow-group"))
        for key, names in access.items():
            if not _is_strings(names):
                raise _error(f"{where}.access", f"'{key}' must be a string array")
    return default


def _jobspec(table, where):
    defaults = _table(table, where, ("defaults",)).get("defaults", {})
    system = _table(defaults, where, ("system",)).get("system", {})
    _table(system, where, ("duration", "queue"))
    if "duration" in system and not _is_duration(system["duration"]):
        raise _error(where, "'defaults.system.duration' is not a valid FSD")
    queue = system.get("queue")
    if queue is not None and not isinstance(queue, str):
        raise _error(where, "'defaults.system.queue' is not a string")
    return queue


def _limits(table, where):
    _table(table, where, ("job-size", "duration"))
    if "duration" in table and not _is_duration(table["duration"]):
        raise _error(where, "'duration' is not a valid FSD")
    sizes = _table(table.get("job-size", {}), f"{where}.job-size", ("min", "max"))
    for key, size in sizes.items():
        for value in _table(size, f"{where}.{key}", ("nnodes", "ncores", "ngpus")).values():
            _check_type(value, int, f"error parsing [{where}.{key}] config table")
            if value < -1:
                raise _error(f"{where}.{key}", "values must be >= -1")


def _is_duration(value):
    try:
        fsd.parse(value)
    except (TypeError, ValueError):
        return False
    return True


def _is_strings(value):
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
