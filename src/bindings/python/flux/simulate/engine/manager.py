# SPDX-License-Identifier: LGPL-3.0-or-later
"""The job manager: sends jobs to the scheduler, starts those that get resources, and ends them.

Requests are ordered, limited, withdrawn and answered by the job manager's own code
(`flux_engine.job_manager.sched`, `.queues`). This file has the rest of a job's life: its
submission, and a run as long as in the trace.
"""

import errno
import marshal
import re
from syslog import LOG_WARNING
from types import SimpleNamespace

from flux.simulate.engine.loop import AllocMessage, LastMessage, Peer
from flux.simulate.job import jobspec
from flux_engine.formats import jobid, rset, states
from flux_engine.formats.dotted import lookup_path
from flux_engine.job_manager.job import Jobs, SchedulableJob, merge_annotations
from flux_engine.job_manager.queues import Queues
from flux_engine.job_manager.sched import Sched
from flux_engine.kernel.message import FLAG_NORESPONSE, OWNER


def default_queue(config):
    """Return the default queue (``policy.jobspec.defaults.system.queue``), or None."""
    return lookup_path(config, "policy.jobspec.defaults.system.queue")


def request_of(job, queue, queues):
    """Return the jobspec of a job, with the constraints of its queue (None: no queue); `queues` is
    a `Queues`."""
    requires = None if queue is None else queues.find(queue).requires
    return jobspec(job, queue, {"properties": requires} if requires else None)


def priority_of(urgency):
    """Return the priority that a job manager without a priority plugin gives a job of this urgency."""
    return states.PRIORITY_MAX if urgency == states.URGENCY_EXPEDITE else urgency


#: Maximum number of cached jobspecs; most jobs resemble an earlier one.
MOST_SPECS = 4096

#: Prefix of the job manager's log entries.
COMPLAINT = "job-manager: "

_FOR = re.compile(r"preempted for (\S+)")


def preempted_for(note, jobs):
    """Return (note, trace id of the preempting job or None) for the note of an exception; `jobs` is
    {job id: ActiveJob}."""
    found = _FOR.match(note)
    try:
        return note, jobs[jobid.decode(found.group(1))].job.id if found else None
    except (ValueError, KeyError):
        return note, None  # in private mode the note names no job


class ActiveJob(SchedulableJob):
    """A job between its submission and its end.

    Attributes:
        index (int): its index in the trace; -1 for a job that runs from the beginning
        job (Job): its entry of the trace
        jobspec (bytes): marshalled; `AllocMessage` decodes it for each reader
        start, end (float): times of start and end, or None
        limit (float): changed limit of a running job, in seconds
        end_entry: its entry in the heap of ends
        preempted: (note, id of the preempting job), or None
    """

    __slots__ = ("index", "job", "queue_name", "start", "end", "limit", "end_entry", "preempted")

    def __init__(self, id, index, job, t_submit, queue, userid):
        super().__init__(id, userid, None, 0, t_submit)
        self.index = index
        self.job = job
        self.queue_name = queue
        given = job.extra.get("priority") if job.extra else None
        self.priority = priority_of(job.urgency) if given is None else given
        self.state = states.SCHED
        self.start = None
        self.end = None
        self.limit = None
        self.end_entry = None
        self.preempted = None


class QuickSched(Sched):
    """The protocol of requests, with one check of each R: that of `Allocations`."""

    is_sound, checked = None, LastMessage

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        #: topic -> class of the request, and its sender, which takes the answer
        self._requests = {
            "sched.alloc": (AllocMessage, SimpleNamespace(receive=self.alloc_response)),
            "sched.free": (LastMessage, SimpleNamespace(receive=self.free_response)),
        }

    def send(self, topic, payload):
        kind, sender = self._requests[topic]
        self.sender.inbox.append(kind(topic, payload, sender))

    def annotate(self, job, update):
        if job.alloc_pending:
            super().annotate(job, update)
        else:  # with the answer: the start tells of them
            known = job.annotations
            job.annotations = merge_annotations(known, update) if known else update


