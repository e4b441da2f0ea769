# SPDX-License-Identifier: LGPL-3.0-or-later
"""Execution as a peer: start requests and their responses (RFC 32)."""

import os
from syslog import LOG_DEBUG, LOG_ERR, LOG_INFO

from flux_embedded.services.job_manager.part import Part
from flux_engine.formats import idset, rset
from flux_engine.formats.states import ACTIVE, CLEANUP, RUN
from flux_engine.kernel.service import Malformed, request


class Execution(Part):
    """The execution service, whose name is `provider` (None while there is none), and the jobs it runs."""

    def __init__(self, service):
        super().__init__(service)
        self.provider = None
        self._sender = None
        self._watcher = None

    # -- the execution service -------------------------------------------------------------------

    @request("exec-hello", later=True)
    def hello(self, msg):
        """``job-manager.exec-hello``: an execution service introduces itself."""
        body = msg.body or {}
        provider = body.get("service")
        if not isinstance(provider, str) or not provider or "." in provider:
            raise Malformed("exec-hello: service must be the name of a service")
        self._listen(provider)
        self._sender = msg.sender
        self.service.respond(msg)
        for job in list(self.jobs.active.values()):
            if job.start_pending:
                self._send(job, reattach=True)
            elif job.state == RUN and not job.perilogs:
                self.request(job)

    def _listen(self, provider):
        if self.provider != provider:
            if self._watcher is not None:
                self._watcher.destroy()
            self._watcher = self.service.on_response(f"{provider}.start", self.response)
            self.provider = provider

    def disconnected(self, sender):
        if sender is not None and sender is self._sender:
            self._lost("disconnected")

    def _lost(self, why):
        self.service.log(
            LOG_INFO,
            f"execution service {self.provider} {why}: no jobs are started until it is back",
        )
        self._watcher.destroy()
        self.provider = self._sender = self._watcher = None
        # A job in CLEANUP has lost the service that would end it: the next one will be asked to
        # reattach, and fails if there is nothing to reattach to.

    # -- jobs ------------------------------------------------------------------------------------

    def request(self, job):
        """Request the start of `job`, in RUN and with no prolog open."""
        if self.provider is None or job.start_pending:
            return
        job.start_pending = True
        if job.flags & 2:
            self.events.post(job, "debug.start-request")
        self.events.send(self._send, job, False)

    def kill(self, job, signum):
        """Send a signal to the tasks of a running job."""
        if self.provider is not None:
            self.service.notify(f"{self.provider}.kill", {"id": job.id, "signum": signum})

    def set_expiration(self, job, expiration):
        """Send the new expiration of `job`, once its event is committed."""
        if self.provider is not None:
            request = {"id": job.id, "expiration": expiration}
            self.events.send(self.service.notify, f"{self.provider}.expiration", request)

    def _send(self, job, reattach):
        if self.provider is None:
            return
        payload = {
            "id": job.id,
            "userid": job.userid,
            "jobspec": job.jobspec,
            "R": job.R,
            "reattach": reattach,
        }
        self.service.h.send_untagged(f"{self.provider}.start", payload)

    def response(self, msg):
        if msg.errnum:
            self._lost(f"failed ({msg.payload_str or os.strerror(msg.errnum)})")
            return
        try:
            body = msg.body
            job = self.jobs.active.get(body["id"])
            handler = self._HANDLERS[body["type"]]
            data = body["data"]
            if job is None or not job.start_pending:
                self.service.log(
                    LOG_DEBUG, f"start response for job {body['id']} without a request ignored"
                )
                return
            handler(self, job, data)
        except (TypeError, KeyError, ValueError) as exc:
            self.service.log(LOG_ERR, f"malformed start response ({exc!r}): {msg.payload_str}")

    def _released(self, job, data):
        """Execution is done with some ranks, or (``final``) with all of them (RFC 32)."""
        final = bool(data["final"])
        text = data["ranks"]
        ranks = set(idset.ids(text)) if text != "all" else set(rset.ranks(job.R))
        if job.state == RUN and final:
            # Execution has ended without a finish status: it never began.
            self.events.raise_exception(job, "exec", 0, "job ended without a finish status")
        everything = job.released is None and final
        if not everything:
            job.released = (job.released or set()) | ranks
        if final:
            job.start_pending = False
        text = "all" if everything else idset.text(ranks)
        self.events.post(job, "release", {"ranks": text, "final": final})

    def _exception(self, job, data):
        kind, severity = str(data["type"]), int(data["severity"])
        if job.state & ACTIVE:
            self.events.raise_exception(job, kind, severity, str(data.get("note") or ""))

    def _finished(self, job, data):
        if job.state in (RUN, CLEANUP):
            self.events.post(job, "finish", {"status": int(data["status"])})

    _HANDLERS = {
        "start": lambda self, job, data: self.events.post(job, "start"),
        # No event: the job's start is in its eventlog already.
        "reattached": lambda self, job, data: None,
        "release": _released,
        "exception": _exception,
        "finish": _finished,
    }
