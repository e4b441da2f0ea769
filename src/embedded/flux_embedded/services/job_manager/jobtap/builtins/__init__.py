# SPDX-License-Identifier: LGPL-3.0-or-later
"""The job manager's own rules, as plugins, in load order."""

from flux_embedded.services.job_manager.jobtap.builtins import (
    dependencies,
    limits,
    updates,
)


def priority_init(p):
    """The priority is the urgency (RFC 30)."""
    for topic in ("job.state.priority", "job.priority.get"):
        p.add_handler(topic, lambda p, topic, args: {"priority": args["urgency"]})


BUILTINS = (
    (".priority-default", priority_init),
    (".limit-job-size", limits.job_size_init),
    (".limit-duration", limits.duration_init),
    (".dependency-after", dependencies.after_init),
    (".begin-time", dependencies.begin_time_init),
    (".validate-duration", limits.lifetime_init),
    (".update-duration", updates.duration_init),
    (".update-queue", updates.queue_init),
)
