# SPDX-License-Identifier: LGPL-3.0-or-later
"""The lean engine: a scheduler's module among peers that only answer its requests.

There is no KVS tree, ingest or shell. All events of an instant are delivered before the scheduler's
pass: ends, then actions of a script, then submissions in order. A job without run time ends in
another round of the same instant.
"""

import contextlib
import heapq
import sys

from flux.simulate.engine import Engine
from flux.simulate.engine.loop import DirectHandle, Log, Loop, Resource, Scheduler, start_broker
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
        #: index of each job with a time, in order; other jobs follow one
        self._submissions = (index for index, job in enumerate(jobs) if job.after is None)
        #: number of submitted jobs, and so the id of the latest
        self._arrived = 0
        self._serial = 0
        #: heap: (seconds since the epoch, kind, serial; job, function or index); of submissions by time, the next
        self._events = []
        #: functions that process an event, by kind; the kinds are in the order of an instant
        self._process = [self._end, lambda _, function: function(self), self._submit]
        self._END, self._ACTION, self._SUBMISSION = range(3)
        if grain == "event-submit":
            self._process.reverse()
            self._END, self._ACTION, self._SUBMISSION = reversed(range(3))
        self._await_next()
        self._idle_rounds = 0
        #: latest instant with an event, if grain is not "batch"
        self._instant = None
        self.kernel = Loop(epoch, self._advance)
        self.log = Log(self.kernel)
        self.resource = Resource(self.kernel, machine.R, self.config)
        self.history = self.resource.history
        users = userids([*jobs, *(job for job, _, _, _ in running)])
        self.manager = Manager(self, users)
        values = {"rank": "0", "size": str(machine.nodes), "hostlist": "", "instance-level": "0"}
        start_broker(self.kernel, values, self.config, self.manager)
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
                if (self.has_work() or self._is_due(self._ACTION)) and not self.interrupted:
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
        self._schedule(self.epoch + seconds, self._ACTION, function)

    def on(self, event, id, function):
        """Have ``function(engine)`` called at the "submit", "start" or "end" of a job of the trace."""
        self.manager.hooks.setdefault((event, id), []).append(function)

    def has_work(self):
        """Whether a job runs, or a submission is due."""
        return self.manager.running > 0 or self._is_due(self._SUBMISSION)

    def _is_due(self, kind):
        return any(entry[1] == kind for entry in self._events)

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
        events, end = self._events, self._END
        while events and events[0][1] == end and events[0][3].end_entry is not events[0]:
            heapq.heappop(events)
        if self.interrupted:
            return False
        if not events:
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
        when = events[0][0]
        if timer is not None and timer < when:
            self.kernel.time = timer
            return True
        self._idle_rounds = 0
        self.kernel.time = when
        is_batch = self.grain == "batch"
        while True:
            _, kind, _, what = entry = heapq.heappop(events)
            self._process[kind](entry, what)
            # An end that an action has brought forward is of another round.
            if not (is_batch and events and events[0][0] <= when and events[0][1] >= kind):
                break
        if not is_batch and when != self._instant:
            # Convention 2 of golden/schedules/README.md: at an instant, the first pass of a planner
            # by limits already counts as free the resources of jobs whose limits end then.
            self._instant = when
            for entry in sorted(one for one in events if one[0] <= when and one[1] == end):
                active = entry[3]
                limit = active.limit or active.job.limit
                if active.end_entry is entry and limit and active.job.run >= limit:
                    self.manager.finish(active)
        return True

    def _schedule(self, when, kind, what, serial=None):
        self._serial += 1
        entry = (when, kind, serial or self._serial, what)
        heapq.heappush(self._events, entry)
        return entry

    def _end(self, entry, active):
        if active.end_entry is entry:
            self.manager.finish(active)

    def _submit(self, entry, index):
        if self.jobs[index].after is None:
            self._await_next()
        self._arrived += 1
        active = self.manager.submit(self._arrived, index, self.jobs[index])
        if self.submitted is not None:
            self.submitted(active)

    def _await_next(self):
        """Schedule the next submission by time, if any: ahead of the followers of that instant."""
        for index in self._submissions:
            when = self.epoch + self.jobs[index].submit
            self._schedule(when, self._SUBMISSION, index, index - len(self.jobs))
            return

    def follow(self, index):
        """Schedule the submission of a job that follows one that ends now."""
        when = self.epoch + self.jobs[index].submission_after(self.now)
        self._schedule(when, self._SUBMISSION, index)

    def end_at(self, active, when):
        """Schedule the end of a running job, in seconds since the epoch."""
        active.end_entry = self._schedule(when, self._END, active)
