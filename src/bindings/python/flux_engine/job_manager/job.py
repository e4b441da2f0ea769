# SPDX-License-Identifier: LGPL-3.0-or-later
"""The job manager's record of a job, and the effect of each event on it.

`Job.apply` is used for live events and for the eventlog read at restart; attributes that are not
derived from events are marked below.
"""

from flux_engine.formats import jobid, rset, states
from flux_engine.formats.dotted import update_paths

_event_bits = {}


def event_bit(name):
    """The bit of `Job.posted` that stands for events `name`."""
    bit = _event_bits.get(name)
    if bit is None:
        bit = _event_bits[name] = 1 << len(_event_bits)
    return bit


#: Annotations of a job that has none; never changed.
EMPTY = {}


# -- effects of each event, besides the state ----------------------------------------------------------


def _submit(job, context, event):
    job.userid = context["userid"]
    job.urgency = context["urgency"]
    job.flags = context["flags"]
    job.t_submit = event["timestamp"]


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
    if context and "annotations" in context:
        job.annotations = context["annotations"]


def _finish(job, context, event):
    job.status = context["status"]


def _exception(job, context, event):
    if context["severity"] == 0 and job.first_fatal is None:
        job.first_fatal = context


#: event name -> function(job, context, event)
EFFECTS = {
    "submit": _submit,
    "dependency-add": _dependency_add,
    "dependency-remove": _dependency_remove,
    "priority": _priority,
    "urgency": _urgency,
    "jobspec-update": _jobspec_update,
    "resource-update": _resource_update,
    "alloc": _alloc,
    "finish": _finish,
    "exception": _exception,
}


class SchedulableJob:
    """A job that `sched` can send to the scheduler: base of the job manager's and of the simulator's jobs.

    From events (RFC 21):

    Attributes:
        id, userid, urgency, priority, flags (int): priority is -1 while none is set
        t_submit (float): seconds since the epoch
        state (int): see `states`; 0 before the submit event
        jobspec (dict): current jobspec without environment; replaced, never changed in place
        R (dict): current R without ``scheduling``, or None
        status (int): wait status of the ``finish`` event, or None
        first_fatal (dict): context of the first exception of severity 0, or None
        dependencies (dict): description -> True while it is open, False once removed; None: there were none
        annotations (dict): RFC 27
        seq (int): events so far

    Not from events:

    Attributes:
        bypass (bool): R did not come from the scheduler
        alloc_entry: its entry in the list of jobs to be sent to the scheduler, or None
        alloc_pending (bool): a ``sched.alloc`` is outstanding
        alloc_stale (bool): the outstanding request has an outdated jobspec
        freed (set): ranks already handed back to the scheduler
        subscribers (list): plugins that see all its events
    """

    __slots__ = (
        "id", "userid", "urgency", "priority", "flags", "t_submit", "state", "jobspec", "R", "status",
        "first_fatal", "dependencies", "annotations", "seq", "bypass", "alloc_entry", "alloc_pending",
        "alloc_stale", "freed", "subscribers",
    )  # fmt: skip

    def __init__(self, id, userid, jobspec, flags, t_submit):
        self.id = id
        self.userid = userid
        self.urgency = states.URGENCY_DEFAULT
        self.priority = -1
        self.flags = flags
        self.t_submit = t_submit
        self.state = 0
        self.jobspec = jobspec
        self.R = None
        self.status = None
        self.first_fatal = None
        self.dependencies = None
        self.annotations = EMPTY
        self.seq = 0
        self.bypass = False
        self.alloc_entry = None
        self.alloc_pending = False
        self.alloc_stale = False
        self.freed = None
        self.subscribers = None

    @property
    def queue_name(self):
        """Name of the job's queue, None for the anonymous one."""
        return self.jobspec["attributes"]["system"].get("queue")

    @property
    def result(self):
        """COMPLETED, FAILED, CANCELED or TIMEOUT, by the events so far."""
        return states.result(self.status, self.first_fatal)

    @property
    def waits(self):
        """Whether it waits for resources."""
        return self.state == states.SCHED

    @property
    def is_ending(self):
        """Whether it ends as soon as the scheduler has given up its request."""
        return self.state == states.CLEANUP


