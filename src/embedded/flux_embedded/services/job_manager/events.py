# SPDX-License-Identifier: LGPL-3.0-or-later
"""Posting of job events: the per-job queue, the eventlog, the journal and the messages sent afterwards.

An event posted to an idle job is processed at once, with all its consequences; one posted to a job
that is being processed (also from a plugin's callback) is queued.

Changes of the KVS are collected and committed together; messages caused by an event are kept in
`outbox` until then. So no action is visible before the event that announces it.
"""

from collections import deque

from flux_engine.formats import eventlog
from flux_engine.formats.states import NEW
from flux_engine.kernel.message import OWNER
from flux_engine.kernel.service import request

#: Maximum nesting of jobs processed within the processing of another; beyond it, they are put off to the end.
MAX_NESTING = 40


class Events:
    """The events of all jobs.

    Args:
        service (Service): the job manager, to send with

    Attributes:
        outbox (list): (function, *args) to call once everything posted so far is committed
        cascade (int): incremented when events are posted while none is being processed: all their consequences
            have the same number
    """

    def __init__(self, service):
        self.service = service
        self.readers = service.keep()  # requests for the journal
        self.puts = []  # changes of the KVS to commit
        self.outbox = []
        self.journal = []
        self.nesting = 0
        self.cascade = 0
        self._catching_up = False
        self._deferred = deque()
        self._scheduled = False
        self._late = {}  # job id -> fatal exceptions that wait for its validation

    # -- posting -------------------------------------------------------------------------------

    def post(self, job, name, context=None):
        """Post event `name` to `job`; `context` is a non-empty dict (not changed later) or None."""
        event = {"timestamp": self.service.kernel.time, "name": name}
        if context:
            event["context"] = context
        job.queue.append(event)
        if not (job.busy or job.hold):
            self.drain(job)

    def raise_exception(self, job, kind, severity, note, userid=OWNER):
        """Post an ``exception`` event; a fatal one on a job in NEW takes effect once it is validated (RFC 21)."""
        context = {"type": kind, "severity": severity, "note": note, "userid": userid}
        if severity == 0 and job.state == NEW:
            self._late.setdefault(job.id, []).append(context)
        else:
            self.post(job, "exception", context)

    def take_late(self, job):
        """Remove and return the fatal exceptions raised on `job` before its validation."""
        return self._late.pop(job.id, ())

    def release(self, job):
        """End a hold and process the events queued meanwhile."""
        job.hold = False
        if job.queue and not job.busy:
            self.drain(job)

    def drain(self, job):
        """Process the queued events of an idle job, in order."""
        if self.nesting >= MAX_NESTING:
            self._deferred.append(job)
            return
        if not self.nesting and not self._catching_up:
            self.cascade += 1
        queue = job.queue
        process = self._process
        job.busy = True
        self.nesting += 1
        try:
            while queue:
                process(job, queue.pop(0))
        finally:
            job.busy = False
            self.nesting -= 1
        if self._deferred and not self.nesting and not self._catching_up:
            self._catch_up()

    def _catch_up(self):
        """Process the jobs that were put off."""
        self._catching_up = True
        try:
            while self._deferred:
                later = self._deferred.popleft()
                if later.queue and not (later.busy or later.hold):
                    self.drain(later)
        finally:
            self._catching_up = False

    def queued(self, job, name, description):
        """Whether an event `name` with this description waits in the job's queue."""
        queue = [event["context"] for event in job.queue if event["name"] == name]
        return any(context["description"] == description for context in queue)

    def _process(self, job, event):
        before = job.apply(event)
        self.record(job, event)
        if job.subscribers:
            self.service.jobtap.job_event(job, event)
        if event["name"] == "jobspec-update":
            self.service.jobtap.call(job, "job.update", updates=event["context"])
        self.service.life.after_event(job, event, before)

    def record(self, job, event):
        """Put an event that was applied into the eventlog and the journal."""
        context = event.get("context")
        line = eventlog.encode(event["timestamp"], event["name"], context)
        self.puts.append(["append", job.eventlog, line])
        self.journal_event(job, event)
        self.schedule()

    def journal_event(self, job, event):
        """Send an event to the journal's readers, also one that is in no eventlog (annotations)."""
        if self.readers:
            entry = {"id": job.id, "event": event}
            if event["name"] == "alloc":
                entry["R"] = job.R
            self.journal.append(entry)

    def annotated(self, job):
        """Announce a change of the annotations of `job` to the journal's readers and subscribed plugins."""
        context = {"annotations": job.annotations}
        event = {"timestamp": self.service.kernel.time, "name": "annotations", "context": context}
        self.journal_event(job, event)
        self.schedule()
        if job.subscribers:
            self.service.jobtap.job_event(job, event)

    @request("journal-batches", streaming=True)
    def follow(self, msg):
        """``journal-batches``: ``{"events": [{"id", "event", "R"?}, ...]}`` for the events of each commit; R with ``alloc``.

        The first response has none. ``annotations`` is in no eventlog: it has the job's annotations whenever these changed.
        """
        self.readers.append(msg)
        self.service.respond(msg, {"events": []})

    # -- messages that wait for the commit -------------------------------------------------------

    def send(self, function, *args):
        """Call ``function(*args)`` when all events so far are committed."""
        self.outbox.append((function, args))
        self.schedule()

    def schedule(self):
        """Schedule `flush` after the messages queued now."""
        if not self._scheduled:
            self._scheduled = True
            self.service.defer(self.flush)

    # -- committing ------------------------------------------------------------------------------

    def flush(self):
        """Commit the posted events, and send the messages that waited for the commit."""
        self._scheduled = False
        self.service.sched.pump()
        self.commit()
        outbox, journal = self.outbox, self.journal
        self.outbox, self.journal = [], []
        for msg in self.readers if journal else ():
            self.service.respond(msg, {"events": journal})
        for function, args in outbox:
            function(*args)

    def commit(self):
        puts, self.puts = self.puts, []
        if puts:
            self.service.ctx.kvs.commit(puts)
