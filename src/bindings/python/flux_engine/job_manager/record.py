# SPDX-License-Identifier: LGPL-3.0-or-later
"""The state of a job that follows from its events (RFC 21), shared by the job manager and job-list."""

from flux_engine.formats import rset, states
from flux_engine.formats.dotted import update_paths


class JobRecord:
    """A job.

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
    """

    __slots__ = (
        "id", "userid", "urgency", "priority", "flags", "t_submit", "state", "jobspec", "R", "status",
        "first_fatal", "dependencies", "annotations", "seq",
    )  # fmt: skip

    def __init__(self, id, jobspec):
        self.id = id
        self.userid = 0
        self.urgency = states.URGENCY_DEFAULT
        self.priority = -1
        self.flags = 0
        self.t_submit = 0.0
        self.state = 0
        self.jobspec = jobspec
        self.R = None
        self.status = None
        self.first_fatal = None
        self.dependencies = None
        self.annotations = EMPTY
        self.seq = 0

    @property
    def queue_name(self):
        """Name of the job's queue, None for the anonymous one."""
        return self.jobspec["attributes"]["system"].get("queue")

    @property
    def result(self):
        """COMPLETED, FAILED, CANCELED or TIMEOUT, by the events so far."""
        return states.result(self.status, self.first_fatal)


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
