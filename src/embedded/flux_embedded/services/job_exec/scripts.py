"""Housekeeping scripts: one process a rank, for the job manager."""

import errno

from flux_embedded.formats import jobid
from flux_embedded.services.job_exec.process import Process
from flux_embedded.services.job_manager import rlite


class Scripts:
    """The scripts that run now."""

    def __init__(self, service):
        self.service = service
        self._running = {}  # (job id, rank) -> Process

    def start(self, msg):
        """``housekeeping``: run a command for each rank."""
        body = msg.body
        id, ranks = body["id"], rlite.ids(body["ranks"])
        left = set(ranks)

        def ended(rank, status):
            self._running.pop((id, rank), None)
            left.discard(rank)
            self.service.respond(msg, {"rank": rank, "status": status})
            if not left:
                self.service.respond_error(msg, errno.ENODATA)

        for rank in ranks:
            environment = dict(self.service.ctx.environ)
            environment["FLUX_JOB_ID"] = jobid.f58(id)
            environment["FLUX_JOB_USERID"] = str(body["userid"])
            # One process plays all ranks: this is how a script, and `flux getattr rank` in it, knows its own.
            environment["FLUX_HOUSEKEEPING_RANK"] = str(rank)
            environment["FLUX_EMBEDDED_RANK"] = str(rank)
            uri = self.service.ctx.attrs.get("local-uri")
            if uri:
                environment["FLUX_URI"] = uri
            try:
                self._running[(id, rank)] = Process(
                    self.service,
                    body["command"],
                    environment,
                    None,
                    lambda stream, data, rank=rank: self._log(id, rank, stream, data),
                    lambda status, rank=rank: ended(rank, status),
                )
            except OSError as exc:
                self.service.log(3, f"housekeeping of {jobid.f58(id)} on rank {rank}: {exc}")
                ended(rank, 127 << 8)

    def _log(self, id, rank, stream, data):
        for line in data.decode("utf-8", "replace").splitlines():
            level = 6 if stream == "stdout" else 3
            self.service.log(level, f"housekeeping of {jobid.f58(id)} on rank {rank}: {line}")

    def kill(self, body):
        """``housekeeping-kill``."""
        ranks = set(rlite.ids(body["ranks"])) if "ranks" in body else None
        for (id, rank), process in list(self._running.items()):
            if id == body["id"] and (ranks is None or rank in ranks):
                process.kill(body["signum"])

    def abandon(self):
        for process in list(self._running.values()):
            process.abandon()
        self._running.clear()
