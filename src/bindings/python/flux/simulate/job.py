# SPDX-License-Identifier: LGPL-3.0-or-later
"""Jobs: the entry in a trace, and the jobspec that a scheduler sees."""

import copy
import itertools
import pwd
from typing import NamedTuple, Optional

from flux.scheduler.times import seconds_of

#: `Job.limit` of a job without a limit.
NO_LIMIT = 0


class Shape(NamedTuple):
    """A job's request. ``nodes`` 0: its slots may be placed anywhere.

    ``slots`` is per node if ``nodes`` is given, else the total; ``cores`` and ``gpus`` are per
    slot.
    """

    nodes: int
    slots: int
    cores: int = 1
    gpus: int = 0
    exclusive: bool = False

    def resources(self):
        """Return the resource graph (RFC 14, 25)."""
        within = [{"type": "core", "count": self.cores}]
        if self.gpus:
            within.append({"type": "gpu", "count": self.gpus})
        graph = {"type": "slot", "count": self.slots, "with": within, "label": "task"}
        if self.nodes:
            graph = {"type": "node", "count": self.nodes, "with": [graph]}
            if self.exclusive:
                graph["exclusive"] = True
        return [graph]


class Job:
    """One job of a workload, not changed by a simulation.

    A reader of traces makes it with a `request` and without `shape`, with its submission in seconds
    since the epoch (or since the start of a trace without a date), `limit` None if it has none, and
    in `after` the id of the job that it follows; `workload.build` fits it to the machine.

    Attributes:
        id (str): its id in the trace
        submit (float): submission, seconds since the start of the workload
        run (float): run time in seconds if nothing ends it
        limit (float): time limit in seconds; `NO_LIMIT`: none
        seconds (float): from its start to its end: the limit is a hard end
        shape (Shape): its request; None if ``extra`` has ``jobspec``
        size (int): its size in the workload's unit (nodes or cores)
        user, queue (str or None)
        group (str or None): its bank, unless its jobspec has one
        urgency (int): 0 to 31
        after ((int, float or None) or None): index of the job that it follows, and the seconds
            between the end of that job and its own submission; None: it is submitted at that end,
            but not before `submit`
        status (int): its status in SWF: 1 completed, 0 failed, 5 cancelled, -1 unknown
        extra (dict or None): further attributes from the trace: ``jobspec`` to use unchanged,
            ``constraints``, ...
        request ((int or None, int or None, int)): nodes, cores and GPUs in the trace, in all
        wait (float or None): its wait in the trace's own schedule, seconds
    """

    __slots__ = (
        "id", "submit", "run", "limit", "shape", "size", "user", "group", "queue", "urgency", "extra", "after",
        "status", "seconds", "request", "wait",
    )  # fmt: skip

    def __init__(
        self, id, submit, run, limit, shape=None, size=0, user=None, queue=None, urgency=16, extra=None, group=None,
        after=None, status=-1, request=None, wait=None,
    ):  # fmt: skip
        self.id = id
        self.submit = submit
        self.run = run
        self.shape = shape
        self.size = size
        self.user = user
        self.group = group
        self.after = after
        self.status = status
        self.queue = queue
        self.urgency = urgency
        self.extra = extra
        self.request = request
        self.wait = wait
        self.set_limit(limit)

    def set_limit(self, limit):
        """Set the limit, and the time from start to end."""
        self.limit = limit
        self.seconds = limit if limit and limit < self.run else self.run

    def submission_after(self, end):
        """Return its submission, if the job that it follows ends at `end`; both in seconds."""
        think = self.after[1]
        return max(end, self.submit) if think is None else end + think


#: User names that are not numbers get user ids from here on.
FIRST_USERID = 100_001
#: Id of users without jobs.
NOBODY = (1 << 32) - 2


