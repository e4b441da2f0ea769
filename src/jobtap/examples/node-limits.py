# SPDX-License-Identifier: LGPL-3.0-or-later
"""Limit how many nodes the jobs of one user may have, in all and by queue.

    [node-limits]
    user = 16            # nodes of one user's jobs at a time
    [node-limits.queues.debug]
    user = 2             # of those in this queue

A job that alone is beyond the limit is rejected. Others wait in DEPEND with dependency ``node-limit`` until enough of
the user's jobs have ended, in order of submission. A job that names no nodes counts as one. ``flux jobtap query`` shows
what each user has.
"""

from flux.jobtap import CURRENT_JOB

DEPEND, INACTIVE = 2, 64
DEPENDENCY = "node-limit"


def plugin_init(p):
    p.limits = {}
    p.held = {}  # job -> (user, queue, nodes), in order of submission
    p.counted = {}  # the same, of those that count
    # When it is loaded again it has to know who is running before it looks at who waits.
    p.set_load_sort_order("-state")
    p.add_handler("conf.update", conf_update)
    p.add_handler("job.validate", validate)
    p.add_handler("job.new", new)
    p.add_handler("job.state.depend", depend)
    p.add_handler("job.state.inactive", inactive)
    p.add_handler("plugin.query", query)


def conf_update(p, topic, args):
    table = args["conf"].get("node-limits", {})
    limits = {None: table.get("user")}
    for queue, settings in table.get("queues", {}).items():
        limits[queue] = settings.get("user")
    for queue, limit in limits.items():
        if limit is not None and (type(limit) is not int or limit < 0):
            p.error(f"node-limits: user={limit!r} (queue {queue}): expected a number of nodes")
    p.limits = limits
    release(p)


def nodes_of(jobspec):
    """How many nodes a jobspec asks for at least."""

    def count(vertices):
        for vertex in vertices:
            number = vertex["count"]
            if isinstance(number, dict):
                number = number.get("min", 1)
            if vertex["type"] == "node":
                return number
            below = count(vertex.get("with", ()))
            if below:
                return number * below
        return 0

    return count(jobspec["resources"]) or 1


def describe(args):
    jobspec = args["jobspec"]
    queue = jobspec["attributes"]["system"].get("queue")
    return args["userid"], queue, nodes_of(jobspec)


def limits_of(p, job):
    """The limits that apply to a job: {None or its queue: nodes}."""
    return {
        which: limit
        for which, limit in p.limits.items()
        if limit is not None and which in (None, job[1])
    }


def is_before(p, one, other):
    """Whether `other`, submitted after `one`, has to wait for it."""
    return one[0] == other[0] and not limits_of(p, one).keys().isdisjoint(limits_of(p, other))


def is_beyond(p, job, others):
    """Whether the limits leave no room for `job` beside `others`."""
    user, _, nodes = job
    for which, limit in limits_of(p, job).items():
        used = sum(n for u, q, n in others if u == user and which in (None, q))
        if used + nodes > limit:
            return True
    return False


def validate(p, topic, args):
    job = describe(args)
    if is_beyond(p, job, ()):
        p.reject_job(f"{job[2]} nodes are beyond the limit for one user")


def new(p, topic, args):
    if DEPEND < args["state"] < INACTIVE:
        p.counted[args["id"]] = describe(args)


def depend(p, topic, args):
    id, job = args["id"], describe(args)
    earlier = any(is_before(p, held, job) for held in p.held.values())
    if earlier or is_beyond(p, job, p.counted.values()):
        p.held[id] = job
        p.dependency_add(CURRENT_JOB, DEPENDENCY)
    else:
        p.counted[id] = job


def inactive(p, topic, args):
    p.held.pop(args["id"], None)
    if p.counted.pop(args["id"], None):
        release(p)


def release(p):
    """Let go of the jobs that there is room for now."""
    waiting = []
    for id, job in list(p.held.items()):
        earlier = any(is_before(p, other, job) for other in waiting)
        if earlier or is_beyond(p, job, p.counted.values()):
            waiting.append(job)
        elif p.held.pop(id, None):
            p.counted[id] = job
            p.dependency_remove(id, DEPENDENCY)


def query(p, topic, args):
    used = {}
    for user, _, nodes in p.counted.values():
        used[str(user)] = used.get(str(user), 0) + nodes
    return {"nodes": used, "held": len(p.held)}
