"""What the job manager does when a job enters a state or an event arrives in one (RFC 21).

`Life.after_event` is called for every event after it was applied and recorded. What it posts to the
same job is queued and processed after it returned.
"""

from flux_embedded.formats import idset, rset
from flux_embedded.formats.levels import LOG_ERR
from flux_embedded.formats.states import (
    CLEANUP,
    DEPEND,
    INACTIVE,
    PRIORITY,
    PRIORITY_MAX,
    RUN,
    SCHED,
    TOPICS,
    URGENCY_EXPEDITE,
    URGENCY_HOLD,
)

#: Urgencies that fix the priority, whatever plugins say.
FIXED = (URGENCY_HOLD, URGENCY_EXPEDITE)


class Life:
    """State transitions and actions of all jobs of job manager `jm`."""

    def __init__(self, jm):
        self.jm = jm
        self._enter = {
            DEPEND: self._depend,
            PRIORITY: self._priority,
            SCHED: self._sched,
            RUN: self._run,
            CLEANUP: self._cleanup,
            INACTIVE: self._inactive,
        }

    def after_event(self, job, event, before):
        """Act on `event` of `job`, whose state was `before` until then."""
        state = job.state
        name = event["name"]
        if state != before:
            out = self.jm.jobtap.call(job, TOPICS[state], prev_state=before, entry=event)
            self._enter[state](job, event, out)
        elif state == DEPEND:
            self._depend(job, event, None)
        elif state == RUN:
            self._run(job, event, None)
        elif state == CLEANUP:
            self._advance_cleanup(job)
        elif state == SCHED and name == "priority":
            self.jm.sched.enqueue(job)
        elif state == PRIORITY and name == "urgency":
            self.reprioritize(job)
        if name == "exception":
            self._exception(job, event["context"])

    # -- entering states -------------------------------------------------------------------------

    def _depend(self, job, event, out):
        if job.state == DEPEND and not job.has_open_dependency and not job.queue:
            self.jm.events.post(job, "depend")

    def recheck(self, job):
        """A job in DEPEND was loaded: go on if nothing holds it any more."""
        self._depend(job, None, None)

    def _priority(self, job, event, out):
        if event["name"] == "jobspec-update":
            # A request that is out has the old jobspec: withdraw it and send the new one.
            job.alloc_stale = job.alloc_pending
        self._take_priority(job, out)

    def _take_priority(self, job, out):
        """Post the priority that the urgency of a job fixes, or that plugins gave, if it is a new one."""
        if job.urgency in FIXED:
            priority = 0 if job.urgency == URGENCY_HOLD else PRIORITY_MAX
        else:
            priority = out.get("priority", -1) if out else -1
        if type(priority) is not int or priority > PRIORITY_MAX:
            self.jm.log(LOG_ERR, f"jobtap: {priority!r} is not a priority (0-{PRIORITY_MAX})")
        elif priority >= 0:
            if job.state == PRIORITY or priority != job.priority:
                self.jm.events.post(job, "priority", {"priority": priority})
        elif job.state == SCHED:
            self.jm.log(
                LOG_ERR, "jobtap: job.priority.get: priority unavailable for a job in SCHED state"
            )
        # With none a job in PRIORITY stays there.

    def _sched(self, job, event, out):
        R = out.get("R") if out else None
        if R is not None and job.R is None:
            self.jm.sched.bypass(job, R)
        else:
            self.jm.sched.enqueue(job)

    def _run(self, job, event, out):
        # A prolog that a plugin has just started is still in the queue.
        if not job.perilogs and not job.queue:
            self.jm.execution.request(job)

    def _cleanup(self, job, event, out):
        self.jm.sched.withdraw(job)
        self._advance_cleanup(job)

    def _inactive(self, job, event, out):
        self.jm.deactivate(job)

    # -- within states ---------------------------------------------------------------------------

    def _exception(self, job, context):
        if job.state < INACTIVE:
            payload = {"id": job.id, "type": context["type"], "severity": context["severity"]}
            self.jm.events.send(self.jm.publish, "job-exception", payload)

    def _advance_cleanup(self, job):
        """Free what can be freed, and post ``clean`` when nothing is held any more (RFC 21)."""
        if job.queue or job.state != CLEANUP:
            return
        if job.has_resources:
            self._free(job)
        elif not (job.start_pending or job.perilogs or job.alloc_pending):
            self.jm.events.post(job, "clean")

    def _free(self, job):
        """Free what a job in CLEANUP no longer needs (RFC 27)."""
        if job.perilogs:
            return
        housekeeping = self.jm.housekeeping
        if job.start_pending:
            # Execution still holds some ranks; what it let go of can be used by others, unless
            # housekeeping has to visit the nodes first, which it does for all of them at once.
            if job.released and not housekeeping.is_configured:
                self._free_ranks(job, job.released, False)
            return
        if housekeeping.is_configured and not job.bypass:
            housekeeping.start(job)
        elif not job.bypass:
            if job.freed:
                self._free_ranks(job, set(rset.ranks(job.R)), True)
            else:
                self.jm.sched.give_back(job.id, job.R)
        self.jm.events.post(job, "free")

    def _free_ranks(self, job, ranks, final):
        freed = job.freed or set()
        new = ranks - freed
        if new or final:
            job.freed = freed | new
            self.jm.sched.give_back(job.id, rset.fragment(job.R, new), final)

    def released(self, job, ranks, final):
        """Execution is done with `ranks` (a set); `final`: with all of them (RFC 32)."""
        everything = job.released is None and final
        if everything:
            text = "all"
        else:
            text = idset.text(ranks)
            job.released = (job.released or set()) | ranks
        if final:
            job.start_pending = False
        self.jm.events.post(job, "release", {"ranks": text, "final": final})

    def alloc_ended(self, job):
        """The scheduler gave up its request for a job that may have left SCHED meanwhile."""
        if job.state == CLEANUP:
            self._advance_cleanup(job)

    def reprioritize(self, job):
        """Compute the priority of a job in PRIORITY or SCHED afresh; post it if it changed."""
        if job.state in (PRIORITY, SCHED):
            fixed = job.urgency in FIXED
            out = None if fixed else self.jm.jobtap.call(job, "job.priority.get")
            self._take_priority(job, out)

    def reprioritize_all(self):
        """Compute the priorities of all jobs in PRIORITY or SCHED afresh."""
        for job in list(self.jm.jobs.values()):
            self.reprioritize(job)

    def set_priority(self, job, priority):
        """`flux_jobtap_reprioritize_job`: a plugin has a priority for this job now."""
        if job.state in (PRIORITY, SCHED) and job.urgency not in FIXED:
            self._take_priority(job, {"priority": priority})