class Manager(Peer):
    """The service ``job-manager`` as a scheduler sees it.

    Args:
        engine (LeanEngine): is told when jobs are to end, and which follow those that ended
        userids (dict): user name -> user id

    Attributes:
        hooks (dict): ("submit", "start" or "end", id of a job in the trace) -> functions of the
            engine to call at that event
        jobs (dict): id -> ActiveJob
        waiting (int): number of jobs neither started nor refused
        running (int): number of jobs that hold resources
    """

    name = "job-manager"

    def __init__(self, engine, userids):
        super().__init__(engine.kernel)
        config = engine.config
        self.engine = engine
        self.observer, self.annotated = engine.observer, engine.observer.annotated
        self.hooks = {}
        self._followers = engine.followers
        self.jobs = {}
        self.default_queue = default_queue(config)
        self.userids = userids
        self.waiting = 0
        self.running = 0
        self._specs = {}
        self.queues = Queues()
        if config.get("queues"):
            self.queues.configure({"queues": config["queues"]})
            for queue in self.queues.table.values():
                queue.started = True
        self.table = Jobs()
        self.table.active = self.jobs
        more = {"holders": self.holders, "ended": self.alloc_ended}
        more["acquired"] = lambda: engine.resource.acquired
        self.sched = QuickSched(self, self.table, self, self.queues, **more)
        self.methods = {
            "sched-hello": self.sched.hello,
            "sched-ready": self.sched.ready,
            "raise": self._raise,
            "kill": self._told,
            "memo": self._told,
            "getattr": self._getattr,
            "alloc-query": self._alloc_query,
        }

    # -- called by the engine -----------------------------------------------------------------------

    def submit(self, id, index, job):
        """Submit a job; `index` is -1 for one of no trace."""
        queue = (job.queue or self.default_queue) if self.queues.are_named else None
        userid = self.userids.get(job.user, OWNER)
        active = ActiveJob(id, index, job, self.kernel.time, queue, userid)
        self.jobs[id] = active
        self.waiting += 1
        if index >= 0:
            self.observer.submitted(index, self.kernel.time)
        if queue not in self.queues.table:
            # job-ingest's error.
            text = "no queue specified" if queue is None else f"Invalid queue '{queue}' specified"
            self.raise_exception(active, "alloc", 0, text)
        else:
            active.jobspec = self._packed(job, queue)
            self.sched.enqueue(active)
        if self.hooks:
            self._call_hooks("submit", active)
        return active

    def adopt(self, id, job, R, start):
        """Add a job that already runs when the scheduler is loaded."""
        queue = job.queue if job.queue in self.queues.table else None
        active = ActiveJob(id, -1, job, start, queue, self.userids.get(job.user, OWNER))
        active.jobspec = self._packed(job, queue)
        active.state, active.R, active.start = states.RUN, R, start
        self.jobs[id] = active
        self.running += 1
        self.observer.began(active)
        return active

    def _packed(self, job, queue):
        memory = job.extra["memory"]["per-slot"] if job.extra and "memory" in job.extra else None
        key = (job.shape, job.limit, queue or job.queue, job.group, memory)
        special = job.extra is not None and ("jobspec" in job.extra or "constraints" in job.extra)
        packed = None if special else self._specs.get(key)
        if packed is None:
            # Version 2 of the format, without back references, is decoded in two thirds of the time.
            packed = marshal.dumps(request_of(job, queue, self.queues), 2)
            if not special:
                if len(self._specs) == MOST_SPECS:
                    self._specs.clear()
                self._specs[key] = packed
        return packed

    def finish(self, active, how=None):
        """End a running job; `how` None: by itself, or at its limit."""
        if how is None:
            limit = active.limit or active.job.limit
            how = states.TIMEOUT if limit and active.job.run > limit else states.COMPLETED
        self.running -= 1
        del self.jobs[active.id]
        active.state = states.INACTIVE
        active.end = self.kernel.time
        active.end_entry = None
        self.sched.give_back(active.id, active.R)
        self._ended(active, how)

    def _ended(self, active, how):
        self.observer.ended(active, how)
        if self.hooks:
            self._call_hooks("end", active)
        if self._followers:
            self._let_follow(active.index)

    def _let_follow(self, index):
        for follower in self._followers.pop(index, ()):
            self.engine.follow(follower)

    def _call_hooks(self, event, active):
        # Deferred: the current event may be the scheduler's answer.
        for function in self.hooks.pop((event, active.job.id), ()):
            self.engine.at(self.engine.now, function)

    def cancel(self, active, how=states.CANCELED):
        """End a pending or running job."""
        if active.state == states.RUN:
            self.finish(active, how)
        elif active.state == states.SCHED:
            active.state = states.CLEANUP
            active.end = self.kernel.time
            self.waiting -= 1
            was_pending = active.alloc_pending
            self.sched.withdraw(active)
            self._ended(active, how)
            if not was_pending:
                self.jobs.pop(active.id, None)

    def set_urgency(self, active, urgency):
        """Set the urgency, and so the priority, of a pending job."""
        if active.state == states.SCHED:
            active.priority = priority_of(urgency)
            if active.priority == 0:
                self.sched.withdraw(active)
            else:
                self.sched.enqueue(active)

    def set_queue(self, name, started):
        """Start or stop a queue; None: all queues, or the anonymous one. Raises ValueError if the
        queue does not exist."""
        table = self.queues.table
        if name is not None and name not in table:
            raise ValueError(f"there is no queue {name!r}")
        for queue in table.values() if name is None else [table[name]]:
            queue.started = started
        self.sched.requeue_eligible(list(self.jobs.values()))

    def set_expiration(self, active, expiration):
        """Tell the scheduler of a running job's new expiration (seconds since the epoch)."""
        active.R = rset.with_expiration(active.R, expiration)
        self.tell("sched.expiration", {"id": active.id, "expiration": expiration})

    # -- called by the job manager's parts ------------------------------------------------------------

    def schedule(self):
        # Sent once for all events of an instant.
        self.kernel.flush = self.sched.pump

    def send(self, function, *args):
        function(*args)

    def notify(self, topic, obj):
        self.tell(topic, obj, FLAG_NORESPONSE)

    def post(self, active, name, context=None):
        if name == "alloc":
            active.state = states.RUN
            active.start = self.kernel.time
            self.waiting -= 1
            self.running += 1
            self.engine.end_at(active, active.start + active.job.seconds)
            self.observer.began(active)
            if self.hooks:
                self._call_hooks("start", active)

    def raise_exception(self, active, kind, severity, note, userid=None):
        del self.jobs[active.id]
        active.state = states.INACTIVE
        active.end = self.kernel.time
        self.waiting -= 1
        if active.index >= 0:
            self.observer.rejected(active, note)
        else:
            self.engine.log.add(LOG_WARNING, f"job {active.job.id} of the script: {note}")
        if self._followers:
            self._let_follow(active.index)

    def alloc_ended(self, active):
        self.jobs.pop(active.id, None)
        active.state = states.INACTIVE

    def holders(self, partial_ok=True):
        return [active for active in self.jobs.values() if active.state == states.RUN]

    def log(self, level, text):
        self.tell("log.append", {"level": level, "text": f"{COMPLAINT}{text}"}, FLAG_NORESPONSE)

    # -- messages -------------------------------------------------------------------------------------

    def _raise(self, msg):
        body = msg.body
        active = self.jobs.get(body["id"])
        if active is None:
            raise OSError(errno.ENOENT, "unknown job id")
        if body.get("severity") == 0:
            if body.get("type") == "preempt":
                active.preempted = preempted_for(body.get("note") or "", self.jobs)
            self.cancel(active, states.FAILED)
        self.respond(msg, {})

    def _told(self, msg):
        """Answer ``kill`` and ``memo``, which have no effect on these jobs."""
        self._find(msg.body["id"])
        self.respond(msg, {})

    def _getattr(self, msg):
        """Answer with attributes of an active job; its eventlog is empty, since no scheduler reads
        it here."""
        known = {**self.known_of(self._find(msg.body["id"])), "eventlog": ""}
        self.respond(msg, {name: known[name] for name in msg.body["attrs"]})

    @staticmethod
    def known_of(active):
        """Return the jobspec and R (or None) of a job."""
        return {"jobspec": marshal.loads(active.jobspec), "R": active.R}

    def _find(self, id):
        active = self.jobs.get(id)
        if active is None:
            raise OSError(errno.EINVAL, "unknown job")
        return active

    def _alloc_query(self, msg):
        body = {
            "queue_length": self.sched.queued,
            "alloc_pending": len(self.sched.pending),
            "running": self.running,
            "pending": self.waiting,
        }
        self.respond(msg, body)
