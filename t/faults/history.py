# SPDX-License-Identifier: LGPL-3.0-or-later
"""Random histories: the actions of users and administrators, and accidents.

A history is a list of steps, each a list of JSON values, so that it can be printed, shrunk and
run again. Only `make(seed)` uses random numbers.
"""

import random

from books import ids
from site_rules import BANKS, MOST_LICENSES, PLACEMENTS, TABLES

from flux.scheduler.testing import jobspec

#: Requests of jobs, in most histories. nodes 0: slots on any nodes.
ORDINARY = [
    {"nodes": 0, "slots": 1, "cores": 1, "gpus": 0},
    {"nodes": 0, "slots": 3, "cores": 1, "gpus": 0},
    {"nodes": 0, "slots": 2, "cores": 2, "gpus": 1},
    {"nodes": 1, "slots": 1, "cores": 4, "gpus": 0},
    {"nodes": 1, "slots": 1, "cores": 1, "gpus": 2},
    {"nodes": 2, "slots": 1, "cores": 3, "gpus": 0},
    {"nodes": 2, "slots": 2, "cores": 1, "gpus": 1},
    {"nodes": 3, "slots": 1, "cores": 4, "gpus": 2},
    {"nodes": 4, "slots": 1, "cores": 1, "gpus": 0},
    {"nodes": 1, "slots": 1, "cores": 1, "gpus": 0, "exclusive": True},
    {"nodes": 2, "slots": 1, "cores": 1, "gpus": 0, "exclusive": True},
    # These never fit on four nodes of four cores.
    {"nodes": 5, "slots": 1, "cores": 1, "gpus": 0},
    {"nodes": 0, "slots": 1, "cores": 5, "gpus": 0},
]

#: Requests of jobs in histories with whole nodes only.
WHOLE = [
    {"nodes": nodes, "slots": 1, "cores": 1, "gpus": 0, "exclusive": True} for nodes in (1, 2, 3, 4)
]

SHAPES = ORDINARY + WHOLE

CONSTRAINTS = [
    None, None, None, {"properties": ["fast"]}, {"properties": ["^fast"]}, {"ranks": ["0-1"]},
    {"or": [{"properties": ["big"]}, {"ranks": ["3"]}]}, {"not": [{"ranks": ["1"]}]},
]  # fmt: skip

NODES = 4

#: The number of reservations' names: small, so that names recur, and jobs name existing ones.
NAMES = 3

#: step -> its weight
WEIGHTS = {
    "submit": 30, "advance": 18, "cancel": 6, "urgency": 6, "drain": 4, "undrain": 5, "offline": 2, "online": 3,
    "property": 3, "duration": 3, "queue-stop": 1, "queue-start": 3, "reload": 2, "unload": 1, "load": 3, "crash": 1,
    "kvs-fail": 2, "delay": 4, "shrink": 0.3,
}  # fmt: skip

#: Further weights with reservations.
RESERVING = {"reserve": 6, "unreserve": 2}

#: Further weights with site policy: other tables are loaded.
POLICING = {"configure": 2}

#: Steps that break no promise: with only these, a scheduler must keep all of them.
CALM = ("submit", "advance")


#: Queues of the jobs with preemption: those of the first end for those of the second.
QUEUES = ("standby", "standby", "batch")


def make(
    seed, steps=40, calm=False, reserving=False, policing=False, preempting=False, impatient=False
):
    """The history of `seed`.

    Args:
        seed (int): the same seed gives the same history
        steps (int): their number
        calm (bool): only steps that break no promise of a scheduler
        reserving (bool): an administrator makes reservations, and jobs may name them
        policing (bool): there are limits, licences and racks
        preempting (bool): jobs of one queue end for those of another
        impatient (bool): some jobs limit their wait
    """
    chance = random.Random(seed)
    table = {**WEIGHTS, **(RESERVING if reserving else {}), **(POLICING if policing else {})}
    names = [name for name in table if not calm or name in CALM]
    weights = [table[name] for name in names]
    history = [_step(chance, chance.choices(names, weights)[0], calm) for _ in range(steps)]
    jobs = [job for step in history if step[0] == "submit" for job in step[1]]
    for job in jobs if reserving else ():
        if chance.random() < 0.3:
            job["reservation"] = f"r{chance.randrange(NAMES)}"
    if policing:
        history.insert(0, ["configure", chance.randrange(1, len(TABLES))])
        for job in jobs:
            job["bank"] = chance.choice(BANKS)
            if chance.random() < 0.4:
                job["licenses"] = chance.randint(1, MOST_LICENSES)
            if chance.random() < 0.3:
                job["memory"] = chance.choice((1, 3, 6))
            if chance.random() < 0.4:
                job["placement"] = chance.choice(PLACEMENTS)
    # If promises are counted, jobs may start in time promised to others.
    whole = seed % 16 >= 8
    for job in jobs if preempting else ():
        if whole:
            job["shape"] = len(ORDINARY) + chance.randrange(len(WHOLE))
            job["constraint"] = 0
        job["queue"] = chance.choice(QUEUES)
        if job["queue"] == "standby":
            job["run"], job["duration"] = chance.choice(((200, 300), (60, 100), (20, 20)))
    for job in jobs if impatient else ():
        if chance.random() < 0.4:
            job["max_wait"] = chance.choice((0, 0.5, 5, 60, 600))
    return history


