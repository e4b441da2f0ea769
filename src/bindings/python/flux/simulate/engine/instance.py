# SPDX-License-Identifier: LGPL-3.0-or-later
"""The engine ``instance``: a whole embedded instance, with KVS, ingest, execution and jobtap
plugins.

Every job starts as in the lean engine, as tests show, at about ten times the cost.
"""

import collections
import heapq
import json
from dataclasses import dataclass, field
from syslog import LOG_ERR, LOG_WARNING
from typing import Optional

from flux.simulate.engine import Engine
from flux.simulate.engine.loop import Handle
from flux.simulate.engine.manager import COMPLAINT, preempted_for
from flux.simulate.job import Job, jobspec, userids
from flux.simulate.policy import plugin_of
from flux_embedded.broker.attrs import AttrTable
from flux_embedded.broker.instance import Instance
from flux_engine.formats import states
from flux_engine.kernel.clock import VirtualClock
from flux_engine.kernel.handle import RPC_STREAMING
from flux_engine.kernel.kernel import Kernel
from flux_engine.kernel.message import OWNER
from flux_engine.resource.inventory import Inventory
from flux_engine.resource.state import ResourceState

#: Seconds from the start of the instance to the start of the workload.
LEAD = 3600.0


class PatientKernel(Kernel):
    """A kernel that alternates between the scheduler and all other tasks.

    The scheduler requests a pass right after an event, but other events of the same instant may
    need more turns of the loop to reach it. For one pass to serve them all, the scheduler's timers
    wait until all other tasks are idle, and the consequences of a pass until it is over.
    """

    _schedulers_turn = False

    def _expire(self):
        scheduler = self.services.get("sched")
        timers = self._timers
        own, others = [], []
        while timers and timers[0][0] <= self.time:
            entry = heapq.heappop(timers)
            if entry[2] is not None:
                of_scheduler = scheduler and getattr(entry[2], "task", None) is scheduler
                (own if of_scheduler else others).append(entry)
        due, waiting = (own, others) if self._schedulers_turn else (others, own)
        if not due and not self.ready and not self.idle_watchers:
            self._schedulers_turn = not self._schedulers_turn
            due, waiting = waiting, due
        for entry in waiting:
            heapq.heappush(timers, entry)
        for entry in due:
            if entry[2] is not None:
                entry[2].expired(entry)

    def _poll(self):
        before = self.time
        super()._poll()
        if self.time != before:
            self._schedulers_turn = False


class SimulatedInstance(Instance):
    """An instance on a `PatientKernel`."""

    kernel_class = PatientKernel


@dataclass
class _Active:
    """A job in the form that an `Observer` expects."""

    index: int
    job: Job
    preempted: Optional[tuple] = None
    annotations: dict = field(default_factory=dict)
    R: Optional[dict] = None
    start: Optional[float] = None
    end: Optional[float] = None
    how: Optional[int] = None


class _Log:
    """The scheduler's entries in an instance's log, in the form of `loop.Log`; a text of several lines is one entry."""

    def __init__(self, ring, name):
        self.lines = []
        self._name = name
        ring.follow(self._take)

    def _take(self, entry):
        text = entry.text
        if entry.name == "job-manager" and entry.level <= LOG_ERR:
            text = f"{COMPLAINT}{text}"
        elif entry.level > LOG_WARNING or entry.name != self._name:
            return
        when, level, former = self.lines[-1] if self.lines else (None, None, "")
        if when == entry.timestamp and level == entry.level and entry.name == self._name:
            self.lines[-1] = (when, level, f"{former}\n{text}")
        else:
            self.lines.append((entry.timestamp, entry.level, text))


