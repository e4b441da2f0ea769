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

from flux_embedded.services.job_list.entry import GETTERS, Entry
from flux_embedded.services.job_list.filter import compile_constraint
from flux_engine.formats import form, policy, states
from flux_engine.formats.states import INACTIVE, PENDING, RUN, RUNNING
from flux_engine.kernel.service import Service, request

ATTRS = ["id", *GETTERS]
LIST = {"max_entries": int, "attrs": [str], "since?": float, "constraint?": dict}
LIST_ID = {"id": int, "attrs": [str], "state?": int}
#: The table ``access`` of a real broker; nothing in it has an effect here.
_ACCESS = form.Table(
    {
        **dict.fromkeys(("allow-guest-user?", "allow-root-owner?", "private-mode?"), bool),
        "roles?": form.Table({"admin?": dict}),
    }
)
#: The states that a job can be in.
STATES = states.ACTIVE | INACTIVE


class JobList(Service):
    """The list of all jobs the job manager knows."""

    name = "job-list"

    def __init__(self, ctx, *args):
        super().__init__(ctx, *args)
        self._jobs = {}
        self._pending = {}
        self._running = {}
        self._inactive = {}
        self._waiting = {}  # id -> [(message, state)]
        self._purged = 0
        self._configure(ctx.config)

    def _configure(self, config):
        policy.validate(config)
        form.check_table(config.get("access"), _ACCESS, "access")
        queues = config.get("queues", {})
        self._parents = {name: one["parent"] for name, one in queues.items() if "parent" in one}

    @request("config-reload")
    def _config_reload(self, msg):
        self._configure(msg.body or {})
        self.respond(msg)

    def begin(self):
        self.subscribe("job-purge-inactive", self._purge)
        self._follow()

    def _follow(self):
        journal = self.rpc("job-manager.journal-batches", streaming=True)
        # Requests wait until all jobs are known.
        journal.wait_for()
        if self._events(journal):
            journal.then(self._events)

    # -- the journal ---------------------------------------------------------------------------------

    def _events(self, future):
        """Take in a batch of events; returns whether others may come."""
        try:
            entries = future.body["events"]
        except OSError as exc:
            if exc.errno not in (errno.ENODATA, errno.ENOSYS):
                # The job manager is gone. Its successor has the same jobs, and sends their events again.
                self.timer(1.0, self._follow)
            return False
        future.reset()
        jobs = self._jobs
        for entry in entries:
            job = jobs.get(entry["id"])
            if job is None:
                if "jobspec" not in entry:
                    continue
                job = jobs[entry["id"]] = Entry(entry["id"], entry["jobspec"])
            elif entry["seq"] <= job.seq and entry["event"]["name"] != "annotations":
                continue
            before = job.apply(entry)
            if job.state != before:
                self._move(job)
        return True

    def _move(self, job):
        state, id = job.state, job.id
        if state & PENDING:
            self._pending[id] = job
        elif state == RUN:
            self._pending.pop(id, None)
            self._running[id] = job
        elif state == INACTIVE:
            if self._running.pop(id, None) is None:
                self._pending.pop(id, None)
            self._inactive[id] = job
        elif id in self._pending:  # CLEANUP of a job that never ran
            del self._pending[id]
            self._running[id] = job
        if id in self._waiting:
            self._answer_waiting(job)

    def _answer_waiting(self, job):
        left = []
        for msg, state in self._waiting.pop(job.id):
            if job.has_been_in(state):
                self._answer_id(msg, job)
            else:
                left.append((msg, state))
        if left:
            self._waiting[job.id] = left

    def _purge(self, msg):
        for id in msg.body["jobs"]:
            if self._inactive.pop(id, None) is not None:
                del self._jobs[id]
                self._purged += 1

    # -- requests ------------------------------------------------------------------------------------

    @request("list", guest=True, form=LIST)
    def list(self, msg):
        body = msg.body
        limit, since, attrs = body["max_entries"], body.get("since", 0.0), _attrs_of(body["attrs"])
        jobs = self._select(body.get("constraint", {}), limit, since)
        if not msg.streaming:
            self.respond(msg, {"jobs": [job.attributes(attrs) for job in jobs]})
            return
        more = {"version": 1}
        for job in jobs:
            self.respond(msg, {"jobs": [job.attributes(attrs)], **more})
            more = {}
        self.respond_error(msg, errno.ENODATA)

    def _select(self, constraint, limit, since):
        test, mask = compile_constraint(constraint, self._parents)
        found = []
        for jobs in self._in_order(mask):
            for job in jobs:
                if job.state == INACTIVE and since and job.times[INACTIVE] <= since:
                    break
                if test(job):
                    found.append(job)
                    if len(found) == limit:
                        return found
        return found

    def _in_order(self, mask):
        """The jobs whose state may be in `mask`, as up to three sequences."""
        if mask & PENDING:
            yield sorted(self._pending.values(), key=_pending_key)
        if mask & RUNNING:
            yield list(reversed(list(self._running.values())))
        if mask & INACTIVE:
            yield reversed(list(self._inactive.values()))

    @request("list-id", guest=True, form=LIST_ID)
    def list_id(self, msg):
        id, attrs = msg.body["id"], msg.body["attrs"]
        job = self._jobs.get(id)
        if job is not None:
            _attrs_of(attrs)
        else:
            # It may be too new for the journal.
            self.rpc("job-info.lookup", {"id": id, "keys": ["eventlog"], "flags": 0}).then(
                self._looked_up, msg, id
            )
            return
        self._answer_or_wait(msg, job)

    def _looked_up(self, future, msg, id):
        job = self._jobs.get(id)
        if job is not None:
            self._answer_or_wait(msg, job)
            return
        try:
            future.body  # noqa: B018  raises if there is no such job
        except OSError:
            self.respond_error(msg, errno.ENOENT)
            return
        self._waiting.setdefault(id, []).append((msg, msg.body.get("state") or STATES))

    def _answer_or_wait(self, msg, job):
        state = msg.body.get("state", 0)
        if state and not job.has_been_in(state):
            self._waiting.setdefault(job.id, []).append((msg, state))
        else:
            self._answer_id(msg, job)

    def _answer_id(self, msg, job):
        self.respond(msg, {"job": job.attributes(_attrs_of(msg.body["attrs"]))})

    @request("job-stats", guest=True)
    def job_stats(self, msg):
        queues = {}
        for job in self._jobs.values():
            if job.queue_name is not None:
                queues.setdefault(job.queue_name, []).append(job)
        answer = _count(self._jobs.values())
        answer["inactive_purged"] = self._purged
        answer["queues"] = [
            {"name": name, **_count(jobs), "inactive_purged": 0} for name, jobs in queues.items()
        ]
        self.respond(msg, answer)

    @request("disconnect", guest=True)
    def _disconnect(self, msg):
        for id in list(self._waiting):
            left = [entry for entry in self._waiting[id] if entry[0].sender is not msg.sender]
            if left:
                self._waiting[id] = left
            else:
                del self._waiting[id]


def _attrs_of(attrs):
    if "all" in attrs:
        return ATTRS
    for name in attrs:
        if name not in ATTRS:
            raise OSError(errno.EINVAL, f"{name} is not a valid attribute")
    return attrs


def _pending_key(job):
    return (-job.priority, job.t_submit, job.id)


def _count(jobs):
    """Statistics of some jobs."""
    counts = dict.fromkeys(
        (name.lower() for state, name in states.NAMES.items() if state != states.NEW), 0
    )
    ends = dict.fromkeys((states.COMPLETED, states.FAILED, states.CANCELED, states.TIMEOUT), 0)
    total = 0
    for job in jobs:
        total += 1
        name = states.NAMES.get(job.state, "").lower()
        if name in counts:
            counts[name] += 1
        if job.state == INACTIVE:
            ends[job.result] += 1
    return {
        "job_states": {**counts, "total": total},
        "successful": ends[states.COMPLETED],
        "failed": ends[states.FAILED],
        "canceled": ends[states.CANCELED],
        "timeout": ends[states.TIMEOUT],
    }
