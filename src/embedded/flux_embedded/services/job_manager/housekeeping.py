# SPDX-License-Identifier: LGPL-3.0-or-later
"""Housekeeping: a script on each node after a job, before the node is given to another.

It is in no RFC. The configuration is that of a real Flux: ``[job-manager.housekeeping]`` with ``command`` (array
of string) and ``release-after`` (FSD). The job's ``free`` event is posted when its resources are handed
over to housekeeping, so the job may be INACTIVE while housekeeping runs on its nodes.

Without ``release-after`` all ranks are freed together when the last script has ended. With it, those
that have ended by that time are freed then, and each later one when it ends.

A rank that is offline, or goes offline before its script has ended, keeps its resources: the state of
the node is unknown. The script is run there, again if it had begun, when the rank is back. Killing
the job's housekeeping gives such a rank up.

The scripts are run by the execution service (``job-exec.script``). Under the virtual clock they
are not run but take ``mock-duration`` (ours: an FSD, default 0, or a table of rank to FSD).
"""

import errno

from flux_engine.formats import form, fsd, idset, jobid, rset
from flux_engine.formats.levels import LOG_DEBUG, LOG_ERR


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


class Housekeeping:
    """Jobs in housekeeping.

    Attributes:
        visits (dict): job id -> Visit
        is_configured (bool)
        offline (set): ranks that went offline and are not back
    """

    def __init__(self, service, jobs, events, sched, waits):
        self.service = service
        self.jobs = jobs
        self.events = events
        self.sched = sched
        self.waits = waits
        self.visits = {}
        self.offline = set()
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

    def watch(self):
        """Watch ranks go offline and online."""
        self.service.rpc("overlay.monitor", streaming=True).then(self._ranks_changed)

    def _ranks_changed(self, future):
        try:
            body = future.body
        except OSError:  # there is no overlay, or it ends with the instance
            return
        future.reset()
        gone, back = set(idset.ids(body.get("offline", ""))), set(idset.ids(body.get("online", "")))
        self.offline = (self.offline | gone) - back
        for visit in list(self.visits.values()):
            if gone:
                visit.lost(gone)
            if back:
                visit.back(back)

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
        self.sched.give_back(job.id, rset.fragment(job.R, ranks), final)
        self.waits.check()

    def holders(self, partial_ok=True):
        """The jobs that hold resources in the scheduler's view: active ones and those in housekeeping.

        Args:
            partial_ok (bool): the scheduler supports jobs that have given back a part of them (RFC 27); for one that
                does not, housekeeping of such jobs ends here, and their nodes count as free

        Raises:
            OSError: ENOTSUP, the scheduler does not, and one of those jobs is still running
        """
        active = [job for job in self.jobs.active.values() if job.has_resources and not job.bypass]
        if not partial_ok:
            if any(job.freed for job in active):
                text = "sched-hello: partial-ok is required: a job that is still running has freed some ranks"
                raise OSError(errno.ENOTSUP, text)
            for visit in [visit for visit in self.visits.values() if visit.job.freed]:
                self._abort(visit)
        return active + [visit.job for visit in self.visits.values()]

    def _abort(self, visit):
        """End housekeeping of a job and forget its nodes: they count as free."""
        del self.visits[visit.job.id]
        visit.kill(15)
        visit.over = True

    def kill(self, id=None, ranks=None, signum=15):
        """Signal scripts of one job or all, on some ranks or all; returns the number of jobs."""
        visits = [v for v in self.visits.values() if id is None or v.job.id == id]
        for visit in visits:
            visit.kill(signum, ranks)
        return len(visits)

    def describe_config(self):
        """``{command, release-after}`` for ``job-manager.stats-get``."""
        if not self.is_configured:
            return {"command": "", "release-after": -1.0}
        after = -1.0 if self._release_after is None else self._release_after
        return {"command": " ".join(self._command), "release-after": after}

    def describe(self):
        """{id: {t_start, pending, allocated}} for ``job-manager.stats-get``."""
        return {jobid.f58(id): visit.describe() for id, visit in self.visits.items()}


