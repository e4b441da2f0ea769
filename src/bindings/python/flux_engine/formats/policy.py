# SPDX-License-Identifier: LGPL-3.0-or-later
"""What the tables ``[policy]`` and ``[queues]`` may hold (RFC 33).

A key that nobody knows is an error: a limit with a typo would limit nothing.

A queue with a ``parent`` is *virtual*: another name to submit under, with the resources of its parent and a policy of its own. What
its policy does not say is as its parent's says, and else as ``[policy]`` says. There is one level of parents.
"""

import errno

from flux_engine.formats import constraint, fsd

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
        for name, entry in queues.items():
            _check_parent(queues, name, entry)
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
    _table(entry, where, ("policy", "requires", "parent"))
    is_virtual = "parent" in entry
    if is_virtual and not isinstance(entry["parent"], str):
        raise _error(where, "'parent' must be a string")
    if "policy" in entry:
        if _policy(entry["policy"], f"{where}.policy") is not None:
            raise _error(where, "'policy' must not define a default queue!")
        if is_virtual and "scheduler" in entry["policy"]:
            raise _error(where, "a virtual queue must not set 'policy.scheduler'")
    if is_virtual and "requires" in entry:
        raise _error(where, "a virtual queue must not set 'requires'")
    requires = entry.get("requires", [])
    if not _is_strings(requires) or any(not BANNED.isdisjoint(name) for name in requires):
        raise _error(where, "'requires' must be an array of property strings (RFC 20)")


def _check_parent(queues, name, entry):
    parent = entry.get("parent")
    if parent is None:
        return
    if parent == name:
        raise _error(f"queues.{name}", "parent queue is itself")
    if parent not in queues:
        raise _error(f"queues.{name}", f"parent queue '{parent}' is not configured")
    if "parent" in queues[parent]:
        raise _error(f"queues.{name}", f"parent queue '{parent}' is itself a virtual queue")


def tables_of(config, queue):
    """The tables whose ``policy`` counts for jobs of a queue, from that which is asked last to that which is asked first.

    Args:
        config (dict): a configuration that was validated
        queue (str or None): name of the queue; one that is not configured has no table of its own

    Returns:
        list of (dict, str or None): the configuration itself, with None, then the table of the parent, if there is one, and the queue's
        own, both with the name of the queue: what is inherited counts as the queue's
    """
    queues = config.get("queues", {})
    entry = queues.get(queue)
    tables = [(config, None)]
    if entry is not None:
        if "parent" in entry:
            tables.append((queues[entry["parent"]], queue))
        tables.append((entry, queue))
    return tables


def requires_of(queues, name):
    """The properties that jobs of a queue are confined to, of a virtual one those of its parent (list of str).

    Args:
        queues (dict): the table ``queues``
        name (str): of one of them
    """
    entry = queues[name]
    return list(queues.get(entry.get("parent"), entry).get("requires", ()))


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
