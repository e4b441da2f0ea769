# SPDX-License-Identifier: LGPL-3.0-or-later
"""Random histories: the actions of users and administrators, and accidents.

A history is a list of steps, each a list of JSON values, so that it can be printed, shrunk and
run again. Only `make(seed)` uses random numbers.
"""

import random

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
    table = {**WEIGHTS, **RESERVING} if reserving else WEIGHTS
    if policing:
        table = {**table, **POLICING}
    names = [name for name in table if not calm or name in CALM]
    weights = [table[name] for name in names]
    history = [_step(chance, chance.choices(names, weights)[0], calm) for _ in range(steps)]
    if reserving:
        for step in history:
            for job in step[1] if step[0] == "submit" else ():
                if chance.random() < 0.3:
                    job["reservation"] = f"r{chance.randrange(NAMES)}"
    if policing:
        history.insert(0, ["configure", chance.randrange(1, len(TABLES))])
        for step in history:
            for job in step[1] if step[0] == "submit" else ():
                job["bank"] = chance.choice(BANKS)
                if chance.random() < 0.4:
                    job["licenses"] = chance.randint(1, MOST_LICENSES)
                if chance.random() < 0.3:
                    job["memory"] = chance.choice((1, 3, 6))
                if chance.random() < 0.4:
                    job["placement"] = chance.choice(PLACEMENTS)
    if preempting:
        # If promises are counted, jobs may start in time promised to others.
        whole = seed % 16 >= 8
        for step in history:
            for job in step[1] if step[0] == "submit" else ():
                if whole:
                    job["shape"] = len(ORDINARY) + chance.randrange(len(WHOLE))
                    job["constraint"] = 0
                job["queue"] = chance.choice(QUEUES)
                if job["queue"] == "standby":
                    job["run"], job["duration"] = chance.choice(((200, 300), (60, 100), (20, 20)))
    if impatient:
        for step in history:
            for job in step[1] if step[0] == "submit" else ():
                if chance.random() < 0.4:
                    job["max_wait"] = chance.choice((0, 0.5, 5, 60, 600))
    return history


def asks_for(history, key):
    """Whether one of its jobs has a key: a ``queue``, if those of another give way, or ``memory``."""
    return any(step[0] == "submit" and any(key in job for job in step[1]) for step in history)


def is_calm(history):
    """Whether nothing in it excuses a scheduler from a promise."""
    return all(
        step[0] == "advance"
        or step[0] == "submit"
        and all(job["duration"] and job["urgency"] == 16 for job in step[1])
        for step in history
    )


def _step(chance, name, calm):
    if name == "submit":
        jobs = [_job(chance, calm) for _ in range(chance.choice((1, 1, 1, 2, 5)))]
        return ["submit", jobs]
    if name == "advance":
        return ["advance", chance.choice((0.0, 0.5, 3, 10, 60, 60, 3700))]
    if name == "cancel":
        return ["cancel", chance.randrange(1000)]
    if name == "urgency":
        return ["urgency", chance.randrange(1000), chance.choice((0, 1, 10, 16, 16, 20, 31))]
    if name == "configure":
        return [name, chance.randrange(len(TABLES))]
    if name in ("drain", "undrain", "offline", "online", "shrink"):
        return [name, chance.randrange(NODES)]
    if name == "property":
        return [
            "property",
            chance.choice(("add", "remove")),
            chance.choice(("fast", "big")),
            chance.randrange(NODES),
        ]
    if name == "duration":
        return ["duration", chance.randrange(1000), chance.choice((1, 20, 300))]
    if name == "reserve":
        what = chance.choice(
            [{"nodes": chance.randint(1, NODES)}, {"hosts": f"node[{chance.randrange(NODES)}]"}]
        )
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
        return ["reserve", entry, chance.choice((0, 1, 20, 100))]
    if name == "unreserve":
        return ["unreserve", f"r{chance.randrange(NAMES)}"]
    if name == "crash":
        return ["crash", chance.randrange(1, 12)]
    if name == "kvs-fail":
        return ["kvs-fail", chance.choice((1, 1, 2, 3))]
    if name == "delay":
        return [
            "delay",
            chance.choice(("scheduler", "job-manager", "resource", "kvs", "job-exec")),
            chance.choice((0.01, 0.2, 2)),
        ]
    return [name]


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
    return jobspec(
        shape["slots"],
        shape["cores"],
        shape["gpus"],
        nodes=shape["nodes"] or None,
        duration=job["duration"],
        exclusive=bool(shape.get("exclusive")),
        constraints=CONSTRAINTS[job["constraint"]],
        run_duration=job["run"],
        **system,
    )


def matches(constraint, rank, properties):
    """Whether `rank`, which has `properties`, satisfies an RFC 31 constraint of those above."""
    if constraint is None:
        return True
    results = []
    for operator, values in constraint.items():
        if operator == "properties":
            results += [
                (value[1:] not in properties) if value[0] == "^" else value in properties
                for value in values
            ]
        elif operator == "ranks":
            from books import ids

            results.append(any(rank in ids(value) for value in values))
        elif operator == "not":
            results.append(not all(matches(value, rank, properties) for value in values))
        else:
            results.append(any(matches(value, rank, properties) for value in values))
    return all(results)


def shrink(history, fails, budget=200):
    """A shorter history that still fails (delta debugging).

    Args:
        history (list): one that fails
        fails: ``fails(history)`` -> bool
        budget (int): maximum number of runs
    """
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
