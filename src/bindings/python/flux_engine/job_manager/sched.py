# SPDX-License-Identifier: LGPL-3.0-or-later
"""The scheduler as a peer, and the jobs that wait for it: the job manager's side of RFC 27.

A scheduler sends hello, is sent the jobs that hold resources, sends ready, and from then on gets
requests for resources and frees. When it disconnects or breaks the protocol, all requests are dropped and
the jobs wait for the next scheduler.

Jobs to be sent wait in a heap by descending priority, then submit time, then id. In unlimited mode
all of them are sent. In limited mode at most `limit` requests are outstanding; as in the real job
manager, the last one is withdrawn if a waiting job precedes it, so that the scheduler always has the
first jobs in the order.
"""

import errno
import heapq
from syslog import LOG_ERR

from flux_engine.formats import idset, jobid, rset
from flux_engine.formats.jsontext import dumps
from flux_engine.formats.states import FLAG_ALLOC_BYPASS
from flux_engine.job_manager.job import merge_annotations
from flux_engine.kernel.message import Malformed

SUCCESS, ANNOTATE, DENY, CANCEL = 0, 1, 2, 3
LIMIT_MAX = 2147483647


def _kind_of(body):
    """The type of a response to ``sched.alloc`` (RFC 27). ValueError: how the response is malformed."""
    if type(body) is not dict:
        raise ValueError("expected an object")
    kind, annotations = body.get("type"), body.get("annotations")
    if type(body.get("id")) is not int:
        raise ValueError("id: expected a job id")
    if type(kind) is not int or not SUCCESS <= kind <= CANCEL:
        raise ValueError("type: expected 0 to 3")
    if type(annotations) is not dict and (annotations is not None or kind == ANNOTATE):
        raise ValueError("annotations: expected an object")
    if "note" in body and type(body["note"]) is not str:
        raise ValueError("note: expected a string")
    return kind


def place(job):
    """The place of a job in the order in which jobs are sent to the scheduler."""
    return -job.priority, job.t_submit, job.id


