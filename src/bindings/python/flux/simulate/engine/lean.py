# SPDX-License-Identifier: LGPL-3.0-or-later
"""The lean engine: a scheduler's module among peers that only answer its requests.

There is no KVS tree, ingest or shell. All events of an instant are delivered before the scheduler's
pass: ends, then actions of a script, then submissions in order. A job without run time ends in
another round of the same instant.
"""

import contextlib
import heapq
import math
import sys
from itertools import islice

from flux.simulate.engine import Engine, peers
from flux.simulate.engine.loop import DirectHandle, Loop, Scheduler
from flux.simulate.engine.manager import Manager
from flux.simulate.job import userids
from flux_engine.formats import idset, rset, states
from flux_engine.kernel.watchdog import Watchdog, place

#: Default start of a workload: the initial time of the embedded instance's clock.
EPOCH = 1735689600.0

#: Rounds of timers without other events, after which waiting jobs are abandoned.
PATIENCE = 10000

GRAINS = ("batch", "event-end", "event-submit")


class LeanEngine(Engine):
    """Runs one scheduler on one workload.

    Args:
        grain (str): "batch": one pass after all events of an instant; "event-end", "event-submit":
            one after each event, ends or submissions first, with ends at limits in the first
        running (list): (Job, R, start, end) of jobs that run from the beginning; times in seconds
            since the epoch
        down (str): idset of ranks that are down
        entry (type): the scheduler's class, if no file is to be executed; `path` is then its file
    """

    def __init__(
        self, machine, jobs, path, args, observer, epoch=EPOCH, grain="batch", forecast=False, config=None, running=(),
        down="", entry=None,
    ):  # fmt: skip
        super().__init__(machine, jobs, path, args, observer, epoch, forecast, config)
        self.entry = entry
        self.grain = grain
        #: whether to report a scheduler that does not return to its reactor
        self.is_watched = True
        #: called with each submitted job (ActiveJob)
        self.submitted = None
        self._turns = 0
        #: (path, args, entry) of the scheduler to load when this one has ended, or None
        self._reload = None
        #: (submission, seconds since the epoch; index) of each job with a time, in order; other jobs follow one
        self._submissions = (
            (job.submit + epoch, index) for index, job in enumerate(jobs) if job.after is None
        )
        #: number of followers to be submitted after a think time
        self._thinking = 0
        #: number of submitted jobs, and so the id of the latest
        self._arrived = 0
        self._serial = 0
        #: heaps: (seconds since the epoch, serial, job or function); and the next submission
        self._ends, self._actions, self._coming = [], [], list(islice(self._submissions, 1))
        #: (events, function that processes one), in the order of an instant
        self._sources = [
            (self._ends, self._end), (self._actions, self._act), (self._coming, self._submit),
        ]  # fmt: skip
        if grain == "event-submit":
            self._sources.reverse()
        self._idle_rounds = 0
        #: latest instant with an event, if grain is not "batch"
        self._instant = None
        self.kernel = Loop(epoch, self._advance)
        self.log = peers.Log(self.kernel)
        self.resource = peers.Resource(self.kernel, machine.R, self.config)
        self.history = self.resource.history
        users = userids([*jobs, *(job for job, _, _, _ in running)])
        self.manager = Manager(self, users)
        values = {"rank": "0", "size": str(machine.nodes), "hostlist": "", "instance-level": "0"}
        peers.start_broker(self.kernel, values, self.config, self.manager)
        self.task = None
        #: id of the latest job that belongs to no trace
        self._other = len(jobs) + len(running)
        self._scripted = 0
        if down:
            self.resource.down(self.resource.ranks_of(down))
        for number, (job, R, start, end) in enumerate(running, len(jobs) + 1):
            self.end_at(self.manager.adopt(number, job, R, start), end)

    def _stuck(self, frame, seconds):
        text = f"has not come back to its reactor for {seconds:.0f} s of processor time"
        where = place(frame, self.path)
        print(f"{self.name} {text}: it is at {where}", file=sys.stderr, flush=True)

    def run(self):
        """Run until all jobs have ended, or no event is left. Raises the exceptions of the module."""
        while True:
            # A host looks for these at the class of its handle.
            wants_odds = self.forecast or self.submitted is not None
            wants = {"wants_forecast": self.forecast, "wants_odds": wants_odds}
            self.kernel.module_handle = type("LeanHandle", (DirectHandle,), wants)
            self.task = Scheduler(self.kernel, self.name, self.path, self.args, self.entry)
            watchdog = Watchdog(lambda: (self.kernel.steps, len(self.task.inbox)), self._stuck)
            with watchdog if self.is_watched else contextlib.nullcontext():
                self.task.run()
            if self.kernel.failure is not None:
                raise self.kernel.failure
            self._unload()
            if self._reload is None:
                if (self.has_work() or self._actions) and not self.interrupted:
                    self.ended_at = self.now
                return
            self.path, self.args, self.entry = self._reload
            self._reload = None

    def _unload(self):
        task, self.task = self.task, None
        for watcher in list(task.watchers):
            watcher.destroy()
        self.kernel.soon.clear()
        task.closed = True
        for name in [name for name, who in self.kernel.services.items() if who is task]:
            del self.kernel.services[name]
        self.resource.released(task)
        self.manager.sched.disconnected(task)

    def reload(self, path=None, args=None):
        """Unload the scheduler and load it again, or another one."""
        args = self.args if args is None else list(args)
        self._reload = (path or self.path, args, None if path else self.entry)
        self.task.reactor_stop(0)

    def at(self, seconds, function):
        """Have ``function(engine)`` called at a time (seconds), before the submissions of that
        instant."""
        self._serial += 1
        heapq.heappush(self._actions, (self.epoch + seconds, self._serial, function))

    def on(self, event, id, function):
        """Have ``function(engine)`` called at the "submit", "start" or "end" of a job of the trace."""
        self.manager.hooks.setdefault((event, id), []).append(function)

    def has_work(self):
        """Whether a job runs, or a submission is due."""
        return bool(self.manager.running or self._thinking or self._coming)

    def take_down(self, ranks):
        """Take ranks (bounds) down; jobs on them fail, as if their brokers were lost."""
        self.resource.down(ranks)
        self.end_jobs_on(ranks)

    def end_jobs_on(self, ranks):
        """Fail the jobs on ranks (bounds) that are lost."""
        gone = set(idset.members(ranks))
        for active in list(self.manager.jobs.values()):
            if active.state == states.RUN and gone.intersection(rset.ranks(active.R)):
                self.manager.cancel(active, states.FAILED)

    def submit_extra(self, job):
        """Submit a job of no trace. A job without an id is given one. Raises ValueError if its id is
        that of another job."""
        if any(job.id == other.id for other in self.jobs):
            raise ValueError(f"id={job.id}: there is a job with this id in the trace")
        self._scripted += 1
        job.id = job.id or f"script-{self._scripted}"
        self.manager.submit(self._other + self._scripted, -1, job)

    def extend(self, active, seconds):
        """Extend the limit of a running job by a number of seconds. Raises ValueError if it is not
        running, or has no limit."""
        job = active.job
        if active.state != states.RUN or not job.limit:
            raise ValueError(f"job {job.id} does not run under a limit")
        active.limit = (active.limit or job.limit) + seconds
        self.manager.set_expiration(active, active.start + active.limit)
        self.end_at(active, active.start + min(job.run, active.limit))

    # -- the order of events ------------------------------------------------------------------------------

    def _advance(self, timer):
        """Process the next event, or let time go to that of the next timer (None: there is none). Return False if there
        is nothing left."""
        ends = self._ends
        while ends and ends[0][2].end_entry is not ends[0]:
            heapq.heappop(ends)
        if self.interrupted:
            return False
        when = ends[0][0] if ends else math.inf
        for events in (self._actions, self._coming):
            if events and events[0][0] < when:
                when = events[0][0]
        if when == math.inf:
            # Only the scheduler's own timers are left.
            self._idle_rounds += 1
            if timer is None or not self.manager.waiting or self._idle_rounds > PATIENCE:
                return False
            self.kernel.time = timer
            return True
        if self.every is not None:
            self._turns += 1
            if not self._turns % 256:
                self.every()
        if timer is not None and timer < when:
            self.kernel.time = timer
            return True
        self._idle_rounds = 0
        self.kernel.time = when
        if self.grain == "batch":
            for events, process in self._sources:
                while events and events[0][0] <= when:
                    process(heapq.heappop(events))
            return True
        events, process = next(one for one in self._sources if one[0] and one[0][0][0] <= when)
        process(heapq.heappop(events))
        if when != self._instant:
            # Convention 2 of golden/schedules/README.md: at an instant, the first pass of a planner
            # by limits already counts as free the resources of jobs whose limits end then.
            self._instant = when
            for entry in sorted(entry for entry in ends if entry[0] <= when):
                active = entry[2]
                limit = active.limit or active.job.limit
                if active.end_entry is entry and limit and active.job.run >= limit:
                    self.manager.finish(active)
        return True

    def _end(self, entry):
        if entry[2].end_entry is entry:
            self.manager.finish(entry[2])

    def _act(self, entry):
        entry[2](self)

    def _submit(self, entry):
        coming = next(self._submissions, None)
        if coming is not None:
            self._coming.append(coming)
        self._arrive(entry[1])

    def _arrive(self, index):
        self._arrived += 1
        active = self.manager.submit(self._arrived, index, self.jobs[index])
        if self.submitted is not None:
            self.submitted(active)

    def follow(self, index):
        """Arrange the submission of a job that follows one that ends now."""

        def arrive(engine):
            self._thinking -= 1
            self._arrive(index)

        self._thinking += 1
        self.at(self.jobs[index].submission_after(self.now), arrive)

    def end_at(self, active, when):
        """Schedule the end of a running job, in seconds since the epoch."""
        self._serial += 1
        active.end_entry = (when, self._serial, active)
        heapq.heappush(self._ends, active.end_entry)
