# SPDX-License-Identifier: LGPL-3.0-or-later
"""Housekeeping: a script run on each node of a job after its end, before another job gets the node.

It is in no RFC. The configuration is that of a real Flux: ``[job-manager.housekeeping]`` with ``command`` (array
of string) and ``release-after`` (FSD). The job's ``free`` event is posted when its resources are handed
over to housekeeping, so the job may be INACTIVE while housekeeping runs on its nodes.

Without ``release-after`` all ranks are freed together when the last script has ended. With it, the
ranks whose script has ended by then are freed at that time, and each other one when its script ends.

The scripts are run by the execution service (``job-exec.script``). Under the virtual clock they
are not run but take ``mock-duration`` (ours: an FSD, default 0, or a table of rank to FSD).
"""

import errno
import signal
from syslog import LOG_DEBUG, LOG_ERR

from flux_embedded.services.job_manager.part import Part
from flux_engine.formats import form, fsd, idset, jobid, rset
from flux_engine.kernel.service import refusing, request


def _mock_duration(value):
    for text in value.values() if isinstance(value, dict) else [value]:
        fsd.parse(text)


def _command(value):
    form.check(value, [str], "the command")
    if not value:
        raise ValueError("the command has no words")


#: The last key is this project's own.
_CONFIG = form.Table(
    {"command": _command, "release-after?": fsd.parse, "mock-duration?": _mock_duration}
)


class Housekeeping(Part):
    """Jobs in housekeeping, if it `is_configured`; `visits` has them: job id -> Visit."""

    def __init__(self, service):
        super().__init__(service)
        self.visits = {}
        self.is_configured = False
        self._command = None
        self._release_after = None
        self._mock = 0

    def configure(self, config):
        """Take ``job-manager.housekeeping`` of a configuration; OSError (EINVAL) if it is wrong."""
        table = config.get("job-manager", {}).get("housekeeping")
        if table is None:
            self.is_configured = False
            return
        form.check_table(table, _CONFIG, "job-manager.housekeeping")
        # Without a command a real instance runs its systemd unit; there is none here.
        command, release_after = table["command"], table.get("release-after")
        if release_after is not None:
            release_after = fsd.parse(release_after)
        mock = table.get("mock-duration", "0s")
        if isinstance(mock, dict):
            mock = {int(rank): fsd.parse(text) for rank, text in mock.items()}
        else:
            mock = fsd.parse(mock)
        self._command, self._release_after, self._mock = command, release_after, mock
        self.is_configured = True

    def start(self, job):
        """Start housekeeping on the nodes of `job`, all of which it has released."""
        if job.freed is None:
            job.freed = set()
        self.service.log(LOG_DEBUG, f"housekeeping: {jobid.f58(job.id)} started")
        self.visits[job.id] = Visit(self, job, self._command, self._release_after, self._mock)

    def ended(self, visit):
        self.service.log(LOG_DEBUG, f"housekeeping: {jobid.f58(visit.job.id)} complete")
        self.visits.pop(visit.job.id, None)

    def free(self, job, ranks, final):
        """Give back ranks of `job` whose housekeeping has ended; `final`: they are the last."""
        self.service.sched.give_back(job.id, rset.fragment(job.R, ranks), final)
        self.service.waits.check()

    def holders(self, partial_ok=True):
        """The jobs that hold resources in the scheduler's view: active ones and those in housekeeping.

        A scheduler may not support jobs that have given back a part of them (`partial_ok`, RFC 27): then housekeeping of such
        jobs ends here, and their nodes count as free; if one is still running, OSError (ENOTSUP).
        """
        active = [job for job in self.jobs.active.values() if job.has_resources and not job.bypass]
        if not partial_ok:
            if any(job.freed for job in active):
                text = "sched-hello: partial-ok is required: a job that is still running has freed some ranks"
                raise OSError(errno.ENOTSUP, text)
            for visit in [visit for visit in self.visits.values() if visit.job.freed]:
                # End it, and forget its nodes: they count as free.
                del self.visits[visit.job.id]
                visit.kill(15)
                visit.over = True
        return active + [visit.job for visit in self.visits.values()]

    @request("housekeeping-kill", form={"signum": int, "jobid?": int, "ranks?": str})
    def kill(self, msg):
        """``housekeeping-kill``: signal the scripts of one job, or of all, on some ranks, or all."""
        ranks = msg.body.get("ranks")
        with refusing():
            ranks = None if ranks is None else set(idset.ids(ranks))
        for visit in list(self.visits.values()):
            if msg.body.get("jobid") in (None, visit.job.id):
                visit.kill(msg.body["signum"], ranks)

    def describe(self):
        """``{id: {t_start, allocated: ranks, pending: ranks}}``; the pending ones are those whose script has not ended."""
        return {
            jobid.f58(id): {
                "t_start": visit.t_start,
                "allocated": idset.text(set(rset.ranks(visit.job.R)) - visit.job.freed),
                "pending": idset.text(visit.active),
            }
            for id, visit in self.visits.items()
        }


