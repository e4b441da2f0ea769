"""The scheduler as a peer: hello, ready, and its disappearance (RFC 27)."""

import errno

from flux_embedded.formats import idset
from flux_embedded.formats.levels import LOG_INFO
from flux_embedded.formats.states import INACTIVE, SCHED
from flux_embedded.kernel.service import Malformed

LIMIT_MAX = 2147483647


class Peer:
    """Whether there is a scheduler and what it asked for.

    Attributes:
        is_ready (bool): hello and ready are both in
        limit (int): most outstanding requests in limited mode, 0 in unlimited mode
    """

    def __init__(self, jm):
        self.jm = jm
        self.sender = None
        self.is_ready = False
        self.limit = 0

    def hello(self, msg):
        """``job-manager.sched-hello``: list the jobs that hold resources."""
        body = msg.body or {}
        partial_ok = body.get("partial-ok", False)
        if type(partial_ok) is not bool:
            raise OSError(errno.EPROTO, "sched-hello: partial-ok must be true or false")
        if self.sender is not None:
            self._suspend("replaced by a new hello")
        if not partial_ok:
            self._settle_partly_freed()
        for job in self.jm.holding_resources():
            answer = {
                "id": job.id,
                "priority": max(job.priority, 0),
                "userid": job.userid,
                "t_submit": float(job.t_submit),
            }
            if job.freed:
                answer["free"] = idset.text(job.freed)
            self.jm.respond(msg, answer)
        self.sender = msg.sender
        self.jm.respond_error(msg, errno.ENODATA)

    def _settle_partly_freed(self):
        """A scheduler that does not know ``free`` can be told of no partly freed job."""
        for job in list(self.jm.holding_resources()):
            if job.freed and job.state == INACTIVE:
                self.jm.housekeeping.abort(job)
        for job in self.jm.holding_resources():
            if job.freed:
                raise OSError(
                    errno.ENOTSUP,
                    "sched-hello: partial-ok is required: a job that is still running has freed some ranks",
                )

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
        self.jm.respond(msg, {"count": self.jm.alloc.queued})
        self.jm.events.schedule()

    def disconnected(self, sender):
        """An endpoint is gone; was it the scheduler?"""
        if sender is not None and sender is self.sender:
            self._suspend("disconnected")

    def failed(self, text, level):
        """The scheduler broke the protocol or a request to it failed."""
        if self.sender is not None:
            self.jm.log(level, text)
            self._suspend("failed")

    def _suspend(self, why):
        was_ready = self.is_ready
        self.sender = None
        self.is_ready = False
        self.limit = 0
        self.jm.alloc.suspend()
        if was_ready:
            waiting = sum(1 for job in self.jm.jobs.values() if job.state == SCHED)
            self.jm.log(LOG_INFO, f"scheduler {why}: {waiting} jobs wait for the next one")
