# SPDX-License-Identifier: LGPL-3.0-or-later
"""One job as the job manager knows it, and what each event changes in it.

`Job.apply` is used for live events and for the eventlog found at restart alike; everything that is
not derived from events says so below.
"""

from flux_embedded.formats import jobid, rset, states
from flux_embedded.formats.dotted import update_paths

#: Annotations of a job that has none; never changed.
EMPTY = {}
_event_bits = {}


def event_bit(name):
    """The bit of `Job.posted` that stands for events `name`."""
    bit = _event_bits.get(name)
    if bit is None:
        bit = _event_bits[name] = 1 << len(_event_bits)
    return bit


class Job:
    """A job.

    From events:

    Attributes:
        id, userid, urgency, priority, flags (int): priority is -1 while none is set
        t_submit, t_clean (float): seconds since the epoch
        state (int): see `states`
        jobspec (dict): current jobspec without environment; replaced, never changed in place
        R (dict): current R without ``scheduling``, or None
        status (int): wait status of the ``finish`` event, or None
        end_event (dict): the event that led to CLEANUP, if it was an exception its context counts
        dependencies (dict): description -> True while it is open, False once removed
        posted (int): which events there were so far, see `event_bit`
        perilogs (int): prologs and epilogs that have not finished
        has_resources (bool): between ``alloc`` and ``free``
        bypass (bool): R did not come from the scheduler
        released (set): ranks that execution is done with
        memo (dict)

    Not from events:

    Attributes:
        annotations (dict): RFC 27
        queue (list), busy, hold (bool): the event queue, see `events`
        alloc_entry: its place in the list of jobs to be sent to the scheduler, or None
        alloc_pending (bool): a ``sched.alloc`` is outstanding
        alloc_stale (bool): the outstanding request has an outdated jobspec
        start_pending (bool): a ``start`` was sent and the final release is not in
        freed (set): ranks already handed back to the scheduler
        seq (int): events so far
        eventlog (str): its key
        aux (dict): {(plugin, name): (value, free_fn)}
        subscribers (list): plugins that see all its events
        frozen (tuple): (jobspec, the copy of it that plugins are handed), or None
    """

    __slots__ = (
        "id", "userid", "urgency", "priority", "flags", "t_submit", "t_clean", "state", "jobspec", "R",
        "status", "end_event", "dependencies", "posted", "perilogs", "has_resources", "bypass",
        "released", "memo", "annotations", "queue", "busy", "hold", "alloc_entry", "alloc_pending",
        "alloc_stale", "start_pending", "freed", "aux", "subscribers", "seq", "first_fatal", "eventlog", "frozen",
    )  # fmt: skip

    def __init__(self, id, userid, urgency, flags, t_submit, jobspec):
        self.id = id
        self.userid = userid
        self.urgency = urgency
        self.priority = -1
        self.flags = flags
        self.t_submit = t_submit
        self.t_clean = 0.0
        self.state = states.NEW
        self.jobspec = jobspec
        self.R = None
        self.status = None
        self.end_event = None
        self.first_fatal = None
        self.dependencies = None
        self.posted = event_bit("submit")
        self.perilogs = 0
        self.has_resources = False
        self.bypass = False
        self.released = None
        self.memo = None
        self.annotations = EMPTY
        self.queue = []
        self.busy = False
        self.hold = False
        self.alloc_entry = None
        self.alloc_pending = False
        self.alloc_stale = False
        self.start_pending = False
        self.freed = None
        self.aux = None
        self.subscribers = None
        self.frozen = None
        self.seq = 0
        self.eventlog = jobid.kvs_dir(id) + ".eventlog"

    @property
    def queue_name(self):
        """Name of the job's queue, None for the anonymous one."""
        return self.jobspec["attributes"]["system"].get("queue")

    @property
    def has_open_dependency(self):
        return self.dependencies is not None and any(self.dependencies.values())

    @property
    def result(self):
        """COMPLETED, FAILED, CANCELED or TIMEOUT, as far as it is known by now."""
        return states.result(self.status, self.first_fatal)

    def was_posted(self, name):
        """Whether the job has had an event `name`."""
        return bool(self.posted & event_bit(name))

    def apply(self, event):
        """Take in an event, a dict with timestamp, name and perhaps context.

        Returns:
            int: the state before
        """
        name = event["name"]
        context = event.get("context")
        before = self.state
        self.posted |= _event_bits.get(name) or event_bit(name)
        effect = _EFFECTS.get(name)
        if effect is not None:
            effect(self, context, event)
        after = states.next_state(before, name, context)
        if after != before:
            self.state = after
            if after == states.CLEANUP:
                self.end_event = event
        return before


