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
update                  ``{id, updates: {...}}`` -> nothing, see `update`
wait, drain, idle       see `waits`
queue-status            ``{name?}`` -> status object of RFC 33
queue-list              -> ``{queues: [name]}``, empty without named queues
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
housekeeping-kill       ``{signum, jobid?}``
stats-get               -> ``{active_jobs, inactive_jobs, max_jobid, housekeeping}``
config-reload           the new configuration
======================  ====================================================================================

Plugins may register further topics, ``job-manager.NAME.METHOD``.
"""

import errno

from flux_embedded.services.job_manager.actions import EXCEPTION, Actions, permit
from flux_embedded.services.job_manager.events import Events
from flux_embedded.services.job_manager.execution import Execution
from flux_embedded.services.job_manager.housekeeping import Housekeeping
from flux_embedded.services.job_manager.intake import Intake
from flux_embedded.services.job_manager.jobtap.stack import Jobtap
from flux_embedded.services.job_manager.life import Life
from flux_embedded.services.job_manager.purge import Purge
from flux_embedded.services.job_manager.update import Update
from flux_embedded.services.job_manager.waits import Waits
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
        self.queues = queues = Queues()
        self.events = events = Events(self)
        self.waits = Waits(self, jobs, events)
        self.execution = Execution(self, jobs, events)
        # Lambdas, since the parts they use are made further down.
        self.sched = sched = Sched(
            self,
            jobs,
            events,
            queues,
            holders=lambda partial_ok: self.housekeeping.holders(partial_ok),
            ended=lambda job: self.life.alloc_ended(job),
            acquired=lambda: ctx.acquired,
        )
        self.housekeeping = Housekeeping(self, jobs, events, sched, self.waits)
        self.jobtap = jobtap = Jobtap(self, jobs, events, queues, sched, self.config)
        self.life = Life(
            self, jobs, events, jobtap, sched, self.execution, self.housekeeping, self.waits
        )
        jobtap.connect(self.life)
        events.connect(jobtap, self.life, sched)
        self.purge = Purge(self, jobs, events, jobtap, self.housekeeping)
        self.intake = Intake(self, jobs, events, queues, jobtap, self.life)
        self._add_methods()

    def _add_methods(self):
        jobs, events, sched = self.jobs, self.events, self.sched
        add = self.add_method
        add("submit", self.intake.submit, form={"jobs": list})
        add("sched-hello", sched.hello, streaming=True)
        add("sched-ready", sched.ready)
        add("exec-hello", self.execution.hello)
        actions = Actions(self, jobs, events, sched, self.execution)
        add("raise", actions.raise_, guest=True, form={"id": int, **EXCEPTION})
        several = {**EXCEPTION, "dry_run": bool, "userid": int, "states": int}
        add("raiseall", actions.raiseall, guest=True, form=several)
        add("kill", actions.kill, guest=True, form={"id": int, "signum": int})
        add("urgency", actions.urgency, guest=True, form={"id": int, "urgency": int})
        add("memo", actions.memo, guest=True, form={"id": int, "memo": dict})
        update = Update(self, jobs, events, self.jobtap, self.execution)
        add("update", update.request, guest=True, form={"id": int, "updates": object})
        add("wait", self.waits.wait, form={"id": int})
        add("drain", self.waits.drain)
        add("idle", self.waits.idle)
        plugin = {"load?": str, "conf?": object, "remove?": str, "query_only?": bool}
        add("jobtap", self.jobtap.request, form=plugin)
        add("jobtap-query", self.jobtap.query)
        add("journal-batches", events.follow, streaming=True)
        add("purge", self.purge.request, form={"num_limit": int, "force": bool})

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
        self.queues.configure(config)
        self.housekeeping.configure(config)
        self.config = self.jobtap.config = config

    def on_response(self, topic, function):
        """Call ``function(msg)`` for untagged responses on `topic`; returns the watcher."""
        watcher = self.h.msg_watcher_create(lambda h, w, msg, args: function(msg), RESPONSE, topic)
        watcher.start()
        return watcher

    # -- queues ------------------------------------------------------------------------------------

    @request("queue-status", guest=True, form={"name?": str})
    def _queue_status(self, msg):
        queue = self.queues.find(msg.body.get("name"))
        self.respond(msg, queue.status(self.sched.is_ready))

    @request("queue-list", guest=True)
    def _queue_list(self, msg):
        self.respond(msg, {"queues": [name for name in self.queues.table if name is not None]})

    @request("queue-enable", form={"enable": bool, **QUEUES})
    def _queue_enable(self, msg):
        value, reason = msg.body["enable"], msg.body.get("reason")
        if not value and reason is None:
            raise OSError(errno.EINVAL, "reason is required for disable")
        for queue in self.queues.chosen(msg.body.get("name"), msg.body["all"]):
            queue.enabled = value
            queue.disable_reason = "" if value else reason
        self.respond(msg)

    @request("queue-start", form={"start": bool, "nocheckpoint?": bool, **QUEUES})
    def _queue_start(self, msg):
        value = msg.body["start"]
        for queue in self.queues.chosen(msg.body.get("name"), msg.body["all"]):
            queue.started = value
            queue.stop_reason = None if value else msg.body.get("reason")
        self.sched.requeue_eligible(list(self.jobs.active.values()))
        self.events.send(self.respond, msg)

    # -- requests ----------------------------------------------------------------------------------

    @request("getattr", guest=True, form={"id": int, "attrs": object})
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
        body = {
            "queue_length": self.sched.queued,
            "alloc_pending": len(self.sched.pending),
            "running": running,
        }
        self.respond(msg, body)

    @request("resource-status")
    def _resource_status(self, msg):
        held = [(job.R, job.freed or ()) for job in self.jobs.active.values() if job.has_resources]
        held += [(visit.job.R, visit.job.freed) for visit in self.housekeeping.visits.values()]
        self.respond(msg, {"allocated": rset.union(held)})

    @request("housekeeping-kill", form={"signum": int, "jobid?": int})
    def _housekeeping_kill(self, msg):
        self.housekeeping.kill(msg.body.get("jobid"), msg.body["signum"])
        self.respond(msg)

    @request("getinfo", guest=True)
    def _getinfo(self, msg):
        self.respond(msg, {"max_jobid": self.jobs.max_id})

    @request("stats-get", guest=True)
    def _stats(self, msg):
        body = {
            "active_jobs": len(self.jobs.active),
            "inactive_jobs": len(self.jobs.inactive),
            "max_jobid": self.jobs.max_id,
            "housekeeping": {"running": self.housekeeping.describe()},
        }
        self.respond(msg, body)

    @request("config-reload")
    def _config_reload(self, msg):
        config, former = msg.body or {}, self.config
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
        self.respond(msg)

    @request("disconnect")
    def _disconnect(self, msg):
        sender = msg.sender
        self.sched.disconnected(sender)
        self.execution.disconnected(sender)
        self.waits.disconnected(sender)
        self.events.readers = [
            reader for reader in self.events.readers if reader.sender is not sender
        ]
