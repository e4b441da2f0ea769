# SPDX-License-Identifier: LGPL-3.0-or-later
"""Updates of a job's jobspec: ``job-manager.update`` and the plugins' own (RFC 21, jobtap document).

A request names dotted keys and values. Each key needs a plugin that handles ``job.update.KEY``; then the
updated jobspec is validated, checked for feasibility if a plugin asks for that, and, when a running
job's duration changes, the scheduler is asked about the new expiration. Only then is anything posted.
"""

import errno

from flux.jobtap.errors import JobtapError, Rejected
from flux_embedded.services.job_manager.actions import permit
from flux_embedded.services.job_manager.jobtap.host import JobSource
from flux_embedded.services.job_manager.part import Part
from flux_engine.formats.dotted import update_paths
from flux_engine.formats.states import INACTIVE, RUN
from flux_engine.kernel.service import request

DURATION = "attributes.system.duration"


class Update(Part):
    @request("update", guest=True, form={"id": int, "updates": object}, later=True)
    def update(self, msg):
        body = msg.body
        updates = body["updates"]
        check_updates(updates)
        job = self.find(body["id"], inactive=errno.EINVAL)
        permit(msg, job.userid, "may only update")
        if job.state > RUN:
            raise OSError(errno.EINVAL, "job is cleaning up")
        if not updates:
            self.service.respond(msg)
            return
        cred = {"userid": msg.userid, "rolemask": msg.rolemask}
        updates, validated, feasibility = self._ask_plugins(job, dict(updates), cred)
        jobspec = update_paths(job.jobspec, updates)
        if not validated:
            self._validate(job, jobspec)
        if feasibility:
            asked = self.service.rpc("feasibility.check", {"jobspec": jobspec})
            asked.then(self._feasible, msg, job, updates)
        else:
            self._ask_scheduler(msg, job, updates)

    def _ask_plugins(self, job, requested, cred):
        """Ask the plugins to allow every key; returns (updates, all of them validated already, feasibility check wanted)."""
        updates, validated, feasibility = dict(requested), True, False
        for key in requested:
            topic = f"job.update.{key}"
            if not self.service.jobtap.handlers(topic):
                raise OSError(errno.EINVAL, f"update of {key} not supported")
            more = {"key": key, "value": requested[key], "updates": requested, "cred": cred}
            try:
                out = self.service.jobtap.call_or_raise(job, topic, JobSource(job, more))
            except JobtapError as exc:
                raise OSError(errno.EINVAL, str(exc) or f"update of {key} rejected") from None
            validated = validated and bool(out.get("validated"))
            feasibility = feasibility or bool(out.get("feasibility"))
            updates.update(out.get("updates") or {})
        return updates, validated, feasibility

    def _validate(self, job, jobspec):
        try:
            self.service.jobtap.call_rejecting(job, "job.validate", jobspec=jobspec)
        except Rejected as exc:
            raise OSError(errno.EINVAL, str(exc)) from None

    def _feasible(self, future, msg, job, updates):
        if self.service.is_allowed(future, msg):
            self._ask_scheduler(msg, job, updates)

    def _ask_scheduler(self, msg, job, updates):
        if DURATION not in updates or job.state != RUN or job.R is None:
            self._post(msg, job, updates)
            return
        duration = updates[DURATION]
        # A scheduler may leave R without times; with a start of 0, the job would end at once.
        start = job.R["execution"].get("starttime") or self.service.now()
        expiration = start + duration if duration else 0.0
        if duration and expiration <= self.service.now():
            text = "requested duration places job expiration in the past"
            self.service.respond_error(msg, errno.EINVAL, text)
            return
        asked = self.service.rpc("sched.expiration", {"id": job.id, "expiration": expiration})
        asked.then(self._scheduler_answered, msg, job, updates, expiration)

    def _scheduler_answered(self, future, msg, job, updates, expiration):
        # Without a scheduler, or with one that lacks the method, only execution enforces the limit.
        if self.service.is_allowed(future, msg, "scheduler refused expiration update: "):
            self._post(msg, job, updates, expiration)

    def _post(self, msg, job, updates, expiration=None):
        """Make the update, after another check of the job's state, which may have changed meanwhile."""
        if job.state > RUN or (expiration is None and job.state == RUN and DURATION in updates):
            text = "job is inactive" if job.state == INACTIVE else "job state changed, try again"
            self.service.respond_error(msg, errno.EINVAL, text)
            return
        self.events.post(job, "jobspec-update", updates)
        if expiration is not None:
            self.events.post(job, "resource-update", {"expiration": expiration})
            self.service.execution.set_expiration(job, expiration)
        self.events.send(self.service.respond, msg)


def check_updates(updates):
    """Raise OSError EINVAL unless `updates` can be the context of a jobspec-update event (RFC 21)."""
    if not isinstance(updates, dict):
        raise OSError(errno.EINVAL, "failed to pack jobspec-update event")
    for key in updates:
        first, *rest = key.split(".")
        if first not in ("attributes", "resources", "tasks"):
            raise OSError(errno.EINVAL, "one or more jobspec updates are invalid")
        if first != "attributes" or not rest or "" in rest:
            raise OSError(errno.EINVAL, f"update of {key} not supported")