class Sched:
    """The scheduler and the jobs that wait for resources.

    Args:
        service (Service): the job manager, to send and answer with
        jobs (Jobs): all jobs
        events (Events): to post with
        queues (Queues): which of them are started
        holders: ``holders(partial_ok)`` returns the jobs that hold resources; OSError if some of them have given back a
            part, and the scheduler does not support that
        ended: ``ended(job)`` is called when a request was withdrawn for a job that may have left SCHED
        acquired: ``acquired()`` gives the `AcquireStream` of the resource service, or None

    Attributes:
        sender: the peer that said hello, or None
        is_ready (bool): hello and ready are both in
        limit (int): maximum of outstanding requests in limited mode, 0 in unlimited mode
        pending (dict): id -> Job with an outstanding ``sched.alloc``
        queued (int): jobs waiting to be sent
    """

    #: The check of the form of an R (None: that of `Allocations` suffices), and the part of it that jobs keep; and the class of
    #: answers that are in form but for annotations (None: none). Subclasses may replace them.
    is_sound = staticmethod(rset.is_sound)
    kept = staticmethod(rset.redacted)
    checked = None

    def __init__(self, service, jobs, events, queues, holders, ended, acquired):
        self.service = service
        self.jobs = jobs
        self.events = events
        self.queues = queues
        self._holders = holders
        self._ended = ended
        self._acquired = acquired
        #: the allocations of jobs, to check those that the scheduler makes; None: it has acquired nothing
        self._allocations = None
        self.sender = None
        self.is_ready = False
        self.limit = 0
        self.pending = {}
        self.queued = 0
        # heap of (-priority, t_submit, id, serial, job), stale unless it is `alloc_entry` of the job; the
        # serial number keeps it from comparing a job with itself
        self._serial, self._waiting = 0, []
        self._reprioritized = {}
        self._canceling = set()

    # -- hello and ready -------------------------------------------------------------------------

    def hello(self, msg):
        """``job-manager.sched-hello``: list the jobs that hold resources."""
        body = msg.body or {}
        partial_ok = body.get("partial-ok", False)
        if type(partial_ok) is not bool:
            raise OSError(errno.EPROTO, "sched-hello: partial-ok must be true or false")
        if self.sender is not None:
            self._suspend()
        holders = self._holders(partial_ok)
        stream = self._acquired()
        self._allocations = None if stream is None else stream.told
        for job in holders:
            if self._allocations is not None:
                self._allocations.take(job.id, job.R)
                if job.freed:
                    self._allocations.give_back(job.id, idset.text(job.freed))
            answer = {
                "id": job.id,
                "priority": max(job.priority, 0),
                "userid": job.userid,
                "t_submit": float(job.t_submit),
            }
            if job.freed:
                answer["free"] = idset.text(job.freed)
            self.service.respond(msg, answer)
        self.sender = msg.sender
        self.service.respond_error(msg, errno.ENODATA)

    def ready(self, msg):
        """``job-manager.sched-ready``: the scheduler takes requests from now on."""
        body = msg.body
        mode = body.get("mode") if isinstance(body, dict) else None
        if self.sender is not msg.sender:
            raise Malformed("sched-ready: there was no sched-hello before")
        if mode == "limited":
            limit = body.get("limit")
            if type(limit) is not int or not 1 <= limit <= LIMIT_MAX:
                raise OSError(
                    errno.EPROTO, f"sched-ready: limit must be an integer from 1 to {LIMIT_MAX}"
                )
        elif mode == "unlimited":
            limit = 0
            if "limit" in body:
                raise OSError(errno.EPROTO, "sched-ready: a limit is for mode 'limited'")
        else:
            raise OSError(errno.EPROTO, "sched-ready: mode must be 'limited' or 'unlimited'")
        self.limit = limit
        self.is_ready = True
        self.service.respond(msg, {"count": self.queued})
        self.events.schedule()

    # -- the order -------------------------------------------------------------------------------

    def enqueue(self, job):
        """`job` is in SCHED (again): queue it to be sent, or tell the scheduler of the change."""
        if job.alloc_pending:
            self._update_pending(job)
            return
        if job.alloc_entry is not None:
            self.dequeue(job)
        if job.flags & FLAG_ALLOC_BYPASS:
            return  # a plugin allocates its resources
        if job.priority > 0 and self.queues.is_started(job):
            self._serial += 1
            job.alloc_entry = (*place(job), self._serial, job)
            heapq.heappush(self._waiting, job.alloc_entry)
            self.queued += 1
            self.events.schedule()

    def dequeue(self, job):
        """Remove `job` from the jobs waiting to be sent."""
        if job.alloc_entry is not None:
            job.alloc_entry = None
            self.queued -= 1

    def _update_pending(self, job):
        if job.priority == 0:
            self.withdraw(job)
            return
        self._reprioritized[job.id] = job.priority
        self.events.schedule()
        if job.alloc_stale or self.limit:
            # The request that is out has the old jobspec, or the old place in the order.
            self._send_prioritize()
            self._cancel(job)

    def withdraw(self, job):
        """Take back the request of a job, or its place in the order."""
        if job.alloc_pending:
            self._reprioritized.pop(job.id, None)
            self._cancel(job)
        else:
            self.dequeue(job)

    def requeue_eligible(self, jobs):
        """Queues were started or stopped: enqueue or withdraw `jobs` accordingly."""
        for job in jobs:
            if not job.waits:
                continue
            if self.queues.is_stopped(job):
                self.withdraw(job)
            elif not job.alloc_pending:
                self.enqueue(job)

    # -- sending ---------------------------------------------------------------------------------

    def pump(self):
        """Send the requests that may be sent; called once for all events of a turn."""
        if self._reprioritized:
            self._send_prioritize()
        if not self.is_ready:
            return
        limit = self.limit
        waiting = self._waiting
        if limit:
            self._make_way()
        while waiting:
            entry = waiting[0]
            job = entry[-1]
            is_waiting = job.alloc_entry is entry
            if is_waiting and limit and len(self.pending) >= limit:
                break
            heapq.heappop(waiting)
            if is_waiting:
                self._request(job)
                self.queued -= 1

    def _request(self, job):
        job.alloc_entry = None
        job.alloc_pending = True
        job.alloc_stale = False
        self.pending[job.id] = job
        payload = {
            "id": job.id,
            "priority": job.priority,
            "userid": job.userid,
            "t_submit": job.t_submit,
            "jobspec": job.jobspec,
        }
        if job.flags & 2:
            self.events.post(job, "debug.alloc-request")
        self.send("sched.alloc", payload)

    def send(self, topic, payload):
        self.events.send(self.service.h.send_untagged, topic, payload)

    def _make_way(self):
        """Withdraw the last job in order from the scheduler if a waiting job precedes it.

        One at a time: the next when the answer to this one is in.
        """
        waiting = self._waiting
        while waiting and waiting[0][-1].alloc_entry is not waiting[0]:
            heapq.heappop(waiting)
        if waiting and self.pending and not self._canceling:
            last = max(self.pending.values(), key=place)
            if waiting[0][:3] < place(last):
                self._cancel(last)

    def _cancel(self, job):
        if job.id not in self._canceling:
            self._canceling.add(job.id)
            self.events.send(self.service.notify, "sched.cancel", {"id": job.id})

    def _send_prioritize(self):
        changed = [
            [id, priority] for id, priority in self._reprioritized.items() if id in self.pending
        ]
        self._reprioritized.clear()
        if changed and self.is_ready:
            self.events.send(self.service.notify, "sched.prioritize", {"jobs": changed})

    # -- answers of the scheduler ------------------------------------------------------------------

    def alloc_response(self, msg):
        if msg.errnum:
            self._failed(f"sched.alloc: {msg.payload_str or f'error {msg.errnum}'}")
            return
        try:
            body = msg.body
            in_form = type(msg) is self.checked and type(body.get("annotations", body)) is dict
            kind = body["type"] if in_form else _kind_of(body)
            job = self.pending.get(body["id"])
            wrong = self._take(job, body.get("R")) if kind == SUCCESS else None
        except ValueError as exc:
            self._failed(f"malformed sched.alloc response: {exc}: {msg.payload_str}")
            return
        if job is None:
            wrong = (
                "it has no open request: a request is answered once, and nothing follows the answer"
            )
        if wrong is not None:
            text = f"sched.alloc response for job {jobid.f58(body['id'])}: {wrong}"
            self.service.log(LOG_ERR, text)
        if job is None:
            return
        if kind == ANNOTATE:
            self.annotate(job, body["annotations"])
        elif kind == SUCCESS:
            self._success(job, body)
        elif kind == DENY:
            self._deny(job, body.get("note") or "")
        else:
            self._canceled(job)

    def _take(self, job, R):
        """Enter a job's allocation; returns the text of a conflict, or None. ValueError: it is not an R."""
        wrong = None
        if job is not None and self._allocations is not None:
            wrong = self._allocations.take(job.id, R, self.service.kernel.time)
        if self.is_sound is not None and not self.is_sound(R):
            raise ValueError("R: expected hosts and children for each rank")
        return wrong

    def _done(self, job):
        """The final response is in."""
        del self.pending[job.id]
        job.alloc_pending = False
        if self._reprioritized or self._canceling:
            self._reprioritized.pop(job.id, None)
            self._canceling.discard(job.id)
        if self._waiting:
            self.events.schedule()

    def _success(self, job, body):
        self._done(job)
        R = self.kept(body["R"])
        if not job.waits or job.priority == 0 or job.alloc_stale or self.queues.is_stopped(job):
            # It crossed a cancellation, a hold, an update or the stop of its queue.
            self.give_back(job.id, R)
            self._canceled(job, done=True)
            return
        if body.get("annotations"):
            self.annotate(job, body["annotations"])
        job.R = R
        context = {"annotations": job.annotations} if job.annotations else None
        self.events.post(job, "alloc", context)

    def bypass(self, job, R):
        """Give `job` an R that did not come from the scheduler."""
        self.dequeue(job)
        if not rset.is_sound(R):
            self.events.raise_exception(
                job, "alloc", 0, "a plugin assigned something that is not an R"
            )
            return
        key = job.eventlog[: -len("eventlog")] + "R"
        self.events.puts.append(["put", key, dumps(R)])
        job.R = rset.redacted(R)
        self.events.post(job, "alloc", {"bypass": True})

    def _deny(self, job, note):
        self._done(job)
        self.forget_annotations(job)
        if job.waits:
            self.events.raise_exception(job, "alloc", 0, note)
        else:
            self._ended(job)

    def _canceled(self, job, done=False):
        if not done:
            self._done(job)
        job.alloc_stale = False
        if job.waits:
            self.enqueue(job)
        else:
            self._ended(job)

    # -- annotations -------------------------------------------------------------------------------

    def annotate(self, job, update):
        """Merge `update` into the job's annotations (RFC 27)."""
        merged = merge_annotations(job.annotations, update)
        if merged != job.annotations:
            job.annotations = merged
            self.events.annotated(job)

    def forget_annotations(self, job, key=None):
        """Drop all annotations of a job, or those under one key."""
        if job.annotations:
            self.annotate(job, {key: None} if key else dict.fromkeys(job.annotations))

    # -- giving back -----------------------------------------------------------------------------

    def give_back(self, id, R, final=True):
        """Send ``sched.free``, if there is a scheduler that knows of the job."""
        if self._allocations is not None:
            ranks = None if final else idset.text(rset.ranks(R))
            self._allocations.give_back(id, ranks)
        if self.knows_of_jobs:
            payload = {"id": id, "R": R, "final": final}
            self.send("sched.free", payload)

    @property
    def knows_of_jobs(self):
        """Whether the scheduler is told of freed resources."""
        return self.is_ready

    def free_response(self, msg):
        """``sched.free`` has no response but an error."""
        if msg.errnum:
            self._failed(f"sched.free: {msg.payload_str or f'error {msg.errnum}'}")

    # -- scheduler gone ------------------------------------------------------------------------------

    def disconnected(self, sender):
        """An endpoint is gone: if it was the scheduler, forget the requests."""
        if sender is not None and sender is self.sender:
            self._suspend()

    def _failed(self, text):
        """The scheduler broke the protocol or a request to it failed."""
        if self.sender is not None:
            self.service.log(LOG_ERR, text)
            self._suspend()

    def _suspend(self):
        self.sender = None
        self.is_ready = False
        self.limit = 0
        self._forget_requests()

    def _forget_requests(self):
        """The jobs wait for the next scheduler."""
        pending = list(self.pending.values())
        self.pending.clear()
        self._reprioritized.clear()
        self._canceling.clear()
        for job in pending:
            job.alloc_pending = False
            job.alloc_stale = False
            self.forget_annotations(job, "sched")
        for job in pending:
            if job.waits:
                self.enqueue(job)
            elif job.is_ending:
                self._ended(job)