class Visit:
    """Housekeeping of one job.

    Attributes:
        active (set): ranks whose script has not ended
        waiting (set): those of them that are offline, and whose script does not run
        over (bool): it has ended; no more ranks are freed
    """

    def __init__(self, housekeeping, job, command, release_after, mock):
        self.housekeeping = housekeeping
        self.service = housekeeping.service
        self.job = job
        self.t_start = self.service.now()
        self.over = False
        self.active = set(rset.ranks(job.R)) - job.freed
        self.waiting = self.active & housekeeping.offline
        self._command, self._mock = command, mock
        self._timers = {}  # of mock scripts, by rank
        self._void = set()  # ranks whose running script no longer counts
        self._done = set()
        self._each = release_after == 0
        if release_after:
            self.service.timer(release_after, self._release_now)
        # Before the scripts comes the `free` event, which is posted in the same turn.
        housekeeping.events.send(self._run_first)

    def _run_first(self):
        self._run(self.active - self.waiting)

    def _run(self, ranks):
        if not ranks:
            return
        if self.service.kernel.clock.virtual:
            for rank in sorted(ranks):
                seconds = self._mock.get(rank, 0) if isinstance(self._mock, dict) else self._mock
                self._timers[rank] = self.service.timer(
                    seconds, lambda rank=rank: self._script_ended(rank)
                )
            return
        request = {
            "id": self.job.id,
            "userid": self.job.userid,
            "ranks": idset.text(ranks),
            "command": self._command,
        }
        self.service.rpc("job-exec.script", request, streaming=True).then(self._report, ranks)

    def _report(self, future, ranks):
        try:
            body = future.body
        except OSError as exc:
            if exc.errno != errno.ENODATA:
                self.service.log(LOG_ERR, f"housekeeping of job {self.job.id}: {exc.strerror}")
                for rank in sorted(ranks & self.active - self.waiting):
                    self._script_ended(rank)
            return
        future.reset()
        rank, status = body["rank"], body["status"]
        if status and rank not in self._void:
            text = f"housekeeping: rank {rank} of job {self.job.id} ended with status {status}"
            self.service.log(LOG_ERR, text)
        self._script_ended(rank)

    def _script_ended(self, rank):
        self._timers.pop(rank, None)
        if rank in self._void:
            self._void.discard(rank)
            if rank in self.housekeeping.offline:
                self.waiting.add(rank)
            else:
                self._run({rank})
        else:
            self._rank_done(rank)

    def _rank_done(self, rank):
        if self.over or rank not in self.active:
            return
        self.active.discard(rank)
        self._done.add(rank)
        if self._each or not self.active:
            self._release_now(from_timer=False)

    # -- ranks going offline and online ----------------------------------------------------------------------

    def lost(self, ranks):
        """These ranks are offline: the results of their scripts no longer count."""
        gone = (ranks & self.active) - self.waiting
        if gone:
            text = f"housekeeping of job {self.job.id}: offline, resources are kept: rank {idset.text(gone)}"
            self.service.log(LOG_ERR, text)
            self._void |= gone
            self._signal(9, gone)

    def back(self, ranks):
        """These ranks are online: start the scripts that wait for them."""
        again = ranks & self.waiting
        self.waiting -= again
        self._run(again)

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
        """Signal the scripts; ranks that are offline are given up."""
        chosen = self.active if ranks is None else self.active & ranks
        waiting = chosen & self.waiting
        self._signal(signum, chosen - waiting)
        self.waiting -= waiting
        for rank in sorted(waiting):
            self._rank_done(rank)

    def _signal(self, signum, ranks):
        if self.service.kernel.clock.virtual:
            for rank in sorted(ranks):
                timer = self._timers.pop(rank, None)
                if timer is not None:
                    timer.stop()
                self._script_ended(rank)
        elif ranks:
            request = {"id": self.job.id, "signum": signum, "ranks": idset.text(ranks)}
            self.service.notify("job-exec.script-kill", request)

    def describe(self):
        return {
            "t_start": self.t_start,
            "pending": idset.text(self.active),
            "allocated": idset.text(set(rset.ranks(self.job.R)) - self.job.freed),
        }
