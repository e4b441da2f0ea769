"""What the parts of a jobspec must be for a Jobspec object (RFC 14, RFC 31).

An object may hold what the instance would refuse: ingest looks again, see
``flux_embedded.formats.jobspec``.  TypeError is for what has the wrong type, ValueError for the rest.
"""

from collections.abc import Mapping, Sequence

from flux.hostlist import Hostlist
from flux.idset import IDset
from flux.resource.ResourceCount import ResourceCount

TOP_LEVEL_KEYS = ("tasks", "resources", "attributes", "version")


def must_be(kind, what, value, error=TypeError):
    """Raise `error` if `value` is not of a kind: one of the words below."""
    if not isinstance(value, _KINDS[kind]):
        raise error(f"{what} must be {kind}")
    return value


_KINDS = {
    "a mapping": Mapping,
    "a sequence": Sequence,
    "a list": Sequence,
    "a string": str,
    "an int": int,
    "an integer": int,
}


def check_keys(expected, given, others=False, optional=False):
    """Raise ValueError if a key is missing, or there are others."""
    missing = [] if optional else [key for key in expected if key not in given]
    if missing:
        raise ValueError(f"Missing key ({missing[0]})")
    for key in given:
        if key not in expected and not others:
            raise ValueError(f"Extraneous key ({key})")


def check_resource(vertex):
    """Check one vertex of the resources, without those below it."""
    must_be("a mapping", "resource", vertex)
    for key in ("type", "count"):
        if key not in vertex:
            raise ValueError(f"{key} is a required key for resources")
    kind = must_be("a string", "type", vertex["type"])
    count = vertex["count"]
    if isinstance(count, int):
        if kind in ("node", "slot", "core") and count < 1:
            raise ValueError("node, slot, or core count must be > 0")
        if count < 0:
            raise ValueError("count must be >= 0")
    elif isinstance(count, (Mapping, str)):
        ResourceCount.parse(count)
    else:
        raise TypeError("count must be an int or mapping")
    for key in ("id", "unit", "label"):
        must_be("a string", key, vertex.get(key, ""))
    if vertex.get("exclusive", False) not in (True, False):
        raise TypeError("exclusive must be a boolean")
    if kind == "slot" and "label" not in vertex:
        raise ValueError("slots must have labels")


def check_task(task):
    """Check one of the tasks."""
    must_be("a mapping", "task", task)
    check_keys(("command", "slot", "count"), task, others=True)
    count = must_be("a mapping", "count", task["count"])
    if len(count) != 1:
        raise ValueError("count must have exactly one key set")
    ((key, number),) = count.items()
    if key not in ("per_slot", "per_resource", "total"):
        raise ValueError("count per_slot, per_resource, or total must be set")
    if key != "per_resource" and must_be("an int", f"count {key}", number) <= 0:
        raise ValueError(f"count {key} must be > 0")
    must_be("a string", "slot", task["slot"])
    must_be("a mapping", "attributes", task.get("attributes", {}))
    check_command(task["command"])


def check_command(command):
    """Check a command: one or more words."""
    if len(command) == 0:
        raise TypeError("command array cannot have length of zero")
    words = isinstance(command, Sequence) and not isinstance(command, str)
    if not words or not all(isinstance(word, str) for word in command):
        raise TypeError("command must be a list of strings")


def check_attributes(attributes):
    """Check the attributes: dependencies and constraints."""
    check_keys(("system", "user"), attributes, optional=True)
    system = attributes.get("system", {})
    if not isinstance(system, Mapping):
        return
    for item in must_be("a list", "attributes.system.dependencies", system.get("dependencies", ())):
        check_keys(("scheme", "value"), item.keys(), others=True)
        for key in ("scheme", "value"):
            must_be("a string", f"dependency {key}", item[key])
    if "constraints" in system:
        check_constraint(system["constraints"])


def check_constraint(constraint):
    """Check a constraint, whatever hosts and ranks there are."""
    for operator, values in must_be("a mapping", "constraints", constraint).items():
        must_be("a sequence", f"argument to constraint {operator}", values)
        if operator not in _OPERATORS:
            raise TypeError(f"unknown constraint operator '{operator}'")
        for value in values:
            _OPERATORS[operator](value)


def _check_property(name):
    if not set("&'\"`|()").isdisjoint(name):
        raise TypeError(f"invalid character in property '{name}'")


_OPERATORS = {
    **dict.fromkeys(("and", "or", "not"), check_constraint),
    "properties": _check_property,
    "hostlist": Hostlist,
    "ranks": IDset,
}


def check_v1(resources, tasks, attributes):
    """Check what version 1 asks for besides (RFC 25)."""
    if "system" not in attributes:
        raise ValueError("attributes.system is a required key")
    system = must_be("a mapping", "attributes.system", attributes["system"], ValueError)
    if "duration" not in system:
        raise ValueError("attributes.system.duration is a required key")
    if not isinstance(system["duration"], (int, float)):
        raise ValueError("attributes.system.duration must be a number")
    for task in tasks:
        if "per_resource" in task["count"]:
            raise ValueError("count per_slot or total must be set")
    for vertex in vertices(resources):
        if not isinstance(vertex["count"], int):
            raise ValueError(
                f"resource count must be an integer for type '{vertex['type']}'"
                f" (got '{type(vertex['count']).__name__}')"
            )


def vertices(resources):
    """Yield the vertices of resources, parents first."""
    for vertex in resources:
        yield vertex
        yield from vertices(vertex.get("with", ()))
