# SPDX-License-Identifier: LGPL-3.0-or-later
"""Service ``job-list`` (RFC 43).

=======================  ===================================================================================
method                   payload -> response
=======================  ===================================================================================
list                     ``{max_entries, attrs, since?, constraint?}`` -> ``{jobs: [{...}]}``. Streaming:
                         ``{version: 1, jobs}``, a job a response, then ENODATA. max_entries 0: all. attrs: names,
                         or ``["all"]``. since: only inactive jobs that ended later. Pending jobs by
                         priority, then running ones, latest first, then inactive ones, latest first
list-id                  ``{id, attrs, state?}`` -> ``{job: {...}}``, once it has been in one of these states or is
                         inactive; ENOENT
job-stats                -> ``{job_states: {depend, ..., total}, successful, failed, canceled, timeout,
                         inactive_purged, queues: [...]}``; failed has neither canceled nor timed out ones
=======================  ===================================================================================
"""

import errno
import os
from collections import Counter

from flux_embedded.services.job_list.attributes import GETTERS, attributes, compile_constraint
from flux_engine.formats import form, states
from flux_engine.formats.states import CLEANUP, INACTIVE, NEW, PENDING, RUN, RUNNING
from flux_engine.job_manager.sched import place
from flux_engine.kernel.service import Service, request

ATTRS = ["id", *GETTERS]
LIST = {"max_entries": int, "attrs": [str], "since?": float, "constraint?": dict}
LIST_ID = {"id": int, "attrs": [str], "state?": int}
#: The table ``access``, which schedulers read.
_ACCESS = form.Table(
    {
        **dict.fromkeys(("allow-guest-user?", "allow-root-owner?", "private-mode?"), bool),
        "roles?": form.Table({"admin?": dict}),
    }
)


class JobList(Service):
    """The list of all jobs of the job manager."""

    name = "job-list"

    def __init__(self, ctx, *args):
        super().__init__(ctx, *args)
        self._waiting = self.keep()
        self._follows = False  # the events of the job manager
        self.configure(ctx.config)

    @property
    def _jobs(self):
        if self.ctx.jobs is None:
            raise OSError(errno.ENOSYS, "there is no job manager")
        return self.ctx.jobs

    def begin(self):
        self.subscribe("job-manager-start", self._follow)

    def configure(self, config):
        form.check_table(config.get("access"), _ACCESS, "access")

    def _follow(self, msg=None):
        """Follow the events of the job manager from now on, if a request waits for one."""
        if self._waiting and not self._follows:
            self._follows = True
            self.rpc("job-manager.journal-batches", streaming=True).then(self._events)

    def _events(self, future):
        """Answer the requests that waited for one of these events."""
        try:
            entries = future.body["events"]
        except OSError:
            self._follows = False  # the job manager is gone
            return
        future.reset()
        # The first response is empty. Requests may wait for events before it.
        ids = {entry["id"] for entry in entries} or {msg.body["id"] for msg in self._waiting}
        for msg in [msg for msg in self._waiting if msg.body["id"] in ids]:
            self._waiting.remove(msg)
            self._answer_or_wait(msg, self._jobs.find(msg.body["id"]))

    # -- requests ------------------------------------------------------------------------------------

    @request("list", guest=True, form=LIST, later=True)
    def list(self, msg):
        body = msg.body
        limit, since, attrs = body["max_entries"], body.get("since", 0.0), _attrs_of(body["attrs"])
        if limit < 0:
            raise OSError(errno.EPROTO, "invalid payload: max_entries < 0 not allowed")
        jobs = self._select(body.get("constraint", {}), limit, since)
        if not msg.streaming:
            self.respond(msg, {"jobs": [attributes(job, attrs) for job in jobs]})
            return
        more = {"version": 1}
        for job in jobs:
            self.respond(msg, {"jobs": [attributes(job, attrs)], **more})
            more = {}
        self.respond_error(msg, errno.ENODATA)

    def _select(self, constraint, limit, since):
        queues = self.ctx.config.get("queues", {})
        parents = {name: one["parent"] for name, one in queues.items() if "parent" in one}
        test = compile_constraint(constraint, parents)
        found = []
        for jobs in self._in_order():
            for job in jobs:
                if job.state == INACTIVE and since and job.times[INACTIVE] <= since:
                    break
                if test(job):
                    found.append(job)
                    if len(found) == limit:
                        return found
        return found

    def _in_order(self):
        """All jobs, as three sequences: pending, running and inactive ones."""
        active = self._jobs.active.values()
        yield sorted((job for job in active if job.state & PENDING), key=place)
        running = [job for job in active if job.state & RUNNING]
        # A job that never ran is listed by the time of its cleanup.
        yield sorted(running, key=lambda job: job.times.get(RUN) or job.times[CLEANUP])[::-1]
        yield reversed(self._jobs.inactive.values())

    @request("list-id", guest=True, form=LIST_ID, later=True)
    def list_id(self, msg):
        _attrs_of(msg.body["attrs"])
        job = self._jobs.find(msg.body["id"])
        if job is None or job.state == NEW:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        self._answer_or_wait(msg, job)

    def _answer_or_wait(self, msg, job):
        wanted = msg.body.get("state", 0)
        if wanted and job.state != INACTIVE and not any(state & wanted for state in job.times):
            self._waiting.append(msg)
            self._follow()
        else:
            self.respond(msg, {"job": attributes(job, _attrs_of(msg.body["attrs"]))})

    @request("job-stats", guest=True)
    def job_stats(self, msg):
        queues = {}
        jobs = [*self._jobs.active.values(), *self._jobs.inactive.values()]
        for job in jobs:
            if job.queue_name is not None:
                queues.setdefault(job.queue_name, []).append(job)
        answer = _count(jobs)
        answer["inactive_purged"] = self._jobs.purged
        answer["queues"] = [
            {"name": name, **_count(jobs), "inactive_purged": 0} for name, jobs in queues.items()
        ]
        return answer


def _attrs_of(attrs):
    if "all" in attrs:
        return ATTRS
    for name in attrs:
        if name not in ATTRS:
            raise OSError(errno.EINVAL, f"{name} is not a valid attribute")
    return attrs


def _count(jobs):
    by_state = Counter(job.state for job in jobs)
    ends = Counter(job.result for job in jobs if job.state == INACTIVE)
    counts = {name.lower(): by_state[state] for state, name in states.NAMES.items() if state != NEW}
    return {
        "job_states": {**counts, "total": len(jobs)},
        "successful": ends[states.COMPLETED],
        "failed": ends[states.FAILED],
        "canceled": ends[states.CANCELED],
        "timeout": ends[states.TIMEOUT],
    }
