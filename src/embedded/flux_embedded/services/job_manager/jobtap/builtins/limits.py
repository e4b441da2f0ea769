# SPDX-License-Identifier: LGPL-3.0-or-later
"""``.limit-job-size`` and ``.limit-duration``: the limits of ``policy`` and ``queues.NAME.policy`` (RFC 33).

``.validate-duration``: no job may be longer than the instance's remaining time.
"""

import json

from flux.queue import QueueConf
from flux.util import fsd as fsd_text
from flux_engine.formats import fsd
from flux_engine.formats.dotted import lookup_path
from flux_engine.formats.jobspec import count_resources

UNLIMITED = -1


def _for_queue(name):
    return f" for queue {name}" if name else ""


def _init(key, validate):
    """The init function of a plugin that checks jobs while any table of the configuration has a limit `key`."""

    def configure(p, topic, args):
        queues = QueueConf.from_config(args["conf"])
        p.limits = {name: queues.policy(name).get("limits", {}) for name in (None, *queues)}
        p.active = any(key in limits for limits in p.limits.values())

    def init(p):
        p.active = False
        p.add_handler("conf.update", configure)
        p.add_handler("job.validate", lambda p, topic, args: p.active and validate(p, args))

    return init


# -- .limit-job-size ----------------------------------------------------------------------------------


def job_size_validate(p, args):
    system = args["jobspec"]["attributes"]["system"]
    queue = system.get("queue")
    limits = p.limits.get(queue, p.limits[None])
    asked = count_resources(args["jobspec"]["resources"])
    for kind, value in (
        ("nnodes", asked["node"]),
        ("ncores", asked["core"]),
        ("ngpus", asked["gpu"]),
    ):
        for bound, what in (("max", "exceeds"), ("min", "is under")):
            limit = lookup_path(limits, f"job-size.{bound}.{kind}")
            if limit in (None, UNLIMITED):
                continue
            # A request without nodes leaves their number open, so it cannot be below a minimum.
            if value > limit if bound == "max" else value < limit and (kind != "nnodes" or value):
                p.reject_job(
                    f"requested {kind} ({value}) {what} policy limit of {limit}{_for_queue(queue)}"
                )


job_size_init = _init("job-size", job_size_validate)


# -- .limit-duration ----------------------------------------------------------------------------------


def duration_validate(p, args):
    system = args["jobspec"]["attributes"]["system"]
    queue = system.get("queue")
    text = p.limits.get(queue, p.limits[None]).get("duration")
    limit = fsd.parse(text) if text is not None else 0
    if limit == 0 or limit == float("inf"):
        return
    duration = system.get("duration", 0)
    if duration == 0 or duration > limit:
        requested = fsd_text(duration) if duration else "unlimited"
        most = f"{fsd_text(limit)}{_for_queue(queue)}"
        p.reject_job(f"requested duration ({requested}) exceeds policy limit of {most}")


duration_init = _init("duration", duration_validate)


# -- .validate-duration ---------------------------------------------------------------------------------


def lifetime_init(p):
    p.R, p.expiration = None, 0.0
    p.add_handler("job.validate", lifetime_validate)


def lifetime_validate(p, topic, args):
    # The instance's expiration is that of resource.R.
    R = p.kvs.find("resource.R")
    if R is not p.R:
        p.R = R
        try:
            p.expiration = float(json.loads(R)["execution"].get("expiration") or 0.0)
        except (ValueError, KeyError, TypeError):
            p.expiration = 0.0
    if not p.expiration:
        return
    duration = args["jobspec"]["attributes"]["system"].get("duration", 0)
    left = p.expiration - p.handle.reactor_now(p.handle.get_reactor())
    if duration > left:
        p.reject_job(
            f"job duration ({fsd_text(duration)}) exceeds remaining instance lifetime ({fsd_text(max(left, 0.0))})"
        )
