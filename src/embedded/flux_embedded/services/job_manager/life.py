# SPDX-License-Identifier: LGPL-3.0-or-later
"""The job manager's actions when a job enters a state or an event arrives in one (RFC 21).

`Life.after_event` is called for every event after it was applied and recorded. Events that it posts
to the same job are queued and processed after it returned.
"""

from syslog import LOG_ERR

from flux_embedded.services.job_manager.part import Part
from flux_engine.formats import rset, states

#: Urgencies that fix the priority, regardless of plugins.
FIXED = (states.URGENCY_HOLD, states.URGENCY_EXPEDITE)


class Life(Part):
    """State transitions of all jobs, and the actions in each state."""

    def __init__(self, service):
        super().__init__(service)
        self._enter = {
            states.DEPEND: self.depend,
            states.PRIORITY: self._priority,
            states.SCHED: self._sched,
            states.RUN: self._run,
            states.CLEANUP: self._cleanup,
            states.INACTIVE: self._inactive,
        }

    def after_event(self, job, event, before):
        """Act on `event` of `job`, whose state was `before` until then."""
        state = job.state
        name = event["name"]
        if state != before:
            topic = states.TOPICS[state]
            out = self.service.jobtap.call(job, topic, prev_state=before, entry=event)
            self._enter[state](job, event, out)
        elif state == states.DEPEND:
            self.depend(job)
        elif state == states.RUN:
            self._run(job, event, None)
        elif state == states.CLEANUP:
            self._advance_cleanup(job)
        elif state == states.SCHED and name == "priority":
            self.service.sched.enqueue(job)
        if name == "exception":
            self._exception(job, event["context"])

    # -- entering states -------------------------------------------------------------------------

    def depend(self, job, event=None, out=None):
        """Post ``depend`` for a job in DEPEND without open dependencies."""
        if job.state == states.DEPEND and not job.has_open_dependency and not job.queue:
            self.events.post(job, "depend")

    def _priority(self, job, event, out):
        if event["name"] == "jobspec-update":
            # A request that is out has the old jobspec: withdraw it and send the new one.
            job.alloc_stale = job.alloc_pending
        self._take_priority(job, out)

    def _take_priority(self, job, out):
        """Post the priority of a job, fixed by its urgency or set by plugins, if it has changed."""
        if job.urgency in FIXED:
            priority = 0 if job.urgency == states.URGENCY_HOLD else states.PRIORITY_MAX
        else:
            priority = out.get("priority", -1) if out else -1
        if priority >= 0:
            if job.state == states.PRIORITY or priority != job.priority:
                self.events.post(job, "priority", {"priority": priority})
        elif job.state == states.SCHED:
            self.service.log(
                LOG_ERR, "jobtap: job.priority.get: priority unavailable for a job in SCHED state"
            )
        # Without one, a job in PRIORITY stays there.

    def _sched(self, job, event, out):
        R = out.get("R") if out else None
        if R is not None and job.R is None:
            self.service.sched.bypass(job, R)
        else:
            self.service.sched.enqueue(job)

    def _run(self, job, event, out):
        # A prolog that a plugin has just started is still in the queue. A fatal exception there comes
        # too late: as in flux-core, the job starts, and ends.
        if not (job.perilogs or any(one["name"] == "prolog-start" for one in job.queue)):
            self.service.execution.request(job)

    def _cleanup(self, job, event, out):
        self.service.sched.withdraw(job)
        self._advance_cleanup(job)

    def _inactive(self, job, event, out):
        self.jobs.deactivate(job)
        self.service.jobtap.call(job, "job.inactive-add")
        self.service.waits.inactive(job)
        self.service.jobtap.forget(job)
        self.service.jobtap.call(job, "job.destroy")
        job.pack()

    # -- within states ---------------------------------------------------------------------------

    def _exception(self, job, context):
        if job.state < states.INACTIVE:
            payload = {"id": job.id, "type": context["type"], "severity": context["severity"]}
            self.events.send(self.service.publish, "job-exception", payload)

    def _advance_cleanup(self, job):
        """Free released resources, and post ``clean`` when none are held any more (RFC 21)."""
        if job.queue or job.state != states.CLEANUP:
            return
        if job.has_resources:
            self._free(job)
        elif not (job.start_pending or job.perilogs or job.alloc_pending):
            self.events.post(job, "clean")

    def _free(self, job):
        """Free the resources that a job in CLEANUP no longer needs (RFC 27)."""
        if job.perilogs:
            return
        if job.start_pending:
            # Execution still holds some ranks; those it has released can be used by other jobs, unless
            # housekeeping is configured, which starts on all of them at once.
            if job.released and not self.service.housekeeping.is_configured:
                self._free_ranks(job, job.released, False)
            return
        if self.service.housekeeping.is_configured and not job.bypass:
            self.service.housekeeping.start(job)
        elif not job.bypass:
            if job.freed:
                self._free_ranks(job, set(rset.ranks(job.R)), True)
            else:
                self.service.sched.give_back(job.id, job.R)
        self.events.post(job, "free")

    def _free_ranks(self, job, ranks, final):
        freed = job.freed or set()
        new = ranks - freed
        if new or final:
            job.freed = freed | new
            self.service.sched.give_back(job.id, rset.fragment(job.R, new), final)

    def alloc_ended(self, job):
        """Continue a job whose request was withdrawn; it may have left SCHED meanwhile."""
        if job.state == states.CLEANUP:
            self._advance_cleanup(job)

    def reprioritize(self, job):
        """Recompute the priority of a job in PRIORITY or SCHED; post it if it changed."""
        if job.state in (states.PRIORITY, states.SCHED):
            fixed = job.urgency in FIXED
            out = None if fixed else self.service.jobtap.call(job, "job.priority.get")
            self._take_priority(job, out)

    def reprioritize_all(self):
        """Recompute the priorities of all jobs in PRIORITY or SCHED."""
        for job in list(self.jobs.active.values()):
            self.reprioritize(job)

    def set_priority(self, job, priority):
        """`flux_jobtap_reprioritize_job`: a plugin sets the priority of this job."""
        if job.state in (states.PRIORITY, states.SCHED) and job.urgency not in FIXED:
            self._take_priority(job, {"priority": priority})
