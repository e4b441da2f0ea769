# SPDX-License-Identifier: LGPL-3.0-or-later
"""Runs one history against an instance in this process, on the virtual clock.

After every step the driver waits until the scheduler is at rest (``sched.quiescent``) and checks
the rules; at the end everything is repaired and every job must reach its end.
"""

import errno
import json
import os
from collections import deque

from books import ids, ranks_of
from history import CALM, NAMES, NODES, SHAPES, asks_for, is_calm, jobspec_of_job
from site_rules import TABLES, SiteRules
from watch import Watch

from flux.scheduler.testing import make_R
from flux.simulate.checking import Violation, check_eventlog
from flux_embedded.broker.instance import Instance
from flux_engine.kernel.clock import VirtualClock

#: Seconds of virtual time within which the jobs of any history must end.
LONG_ENOUGH = 100000.0


HOSTS = [f"node{rank}" for rank in range(NODES)]

#: Four nodes of four cores and two GPUs. Configured resources stay when a rank goes offline.
CONFIG = {
    "resource": {
        "noverify": True,
        "config": [
            {"hosts": f"node[0-{NODES - 1}]", "cores": "0-3", "gpus": "0-1"},
            {"hosts": f"node[2-{NODES - 1}]", "properties": ["big"]},
        ],
    }
}


#: With preemption: jobs of standby end for all others, after some seconds, and may start in time
#: promised to others.
PREEMPTION = {
    "queues": {"batch": {}, "standby": {}},
    "preemption": {
        "standby": {"queues": ["standby"], "grace": 4, "wait": 2, "into-promises": True}
    },
}


def topology_R():
    """R of the same nodes with a topology; a rank that goes offline leaves it for good."""
    last = NODES - 1
    topo = {"socket": [{"cores": "0-1", "gpus": "0"}, {"cores": "2-3", "gpus": "1"}]}
    tree = {"writer": "TreePool", "children": [{"ranks": f"0-{last}", "topo": topo}]}
    properties = {"big": f"2-{last}"}
    return make_R(NODES, 4, 2, hosts=f"node[0-{last}]", properties=properties, scheduling=tree)