class Job(SchedulableJob):
    """A job.

    From events, in addition to those of a `SchedulableJob`:

    Attributes:
        end_event (dict): the event that led to CLEANUP; of an exception, its context
        posted (int): bit mask of the events posted so far, see `event_bit`
        perilogs (int): prologs and epilogs that have not finished
        has_resources (bool): between ``alloc`` and ``free``
        released (set): ranks that execution has released

    Not from events:

    Attributes:
        queue (list), busy, hold (bool): the event queue, see `events`
        start_pending (bool): a ``start`` was sent and the final release is not in
        eventlog (str): its key
        aux (dict): {(plugin, name): (value, free_fn)}
        frozen (tuple): (jobspec, the copy of it that plugins are handed), or None
    """

    __slots__ = (
        "end_event", "posted", "perilogs", "has_resources", "released", "queue", "busy",
        "hold", "start_pending", "aux", "eventlog", "frozen",
    )  # fmt: skip

    def __init__(self, id, userid, urgency, flags, t_submit, jobspec):
        super().__init__(id, userid, jobspec, flags, t_submit)
        self.urgency = urgency
        self.state = states.NEW
        self.end_event = None
        self.posted = event_bit("submit")
        self.perilogs = 0
        self.has_resources = False
        self.released = None
        self.queue = []
        self.busy = False
        self.hold = False
        self.start_pending = False
        self.aux = None
        self.frozen = None
        self.eventlog = jobid.kvs_dir(id) + ".eventlog"

    @property
    def has_open_dependency(self):
        return self.dependencies is not None and any(self.dependencies.values())

    def was_posted(self, name):
        """Whether the job has had an event `name`."""
        return bool(self.posted & event_bit(name))

    def apply(self, event):
        """Take in an event, a dict with timestamp, name and perhaps context; returns the state before."""
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


# -- effects of each event, besides the state ----------------------------------------------------------


def _set_flags(job, context, event):
    for name in context["flags"]:
        job.flags |= states.FLAG_NAMES.get(name, 0)


def _alloc(job, context, event):
    job.has_resources = True
    if context:
        job.bypass = bool(context.get("bypass"))
        EFFECTS["alloc"](job, context, event)


def _free(job, context, event):
    job.has_resources = False


def _perilog_start(job, context, event):
    job.perilogs += 1


def _perilog_finish(job, context, event):
    if job.perilogs:
        job.perilogs -= 1


def _memo(job, context, event):
    if context:
        job.annotations = merge_annotations(job.annotations, {"user": context})


def merge_annotations(old, new):
    """Return the annotations `old` with `new` merged in (RFC 27): a null removes a key, and an object that this leaves empty."""
    merged = dict(old)
    for key in new:
        value = new[key]
        if value is None:
            merged.pop(key, None)
        elif type(value) is dict:
            before = merged[key] if key in merged and type(merged[key]) is dict else {}
            inner = merge_annotations(before, value)
            # An empty object that was sent on purpose is kept; one emptied by nulls is not.
            if inner or not value:
                merged[key] = inner
            else:
                merged.pop(key, None)
        else:
            merged[key] = value
    return merged


_EFFECTS = {
    **EFFECTS,
    "set-flags": _set_flags,
    "alloc": _alloc,
    "free": _free,
    "prolog-start": _perilog_start,
    "prolog-finish": _perilog_finish,
    "epilog-start": _perilog_start,
    "epilog-finish": _perilog_finish,
    "memo": _memo,
}


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
        """A new job, active."""
        self.active[job.id] = job
        self.max_id = max(self.max_id, job.id)

    def deactivate(self, job):
        """`job` has become inactive."""
        self.inactive[job.id] = self.active.pop(job.id)

    def find(self, id):
        """The job `id`, active or inactive; None if there is none."""
        return self.active.get(id) or self.inactive.get(id)
