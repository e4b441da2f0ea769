# SPDX-License-Identifier: LGPL-3.0-or-later
"""A job as a trace tells of it, and as a scheduler is asked for it."""

from typing import NamedTuple, Optional

from flux_engine.formats import fsd

#: `Job.limit` of a job without a limit.
NO_LIMIT = 0


class Shape(NamedTuple):
    """The request of a job. ``nodes`` 0: its slots may be anywhere.

    ``slots`` is a count per node where nodes are given, else the total; cores and gpus are of a slot.
    """

    nodes: int
    slots: int
    cores: int = 1
    gpus: int = 0
    exclusive: bool = False

    def resources(self):
        """The resource graph (RFC 14, 25)."""
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
    """One job of a workload; a simulation does not change it.

    Attributes:
        id (str): its name in the trace
        submit (float): when it comes to the scheduler, seconds after the start of the workload
        run (float): seconds it would run if nothing ended it
        limit (float): seconds after which it is ended; `NO_LIMIT`: never
        shape (Shape): its request; None with `resources` in `extra`
        size (int): its share of the machine, in the workload's unit (nodes or cores)
        user, queue (str or None)
        group (str or None): the bank of its jobspec, where that has none
        urgency (int): 0 to 31
        after ((int, float or None) or None): index of the job that it follows, and how many seconds after the end of that it
            comes in; None: at once, and not before `submit`
        extra (dict or None): more attributes of the trace: ``jobspec`` to be used as it is,
            ``constraints``, ``wait`` and ``start`` as recorded, ``submitted`` before it was eligible, ...
    """

    __slots__ = (
        "id", "submit", "run", "limit", "shape", "size", "user", "group", "queue", "urgency", "extra", "after",
    )  # fmt: skip

    def __init__(
        self,
        id,
        submit,
        run,
        limit,
        shape,
        size,
        user=None,
        queue=None,
        urgency=16,
        extra=None,
        group=None,
        after=None,
    ):
        self.id = id
        self.submit = submit
        self.run = run
        self.limit = limit
        self.shape = shape
        self.size = size
        self.user = user
        self.group = group
        self.after = after
        self.queue = queue
        self.urgency = urgency
        self.extra = extra

    @property
    def seconds(self):
        """Seconds it runs once it has started: its limit is a hard end."""
        return min(self.run, self.limit) if self.limit else self.run

    def __repr__(self):
        return f"Job({self.id!r}, submit={self.submit}, run={self.run}, limit={self.limit}, {self.shape})"


#: Names of users that are no numbers get user ids from here on.
FIRST_USERID = 100_001


def userids(jobs):
    """The user ids of jobs, as {user: id}.

    A user whom the trace calls by a number has that id, another one the next that is free. Jobs without a user are the
    instance owner's, and not in it.
    """
    found = {}
    names = []
    for user in dict.fromkeys(job.user for job in jobs if job.user is not None):
        # 0 is the superuser, whom a trace does not mean.
        if user.isascii() and user.isdigit() and 0 < int(user) < 1 << 31:
            found[user] = int(user)
        else:
            names.append(user)
    taken = set(found.values())
    number = FIRST_USERID
    for user in names:
        while number in taken:
            number += 1
        found[user] = number
        number += 1
    return found


def system_of(job):
    """The system attributes of the jobspec that a trace has of a job; empty if it has none. To be treated as
    read-only."""
    given = (job.extra or {}).get("jobspec")
    return (given and given.get("attributes", {}).get("system")) or {}


def max_wait(job):
    """For how many seconds a job of a trace may wait (``attributes.system.max-wait`` of its jobspec); None: for ever."""
    value = system_of(job).get("max-wait")
    if isinstance(value, str):
        try:
            return fsd.parse(value)
        except ValueError:
            return None  # it is denied
    return None if isinstance(value, bool) or not isinstance(value, (int, float)) else float(value)


def placement(job):
    """The placement that a job of a trace asks for (``attributes.system.placement`` of its jobspec); None: nothing."""
    value = system_of(job).get("placement")
    return value if isinstance(value, dict) else None


def followers(jobs):
    """Which jobs follow which: {index: [indices]}."""
    found = {}
    for index, job in enumerate(jobs):
        if job.after is not None:
            found.setdefault(job.after[0], []).append(index)
    return found


def jobspec(job, queue: Optional[str] = None, constraints: Optional[dict] = None):
    """The jobspec (RFC 25) of a job, as a submission tool would write it; to be treated as read-only.

    Args:
        job (Job): the job
        queue (str): the queue it is in, where that is not the one it names
        constraints (dict): RFC 31, on top of those of the job itself (those of its queue)
    """
    extra = job.extra or {}
    given = extra.get("jobspec")
    if given is not None:
        system = dict(system_of(job))
        system.pop("environment", None)
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
    return {
        "resources": resources,
        "tasks": tasks,
        "attributes": {"system": system},
        "version": 1,
    }


_TASKS = [{"command": ["app"], "slot": "task", "count": {"per_slot": 1}}]
