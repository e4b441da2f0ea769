# SPDX-License-Identifier: LGPL-3.0-or-later
"""Service ``job-manager``: its methods, and the jobs.

======================  ====================================================================================
method                  payload -> response
======================  ====================================================================================
submit                  from ingest, see `intake`
sched-hello (S),        RFC 27, see `sched`
sched-ready
exec-hello              RFC 32, see `execution`
raise                   ``{id, type, severity, note?}``
raiseall                ``{type, severity, note?, states: mask, userid, dry_run}`` -> ``{count, errors}``
kill                    ``{id, signum}``: a signal to the tasks of a running job
urgency                 ``{id, urgency}`` -> ``{old_urgency}``
memo                    ``{id, memo: {...}}``: merged into the annotations under ``user``
update                  ``{id, updates: {...}}`` -> nothing, see `actions`
wait, drain, idle       see `actions`
queue-status            ``{name?}`` -> status object of RFC 33
queue-list              -> ``{queues: [name], conf}``, no names without named queues; see `flux.queue.QueueConf` for conf
queue-enable,           ``{enable | start: bool, all: bool, name?, reason?}``
queue-start
alloc-query             -> ``{queue_length, alloc_pending, running}``
resource-status         -> ``{allocated: R}``
jobtap                  ``{load?: path, conf?, remove?: name, query_only?}`` -> ``{plugins: [name]}``
jobtap-query            ``{name}`` -> ``{name, path, ...}``
journal-batches (S)     see `Events.follow`
purge                   ``{num_limit: N, force: bool}`` -> ``{count}``: the jobs beyond a number; without force it
                        only counts
getinfo                 -> ``{max_jobid}``
getattr                 ``{id, attrs}`` -> an object with these of ``jobspec`` (with updates, without its
                        environment), ``R`` and ``eventlog`` of a job
housekeeping-kill       ``{signum, jobid?, ranks?}``
stats-get               -> ``{active_jobs, inactive_jobs, max_jobid, housekeeping}``
======================  ====================================================================================

Plugins may register further topics, ``job-manager.NAME.METHOD``.
"""

import errno

from flux.queue import queue_conf_from_config
from flux_embedded.services.job_manager.actions import Actions, Update, Waits, permit
from flux_embedded.services.job_manager.events import Events
from flux_embedded.services.job_manager.execution import Execution
from flux_embedded.services.job_manager.housekeeping import Housekeeping
from flux_embedded.services.job_manager.intake import Intake
from flux_embedded.services.job_manager.jobtap.stack import Jobtap
from flux_embedded.services.job_manager.life import Life
from flux_engine.formats import eventlog, policy, rset, states
from flux_engine.job_manager.job import Jobs
from flux_engine.job_manager.queues import Queues
from flux_engine.job_manager.sched import Sched
from flux_engine.kernel.message import RESPONSE
from flux_engine.kernel.service import Service, request

#: Keys of a request to change queues, besides the change.
QUEUES = {"all": bool, "name?": str, "reason?": str}


