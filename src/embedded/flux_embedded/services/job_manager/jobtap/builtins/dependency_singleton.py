# SPDX-License-Identifier: LGPL-3.0-or-later
"""``.dependency-singleton``: scheme ``singleton``, one job of a name and user at a time, in order.

The job waits until all earlier jobs of the same user and the same ``attributes.system.job.name`` are
inactive.
"""

from flux.jobtap import CURRENT_JOB
from flux_embedded.formats.dotted import lookup_path

NAME = "attributes.system.job.name"


def plugin_init(p):
    p.waiting = {}  # dependent -> (set of earlier jobs, description)
    p.add_handler("job.dependency.singleton", dependency)
    p.add_handler("job.event.clean", ended)


def dependency(p, topic, args):
    name = lookup_path(args["jobspec"], NAME)
    if not name:
        p.reject_job("singleton: the job has no name (--job-name)")
    earlier = {
        job.id
        for job in p.jobs.active.values()
        if job.id < args["id"]
        and job.userid == args["userid"]
        and lookup_path(job.jobspec, NAME) == name
    }
    description = "singleton"
    try:
        p.dependency_add(CURRENT_JOB, description)
    except FileExistsError:
        pass
    if not earlier:
        remove(p, args["id"], description)
        return
    p.waiting[args["id"]] = (earlier, description)
    for id in earlier:
        p.job_subscribe(id)


def ended(p, topic, args):
    gone = args["id"]
    p.waiting.pop(gone, None)
    for dependent, (earlier, description) in list(p.waiting.items()):
        if gone in earlier:
            earlier.discard(gone)
            if not earlier:
                del p.waiting[dependent]
                remove(p, dependent, description)


def remove(p, id, description):
    try:
        p.dependency_remove(id, description)
    except OSError:
        pass  # canceled meanwhile
