# SPDX-License-Identifier: LGPL-3.0-or-later
"""Payloads of all requests that a scheduler takes, made from schemas and bent.

`make(chance, topic)` returns a valid payload, `bend(chance, payload)` one with a fault in it. All
random numbers come from `chance`, a `random.Random`, so that a seed repeats a run.
"""

import json

from flux.scheduler import testing

#: Values that are of the wrong type, huge, empty, or odd in other ways, in any place.
ODD = (
    None, True, False, -1, 0, 1, 1.5, -0.0, 1e308, 1 << 31, 1 << 63, 1 << 64, 1 << 200, float("nan"), float("inf"),
    float("-inf"), "", "0", "0-3", "3-0", "0-999999999", "node[0-3]", "x" * 10000, "\ud800", "\0", "ƒ1 é 漢字 \u202e",
    [], [[]], [None], {}, {"": None}, {"id": 1}, {"and": [{"not": [{"or": []}]}]},
)  # fmt: skip
#: Texts that are not JSON.
BROKEN = ("", "{", "[]", "null", '"text"', "\udcff", '{"id": 1', '{"id": 1}}', "[" * 5000, "NaN")

CONSTRAINTS = (
    {"properties": ["a"]}, {"properties": ["^a"]}, {"ranks": ["0-1"]}, {"hostlist": ["n[0-2]"]}, {"not": [{"ranks": ["1"]}]},
    {"or": [{"properties": ["a"]}, {"ranks": ["3"]}]},
)  # fmt: skip
#: Counts (RFC 14: a number, a text or a range).
COUNTS = (1, 1, 1, 2, 3, 9, "2", "1-4", "2+", {"min": 1, "max": 4, "operator": "+", "operand": 1})


def jobspec(chance):
    """A random jobspec (RFC 14, 25)."""
    made = testing.jobspec(
        chance.choice(COUNTS),
        chance.choice(COUNTS),
        chance.choice((0, 0, 0, 0, 1)),
        nodes=chance.choice(COUNTS) if chance.random() < 0.5 else None,
        exclusive=chance.random() < 0.3,
        duration=chance.choice((0, 0, 1, 10, 100.5, 3600)),
        constraints=chance.choice(CONSTRAINTS) if chance.random() < 0.3 else None,
        **({"queue": chance.choice(("batch", "nosuch"))} if chance.random() < 0.1 else {}),
        **({"reservation": chance.choice(("r0", "r1"))} if chance.random() < 0.1 else {}),
    )
    for _ in range(chance.choice((1, 5, 100)) if chance.random() < 0.1 else 0):
        made["resources"] = [{"type": "rack", "count": 1, "with": made["resources"]}]
    return made


def R(chance):
    """A possible R of a job (RFC 20)."""
    ranks = chance.choice(("0", "1", "0-1", "0-3", "7"))
    cores = chance.choice(("0", "0-1", "0-3", "9"))
    end = chance.choice((0.0, 100.0, 1e12))
    return testing.make_R(ranks, cores, hosts="n[0-3]", expiration=end)


def reservation(chance):
    """A request for a reservation."""
    entry = {
        "name": chance.choice(("r0", "r1", "r2")),
        "start": chance.choice((1.0, 1e9, 1.8e9, 4e9)),
        "duration": chance.choice((1, 60, 3600)),
        "users": chance.choice(([], [0], [1001])),
        "zone": "UTC",
    }
    entry.update(chance.choice(({"nodes": 2}, {"hosts": "n[0-1]"}, {"nodes": 99})))
    if chance.random() < 0.3:
        entry["every"] = chance.choice(("5m", "1d"))
    return entry


