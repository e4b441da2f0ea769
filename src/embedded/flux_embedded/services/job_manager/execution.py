"""Execution as a peer: start requests and what comes back (RFC 32)."""

import os

from flux_embedded.formats import idset, rset
from flux_embedded.formats.levels import LOG_DEBUG, LOG_ERR, LOG_INFO
from flux_embedded.formats.states import ACTIVE, CLEANUP, RUN
from flux_embedded.kernel.service import Malformed


class Execution:
    """The execution service and the jobs it runs.

    Attributes:
        service (str): name of the execution service, None while there is none
    """

    def __init__(self, jm):
        self.jm = jm
        self.service = None
        self._sender = None
        self._watcher = None

    # -- the execution service -------------------------------------------------------------------

    def hello(self, msg):
        """``job-manager.exec-hello``: a service that starts jobs."""
        body = msg.body or {}
        service = body.get("service")
        if not isinstance(service, str) or not service or "." in service:
            raise Malformed("exec-hello: service must be the name of a service")
        self._listen(service)
        self._sender = msg.sender
        self.jm.respond(msg)
        for job in list(self.jm.jobs.values()):
            if job.start_pending:
                self._send(job, reattach=True)
            elif job.state == RUN and not job.perilogs:
                self.request(job)

    def _listen(self, service):
        if self.service != service:
            if self._watcher is not None:
                self._watcher.destroy()
            self._watcher = self.jm.on_response(f"{service}.start", self.response)
            self.service = service

    def disconnected(self, sender):
        if sender is not None and sender is self._sender:
            self._lost("disconnected")

    def _lost(self, why):
        self.jm.log(
            LOG_INFO,
            f"execution service {self.service} {why}: no jobs are started until it is back",
        )
        self._watcher.destroy()
        self.service = self._sender = self._watcher = None
        # A job that is being cleaned up has nobody left to end it: the next service will be asked to
        # reattach, and says so if there is nothing to reattach to.

    # -- jobs ------------------------------------------------------------------------------------

    def request(self, job):
        """Have `job`, in RUN and with no prolog open, started."""
        if self.service is None or job.start_pending:
            return
        job.start_pending = True
        if job.flags & 2:
            self.jm.events.post(job, "debug.start-request")
        self.jm.events.send(self._send, job, False)

    def _send(self, job, reattach):
        if self.service is None:
            return
        payload = {
            "id": job.id,
            "userid": job.userid,
            "jobspec": job.jobspec,
            "R": job.R,
            "reattach": reattach,
        }
        self.jm.h.send_untagged(f"{self.service}.start", payload)

    def response(self, msg):
        """A response to a start request."""
        if msg.errnum:
            self._lost(f"failed ({msg.payload_str or os.strerror(msg.errnum)})")
            return
        try:
            body = msg.body
            job = self.jm.jobs.get(body["id"])
            handler = self._HANDLERS[body["type"]]
            data = body["data"]
            if job is None or not job.start_pending:
                self.jm.log(
                    LOG_DEBUG, f"start response for job {body['id']} without a request ignored"
                )
                return
            handler(self, job, data)
        except (TypeError, KeyError, ValueError) as exc:
            self.jm.log(LOG_ERR, f"malformed start response ({exc!r}): {msg.payload_str}")

    def _started(self, job, data):
        self.jm.events.post(job, "start")

    def _reattached(self, job, data):
        # No event: the job's start is in its eventlog already.
        pass

    def _released(self, job, data):
        final = bool(data["final"])
        text = data["ranks"]
        ranks = set(idset.ids(text)) if text != "all" else set(rset.ranks(job.R))
        if job.state == RUN and final:
            # Execution is over without a word on how: it never began.
            self.jm.raise_exception(job, "exec", 0, "job ended without a finish status")
        self.jm.life.released(job, ranks, final)

    def _exception(self, job, data):
        context = {
            "type": str(data["type"]),
            "severity": int(data["severity"]),
            "userid": self.jm.owner,
            "note": str(data.get("note") or ""),
        }
        if job.state & ACTIVE:
            self.jm.events.post(job, "exception", context)

    def _finished(self, job, data):
        if job.state in (RUN, CLEANUP):
            self.jm.events.post(job, "finish", {"status": int(data["status"])})

    _HANDLERS = {
        "start": _started,
        "reattached": _reattached,
        "release": _released,
        "exception": _exception,
        "finish": _finished,
    }
