# SPDX-License-Identifier: LGPL-3.0-or-later
"""Set the watts that a job draws, for a scheduler that counts them as licences.

    flux jobtap load power.py node=650 core=6

A job that requests nodes draws `node` watts for each of their minimum number; any other draws `core` watts for each core. A job
that sets ``system.licenses.watts`` itself keeps its number. The scheduler has ``[licenses] watts``.
"""

from flux.jobtap import count_resources


def plugin_init(p):
    for name in ("node", "core"):
        value = p.args.get(name, 0)
        if type(value) not in (int, float) or value < 0:
            p.error(f"{name}={value!r}: expected watts")
    p.add_handler("job.create", create)


def create(p, topic, args):
    jobspec = args["jobspec"]
    asked = jobspec["attributes"]["system"].get("licenses", {})
    if args["state"] != 1 or "watts" in asked:
        return  # not a new job, or the job sets it itself
    counts = count_resources(jobspec["resources"])
    watts = counts["node"] * p.args.get("node", 0) or counts["core"] * p.args.get("core", 0)
    if watts:
        p.jobspec_update({"attributes.system.licenses.watts": round(watts)})
