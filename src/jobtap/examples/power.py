# SPDX-License-Identifier: LGPL-3.0-or-later
"""Set the watts that a job draws, for a scheduler that counts them as licences.

    flux jobtap load power.py node=650 core=6

A job that requests nodes draws `node` watts for each of their minimum number; any other draws `core` watts for each core. A job
that sets ``system.licenses.watts`` itself keeps its number. The scheduler has ``[licenses] watts``.
"""


def plugin_init(p):
    for name in ("node", "core"):
        value = p.args.get(name, 0)
        if type(value) not in (int, float) or value < 0:
            p.error(f"{name}={value!r}: expected watts")
    p.add_handler("job.create", create)


def count_of(vertices, kind):
    """The minimum number of vertices of a kind that a jobspec requests."""
    total = 0
    for vertex in vertices:
        number = vertex["count"]
        if isinstance(number, dict):
            number = number.get("min", 1)
        below = 1 if vertex["type"] == kind else count_of(vertex.get("with", ()), kind)
        total += number * below
    return total


def create(p, topic, args):
    jobspec = args["jobspec"]
    asked = jobspec["attributes"]["system"].get("licenses", {})
    if args["state"] != 1 or "watts" in asked:
        return  # not a new job, or the job sets it itself
    watts = count_of(jobspec["resources"], "node") * p.args.get("node", 0)
    watts = watts or count_of(jobspec["resources"], "core") * p.args.get("core", 0)
    if watts:
        p.jobspec_update({"attributes.system.licenses.watts": round(watts)})
