"""Housekeeping: a script on each node after a job, before the node is given to another.

No RFC has it. Configuration is the real one's: ``[job-manager.housekeeping]`` with ``command`` (array
of string) and ``release-after`` (FSD). The job's ``free`` event is posted when its resources are handed
over to housekeeping, so the job may be INACTIVE while its nodes are still being looked after.

Without ``release-after`` all ranks are freed together when the last script has ended. With it, those
that have ended by that time are freed then, and each later one when it ends.

The scripts are run by the execution service (``job-exec.script``). Under the virtual clock they
are not run but take ``mock-duration`` (ours: an FSD, default 0, or a table of rank to FSD).
"""

import errno

from flux_embedded.formats import fsd
from flux_embedded.services.job_manager import rlite

LOG_ERR = 3


class Housekeeping:
    """Jobs whose nodes are being looked after.

    Attributes:
        jobs (dict): id -> Visit
        is_configured (bool)
    """

    def __init__(self, jm):
        self.jm = jm
        self.jobs = {}
        self.is_configured = False
        self._command = None
        self._release_after = None
        self._mock = 0

    def configure(self, config):
        """Take ``job-manager.housekeeping`` of a configuration.

        Raises:
            OSError: EINVAL
        """
        table = config.get("job-manager", {}).get("housekeeping")
        if table is None:
            self.is_configured = False
            return
        command = table.get("command")
        # Without a command a real instance runs its systemd unit; there is none here.
        if not isinstance(command, list) or not command or not all(isinstance(w, str) for w in command):
            raise OSError(errno.EINVAL, "job-manager.housekeeping.command: expected an array of strings")
        release_after = table.get("release-after")
        try:
            release_after = fsd.parse(release_after) if release_after is not None else None
            mock = table.get("mock-duration", "0s")
            if isinstance(mock, dict):
                mock = {int(rank): fsd.parse(text) for rank, text in mock.items()}
            else:
                mock = fsd.parse(mock)
        except (ValueError, TypeError) as exc:
            raise OSError(errno.EINVAL, f"job-manager.housekeeping: {exc}") from None
        self._command, self._release_after, self._mock = command, release_after, mock
        self.is_configured = True

    def start(self, job):
        """Look after the nodes of `job`, which is done with all of them."""
        if job.freed is None:
            job.freed = set()
        self.jobs[job.id] = Visit(self.jm, job, self._command, self._release_after, self._mock)

    def ended(self, visit):
        self.jobs.pop(visit.job.id, None)

    def abort(self, job):
        """Stop looking after `job`'s nodes and forget about them: they count as free."""
        visit = self.jobs.pop(job.id, None)
        if visit is not None:
            visit.kill(15)
            visit.over = True

    def kill(self, id=None, ranks=None, signum=15):
        """Signal scripts of one job or all, on some ranks or all; returns how many jobs."""
        visits = [v for v in self.jobs.values() if id is None or v.job.id == id]
        for visit in visits:
            visit.kill(signum, ranks)
        return len(visits)

    def describe(self):
        """{id: {t_start, pending, allocated}} as ``job-manager.stats-get`` has it."""
        return {str(id): visit.describe() for id, visit in self.jobs.items()}


class Visit:
    """Housekeeping of one job.

    Attributes:
        active (set): ranks whose script has not ended
        over (bool): nothing more is to be freed
    """

    def __init__(self, jm, job, command, release_after, mock):
        self.jm = jm
        self.job = job
        self.t_start = jm.now()
        self.over = False
        self.active = set(rlite.ranks(job.R)) - job.freed
        self._done = set()
        self._each = release_after == 0
        if release_after:
            jm.timer(release_after, self._release_now)
        # The handing over comes before the scripts: `free` is posted in the same turn.
        jm.events.send(self._run, command, mock)

    def _run(self, command, mock):
        if self.jm.kernel.clock.virtual:
            for rank in sorted(self.active):
                seconds = mock.get(rank, 0) if isinstance(mock, dict) else mock
                self.jm.timer(seconds, lambda rank=rank: self._rank_done(rank))
            return
        request = {
            "id": self.job.id,
            "userid": self.job.userid,
            "ranks": rlite.encode(self.active),
            "command": command,
        }
        self.jm.rpc("job-exec.script", request, streaming=True).then(self._report)

    def _report(self, future):
        try:
            body = future.body
        except OSError as exc:
            if exc.errno != errno.ENODATA:
                self.jm.log(LOG_ERR, f"housekeeping of job {self.job.id}: {exc.strerror}")
                for rank in sorted(self.active):
                    self._rank_done(rank)
            return
        future.reset()
        if body["status"]:
            text = f"housekeeping: rank {body['rank']} of job {self.job.id} ended with status {body['status']}"
            self.jm.log(LOG_ERR, text)
        self._rank_done(body["rank"])

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
            self.jm.housekeeping.ended(self)
        self.jm.free.give_back(self.job.id, rlite.fragment(self.job.R, ranks), final)
        self.jm.check_idle()

    def kill(self, signum, ranks=None):
        """Signal the scripts."""
        if self.jm.kernel.clock.virtual:
            for rank in sorted(self.active if ranks is None else self.active & ranks):
                self._rank_done(rank)
            return
        request = {"id": self.job.id, "signum": signum}
        if ranks is not None:
            request["ranks"] = rlite.encode(ranks)
        self.jm.notify("job-exec.script-kill", request)

    def describe(self):
        return {
            "t_start": self.t_start,
            "pending": rlite.encode(self.active),
            "allocated": rlite.encode(set(rlite.ranks(self.job.R)) - self.job.freed),
        }
