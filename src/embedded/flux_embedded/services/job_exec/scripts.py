# SPDX-License-Identifier: LGPL-3.0-or-later
"""Scripts that run once for each rank of a job: housekeeping, and those of the example plugin ``perilog.py``."""

import errno
from syslog import LOG_ERR, LOG_INFO

from flux_embedded.services.job_exec.layout import environment_on
from flux_embedded.services.job_exec.process import Process
from flux_engine.formats import idset, jobid


class Scripts:
    """The scripts that run now."""

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
