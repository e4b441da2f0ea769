# SPDX-License-Identifier: LGPL-3.0-or-later
"""One job of the list: made from the job manager's journal, shown as attributes (RFC 43)."""

import os

from flux_embedded.formats import hostlist, idset, rset, states
from flux_embedded.formats.dotted import lookup_path, update_paths
from flux_embedded.formats.jobspec import count_resources, count_tasks
from flux_embedded.formats.states import CLEANUP, INACTIVE

SYSTEM = "attributes.system"
#: attribute -> key of `Entry.times`
TIMES = {
    "t_submit": "submit",
    "t_depend": states.DEPEND,
    "t_priority": states.PRIORITY,
    "t_sched": states.SCHED,
    "t_run": states.RUN,
    "t_cleanup": states.CLEANUP,
    "t_inactive": states.INACTIVE,
}


class Entry:
    """A job.

    Attributes:
        id, userid, urgency, priority, state (int); priority is None while there is none
        times (dict): state -> when it was first entered, seconds since the epoch
        seq (int): its last journal entry, so that repeated ones are noticed
        jobspec, R (dict): current ones
        status (int), fatal (dict): of the ``finish`` and of the decisive ``exception`` event
        annotations (dict); dependencies (dict): description -> open
    """

    __slots__ = (
        "id", "userid", "urgency", "priority", "state", "times", "seq", "jobspec", "R", "status",
        "exception", "fatal", "annotations", "dependencies", "counted",
    )  # fmt: skip

    def __init__(self, id, jobspec):
        self.id = id
        self.userid = 0
        self.urgency = 16
        self.priority = None
        self.state = 0
        self.times = {}
        self.seq = 0
        self.jobspec = jobspec
        self.R = None
        self.status = None
        self.exception = None
        self.fatal = None
        self.annotations = None
        self.dependencies = None
        self.counted = None

    # -- taking events in ----------------------------------------------------------------------------

    def apply(self, entry):
        """Take in a journal entry; returns the state before."""
        event = entry["event"]
        name = event["name"]
        context = event.get("context")
        before = self.state
        effect = _EFFECTS.get(name)
        if effect is not None:
            effect(self, context, entry)
        if name == "annotations":
            return before
        self.seq = entry["seq"]
        after = states.next_state(before, name, context)
        if after != before:
            self.state = after
            if after not in self.times:
                self.times[after] = event["timestamp"]
        return before

    def has_been_in(self, mask):
        """Whether it has been in one of the states of `mask`, or is inactive: then it will not come to another."""
        return self.state == INACTIVE or any(
            state & mask for state in self.times if state != "submit"
        )

    # -- attributes ------------------------------------------------------------------------------------

    @property
    def queue(self):
        return self.jobspec["attributes"]["system"].get("queue")

    @property
    def name(self):
        name = lookup_path(self.jobspec, f"{SYSTEM}.job.name")
        if name and isinstance(name, str):
            return name
        try:
            command = self.jobspec["tasks"][0]["command"]
            return os.path.basename(command if isinstance(command, str) else command[0])
        except (KeyError, IndexError, TypeError):
            return None  # the validator was off, or it would not have come this far

    @property
    def result(self):
        if self.state != INACTIVE:
            return None
        return states.result(self.status, self.fatal)

    def attributes(self, names):
        """{name: value} of those of `names` that the job has; id always."""
        found = {"id": self.id}
        for name in names:
            getter = GETTERS.get(name)
            if getter is not None:
                value = getter(self)
                if value is not None:
                    found[name] = value
        return found

    def size(self):
        """(ntasks, nnodes, ncores), each None where it is not known yet."""
        if self.counted is None:
            self.counted = self._count()
        return self.counted

    def _count(self):
        try:
            resources = self.jobspec["resources"]
            nodes, cores, _ = count_resources(resources)
            if self.R is not None:
                nodes, cores = rset.count(self.R)
            nslots = _count_slots(resources, 1)
            if not nslots and self.R is None:
                # what is no proper request has no size
                return None, None, None
            ntasks = count_tasks(self.jobspec, nslots) if nslots else None
        except (KeyError, TypeError, ValueError, IndexError, AttributeError):
            return None, None, None
        return ntasks, nodes or None, cores or None


