# SPDX-License-Identifier: LGPL-3.0-or-later
"""What the job manager itself tells of jobs.

==========  ==========================================================================================
list        ``{max_entries}`` -> ``{jobs: [{id, userid, urgency, priority, t_submit, state, annotations?}, ...]}``:
            at most so many of the active jobs (0: all), those that wait for the scheduler first
getattr     ``{id, attrs}`` -> an object with these of ``jobspec`` (without its environment), ``R`` and
            ``eventlog`` of one job
==========  ==========================================================================================

``job-list`` knows more, and all that `flux jobs` shows comes from there.
"""

import errno
import os

from flux_embedded.formats import eventlog
from flux_embedded.formats.states import SCHED
from flux_embedded.services.job_manager.actions import permit

ATTRS = ("jobspec", "R", "eventlog")


class Listing:
    """Handlers of these requests."""

    def __init__(self, service, jobs, events, waits):
        self.service = service
        self.jobs = jobs
        self.events = events
        self.waits = waits

    def list(self, msg):
        """``list``."""
        most = msg.body["max_entries"]
        if most < 0:
            raise OSError(errno.EPROTO, os.strerror(errno.EPROTO))
        jobs = sorted(self.jobs.active.values(), key=_place)
        jobs = jobs[:most] if most else jobs
        self.service.respond(
            msg, {"jobs": [_describe(job) for job in [*jobs, *self.waits.zombies]]}
        )

    def getattr(self, msg):
        """``getattr``."""
        body = msg.body
        job = self.jobs.find(body["id"])
        if job is None:
            raise OSError(errno.EINVAL, "unknown job")
        permit(msg, job.userid, "can only access")
        names = body["attrs"] if isinstance(body["attrs"], list) else ()
        for name in names:
            if not isinstance(name, str):
                raise OSError(errno.EPROTO, "attribute list contains non-string")
            if name not in ATTRS:
                raise OSError(errno.ENOENT, f"unknown attr {name}")
            if name == "R" and job.R is None:
                raise OSError(errno.ENOENT, "R is NULL")
        found = {name: getattr(job, name) for name in names if name != "eventlog"}
        if "eventlog" in names:
            # what has happened is in the KVS once it is committed
            self.events.send(self._lookup, msg, job, found)
        else:
            self.service.respond(msg, found)

    def _lookup(self, msg, job, found):
        self.service.rpc("kvs.lookup", {"keys": [job.eventlog]}).then(
            self._looked_up, msg, job, found
        )

    def _looked_up(self, future, msg, job, found):
        try:
            text = future.body["values"][job.eventlog]
        except OSError as exc:
            self.service.respond_error(msg, exc.errno, exc.strerror)
            return
        self.service.respond(msg, {**found, "eventlog": eventlog.parse(text)})


def _place(job):
    """Jobs in SCHED come first, in the order in which they are sent to the scheduler."""
    return (0, -job.priority, job.id) if job.state == SCHED else (1, 0, job.id)


def _describe(job):
    found = {
        key: getattr(job, key)
        for key in ("id", "userid", "urgency", "priority", "t_submit", "state")
    }
    if job.annotations:
        found["annotations"] = job.annotations
    if job.dependencies is not None:
        found["dependencies"] = [text for text, is_open in job.dependencies.items() if is_open]
    return found
