# SPDX-License-Identifier: LGPL-3.0-or-later
"""Limit the number of nodes that the jobs of one user may have, in all and in each queue.

    [node-limits]
    user = 16            # nodes that one user's jobs have at a time
    [node-limits.queues.debug]
    user = 2             # the same in this queue

A job that exceeds the limit alone is rejected. Others wait in DEPEND with the dependency
``node-limit``, in the order of submission, until enough of the user's jobs have ended. A job that
does not request nodes counts as one node. ``flux jobtap query`` shows how many nodes each user has.
"""

from flux.jobtap import CURRENT_JOB, count_resources

DEPEND, INACTIVE = 2, 64
DEPENDENCY = "node-limit"


def plugin_init(p):
    p.limits = {}
    p.held = {}  # job -> (user, queue, nodes), in order of submission
    p.counted = {}  # the same, for the jobs that count against the limit
    # When the plugin is loaded again, it has to see the running jobs before it decides about those
    # that wait.
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
            table = f"node-limits.queues.{queue}" if queue else "node-limits"
            p.error(f"{table}: user={limit!r}: expected a number of nodes")
    p.limits = limits
    release(p)


def describe(args):
    jobspec = args["jobspec"]
    queue = jobspec["attributes"]["system"].get("queue")
    return args["userid"], queue, count_resources(jobspec["resources"])["node"] or 1


def limits_of(p, job):
    """The limits that apply to a job, as a dict: its queue, or None for all queues -> number of
    nodes."""
    return {
        which: limit
        for which, limit in p.limits.items()
        if limit is not None and which in (None, job[1])
    }


def is_before(p, one, other):
    """Whether the job `other` has to wait behind the job `one`, which was submitted earlier."""
    return one[0] == other[0] and not limits_of(p, one).keys().isdisjoint(limits_of(p, other))


def is_beyond(p, job, others):
    """Whether `job` would exceed a limit beside the jobs `others`."""
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
        return
    p.counted[id] = job
    try:  # of a plugin that was loaded before, or of before a restart
        p.dependency_remove(CURRENT_JOB, DEPENDENCY)
    except FileNotFoundError:
        pass


def inactive(p, topic, args):
    p.held.pop(args["id"], None)
    if p.counted.pop(args["id"], None):
        release(p)


def release(p):
    """Release the waiting jobs that no longer exceed a limit."""
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
