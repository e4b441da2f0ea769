# SPDX-License-Identifier: LGPL-3.0-or-later
"""The job manager's record of a job, as far as the scheduler is concerned."""

from flux_engine.formats import states

#: Annotations of a job that has none; never changed.
EMPTY = {}


class SchedulableJob:
    """A job that `sched` can send to the scheduler: base of the jobs of each job manager.

    Attributes:
        id, userid, priority, flags (int): priority is -1 while none is set
        t_submit (float): seconds since the epoch
        state (int): see `states`; 0 before the submit event
        jobspec (dict): current jobspec without environment; replaced, never changed in place
        R (dict): current R without ``scheduling``, or None
        annotations (dict): RFC 27
        alloc_entry: its entry in the list of jobs to be sent to the scheduler, or None
        alloc_pending (bool): a ``sched.alloc`` is outstanding
        alloc_stale (bool): the outstanding request has an outdated jobspec
        freed (set): ranks already handed back to the scheduler
    """

    __slots__ = (
        "id", "userid", "priority", "flags", "t_submit", "state", "jobspec", "R", "annotations", "alloc_entry", "alloc_pending",
        "alloc_stale", "freed",
    )  # fmt: skip

    def __init__(self, id, userid, jobspec, flags, t_submit):
        self.id = id
        self.userid = userid
        self.priority = -1
        self.flags = flags
        self.t_submit = t_submit
        self.state = 0
        self.jobspec = jobspec
        self.R = None
        self.annotations = EMPTY
        self.alloc_entry = None
        self.alloc_pending = False
        self.alloc_stale = False
        self.freed = None

    @property
    def queue_name(self):
        """Name of the job's queue, None for the anonymous one."""
        return self.jobspec["attributes"]["system"].get("queue")

    @property
    def waits(self):
        """Whether it waits for resources."""
        return self.state == states.SCHED

    @property
    def is_ending(self):
        """Whether it ends as soon as the scheduler has given up its request."""
        return self.state == states.CLEANUP


def merge_annotations(old, new):
    """Return the annotations `old` with `new` merged in (RFC 27): a null removes a key, and an object that this leaves empty."""
    merged = {**old, **new}
    for key, value in new.items():
        if value is None:
            del merged[key]
        elif type(value) is dict:
            before = old.get(key)
            merged[key] = merge_annotations(before if type(before) is dict else EMPTY, value)
            # An empty object that was sent on purpose is kept; one emptied by nulls is not.
            if value and not merged[key]:
                del merged[key]
    return merged


class Jobs:
    """All jobs.

    Attributes:
        active (dict): id -> `Job`, in order of submission
        inactive (dict): id -> `Job`, in the order in which they became inactive
        max_id (int): the greatest job id so far
    """

    def __init__(self):
        self.active = {}
        self.inactive = {}
        self.max_id = 0

    def add(self, job):
        self.active[job.id] = job
        self.max_id = max(self.max_id, job.id)

    def deactivate(self, job):
        self.inactive[job.id] = self.active.pop(job.id)

    def find(self, id):
        """The job `id`, active or inactive; None if there is none."""
        return self.active.get(id) or self.inactive.get(id)