def _count_slots(vertices, factor):
    total = 0
    for vertex in vertices:
        count = vertex.get("count", 1)
        many = factor * (count if type(count) is int else 1)
        total += many if vertex["type"] == "slot" else _count_slots(vertex.get("with", ()), many)
    return total


# -- what events change -----------------------------------------------------------------------------------


def _submit(job, context, entry):
    job.userid = context["userid"]
    job.urgency = context["urgency"]
    job.times["submit"] = entry["event"]["timestamp"]


def _urgency(job, context, entry):
    job.urgency = context["urgency"]


def _priority(job, context, entry):
    job.priority = context["priority"]


def _alloc(job, context, entry):
    job.R = entry.get("R")
    job.counted = None
    if context and "annotations" in context:
        job.annotations = context["annotations"]


def _finish(job, context, entry):
    job.status = context["status"]


def _exception(job, context, entry):
    # What is shown is the most severe, and of those the first.
    if job.exception is None or context["severity"] < job.exception["severity"]:
        job.exception = context
    if context["severity"] == 0 and job.fatal is None:
        job.fatal = context


def _jobspec_update(job, context, entry):
    job.jobspec = update_paths(job.jobspec, context)
    job.counted = None


def _resource_update(job, context, entry):
    if job.R is not None and "expiration" in context:
        job.R = rset.with_expiration(job.R, context["expiration"])


def _dependency_add(job, context, entry):
    if job.dependencies is None:
        job.dependencies = {}
    job.dependencies[context["description"]] = True


def _dependency_remove(job, context, entry):
    if job.dependencies is not None:
        job.dependencies.pop(context["description"], None)


def _annotations(job, context, entry):
    job.annotations = context["annotations"] or None


_EFFECTS = {
    "submit": _submit,
    "urgency": _urgency,
    "priority": _priority,
    "alloc": _alloc,
    "finish": _finish,
    "exception": _exception,
    "jobspec-update": _jobspec_update,
    "resource-update": _resource_update,
    "dependency-add": _dependency_add,
    "dependency-remove": _dependency_remove,
    "annotations": _annotations,
}


# -- attributes by name -----------------------------------------------------------------------------------


def _system(key):
    return lambda job: job.jobspec["attributes"]["system"].get(key)


def _time(key):
    return lambda job: job.times.get(key)


def _duration(job):
    value = _system("duration")(job)
    return float(value) if isinstance(value, (int, float)) else 0.0


def _exception_key(key):
    def get(job):
        return job.exception[key] if job.state == INACTIVE and job.exception is not None else None

    return get


def _ranks(job):
    return idset.encode(idset.from_ids(rset.ranks(job.R)), brackets=True) if job.R else None


def _nodelist(job):
    return hostlist.encode(rset.hosts(job.R)) if job.R else None


def _expiration(job):
    return float(job.R["execution"].get("expiration", 0.0)) if job.R else None


def _success(job):
    return job.result == states.COMPLETED if job.state == INACTIVE else None


def _exception_occurred(job):
    return job.exception is not None if job.state == INACTIVE else None


def _wait_status(job):
    return job.status if job.state >= CLEANUP else None


def _dependencies(job):
    return list(job.dependencies) if job.dependencies else None


GETTERS = {
    "userid": lambda job: job.userid,
    "urgency": lambda job: job.urgency,
    "priority": lambda job: job.priority,
    **{name: _time(key) for name, key in TIMES.items()},
    "state": lambda job: job.state,
    "name": lambda job: job.name,
    "cwd": _system("cwd"),
    "queue": _system("queue"),
    "project": _system("project"),
    "bank": _system("bank"),
    "ntasks": lambda job: job.size()[0],
    "ncores": lambda job: job.size()[2],
    "duration": _duration,
    "nnodes": lambda job: job.size()[1],
    "ranks": _ranks,
    "nodelist": _nodelist,
    "success": _success,
    "exception_occurred": _exception_occurred,
    "exception_type": _exception_key("type"),
    "exception_severity": _exception_key("severity"),
    "exception_note": _exception_key("note"),
    "result": lambda job: job.result,
    "expiration": _expiration,
    "annotations": lambda job: job.annotations,
    "waitstatus": _wait_status,
    "dependencies": _dependencies,
}
