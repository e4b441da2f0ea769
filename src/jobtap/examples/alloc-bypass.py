# SPDX-License-Identifier: LGPL-3.0-or-later
"""Give a job the resources that its jobspec names, without asking the scheduler.

The instance owner submits with ``--setattr=system.alloc-bypass.R="$(flux R encode -r0)"``.
"""

import os

from flux.jobtap import CURRENT_JOB

KEY = "alloc-bypass"


def plugin_init(p):
    p.add_handler("job.validate", validate)
    p.add_handler("job.state.sched", sched)


def requested(args):
    """The R in a job's jobspec; None if it has none."""
    table = args["jobspec"]["attributes"]["system"].get(KEY)
    return table.get("R") if isinstance(table, dict) else None


def validate(p, topic, args):
    R = requested(args)
    if R is None:
        return
    if args["userid"] != os.getuid():
        p.reject_job("Guest user cannot use alloc bypass")
    try:
        if R["version"] != 1 or not R["execution"]["R_lite"] or not R["execution"]["nodelist"]:
            raise ValueError
    except (TypeError, KeyError, ValueError):
        p.reject_job(f"attributes.system.{KEY}.R is not a resource set of version 1")
    p.job_set_flag(CURRENT_JOB, "alloc-bypass")


def sched(p, topic, args):
    R = requested(args)
    if R is not None:
        return {"R": R}