def userids(jobs):
    """Return {user: user id} of jobs.

    A user named by a number has that id, others get the next free one. Jobs without a user belong
    to the instance owner, who is not included.
    """
    users = dict.fromkeys(job.user for job in jobs if job.user is not None)
    # 0 is the superuser, never a user of a trace.
    numbers = (user for user in users if user.isascii() and user.isdigit())
    found = {user: int(user) for user in numbers if 0 < int(user) < 1 << 31}
    taken = set(found.values())
    free = (number for number in itertools.count(FIRST_USERID) if number not in taken)
    return {**found, **{user: next(free) for user in users if user not in found}}


def with_userids(config, users):
    """Return a configuration whose tables have user ids in place of names, and the names of nobody.

    A name is that of a user of the trace (`users`: result of `userids`), else of this machine, else
    of a user without jobs.
    """
    nobody = {}

    def id_of(name):
        if not isinstance(name, str) or not name:
            return name
        if name not in users and not name.isdigit():
            try:
                name = str(pwd.getpwnam(name).pw_uid)
            except KeyError:
                return nobody.setdefault(name, str(NOBODY))
        return str(users.get(name, name))

    def with_ids(value, *path):
        if isinstance(value, dict):
            has_shares = path in (("fairshare", "users"), ("sched-fairshare", "users"))
            entries = value.items()
            return {id_of(k) if has_shares else k: with_ids(v, *path, k) for k, v in entries}
        if path[-1:] == ("users",) and isinstance(value, (str, list)):
            return [id_of(name) for name in ([value] if isinstance(value, str) else value)]
        return value

    return with_ids(config), nobody


def system_of(job):
    """Return the system attributes of the trace's jobspec for a job, or {}. Treat as read-only."""
    given = (job.extra or {}).get("jobspec")
    return (given and given.get("attributes", {}).get("system")) or {}


def max_wait(job):
    """Return the maximum wait of a job in seconds (``attributes.system.max-wait`` of its jobspec),
    or None, also if it is invalid: such a job is denied."""
    return seconds_of(system_of(job).get("max-wait"))


def placement(job):
    """Return the placement that a job requests (``attributes.system.placement`` of its jobspec), or
    None."""
    value = system_of(job).get("placement")
    return value if isinstance(value, dict) else None


def in_microseconds(seconds):
    """Return a time rounded to the resolution of a clock since 1970. Whole seconds take a tenth of the time of round()."""
    return round(seconds, 6) if seconds % 1 else seconds


def cut(jobs):
    """Return copies of consecutive jobs of a workload, the first of which is submitted at 0."""
    copies = [copy.copy(job) for job in jobs]
    for job in copies:
        job.submit = round(job.submit - jobs[0].submit, 6)
    return copies


def followers(jobs):
    """Return {index: [indices of the jobs that follow that job]}."""
    found = {}
    for index, job in enumerate(jobs):
        if job.after is not None:
            found.setdefault(job.after[0], []).append(index)
    return found


def jobspec(job, queue: Optional[str] = None, constraints: Optional[dict] = None):
    """Return the jobspec (RFC 25) of a job, with its queue, if it is not the one that it names, and that queue's
    constraints (RFC 31). Treat as read-only."""
    extra = job.extra or {}
    given = extra.get("jobspec")
    if given is not None:
        system = dict(system_of(job))
        # A job arrives when its dependencies had been met.
        for name in ("environment", "dependencies"):
            system.pop(name, None)
        resources, tasks = given["resources"], given.get("tasks", _TASKS)
    else:
        system = {"cwd": "/"}
        resources, tasks = job.shape.resources(), _TASKS
    system["duration"] = float(job.limit)
    if queue is None:
        queue = job.queue
    if queue is not None:
        system["queue"] = queue
    if job.group is not None:
        system.setdefault("bank", job.group)
    if "memory" in extra:
        system["memory"] = extra["memory"]
    own = extra.get("constraints", system.get("constraints"))
    both = [one for one in (own, constraints) if one]
    if both:
        system["constraints"] = both[0] if len(both) == 1 else {"and": both}
    attributes = {"system": system}
    return {"resources": resources, "tasks": tasks, "attributes": attributes, "version": 1}


_TASKS = [{"command": ["app"], "slot": "task", "count": {"per_slot": 1}}]