class JobManager(Service):
    """The job manager; `jobs` has all jobs."""

    name = "job-manager"

    def __init__(self, ctx, *args):
        super().__init__(ctx, *args)
        self.config = ctx.config
        self.jobs = jobs = Jobs()
        jobs.purged = 0
        self.queues = queues = Queues()
        self.events = events = Events(self)
        self.sched = Sched(
            self,
            jobs,
            events,
            queues,
            holders=lambda partial_ok: self.housekeeping.holders(partial_ok),
            ended=lambda job: self.life.alloc_ended(job),
            acquired=lambda: ctx.acquired,
        )
        self.waits, self.execution, self.life = Waits(self), Execution(self), Life(self)
        self.housekeeping, self.jobtap, self.intake = Housekeeping(self), Jobtap(self), Intake(self)
        parts = [events, self.waits, self.execution, self.housekeeping, self.jobtap, self.intake]
        for part in (*parts, Actions(self), Update(self)):
            # An answer is sent when the events before it are committed.
            self.serve(part, lambda msg, answer: events.send(self.respond, msg, answer))
        self.add_method("sched-hello", self.sched.hello, streaming=True)
        self.add_method("sched-ready", self.sched.ready, later=True)

    def begin(self):
        self.on_response("sched.alloc", self.sched.alloc_response)
        self.on_response("sched.free", self.sched.free_response)
        self._configure(self.config)
        self.jobtap.load_builtins()
        self.jobtap.configure_plugins(self.config)
        self.intake.restart()
        self.ctx.jobs = self.jobs
        # An execution service that was loaded before has to say hello again.
        self.publish("job-manager-start")

    def stop(self):
        self.events.commit()

    def _configure(self, config):
        self.housekeeping.configure(config)
        self.queues.configure(config)  # last: a queue that it drops loses its state
        self.config = config

    def on_response(self, topic, function):
        """Call ``function(msg)`` for untagged responses on `topic`; returns the watcher."""
        watcher = self.h.msg_watcher_create(lambda h, w, msg, args: function(msg), RESPONSE, topic)
        watcher.start()
        return watcher

    # -- queues ------------------------------------------------------------------------------------

    @request("queue-status", guest=True, form={"name?": str})
    def _queue_status(self, msg):
        return self.queues.find(msg.body.get("name")).status(self.sched.is_ready)

    @request("queue-list", guest=True)
    def _queue_list(self, msg):
        names = [name for name in self.queues.table if name is not None]
        # `flux.queue` of flux-python 0.88.0 reads "conf", which the job manager of flux-core 0.88.0 does not send.
        return {"queues": names, "conf": queue_conf_from_config(self.config)}

    @request("queue-enable", form={"enable": bool, **QUEUES})
    def _queue_enable(self, msg):
        value, reason = msg.body["enable"], msg.body.get("reason")
        if not value and reason is None:
            raise OSError(errno.EINVAL, "reason is required for disable")
        for queue in self.queues.chosen(msg.body.get("name"), msg.body["all"]):
            queue.enabled = value
            queue.disable_reason = "" if value else reason

    @request("queue-start", form={"start": bool, "nocheckpoint?": bool, **QUEUES}, later=True)
    def _queue_start(self, msg):
        value = msg.body["start"]
        for queue in self.queues.chosen(msg.body.get("name"), msg.body["all"]):
            queue.started = value
            queue.stop_reason = None if value else msg.body.get("reason")
        self.sched.requeue_eligible(list(self.jobs.active.values()))
        self.events.send(self.respond, msg)

    # -- requests ----------------------------------------------------------------------------------

    @request("getattr", guest=True, form={"id": int, "attrs": object}, later=True)
    def _getattr(self, msg):
        job = self.jobs.find(msg.body["id"])
        if job is None:
            raise OSError(errno.EINVAL, "unknown job")
        permit(msg, job.userid, "can only access")
        names = msg.body["attrs"] if isinstance(msg.body["attrs"], list) else ()
        for name in names:
            if not isinstance(name, str):
                raise OSError(errno.EPROTO, "attribute list contains non-string")
            if name not in ("jobspec", "R", "eventlog"):
                raise OSError(errno.ENOENT, f"unknown attr {name}")
            if name == "R" and job.R is None:
                raise OSError(errno.ENOENT, "R is NULL")

        def answer():
            found = {name: getattr(job, name) for name in names}
            if "eventlog" in found:
                found["eventlog"] = eventlog.parse(self.ctx.kvs.find(job.eventlog) or "")
            self.respond(msg, found)

        self.events.send(answer)  # events are in the KVS once they are committed

    @request("alloc-query", guest=True)
    def _alloc_query(self, msg):
        running = sum(1 for job in self.jobs.active.values() if job.state & states.RUNNING)
        pending = len(self.sched.pending)
        return {"queue_length": self.sched.queued, "alloc_pending": pending, "running": running}

    @request("resource-status")
    def _resource_status(self, msg):
        held = [(job.R, job.freed or ()) for job in self.jobs.active.values() if job.has_resources]
        held += [(visit.job.R, visit.job.freed) for visit in self.housekeeping.visits.values()]
        return {"allocated": rset.union(held)}

    @request("getinfo", guest=True)
    def _getinfo(self, msg):
        return {"max_jobid": self.jobs.max_id}

    @request("stats-get", guest=True)
    def _stats(self, msg):
        return {
            "active_jobs": len(self.jobs.active),
            "inactive_jobs": len(self.jobs.inactive),
            "max_jobid": self.jobs.max_id,
            "housekeeping": {"running": self.housekeeping.describe()},
        }

    def configure(self, config):
        former = self.config
        try:
            policy.validate(config)
            self.jobtap.check_config(config)
            # plugins of the configuration are loaded at start only
            self._configure(config)
        except OSError:
            # All or nothing: parts that have accepted the new one get the former again.
            self._configure(former)
            self.jobtap.check_config(former)
            raise

    @request("disconnect", guest=True)
    def disconnect(self, msg):
        super().disconnect(msg)
        self.sched.disconnected(msg.sender)
        self.execution.disconnected(msg.sender)
