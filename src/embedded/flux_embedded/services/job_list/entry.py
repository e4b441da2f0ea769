# SPDX-License-Identifier: LGPL-3.0-or-later
"""One job of the list: made from the job manager's journal, shown as attributes (RFC 43)."""

import os

from flux_engine.formats import hostlist, idset, rset, states
from flux_engine.formats.dotted import lookup_path
from flux_engine.formats.jobspec import count_resources, count_tasks
from flux_engine.formats.states import CLEANUP, INACTIVE
from flux_engine.job_manager.record import EFFECTS, JobRecord

SYSTEM = "attributes.system"
#: attribute -> key of `Entry.times`
TIMES = {
    "t_submit": states.NEW,
    "t_depend": states.DEPEND,
    "t_priority": states.PRIORITY,
    "t_sched": states.SCHED,
    "t_run": states.RUN,
    "t_cleanup": states.CLEANUP,
    "t_inactive": states.INACTIVE,
}


class Entry(JobRecord):
    """A job.

    Attributes:
        times (dict): state -> time of its first entry, seconds since the epoch
        exception (dict): context of the first of the most severe exceptions; None without one
    """

    __slots__ = ("times", "exception", "_size")

    def __init__(self, id, jobspec):
        super().__init__(id, jobspec)
        self.times = {}
        self.exception = None
        self._size = (None, None, None)  # jobspec, R, and the size computed from them

    # -- taking events in ----------------------------------------------------------------------------

    def apply(self, entry):
        """Take in a journal entry; returns the state before."""
        event = entry["event"]
        name = event["name"]
        context = event.get("context")
        before = self.state
        if name == "annotations":
            self.annotations = context["annotations"]
            return before
        if "R" in entry:
            self.R = entry["R"]
        if name == "exception":
            if self.exception is None or context["severity"] < self.exception["severity"]:
                self.exception = context
        effect = EFFECTS.get(name)
        if effect is not None:
            effect(self, context, event)
        self.seq = entry["seq"]
        after = states.next_state(before, name, context)
        if after != before:
            self.state = after
            if after not in self.times:
                self.times[after] = event["timestamp"]
        return before

    def has_been_in(self, mask):
        """Whether it has been in one of the states of `mask`, or is inactive and cannot enter another."""
        return self.state == INACTIVE or any(state & mask for state in self.times)

    # -- attributes ------------------------------------------------------------------------------------

    @property
    def name(self):
        name = lookup_path(self.jobspec, f"{SYSTEM}.job.name")
        if name and isinstance(name, str):
            return name
        try:
            command = self.jobspec["tasks"][0]["command"]
            return os.path.basename(command if isinstance(command, str) else command[0])
        except (KeyError, IndexError, TypeError):
            return None  # possible only if the validator was disabled

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
        """(ntasks, nnodes, ncores), each None while unknown."""
        jobspec, R, found = self._size
        if jobspec is not self.jobspec or R is not self.R:
            found = self._count()
            self._size = (self.jobspec, self.R, found)
        return found

    def _count(self):
        try:
            asked = count_resources(self.jobspec["resources"])
            nodes, cores, nslots = asked["node"], asked["core"], asked["slot"]
            if self.R is not None:
                nodes, cores = rset.count(self.R)
            if not nslots and self.R is None:
                # an invalid request has no size
                return None, None, None
            ntasks = count_tasks(self.jobspec, nslots) if nslots else None
        except (KeyError, TypeError, ValueError, IndexError, AttributeError):
            return None, None, None
        return ntasks, nodes or None, cores or None


# -- attributes by name -----------------------------------------------------------------------------------


def _system(key):
    return lambda job: job.jobspec["attributes"]["system"].get(key)


def _time(key):
    return lambda job: job.times.get(key)


def _duration(job):
    value = _system("duration")(job)
    return float(value) if isinstance(value, (int, float)) else 0.0


def _exception_key(key):
    return _at_end(lambda job: job.exception and job.exception[key])


def _ranks(job):
    return idset.encode(idset.from_ids(rset.ranks(job.R)), brackets=True) if job.R else None


def _nodelist(job):
    return hostlist.encode(rset.hosts(job.R)) if job.R else None


def _expiration(job):
    return float(job.R["execution"].get("expiration", 0.0)) if job.R else None


def _at_end(get):
    return lambda job: get(job) if job.state == INACTIVE else None


def _wait_status(job):
    return job.status if job.state >= CLEANUP else None


def _dependencies(job):
    waits_for = [text for text, is_open in (job.dependencies or {}).items() if is_open]
    return waits_for or None


GETTERS = {
    "userid": lambda job: job.userid,
    "urgency": lambda job: job.urgency,
    "priority": lambda job: job.priority if job.priority >= 0 else None,
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
    "success": _at_end(lambda job: job.result == states.COMPLETED),
    "exception_occurred": _at_end(lambda job: job.exception is not None),
    "exception_type": _exception_key("type"),
    "exception_severity": _exception_key("severity"),
    "exception_note": _exception_key("note"),
    "result": _at_end(lambda job: job.result),
    "expiration": _expiration,
    "annotations": lambda job: job.annotations or None,
    "waitstatus": _wait_status,
    "dependencies": _dependencies,
}
