"""Service ``job-manager``: its methods, and the jobs.

======================  ====================================================================================
method                  payload -> response
======================  ====================================================================================
submit                  from ingest, see `submit`
sched-hello (S),        RFC 27, see `sched`
sched-ready
exec-hello              RFC 32, see `execution`
raise                   ``{id, type, severity, note?}``
raiseall                ``{type, severity, note?, states: mask, userid, dry_run}`` -> ``{count, errors}``
kill, killall           ``{id, signum}``; ``{signum, userid, dry_run}`` -> ``{count, errors}``
urgency                 ``{id, urgency}`` -> ``{old_urgency}``
memo                    ``{id, memo: {...}, volatile?}``: merged into the annotations under ``user``
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
events-journal (S),     see `journal`
journal-batches (S)
purge                   ``{age_limit: seconds, num_limit: N, batch: N, force: bool}`` -> ``{count}``: at most
                        a batch of the jobs beyond a limit, -1 for none; without force it only counts
purge-id                ``{id, force}`` -> ``{count: 1}``: that inactive job
list, getattr           see `listing`
getinfo                 -> ``{max_jobid}``
housekeeping-kill       ``{signum, jobid?, ranks?}``
stats-get               -> ``{active_jobs, inactive_jobs, max_jobid, journal, housekeeping, ...}``
config-reload           the new configuration
======================  ====================================================================================

Topics that plugins register (``job-manager.NAME.METHOD``) come on top.
"""

import errno

from flux.idset import IDset
from flux_embedded.formats import policy, rset, states
from flux_embedded.formats.jsontext import dumps
from flux_embedded.kernel.message import OWNER, RESPONSE
from flux_embedded.kernel.service import Real, Service, request
from flux_embedded.services.job_manager.actions import EXCEPTION, MANY, Actions
from flux_embedded.services.job_manager.events import Events
from flux_embedded.services.job_manager.execution import Execution
from flux_embedded.services.job_manager.housekeeping import Housekeeping
from flux_embedded.services.job_manager.inactive import Inactive
from flux_embedded.services.job_manager.jobtap.stack import Jobtap
from flux_embedded.services.job_manager.journal import NOT_STREAMING, Journals
from flux_embedded.services.job_manager.life import Life
from flux_embedded.services.job_manager.listing import Listing
from flux_embedded.services.job_manager.queues import Queues
from flux_embedded.services.job_manager.restart import Restart
from flux_embedded.services.job_manager.sched import Sched
from flux_embedded.services.job_manager.submit import Submit
from flux_embedded.services.job_manager.update import Update
from flux_embedded.services.job_manager.waits import Waits


