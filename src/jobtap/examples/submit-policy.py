# SPDX-License-Identifier: LGPL-3.0-or-later
"""Set defaults in submitted jobs, and cap their time limits.

    flux jobtap load submit-policy.py duration=3600 bank=guest max-duration=86400

A job without a time limit gets `duration` (seconds), one without a bank gets `bank`. A time limit
beyond `max-duration` is cut to it. The job's eventlog shows the changes (``jobspec-update``), and
limits apply to the result.
"""


def plugin_init(p):
    for name in ("duration", "max-duration"):
        value = p.args.get(name, 1)
        if type(value) not in (int, float) or value <= 0:
            p.error(f"{name}={value!r}: expected seconds")
    p.add_handler("job.create", create)


def create(p, topic, args):
    if args["state"] != 1:
        return  # not a new job: the plugin was loaded, or the job manager started again
    system = args["jobspec"]["attributes"]["system"]
    updates = {}
    duration = system.get("duration") or p.args.get("duration", 0)
    duration = min(duration, p.args.get("max-duration", duration))
    if duration != system.get("duration", 0):
        updates["attributes.system.duration"] = float(duration)
    if "bank" in p.args and "bank" not in system:
        updates["attributes.system.bank"] = p.args["bank"]
    if updates:
        p.jobspec_update(updates)
