# SPDX-License-Identifier: LGPL-3.0-or-later
"""The job manager's record of a job, from which job-list answers too, and the effect of each event on it.

`Job.apply` is used for live events and for the eventlog read at restart; attributes that are not derived from events are marked
below.
"""

import json

from flux_engine.formats import jobid, rset, states
from flux_engine.formats.dotted import update_paths
from flux_engine.formats.jsontext import dumps
from flux_engine.job_manager.job import SchedulableJob, merge_annotations

_event_bits = {}


def event_bit(name):
    """The bit of `Job.posted` that stands for events `name`."""
    bit = _event_bits.get(name)
    if bit is None:
        bit = _event_bits[name] = 1 << len(_event_bits)
    return bit


#: Attributes of an inactive job that are kept as JSON.
PACKED = ("jobspec", "R", "annotations", "end_event")


class Job(SchedulableJob):
    """A job.

    From events (RFC 21), in addition to those of a `SchedulableJob`:

    Attributes:
        urgency (int)
        status (int): wait status of the ``finish`` event, or None
        first_fatal (dict): context of the first exception of severity 0, or None
        exception (dict): context of the first of the most severe exceptions; None without one
        dependencies (dict): description -> True while it is open, False once removed; None: there were none
        bypass (bool): R did not come from the scheduler
        end_event (dict): the event that led to CLEANUP; of an exception, its context
        posted (int): bit mask of the events posted so far, see `event_bit`
        perilogs (int): prologs and epilogs that have not finished
        has_resources (bool): between ``alloc`` and ``free``
        released (set): ranks that execution has released
        times (dict): state -> time of its first entry, seconds since the epoch

    Not from events:

    Attributes:
        queue (list), busy, hold (bool): the event queue, see `events`
        start_pending (bool): a ``start`` was sent and the final release is not in
        eventlog (str): its key
        aux (dict): {(plugin, name): (value, free_fn)}
        subscribers (list): plugins that see all its events
        frozen (tuple): (jobspec, the copy of it that plugins are handed), or None
    """

    __slots__ = (
        "urgency", "status", "first_fatal", "exception", "dependencies", "bypass", "end_event", "posted", "perilogs",
        "has_resources", "released", "times", "queue", "busy", "hold", "start_pending", "eventlog", "aux", "subscribers", "frozen",
        "_packed",
    )  # fmt: skip
    _read = None, {}

    def __init__(self, id, userid, urgency, flags, t_submit, jobspec):
        super().__init__(id, userid, jobspec, flags, t_submit)
        self.urgency = urgency
        self.state = states.NEW
        self.status = self.first_fatal = self.exception = None
        self.dependencies = None
        self.bypass = False
        self.end_event = None
        self.posted = event_bit("submit")
        self.perilogs = 0
        self.has_resources = False
        self.released = None
        self.times = {}
        self.queue = []
        self.busy = False
        self.hold = False
        self.start_pending = False
        self.eventlog = jobid.kvs_dir(id) + ".eventlog"
        self.aux = None
        self.subscribers = None
        self.frozen = None

    @property
    def result(self):
        """COMPLETED, FAILED, CANCELED or TIMEOUT, by the events so far."""
        return states.result(self.status, self.first_fatal)

    @property
    def has_open_dependency(self):
        return self.dependencies is not None and any(self.dependencies.values())

    def was_posted(self, name):
        """Whether the job has had an event `name`."""
        return bool(self.posted & event_bit(name))

    def apply(self, event):
        """Apply an event, a dict with timestamp, name and perhaps context. Return the former state."""
        name = event["name"]
        context = event.get("context")
        before = self.state
        self.posted |= _event_bits.get(name) or event_bit(name)
        effect = _EFFECTS.get(name)
        if effect is not None:
            effect(self, context)
        after = states.next_state(before, name, context)
        if after != before:
            self.state = after
            self.times.setdefault(after, event["timestamp"])
            if after == states.CLEANUP:
                self.end_event = event
        return before

    def pack(self):
        """Keep `PACKED` as JSON, decoded at each access: an inactive job is seldom read, and objects take six times the
        memory, which every fork of a projection has to map."""
        self._packed = dumps({name: getattr(self, name) for name in PACKED})
        for name in PACKED:
            delattr(self, name)

    def __getattr__(self, name):
        if name not in PACKED:
            raise AttributeError(name)
        if Job._read[0] is not self._packed:  # readers want several attributes of a job
            Job._read = self._packed, json.loads(self._packed)
        return Job._read[1][name]


# -- effects of each event, besides the state ----------------------------------------------------------


def _keep(*keys):
    """The effect of an event whose context has attributes of the job."""

    def effect(job, context):
        for key in keys:
            setattr(job, key, context[key])

    return effect


def _set_flags(job, context):
    for name in context["flags"]:
        job.flags |= states.FLAG_NAMES.get(name, 0)


def _dependency_add(job, context):
    if job.dependencies is None:
        job.dependencies = {}
    job.dependencies[context["description"]] = True


def _dependency_remove(job, context):
    if job.dependencies is not None:
        job.dependencies[context["description"]] = False


def _jobspec_update(job, context):
    job.jobspec = update_paths(job.jobspec, context or {})


def _resource_update(job, context):
    if job.R is not None and "expiration" in context:
        job.R = rset.with_expiration(job.R, context["expiration"])


def _alloc(job, context):
    job.has_resources = True
    if context:
        job.bypass = bool(context.get("bypass"))
        if "annotations" in context:
            job.annotations = context["annotations"]


def _free(job, context):
    job.has_resources = False


def _perilog_start(job, context):
    job.perilogs += 1


def _perilog_finish(job, context):
    if job.perilogs:
        job.perilogs -= 1


def _exception(job, context):
    if context["severity"] == 0 and job.first_fatal is None:
        job.first_fatal = context
    if job.exception is None or context["severity"] < job.exception["severity"]:
        job.exception = context


def _memo(job, context):
    if context:
        job.annotations = merge_annotations(job.annotations, {"user": context})


#: event name -> function(job, context)
_EFFECTS = {
    "submit": _keep("userid", "urgency", "flags"),
    "set-flags": _set_flags,
    "dependency-add": _dependency_add,
    "dependency-remove": _dependency_remove,
    "priority": _keep("priority"),
    "urgency": _keep("urgency"),
    "jobspec-update": _jobspec_update,
    "resource-update": _resource_update,
    "alloc": _alloc,
    "free": _free,
    "prolog-start": _perilog_start,
    "prolog-finish": _perilog_finish,
    "epilog-start": _perilog_start,
    "epilog-finish": _perilog_finish,
    "finish": _keep("status"),
    "exception": _exception,
    "memo": _memo,
}