#: Topic -> function of chance that returns its payload. None: it has none.
SCHEMAS = {
    # From the job manager (RFC 27)
    "sched.alloc": lambda c: {
        "id": c.randrange(1, 25),
        "priority": c.choice((0, 16, 31, 4294967295)),
        "userid": c.choice((0, 1001)),
        "t_submit": c.choice((1.0, 1.7e9)),
        "jobspec": jobspec(c),
    },
    "sched.free": lambda c: {"id": c.randrange(1, 25), "R": R(c), "final": c.random() < 0.7},
    "sched.cancel": lambda c: {"id": c.randrange(1, 25)},
    "sched.prioritize": lambda c: {
        "jobs": [[c.randrange(1, 25), c.choice((0, 16, 4294967295))] for _ in range(3)]
    },
    "sched.expiration": lambda c: {"id": c.randrange(1, 25), "expiration": c.choice((0, 1.0, 4e9))},
    # From ingest and users
    "feasibility.check": lambda c: {"jobspec": jobspec(c)},
    "sched.resource-status": None,
    "sched.quiescent": None,
    "sched.explain": lambda c: c.choice(({"id": c.randrange(1, 25)}, {"all": True})),
    "sched.when": lambda c: {"jobspec": jobspec(c)},
    "sched.windows": lambda c: c.choice(({}, {"horizon": c.choice((1, 3600.0, 1e7))})),
    "sched.plan": lambda c: c.choice(({}, {"horizon": c.choice((1, 3600.0, 1e7))})),
    "sched.stats": None,
    "sched.reservations": None,
    "sched.reserve": lambda c: {"reservation": reservation(c), "dry_run": c.random() < 0.3},
    "sched.unreserve": lambda c: {"name": c.choice(("r0", "r1", "r2", "nosuch"))},
    "sched.limits": None,
    "sched.shares": None,
    "sched.preemptions": None,
    "sched.preempt": lambda c: {"id": c.randrange(1, 25), "dry_run": True},
    "sched.check-config": lambda c: {
        "config": {
            "limits": {"a": {"per": "user", "max": {"jobs": c.randrange(3)}}},
            "licenses": {"x": c.randrange(9)},
        }
    },
    "NAME.stats-get": None,
    "NAME.no-such-method": lambda c: {},
}
#: Requests that get no response of their own.
UNANSWERED = ("sched.free", "sched.cancel", "sched.prioritize")
#: Requests that stay open until there is an answer.
OPEN = ("sched.alloc",)
#: Requests that change nothing, from any sender.
QUESTIONS = (
    "feasibility.check", "sched.resource-status", "sched.explain", "sched.when", "sched.windows", "sched.plan",
    "sched.stats", "sched.reservations", "sched.limits", "sched.shares", "sched.preemptions", "sched.preempt",
    "sched.check-config", "NAME.stats-get", "NAME.no-such-method",
)  # fmt: skip


def make(chance, topic):
    """A valid payload for a topic."""
    schema = SCHEMAS[topic]
    return None if schema is None else schema(chance)


def bend(chance, value, depth=0):
    """A value like this one, with a fault in it."""
    what = chance.random()
    if not depth and what < 0.05:
        return chance.choice(ODD)
    if depth and what < 0.3:
        return deep(chance) if what < 0.02 else chance.choice(ODD)
    if isinstance(value, dict) and value:
        value = dict(value)
        key = chance.choice(sorted(value))
        action = chance.random()
        if action < 0.2:
            del value[key]
        elif action < 0.35:
            odd = chance.choice(ODD)
            value[chance.choice(("with", "count", "id", "extra", "", "\udc80", "version"))] = odd
        else:
            value[key] = bend(chance, value[key], depth + 1)
        return value
    if isinstance(value, list) and value:
        value = list(value)
        index = chance.randrange(len(value))
        action = chance.random()
        if action < 0.2:
            value.insert(index, chance.choice(ODD))
        elif action < 0.3:
            value += value  # each of them twice
        else:
            value[index] = bend(chance, value[index], depth + 1)
        return value
    return chance.choice(ODD)


def deep(chance):
    """A value of many levels."""
    value = chance.choice(ODD)
    for _ in range(chance.choice((70, 300))):
        value = [value] if chance.random() < 0.5 else {"with": value}
    return value


def text_of(chance, payload):
    """The payload as JSON text; occasionally invalid."""
    if payload is None:
        return None
    if chance.random() < 0.03:
        return chance.choice(BROKEN)
    return json.dumps(payload)