# -- what each event changes, besides the state ------------------------------------------------------


def _submit(job, context, event):
    job.userid = context["userid"]
    job.urgency = context["urgency"]
    job.flags = context["flags"]
    job.t_submit = event["timestamp"]


def _set_flags(job, context, event):
    for name in context["flags"]:
        job.flags |= states.FLAG_NAMES.get(name, 0)


def _dependency_add(job, context, event):
    if job.dependencies is None:
        job.dependencies = {}
    job.dependencies[context["description"]] = True


def _dependency_remove(job, context, event):
    if job.dependencies is not None:
        job.dependencies[context["description"]] = False


def _priority(job, context, event):
    job.priority = context["priority"]


def _urgency(job, context, event):
    job.urgency = context["urgency"]


def _jobspec_update(job, context, event):
    job.jobspec = update_paths(job.jobspec, context or {})


def _resource_update(job, context, event):
    if job.R is not None and "expiration" in context:
        job.R = rset.with_expiration(job.R, context["expiration"])


def _alloc(job, context, event):
    job.has_resources = True
    if context:
        job.bypass = bool(context.get("bypass"))
        if "annotations" in context:
            job.annotations = context["annotations"]


def _free(job, context, event):
    job.has_resources = False


def _finish(job, context, event):
    job.status = context["status"]


def _exception(job, context, event):
    if context["severity"] == 0 and job.first_fatal is None:
        job.first_fatal = context


def _perilog_start(job, context, event):
    job.perilogs += 1


def _perilog_finish(job, context, event):
    if job.perilogs:
        job.perilogs -= 1


def _memo(job, context, event):
    memo = dict(job.memo or {})
    for key, value in (context or {}).items():
        if value is None:
            memo.pop(key, None)
        else:
            memo[key] = value
    job.memo = memo


def _clean(job, context, event):
    job.t_clean = event["timestamp"]


_EFFECTS = {
    "submit": _submit,
    "set-flags": _set_flags,
    "dependency-add": _dependency_add,
    "dependency-remove": _dependency_remove,
    "priority": _priority,
    "urgency": _urgency,
    "jobspec-update": _jobspec_update,
    "resource-update": _resource_update,
    "alloc": _alloc,
    "free": _free,
    "finish": _finish,
    "exception": _exception,
    "prolog-start": _perilog_start,
    "prolog-finish": _perilog_finish,
    "epilog-start": _perilog_start,
    "epilog-finish": _perilog_finish,
    "memo": _memo,
    "clean": _clean,
}


class Jobs:
    """All jobs.

    Attributes:
        active (dict): id -> `Job`, in order of submission
        inactive (dict): id -> `Job`, in the order in which they became so
        max_id (int): the greatest job id there has been
    """

    def __init__(self):
        self.active = {}
        self.inactive = {}
        self.max_id = 0

    def add(self, job):
        """A new job, active."""
        self.active[job.id] = job
        self.max_id = max(self.max_id, job.id)

    def deactivate(self, job):
        """`job` has become inactive."""
        self.inactive[job.id] = self.active.pop(job.id)

    def find(self, id):
        """The job `id`, active or inactive; None if there is none."""
        return self.active.get(id) or self.inactive.get(id)