def asks_for(history, key):
    """Whether one of its jobs has a key: a ``queue``, if those of another give way, or ``memory``."""
    return any(step[0] == "submit" and any(key in job for job in step[1]) for step in history)


def is_calm(history):
    """Whether nothing in it excuses a scheduler from a promise."""
    jobs = [job for step in history if step[0] == "submit" for job in step[1]]
    limited = all(job["duration"] and job["urgency"] == 16 for job in jobs)
    return limited and all(step[0] in CALM for step in history)


def _reserve(chance):
    what = [{"nodes": chance.randint(1, NODES)}, {"hosts": f"node[{chance.randrange(NODES)}]"}]
    what = chance.choice(what)
    entry = {
        "name": f"r{chance.randrange(NAMES)}",
        "duration": chance.choice((5, 30, 200)),
        "users": chance.choice(([], [0])),
        "at_end": chance.choice(("cancel", "run")),
        "pin": chance.random() < 0.3,
        "zone": "UTC",
        **what,
    }
    if chance.random() < 0.2:
        entry["every"] = "5m"
    return [entry, chance.choice((0, 1, 20, 100))]


#: Services whose messages are delayed.
SERVICES = ("scheduler", "job-manager", "resource", "kvs", "job-exec")
#: step -> function of chance that returns its values; steps without any are left out, and submit
STEPS = {
    "advance": lambda c: [c.choice((0.0, 0.5, 3, 10, 60, 60, 3700))],
    "cancel": lambda c: [c.randrange(1000)],
    "urgency": lambda c: [c.randrange(1000), c.choice((0, 1, 10, 16, 16, 20, 31))],
    "configure": lambda c: [c.randrange(len(TABLES))],
    **dict.fromkeys(
        ("drain", "undrain", "offline", "online", "shrink"), lambda c: [c.randrange(NODES)]
    ),
    "property": lambda c: [
        c.choice(("add", "remove")), c.choice(("fast", "big")), c.randrange(NODES),
    ],
    "duration": lambda c: [c.randrange(1000), c.choice((1, 20, 300))],
    "reserve": _reserve,
    "unreserve": lambda c: [f"r{c.randrange(NAMES)}"],
    "crash": lambda c: [c.randrange(1, 12)],
    "kvs-fail": lambda c: [c.choice((1, 1, 2, 3))],
    "delay": lambda c: [c.choice(SERVICES), c.choice((0.01, 0.2, 2))],
}  # fmt: skip


def _step(chance, name, calm):
    if name == "submit":
        return [name, [_job(chance, calm) for _ in range(chance.choice((1, 1, 1, 2, 5)))]]
    return [name, *(STEPS[name](chance) if name in STEPS else ())]


def _job(chance, calm):
    duration = chance.choice((0, 5, 20, 100)) if not calm else chance.choice((5, 20, 100))
    run = chance.choice((0, 1, 5, 20, 40))
    return {
        "shape": chance.randrange(len(ORDINARY)),
        "constraint": chance.randrange(len(CONSTRAINTS)),
        "duration": duration,
        "run": min(run, duration) if duration else run,
        "urgency": 16 if calm else chance.choice((16, 16, 16, 16, 8, 20, 0, 31)),
    }


def jobspec_of_job(job):
    """The jobspec (RFC 25) of a job as `make` describes it."""
    shape = SHAPES[job["shape"]]
    asked = ("reservation", "bank", "placement", "memory", "queue")
    system = {"environment": {}, **{key: job[key] for key in asked if key in job}}
    if "licenses" in job:
        system["licenses"] = {"matlab": job["licenses"]}
    if "max_wait" in job:
        system["max-wait"] = job["max_wait"]
    counts = shape["slots"], shape["cores"], shape["gpus"], shape["nodes"] or None
    system["constraints"] = CONSTRAINTS[job["constraint"]]
    system["exclusive"] = bool(shape.get("exclusive"))
    return jobspec(*counts, job["duration"], run_duration=job["run"], **system)


def matches(constraint, rank, properties):
    """Whether `rank`, which has `properties`, satisfies an RFC 31 constraint of those above."""
    results = []
    for operator, values in (constraint or {}).items():
        if operator == "properties":
            results += [(value.lstrip("^") in properties) != (value[0] == "^") for value in values]
        elif operator == "ranks":
            results.append(any(rank in ids(value) for value in values))
        else:
            each = [matches(value, rank, properties) for value in values]
            results.append(not all(each) if operator == "not" else any(each))
    return all(results)


def shrink(history, fails, budget=200):
    """A shorter history for which ``fails(history)`` is still true, found in `budget` runs (delta debugging)."""
    size = max(1, len(history) // 2)
    while budget > 0 and size:
        start = 0
        while start < len(history) and budget > 0:
            candidate = history[:start] + history[start + size :]
            budget -= 1
            if candidate and fails(candidate):
                history = candidate
            else:
                start += size
        size //= 2
    return history
