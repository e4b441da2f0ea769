# SPDX-License-Identifier: LGPL-3.0-or-later
"""Check the scheduler: it must not allocate a core or GPU to two jobs at once.

A job that is allocated something that another job holds is ended by an exception of type
``alloc-check``. With housekeeping, resources count as free from the ``free`` event on, although the
scheduler gets them back later.
"""

from flux.idset import IDset
from flux.jobtap import CURRENT_JOB


def plugin_init(p):
    p.held = {}  # (rank, kind, id) -> job
    p.add_handler("job.new", new)
    p.add_handler("job.event.alloc", alloc)
    p.add_handler("job.event.free", free)
    p.add_handler("plugin.query", query)


def resources(R):
    """All resources in an R, each as (rank, kind, id)."""
    for entry in R["execution"]["R_lite"]:
        for rank in IDset(entry["rank"]):
            for kind, ids in entry["children"].items():
                for number in IDset(ids):
                    yield rank, kind, number


def new(p, topic, args):
    p.job_subscribe(CURRENT_JOB)
    if args.get("R") and args["state"] < 64 and not p.job_event_posted(CURRENT_JOB, "free"):
        take(p, args)


def alloc(p, topic, args):
    take(p, args)


def take(p, args):
    for item in resources(args["R"]):
        holder = p.held.setdefault(item, args["id"])
        if holder != args["id"]:
            rank, kind, number = item
            note = f"rank{rank}/{kind}{number} is held by job {holder}"
            p.raise_exception(CURRENT_JOB, "alloc-check", 0, note)
            return


def free(p, topic, args):
    for item in resources(args["R"]):
        if p.held.get(item) == args["id"]:
            del p.held[item]


def query(p, topic, args):
    return {"held": len(p.held)}