class InstanceEngine(Engine):
    """Runs one scheduler on one workload, with the jobtap plugins to load."""

    def __init__(
        self, machine, jobs, path, args, observer, epoch, forecast, config, jobtap,
    ):  # fmt: skip
        super().__init__(machine, jobs, path, args, observer, epoch, forecast, config)
        names = {job.queue for job in jobs}
        if not self.config.get("queues") and None not in names:
            self.config = {**self.config, "queues": {name: {} for name in names}}
        self.jobtap = jobtap
        self._is_stopping = False
        self._coming = collections.deque(i for i, job in enumerate(jobs) if job.after is None)
        self._active = {}
        self._early = {}
        self._userids = userids(jobs)
        self._done = 0
        self.instance = None
        state = ResourceState(0)
        state.define(Inventory(machine.R), config)
        self.history = [(epoch, state.up)]

    def run(self):
        """Run until all jobs have ended, or no event is left."""
        attrs = AttrTable()
        # The scheduler's entries go to `log`, and so to the results.
        attrs.define("log-stderr-level", "-1")
        instance = self.instance = SimulatedInstance(
            attrs=attrs,
            size=self.machine.nodes,
            clock=VirtualClock(self.epoch - LEAD),
            R=self.machine.R,
            conf=self.config,
        )
        self.kernel = instance.kernel
        self.log = _Log(instance.ctx.ring, self.name)
        self.kernel.module_handle = None if self.forecast else Handle
        instance.start()
        try:
            self._prepare()
            self._arm()
            # If the scheduler never starts some jobs, timers may be the only events left: stop
            # after this time. Budgets and reservations may let jobs wait for a day of the calendar.
            calendar = any(name.endswith(("budgets", "reservations")) for name in self.config)
            longest = sum(job.seconds for job in self.jobs) + self.jobs[-1].submit
            longest += 86400 * (366 if calendar else 1)
            longest += sum(job.after[1] or 0.0 for job in self.jobs if job.after is not None)
            self._at(longest, self._stop)
            instance.handle.reactor_run()
        except RuntimeError as exc:
            if "nothing is left to wait for" not in str(exc):
                raise
        finally:
            self._is_stopping = True
            instance.stop()

    def _prepare(self):
        instance, h = self.instance, self.instance.handle
        for text in self.jobtap:
            path, conf = plugin_of(text)
            h.rpc("job-manager.jobtap", {"load": path, "conf": conf}).get()
        if self.config.get("queues"):
            h.rpc("job-manager.queue-start", {"start": True, "all": True}).get()
        instance.load_module(self.path, *self.args)
        self._watch_end(instance.modules.table)
        stream = h.rpc("job-manager.journal-batches", {}, flags=RPC_STREAMING)
        stream.then(self._journal)

    def _watch_end(self, table):
        """Have `_scheduler_ended` called when the scheduler ends."""
        module = next((one for one in table.values() if one.path == self.path), None)
        if module is None:
            self._scheduler_ended()
            return
        tell_manager = module.task.on_exit

        def on_exit(task, failure):
            self._scheduler_ended()
            tell_manager(task, failure)

        module.task.on_exit = on_exit

    def _scheduler_ended(self):
        if self._done < len(self.jobs) and not self.interrupted and not self._is_stopping:
            self.ended_at = self.now
            self._stop()

    def _at(self, seconds, function):
        self.kernel.call_at(self.epoch + seconds, function)

    def _stop(self):
        self.instance.handle.task.post(self.instance.handle.reactor_stop)

    # -- submissions ---------------------------------------------------------------------------------------

    def _arm(self):
        if self._coming:
            self._at(self.jobs[self._coming[0]].submit, self._arrive)

    def _submit_due(self, *followers):
        """Submit the jobs that are due by time, then followers that are due."""
        while self._coming and self.jobs[self._coming[0]].submit + self.epoch <= self.kernel.time:
            self._submit(self._coming.popleft())
        for index in followers:
            self._submit(index)

    def _arrive(self):
        self._submit_due()
        if self.every is not None:
            self.every()
        if self.interrupted:
            self._stop()
        else:
            self._arm()

    def _submit(self, index):
        job, h = self.jobs[index], self.instance.handle
        self.observer.submitted(index, self.kernel.time)
        spec = jobspec(job)
        system = spec["attributes"]["system"]
        if not self.config.get("queues"):
            system.pop("queue", None)
        system["environment"] = {}
        system["exec"] = {"test": {"run_duration": f"{job.run}s"}}
        # Sent for the job's user with the owner's rights: traces have urgencies above 16.
        h.task.userid = self._userids.get(job.user, OWNER)
        request = {"jobspec": json.dumps(spec), "urgency": job.urgency, "flags": 0}
        h.rpc("job-ingest.submit", request).then(self._submitted, index)
        h.task.userid = OWNER

    def _submitted(self, future, index):
        active = _Active(index, self.jobs[index])
        try:
            id = future.get()["id"]
        except OSError as exc:
            active.end = self.kernel.time
            self.observer.rejected(active, exc.strerror)
            self._ended(index)
            return
        self._active[id] = active
        for entry in self._early.pop(id, ()):
            self._event(active, entry)

    # -- events ---------------------------------------------------------------------------------------------

    def _journal(self, future):
        body = future.get()
        future.reset()
        for entry in body["events"]:
            active = self._active.get(entry["id"])
            if active is None:
                self._early.setdefault(entry["id"], []).append(entry)
            else:
                self._event(active, entry)

    def _event(self, active, entry):
        event = entry["event"]
        name, when, context = event["name"], event["timestamp"], event.get("context") or {}
        if name == "annotations":
            active.annotations = context["annotations"]
            if active.start is None:
                self.observer.annotated(active)
        elif name == "alloc":
            active.start, active.R = when, entry["R"]
            active.annotations = context.get("annotations", {})
            self.observer.began(active)
        elif name == "exception" and context["severity"] == 0:
            kinds = {"timeout": states.TIMEOUT, "cancel": states.CANCELED}
            active.how = kinds.get(context["type"], states.FAILED)
            if context["type"] == "preempt":
                active.preempted = preempted_for(context["note"], self._active)
            if active.start is None and context["type"] == "alloc":
                active.how = None
                active.end = when
                self.observer.rejected(active, context["note"])
        elif name == "finish":
            active.end = when
            if active.how is None:
                active.how = states.COMPLETED if context["status"] == 0 else states.FAILED
        elif name == "clean":
            if active.how is not None:
                active.end = active.end or when
                self.observer.ended(active, active.how)
            del self._active[entry["id"]]
            self._ended(active.index)

    def _ended(self, index):
        self._done += 1
        for follower in self.followers.pop(index, ()):
            when = self.jobs[follower].submission_after(self.now)
            self._at(when, lambda follower=follower: self._submit_due(follower))
        if self._done == len(self.jobs):
            self._stop()
