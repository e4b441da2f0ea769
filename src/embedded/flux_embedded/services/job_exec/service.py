# SPDX-License-Identifier: LGPL-3.0-or-later
"""Service ``job-exec``.

=======================  ====================================================================================
method                   payload -> response
=======================  ====================================================================================
start                    RFC 32: ``{id, userid, jobspec, R, reattach}``, answered by ``{id, type, data}``
kill                     ``{id, signum}``, no response wanted: a signal to its tasks, of which a mock job has none
expiration               ``{id, expiration}``, no response wanted: the job's end of time moved; 0: none
script (S)               ``{id, userid, ranks, command}`` -> ``{rank, status}`` for each rank,
                         ENODATA: run a command once for each rank (housekeeping)
script-kill              ``{id, signum, ranks?}``, no response wanted
=======================  ====================================================================================

A job is mock-executed when its jobspec has ``attributes.system.exec.test``, or the clock is virtual; else
its command is really run, on this machine for all ranks.

Configuration, table ``exec``: ``kill-timeout`` (FSD, default 5s), the time between SIGTERM to a job that is to end, and SIGKILL.
"""

import errno
import os
from syslog import LOG_DEBUG, LOG_ERR, LOG_INFO

from flux_embedded.services.job_exec.layout import environment_on
from flux_embedded.services.job_exec.local import LocalJob
from flux_embedded.services.job_exec.mock import MockJob
from flux_embedded.services.job_exec.process import Process
from flux_engine.formats import eventlog, form, fsd, idset, jobid
from flux_engine.formats.dotted import lookup_path
from flux_engine.kernel.message import NO_SERVICE
from flux_engine.kernel.service import Service, request


class Scripts:
    """The scripts that run now, once for each rank of a job: housekeeping, and those of the example plugin ``perilog.py``."""

    def __init__(self, service):
        self.service = service
        self._running = {}  # (job id, rank) -> Process

    def start(self, msg):
        body = msg.body
        id, left = body["id"], set(idset.ids(body["ranks"]))

        def ended(rank, status):
            self._running.pop((id, rank), None)
            left.discard(rank)
            self.service.respond(msg, {"rank": rank, "status": status})
            if not left:
                self.service.respond_error(msg, errno.ENODATA)

        for rank in sorted(left):
            try:
                self._running[(id, rank)] = Process(
                    self.service,
                    body["command"],
                    self._environment(body, rank),
                    None,
                    lambda stream, data, rank=rank: self._log(id, rank, stream, data),
                    lambda status, rank=rank: ended(rank, status),
                )
            except OSError as exc:
                self.service.log(LOG_ERR, f"housekeeping of {jobid.f58(id)} on rank {rank}: {exc}")
                ended(rank, 127 << 8)

    def _environment(self, body, rank):
        ctx = self.service.ctx
        own = environment_on(rank, body["id"], ctx.attrs.get("local-uri"))
        return {**ctx.environ, **own, "FLUX_JOB_USERID": str(body["userid"])}

    def _log(self, id, rank, stream, data):
        level = LOG_INFO if stream == "stdout" else LOG_ERR
        for line in data.decode("utf-8", "replace").splitlines():
            self.service.log(level, f"housekeeping of {jobid.f58(id)} on rank {rank}: {line}")

    def kill(self, body):
        ranks = idset.ids(body["ranks"]) if "ranks" in body else None
        for (id, rank), process in list(self._running.items()):
            if id == body["id"] and (ranks is None or rank in ranks):
                process.kill(body["signum"])

    def abandon(self):
        for process in list(self._running.values()):
            process.abandon()
        self._running.clear()


_CONFIG = {"kill-timeout?": fsd.parse}


class JobExec(Service):
    """The execution service; `jobs` has a MockJob or LocalJob for each id."""

    name = "job-exec"

    def __init__(self, ctx, *args):
        super().__init__(ctx, *args)
        self.jobs = {}
        self.scripts = Scripts(self)
        self.configure(ctx.config)

    def begin(self):
        self.subscribe("job-exception", self._exception)
        self.rpc("job-manager.exec-hello", {"service": self.name}).get()
        self.subscribe("job-manager-start", self._manager_started)
        self.rpc("overlay.monitor", streaming=True).then(self._ranks_changed)

    def stop(self):
        for job in list(self.jobs.values()):
            job.abandon()
        self.scripts.abandon()

    def configure(self, config):
        table = form.check_table(config.get("exec"), _CONFIG, "exec")
        self.kill_timeout = fsd.parse(table.get("kill-timeout", "5s"))

    # -- requests ----------------------------------------------------------------------------------

    @request(
        "start",
        form={"id": int, "userid": int, "jobspec": dict, "reattach": bool, "R": dict},
        later=True,
    )
    def _start(self, msg):
        body = msg.body
        id = body["id"]
        if id in self.jobs:
            job = self.jobs[id]
            job.msg = msg
            job.answer("reattached", {})
            return
        job = self.jobs[id] = self._make(msg, body)
        if body["reattach"]:
            note = "job is not running: its execution service is gone"
            job.answer("exception", {"severity": 0, "type": "exec", "note": note})
            job.release()
        else:
            job.start()

    def _make(self, msg, body):
        """The job of a start request, mock or real."""
        test = lookup_path(body["jobspec"], "attributes.system.exec.test")
        if test is not None or self.kernel.clock.virtual:
            return MockJob(self, msg, body, {} if test is None else test)
        return LocalJob(self, msg, body)

    @request("kill", form={"id": int, "signum": int})
    def _kill(self, msg):
        job = self.jobs.get(msg.body["id"])
        if isinstance(job, LocalJob):
            job.kill(msg.body["signum"])

    @request("expiration", form={"id": int, "expiration": (int, float)})
    def _expiration(self, msg):
        job = self.jobs.get(msg.body["id"])
        if job is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        job.set_expiration(msg.body["expiration"])

    @request(
        "script", streaming=True, form={"id": int, "userid": int, "ranks": str, "command": list}
    )
    def _script(self, msg):
        self.scripts.start(msg)

    @request("script-kill", form={"id": int, "signum": int, "ranks?": str})
    def _script_kill(self, msg):
        self.scripts.kill(msg.body)

    def _manager_started(self, msg):
        def answered(future):
            try:
                future.get()
            except OSError as exc:
                self.log(LOG_ERR, f"exec-hello: {exc.strerror}")

        self.rpc("job-manager.exec-hello", {"service": self.name}).then(answered)

    def _ranks_changed(self, future):
        try:
            offline = future.body.get("offline")
        except OSError as exc:
            if exc.errno not in NO_SERVICE:
                self.log(LOG_ERR, f"overlay.monitor: {exc.strerror}")
            return
        future.reset()
        if offline:
            ranks = set(idset.ids(offline))
            for job in list(self.jobs.values()):
                job.lost(ranks)

    def _exception(self, msg):
        body = msg.body
        job = self.jobs.get(body["id"])
        if job is not None and body["severity"] == 0:
            self.log(LOG_DEBUG, f"exec aborted: id={jobid.f58(job.id)}")
            job.exception(body["type"])

    # -- for jobs ------------------------------------------------------------------------------------

    def ended(self, job):
        """The final release of `job` was sent."""
        self.jobs.pop(job.id, None)

    def append(self, id, path, *events):
        """Append (name, context) events to a log under the job's directory."""
        now = self.kernel.time
        text = "".join([eventlog.encode(now, name, context) for name, context in events])
        key = f"{jobid.kvs_dir(id)}.guest.{path}"
        self.ctx.kvs.commit([["append", key, text]])