class JobManager(Service):
    """The job manager.

    Attributes:
        jobs (dict): id -> active Job, in order of submission
        inactive (dict): id -> inactive Job, in the order they became so
        max_jobid (int): the greatest job id there has been
        owner (int): userid of the instance owner
    """

    name = "job-manager"
    encode = staticmethod(dumps)

    def __init__(self, ctx, *args):
        super().__init__(ctx, *args)
        self.owner = OWNER
        self.config = ctx.config
        self.jobs = {}
        self.max_jobid = 0
        self.history = Inactive(self)
        self.inactive = self.history.jobs
        self.events = Events(self)
        self.journal = Journals(self)
        self.queues = Queues(self)
        self.sched = Sched(self)
        self.housekeeping = Housekeeping(self)
        self.life = Life(self)
        self.execution = Execution(self)
        self.actions = Actions(self)
        self.waits = Waits(self)
        self.updates = Update(self)
        self.listing = Listing(self)
        self.restart = Restart(self)
        self.jobtap = Jobtap(self)
        self.submission = Submit(self)
        self._add_methods()

    def _add_methods(self):
        add = self.add_method
        add("submit", self.submission.request, form={"jobs": list})
        add("sched-hello", self.sched.hello, streaming=True)
        add("sched-ready", self.sched.ready)
        add("exec-hello", self.execution.hello)
        add("raise", self.actions.raise_, guest=True, form={"id": int, **EXCEPTION})
        add(
            "raiseall", self.actions.raiseall, guest=True, form={**EXCEPTION, **MANY, "states": int}
        )
        add("kill", self.actions.kill, guest=True, form={"id": int, "signum": int})
        add("killall", self.actions.killall, guest=True, form=object)
        add("urgency", self.actions.urgency, guest=True, form={"id": int, "urgency": int})
        add(
            "memo",
            self.actions.memo,
            guest=True,
            form={"id": int, "memo": object, "volatile?": bool},
        )
        add("update", self.updates.request, guest=True, form={"id": int, "updates": object})
        add("wait", self.waits.wait, form=object)
        add("drain", self.waits.drain)
        add("idle", self.waits.idle)
        add("queue-status", self.queues.status, guest=True, form={"name?": str})
        add("queue-list", self.queues.list, guest=True)
        which = {"all": bool, "name?": str, "reason?": str}
        add("queue-enable", self.queues.enable, form={"enable": bool, **which})
        add("queue-start", self.queues.start, form={"start": bool, "nocheckpoint?": bool, **which})
        plugin = {"load?": str, "conf?": object, "remove?": str, "query_only?": bool}
        add("jobtap", self.jobtap.request, form=plugin)
        add("jobtap-query", self.jobtap.query)
        add(
            "events-journal",
            self.journal.events_journal,
            streaming=NOT_STREAMING,
            form={"full?": bool, "allow?": object, "deny?": object},
        )
        add("journal-batches", self.journal.batches, streaming=True)
        add(
            "purge",
            self.history.purge_request,
            form={"age_limit": Real, "num_limit": int, "batch": int, "force": bool},
        )
        add("purge-id", self.history.purge_one, form={"id": int, "force": int})
        add("list", self.listing.list, form={"max_entries": int})
        add("getattr", self.listing.getattr, guest=True, form={"id": int, "attrs": object})

    def begin(self):
        self.on_response("sched.alloc", self.sched.alloc_response)
        self.on_response("sched.free", self.sched.free_response)
        self._configure(self.config)
        self.housekeeping.watch()
        self.jobtap.load_builtins()
        self.jobtap.configure_plugins(self.config)
        self.restart.run()
        # An execution service that was there before has to introduce itself again.
        self.publish("job-manager-start")

    def stop(self):
        self.events.close()

    def _configure(self, config):
        self.queues.configure(config)
        self.history.configure(config)
        self.housekeeping.configure(config)
        self.config = config

    def on_response(self, topic, function):
        """Have ``function(msg)`` called for untagged responses on `topic`; returns the watcher."""
        watcher = self.h.msg_watcher_create(lambda h, w, msg, args: function(msg), RESPONSE, topic)
        watcher.start()
        return watcher

    # -- jobs ------------------------------------------------------------------------------------

    def raise_exception(self, job, kind, severity, note, userid=None):
        """Post an ``exception`` event."""
        context = {
            "type": kind,
            "severity": severity,
            "note": note,
            "userid": self.owner if userid is None else userid,
        }
        if severity == 0 and job.state == states.NEW:
            self.submission.after_validation(job, context)
        else:
            self.events.post(job, "exception", context)

    def deactivate(self, job):
        """`job` has entered INACTIVE."""
        del self.jobs[job.id]
        self.history.add(job)
        self.jobtap.call(job, "job.inactive-add")
        self.waits.inactive(job)
        self.jobtap.forget(job)
        self.jobtap.destroy(job)

    def holding_resources(self):
        """Jobs that hold resources the scheduler knows of: active ones and those in housekeeping."""
        active = [job for job in self.jobs.values() if job.has_resources and not job.bypass]
        visited = [visit.job for visit in self.housekeeping.jobs.values()]
        return active + visited

    # -- requests ----------------------------------------------------------------------------------

    @request("alloc-query", guest=True)
    def _alloc_query(self, msg):
        running = sum(1 for job in self.jobs.values() if job.state & states.RUNNING)
        body = {
            "queue_length": self.sched.queued,
            "alloc_pending": len(self.sched.pending),
            "running": running,
        }
        self.respond(msg, body)

    @request("resource-status")
    def _resource_status(self, msg):
        held = [(job.R, job.freed or ()) for job in self.jobs.values() if job.has_resources]
        held += [(visit.job.R, visit.job.freed) for visit in self.housekeeping.jobs.values()]
        self.respond(msg, {"allocated": rset.union(held)})

    @request("housekeeping-kill", form={"signum": int, "jobid?": int, "ranks?": str})
    def _housekeeping_kill(self, msg):
        body = msg.body
        ranks = None
        if "ranks" in body:
            wanted = _ranks(body["ranks"])
            # The set may be of any size, so it is asked, not listed.
            visits = self.housekeeping.jobs.values()
            ranks = {rank for visit in visits for rank in visit.active if rank in wanted}
        self.housekeeping.kill(body.get("jobid"), ranks, body["signum"])
        self.respond(msg)

    @request("getinfo", guest=True)
    def _getinfo(self, msg):
        self.respond(msg, {"max_jobid": self.max_jobid})

    @request("events-journal-cancel", form={"matchtag": int})
    def _journal_cancel(self, msg):
        self.journal.cancel(msg.sender, msg.body["matchtag"])

    @request("stats-get", guest=True)
    def _stats(self, msg):
        body = {
            "active_jobs": len(self.jobs),
            "inactive_jobs": len(self.inactive),
            "max_jobid": self.max_jobid,
            "journal": self.journal.stats(),
            "housekeeping": {
                "config": self.housekeeping.describe_config(),
                "running": self.housekeeping.describe(),
            },
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
            # All or nothing: whoever has taken the new one gets the former again.
            self._configure(former)
            self.jobtap.check_config(former)
            raise
        self.sched.requeue_eligible(list(self.jobs.values()))
        self.respond(msg)

    @request("disconnect")
    def _disconnect(self, msg):
        sender = msg.sender
        self.sched.disconnected(sender)
        self.execution.disconnected(sender)
        self.waits.disconnected(sender)
        self.journal.disconnected(sender)

    def job_or_error(self, id):
        """The active or inactive job `id`.

        Raises:
            OSError: ENOENT
        """
        job = self.jobs.get(id) or self.inactive.get(id)
        if job is None:
            raise OSError(errno.ENOENT, "unknown job id")
        return job


def _ranks(text):
    """The ranks of a request.

    Raises:
        OSError: EINVAL
    """
    if not text:
        raise OSError(errno.EINVAL, "cannot create an empty idset")
    try:
        return IDset(text)
    except ValueError:
        raise OSError(errno.EINVAL, f"error parsing range '{text}'") from None