class Visit:
    """Housekeeping of one job.

    Attributes:
        t_start (float): when it began
        active (set): ranks whose script has not ended
        over (bool): it has ended; no more ranks are freed
    """

    def __init__(self, housekeeping, job, command, release_after, mock):
        self.housekeeping = housekeeping
        self.service = housekeeping.service
        self.job = job
        self.over = False
        self.t_start = self.service.kernel.time
        self.active = set(rset.ranks(job.R)) - job.freed
        self._command, self._mock = command, mock
        self._timers = {}  # rank -> that of its mock script
        self._done = set()
        self._each = release_after == 0
        if release_after:
            self.service.timer(release_after, self._release_now)
        # Before the scripts comes the `free` event, which is posted in the same turn.
        housekeeping.events.send(self._run)

    def _run(self):
        if self.service.kernel.clock.virtual:
            for rank in sorted(self.active):
                seconds = self._mock.get(rank, 0) if isinstance(self._mock, dict) else self._mock
                end = lambda rank=rank: self._rank_done(rank)
                self._timers[rank] = self.service.timer(seconds, end)
            return
        request = {
            "id": self.job.id,
            "userid": self.job.userid,
            "ranks": idset.text(self.active),
            "command": self._command,
        }
        self.service.rpc("job-exec.script", request, streaming=True).then(self._report)

    def _report(self, future):
        try:
            body = future.body
        except OSError as exc:
            if exc.errno != errno.ENODATA:
                self.service.log(LOG_ERR, f"housekeeping of job {self.job.id}: {exc.strerror}")
                for rank in sorted(self.active):
                    self._rank_done(rank)
            return
        future.reset()
        rank, status = body["rank"], body["status"]
        if status:
            R, id = self.job.R, jobid.f58(self.job.id)
            host = dict(zip(rset.ranks(R), rset.hosts(R)))[rank]
            reason = signal.strsignal(status & 0x7F) if status & 0x7F else "nonzero exit code"
            self.service.log(LOG_ERR, f"housekeeping: {host} (rank {rank}) {id}: {reason}")
        self._rank_done(rank)

    def _rank_done(self, rank):
        if self.over or rank not in self.active:
            return
        self.active.discard(rank)
        self._done.add(rank)
        if self._each or not self.active:
            self._release_now(from_timer=False)

    def _release_now(self, from_timer=True):
        if from_timer:
            self._each = True
        if self.over or not (self._done or not self.active):
            return
        ranks, self._done = self._done, set()
        self.job.freed |= ranks
        final = not self.active
        if final:
            self.over = True
            self.housekeeping.ended(self)
        self.housekeeping.free(self.job, ranks, final)

    def kill(self, signum, ranks=None):
        """Signal the scripts on some ranks (a set), or all."""
        ranks = self.active if ranks is None else self.active & ranks
        if self.service.kernel.clock.virtual:
            for rank in sorted(ranks):
                if rank in self._timers:
                    self._timers[rank].stop()
                self._rank_done(rank)
        else:
            request = {"id": self.job.id, "signum": signum, "ranks": idset.text(ranks)}
            self.service.notify("job-exec.script-kill", request)