class Driver:
    """An instance and its history.

    Args:
        scheduler (str): a scheduler module's name
        tree (bool): resources with a topology, so that the pool is a TreePool
        args (tuple of str): the module's arguments
        preempting (bool): jobs name queues, and those of standby end for others
        estimates (int): number of pending jobs with an estimate: costs some ten milliseconds per
            change
    """

    def __init__(self, scheduler, tree=False, args=(), preempting=False, estimates=0):
        self.scheduler = scheduler
        self.args = args
        self.estimates = estimates
        #: the configuration, with the additions of steps
        self.config = {**({} if tree else CONFIG), **(PREEMPTION if preempting else {})}
        resources = {"R": topology_R()} if tree else {}
        resources["conf"] = self.config
        self.instance = Instance(size=NODES, clock=VirtualClock(), hosts=HOSTS, **resources)
        # Log messages are checked here (see Watch), not shown.
        self.instance.ctx.attrs.define("log-stderr-level", "-1")
        self.kernel = self.instance.kernel
        self.watch = Watch(
            self.kernel,
            strict=scheduler != "sched-backfill",
            promising=any("=" in arg and not arg.startswith("pool-") for arg in args),
            ranked=any(arg.startswith(("rank=", "candidates=", "profile=")) for arg in args),
            preempting=preempting,
        )
        self.kernel.intercept = self._intercept
        self.violation = None
        self.submitted = []
        self.held_back = {}
        self.crash_in = None
        #: jobs that may be on reserved ranks: they ran before, or were given more time
        self.excused = set()
        self.reserved = {}  # name -> the request
        #: running job -> when it was first seen, and {rank: the latest end, by their limits, of the
        #: other jobs on it at that time}
        self.beside = {}
        try:
            self.instance.start()
            self._kvs_commit = self.instance.service("kvs").methods["kvs.commit"]
            self.h = self.instance.handle
            if preempting:
                self.do_queue_start()
            self._load()
        except BaseException:
            self.close()
            raise

    # -- messages --------------------------------------------------------------------------------

    def _intercept(self, endpoint, msg):
        waiting = self.held_back.get(endpoint)
        if waiting is not None:
            waiting.append(msg)
            return True
        if self.violation is None:
            try:
                self.watch.see(endpoint, msg)
            except Violation as violation:
                self.violation = violation
        if self.crash_in is not None and self.watch.holds_sched(endpoint):
            self.crash_in -= 1
            if self.crash_in <= 0:
                self.crash_in = None
                self._crash()
                return True
        return False

    def _crash(self):
        """The scheduler's process dies: its code never runs again, its peers are notified."""
        self.instance.modules.kill(self.scheduler)

    def _delay(self, name, seconds):
        """Delay the messages to `name` by `seconds`, keeping their order."""
        endpoint = self.kernel.services.get("sched" if name == "scheduler" else name)
        if endpoint is None or endpoint in self.held_back:
            return
        self.held_back[endpoint] = deque()
        self.kernel.call_later(seconds, lambda: self._release(endpoint))

    def _release(self, endpoint):
        waiting = self.held_back.pop(endpoint, ())
        self.kernel.ready.extendleft((endpoint, msg) for msg in reversed(waiting))

    # -- steps ---------------------------------------------------------------------------------

    def run(self, history):
        """Run `history` and then bring the instance to its end; a broken rule is a Violation."""
        # If jobs end by their limits and nothing disturbs the queue, promises must be kept.
        kept = self.scheduler == "sched-backfill" and "guarantee=none" not in self.args
        self.watch.bound = kept and is_calm(history)
        names = {step[0] for step in history}
        self.watch.reserving = "reserve" in names or asks_for(history, "reservation")
        self.watch.policing = "configure" in names
        if self.watch.policing:
            self.watch.site_rules = SiteRules()
            self.watch.bound = False
        for step in history:
            self._step(*step)
            self._settle()
            self._assert_rules()
        self._finish()

    def _answer(self, topic, payload=None):
        return self.h.rpc(topic, payload).get()

    def _rpc(self, topic, payload=None):
        """A request that may fail legitimately: users and administrators err, too."""
        try:
            return self._answer(topic, payload)
        except OSError as exc:
            return {"error": exc}

    def _step(self, name, *args):
        if name not in CALM:
            self.watch.faults += 1
        getattr(self, "do_" + name.replace("-", "_"))(*args)

    def do_submit(self, jobs):
        futures = []
        for job in jobs:
            payload = {"jobspec": jobspec_of_job(job), "urgency": job["urgency"], "flags": 0}
            futures.append((job, self.h.rpc("job-ingest.submit", payload)))
        for job, future in futures:
            jobid = future.get()["id"]
            self.watch.jobs[jobid] = job
            self.submitted.append(jobid)

    def _pick(self, number):
        return self.submitted[number % len(self.submitted)] if self.submitted else 0

    def do_cancel(self, number):
        ended = {"id": self._pick(number), "type": "cancel", "severity": 0, "note": ""}
        self._rpc("job-manager.raise", ended)

    def do_urgency(self, number, urgency):
        self.watch.latest_before.pop(self._pick(number), None)  # it may be held and released
        self._rpc("job-manager.urgency", {"id": self._pick(number), "urgency": urgency})

    def do_reserve(self, entry, start):
        self.excused |= set(self.watch.books.held)
        listed = self._rpc("sched.reservations")
        if "now" in listed:
            asked = {**entry, "start": listed["now"] + start}
            if "error" not in self._rpc("sched.reserve", {"reservation": asked}):
                self.reserved[entry["name"]] = entry
            # Messages to the scheduler may have been delayed, and jobs started before them.
            self.excused |= set(self.watch.books.held)

    def do_unreserve(self, name):
        self._rpc("sched.unreserve", {"name": name})

    def do_configure(self, number):
        """Load a configuration with other tables."""
        rules = self.watch.site_rules
        before, tables = rules.tables[-1], TABLES[number % len(TABLES)]
        rules.tables = [before, tables]
        self._configure(tables)
        rules.tables = [tables]

    def _configure(self, tables):
        if "error" in (self._rpc("config.load", {**self.config, **tables}) or {}):
            raise Violation(f"config.load: {tables} was refused")
        self._settle()

    def do_straggle(self, rank, seconds):
        """From now on housekeeping takes long on one rank; the others are freed earlier."""
        lasts = {str(rank): f"{seconds}s"}
        table = {"command": ["true"], "release-after": "1s", "mock-duration": lasts}
        self.config = {**self.config, "job-manager": {"housekeeping": table}}
        self._configure({})

    def do_queue_add(self, name, property):
        """Add a queue."""
        queues = {**self.config.get("queues", {}), name: {"requires": [property]}}
        self.config = {**self.config, "queues": queues}
        self._configure({})
        self.do_queue_start()

    def do_duration(self, number, seconds):
        self.excused.add(self._pick(number))
        updates = {"attributes.system.duration": seconds}
        self._rpc("job-manager.update", {"id": self._pick(number), "updates": updates})

    def do_drain(self, rank):
        self.excused |= set(self.watch.books.held)
        self._rpc("resource.drain", {"targets": str(rank), "reason": "fault run"})

    def do_undrain(self, rank):
        self._rpc("resource.undrain", {"targets": str(rank)})

    def do_offline(self, rank):
        self.excused |= set(self.watch.books.held)
        if rank:  # rank 0 is the broker itself
            self._rpc("resource.offline", {"ranks": str(rank)})

    def do_online(self, rank):
        self._rpc("resource.online", {"ranks": str(rank)})

    def do_shrink(self, rank):
        self.excused |= set(self.watch.books.held)
        if rank:
            self._rpc("resource.shrink", {"ranks": str(rank)})

    def do_property(self, change, name, rank):
        self.excused |= set(self.watch.books.held)
        self._rpc(f"resource.property-{change}", {"name": name, "targets": str(rank)})

    def do_queue_stop(self):
        self._rpc("job-manager.queue-start", {"start": False, "all": True})

    def do_queue_start(self):
        self._rpc("job-manager.queue-start", {"start": True, "all": True})

    def do_kvs_fail(self, number):
        commit, *how = self._kvs_commit
        left = [number]

        def fail(msg):
            if left[0] and any(".R" in op[1] for op in msg.body["ops"]):
                left[0] -= 1
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            commit(msg)

        self.instance.service("kvs").methods["kvs.commit"] = (fail, *how)

    def do_delay(self, name, seconds):
        self._delay(name, seconds)

    def do_crash(self, after):
        if self._loaded():
            self.crash_in = after

    def do_unload(self):
        if self._loaded():
            # An orderly unload: the next scheduler must know its promises. A crash is not one.
            known = {} if self.crash_in is not None else self.watch.latest_of_pending()
            self.instance.unload(self.scheduler)
            self.watch.scheduler_gone()
            self.watch.latest_before = known

    def do_load(self):
        if not self._loaded():
            self._load()

    def do_reload(self):
        self.do_unload()
        self.do_load()

    def do_advance(self, seconds):
        if seconds:
            self._let_pass(seconds)

    def _let_pass(self, seconds, enough=lambda: False):
        """Let time pass: `seconds`, or until ``enough()``."""
        end = self.kernel.now() + seconds
        call = self.kernel.call_later(seconds, lambda: None)
        self.kernel.run(until=lambda: enough() or self.kernel.now() >= end)
        call.cancel()

    def _loaded(self):
        return "sched" in self.kernel.services

    def _load(self):
        self.watch.scheduler_gone()
        doomed = self.crash_in is not None
        try:
            depth = f"estimate-depth={self.estimates}"
            self.instance.load_module(self.scheduler, *self.args, depth)
        except OSError as exc:
            if not doomed:
                raise Violation(f"{self.scheduler} did not load: {exc}") from exc

    # -- rules ---------------------------------------------------------------------------------

    def _settle(self):
        """Deliver the delayed messages and wait until the scheduler is at rest."""
        self.kernel.run(until=lambda: not self.held_back)
        self.kernel.run_until_idle()
        if self._loaded() and self.crash_in is None:
            self._rpc("sched.quiescent")
            self.kernel.run_until_idle()
        if not self._loaded():
            self.watch.scheduler_gone()

    def _assert_rules(self):
        if self.violation is not None:
            raise self.violation
        if self._loaded() and self.crash_in is None:
            for look, text in (
                (self.watch.stuck, "heads the queue, could start, and waits"),
                (self.watch.overdue, "waits on after its maximum wait"),
                (
                    self.watch.idle,
                    "could have started for an hour, and kept no other from starting",
                ),
            ):
                found = look()
                if found is not None:
                    job = self.watch.jobs[found]
                    raise Violation(f"job {found} {text}: {job}, {SHAPES[job['shape']]}")
        for jobid in self.watch.unreported:
            names = [event["name"] for event in self._eventlog(jobid)]
            # Without alloc the job ended before its success arrived, and holds nothing.
            if "alloc" in names and "free" not in names:
                raise Violation(f"hello left out job {jobid}, which was not freed: {names}")
        self.watch.unreported.clear()
        if self.watch.reserving and self._loaded() and self.crash_in is None:
            self._check_reservations()
        self._check_annotations()

    def _check_reservations(self):
        """No job outside the group holds reserved resources, except those that held them before or
        were given more time; and while a reservation is short of nodes, no other job is on such a
        node, unless nodes went down since it started, or other jobs would have kept the nodes from
        the reservation anyway."""
        held = {jobid: ranks_of(mine) for jobid, mine in self.watch.books.held.items()}
        listed = self._rpc("sched.reservations")
        now = listed.get("now", 0)
        self._note_neighbours(held, now)
        for one in listed.get("reservations", ()):
            if not one["start"] <= now < one["end"] or one["state"] not in ("active", "degraded"):
                continue
            reserved = ids(one["ranks"] or "")
            wanted = self._wanted(one, listed["reservations"]) if one["short"] else set()
            strangers = {jobid: on for jobid, on in held.items() if self._answers_for(jobid, now)}
            for jobid, on in strangers.items():
                if on & reserved or (
                    on & wanted and self._made_short(jobid, strangers, wanted, one)
                ):
                    job = self.watch.jobs.get(jobid, {})
                    raise Violation(
                        f"job {jobid} ({job}) holds {on & (reserved | wanted)} of {one} at {now}"
                    )

    def _answers_for(self, jobid, now):
        """Whether a running job must keep off reserved nodes: it is in no group, is not ending, and
        no event since its start excuses it."""
        return (
            jobid not in self.excused
            and "reservation" not in self.watch.jobs.get(jobid, {})
            and not 0 < self.watch.ends.get(jobid, 0) <= now
        )

    def _note_neighbours(self, held, now):
        """Record, for newly started jobs, how long others may be on each of their ranks."""
        for jobid in held.keys() - self.beside.keys():
            until = {}
            self.beside[jobid] = now, until
            for other, ranks in held.items():
                if other != jobid:
                    end = self.watch.ends.get(other, 0) or float("inf")
                    until.update((rank, max(end, until.get(rank, 0))) for rank in ranks)
        for jobid in self.beside.keys() - held.keys():
            del self.beside[jobid]

    def _made_short(self, jobid, strangers, wanted, one):
        """Whether a reservation would have its nodes by all limits, had this job not started.

        A job that started before the window made it short if its nodes would have been enough. One
        that started in it should have been kept off: a node on which it is alone was the
        reservation's; a node that other jobs leave during the window is due to it, unless enough
        others become free by then, but until then the job may use the rest. Of nodes that other
        jobs keep beyond the window, as many rests are kept as nodes are missing, and new jobs may
        use the others.
        """
        seen, until = self.beside[jobid]
        on = strangers[jobid] & wanted
        if seen <= one["start"]:
            busy = {rank for rank, end in until.items() if end > one["start"]}
            free = len(wanted - busy)
            return free >= one["nodes"] > free - len(on - busy)
        end = self.watch.ends.get(jobid, 0) or float("inf")
        for rank in on:
            left = until.get(rank, 0)
            if left < min(end, one["end"]):
                others = [other for other in wanted - on if self._busy_until(other, one) <= left]
                if len(others) < one["nodes"]:
                    return True
        rests = set()
        for other, ranks in strangers.items():
            seen, until = self.beside[other]
            if seen > one["start"]:
                rests |= {rank for rank in ranks & wanted if until.get(rank, 0) >= one["end"]}
        return len(rests) > max(len(wanted) - one["nodes"], 0)

    def _busy_until(self, rank, one):
        """When a rank becomes idle by all limits; 0 if the reservation has it, or it is idle."""
        if rank in ids(one["ranks"] or ""):
            return 0
        there = [one for one, held in self.watch.books.held.items() if rank in ranks_of(held)]
        return max((self.watch.ends.get(one, 0) or float("inf") for one in there), default=0)

    def _wanted(self, one, listed):
        """Ranks that a reservation would take if it could, and that no other has at that time."""
        hosts = self.reserved.get(one["name"], {}).get("hosts")
        found = set(range(NODES)) if hosts is None else ids(hosts.partition("node")[2])
        for other in listed:
            if other is not one and other["start"] < one["end"] and one["start"] < other["end"]:
                found -= ids(other["ranks"] or "")
        return found

    def _check_annotations(self):
        for jobid in list(self.watch.pending)[:3]:
            asked = {"id": jobid, "attrs": ["annotations"]}
            shown = self._answer("job-list.list-id", asked)["job"]
            expected = self.watch.annotations.get(jobid, {}).get("sched", {})
            if shown.get("annotations", {}).get("sched", {}) != expected:
                raise Violation(f"annotations of job {jobid}: set {expected}, shown {shown}")

    def _eventlog(self, jobid):
        asked = {"id": jobid, "keys": ["eventlog"], "flags": 0}
        text = self._answer("job-info.lookup", asked)["eventlog"]
        return [json.loads(line) for line in text.splitlines()]

    # -- the end -------------------------------------------------------------------------------

    def _finish(self):
        """Repair everything; then no job may be left, no resource held, and all logs must be
        legal."""
        self.crash_in = None
        self.watch.faults += 1  # the repair is a fault as well
        self.instance.service("kvs").methods["kvs.commit"] = self._kvs_commit
        for rank in range(NODES):
            self.do_online(rank)
            self.do_undrain(rank)
        self.do_queue_start()
        self.do_load()
        if self.watch.policing:
            self.do_configure(0)  # some request more than their limit, and wait for ever
        for number, jobid in enumerate(self.submitted):
            if self.watch.jobs[jobid]["urgency"] == 0 or jobid in self._held_jobs():
                self.do_urgency(number, 16)
        if self.watch.reserving:
            for number in range(NAMES):
                self.do_unreserve(f"r{number}")
            # Its reservation does not exist, so it waits.
            for number, jobid in enumerate(self.submitted):
                if "reservation" in self.watch.jobs[jobid]:
                    self.do_cancel(number)
        self._let_pass(LONG_ENOUGH, lambda: self._all_inactive() or self.violation)
        self._settle()
        self._assert_rules()
        self.watch.all_served()
        for jobid in self.submitted:
            log = self._eventlog(jobid)
            check_eventlog(jobid, log)
            if log[-1]["name"] != "clean":
                raise Violation(f"job {jobid} never ended: {[event['name'] for event in log]}")
        if self.watch.books.held:
            raise Violation(f"resources are still held: {self.watch.books.held}")
        if self.violation is not None:
            raise self.violation

    def _held_jobs(self):
        asked = {"max_entries": 0, "attrs": ["urgency", "state"]}
        jobs = self._answer("job-list.list", asked)["jobs"]
        return {job["id"] for job in jobs if job.get("urgency") == 0 and job["state"] != 64}

    def _all_inactive(self):
        # Called after every turn of the loop: check only at the clock's idle moments.
        if self.kernel.ready or self.kernel.turns % 50:
            return False
        manager = self.instance.service("job-manager")
        return manager is not None and not manager.jobs.active

    def close(self):
        """End the instance, regardless of its state."""
        self.kernel.intercept = None
        for endpoint in list(self.held_back):
            self._release(endpoint)
        self.instance.stop()
