# SPDX-License-Identifier: LGPL-3.0-or-later
"""A small correct scheduler with optional defects, which the conformance kit has to find.

    flux module load t/conformance/flawed.py [DEFECT]

It is written on messages and a pool alone, first come first served in the order of priorities, so that a defect is where it is
and nothing corrects it.
"""

import errno
import json
import sys
import time

from flux.brokermod import BrokerModule, request_handler
from flux.constants import FLUX_RPC_STREAMING
from flux.idset import IDset
from flux.job import JobID, job_raise_async
from flux.kvs import KVSTxn
from flux.resource import InfeasibleRequest, InsufficientResources, ResourcePool

#: Its flaws, and the case that finds each.
DEFECTS = {
    "ready-without-limit": "ready-payload",
    "lives-without-resources": "acquire-refused",
    "R-not-stored": "alloc-success",
    "no-end": "R-has-the-duration",
    "error-for-denial": "deny",
    "frees-at-once": "partial-free",
    "deaf-to-priorities": "prioritize",
    "cancels-twice": "cancel-of-a-waiting-job",
    "forgets-running-jobs": "hello-with-a-running-job",
    "holds-what-was-freed": "hello-with-a-part-freed",
    "frees-what-changed": "hello-with-a-straggler",
    "uses-down-ranks": "down-later",
    "waits-for-ever": "shrink",
}
SUCCESS, DENY, CANCEL = 0, 2, 3


class Small(BrokerModule):
    """The scheduler; see `DEFECTS` for its argument."""

    def has(self, defect):
        assert DEFECTS.keys() >= {defect, *self.args}
        return defect in self.args

    def run(self):
        self.handle.service_register("sched").get()
        self.set_running()
        self.waiting = {}
        acquire = self.handle.rpc("resource.acquire", flags=FLUX_RPC_STREAMING)
        try:
            first = acquire.get()
        except OSError:
            if not self.has("lives-without-resources"):
                raise
            super().run()
            return
        self.pool = ResourcePool(first["resources"])
        self.pool.mark_down("all")
        self.pool.mark_up(first["up"])
        acquire.reset()
        self.hello()
        mode = "limited" if self.has("ready-without-limit") else "unlimited"
        self.handle.rpc("job-manager.sched-ready", {"mode": mode}).get()
        acquire.then(self.changed)
        super().run()

    def hello(self):
        partly = {"partial-ok": True}
        asked = self.handle.rpc("job-manager.sched-hello", partly, flags=FLUX_RPC_STREAMING)
        while True:
            try:
                job = asked.get()
            except OSError as exc:
                if exc.errno != errno.ENODATA:
                    raise
                return
            asked.reset()
            if self.has("forgets-running-jobs"):
                continue
            lookup = {"id": job["id"], "keys": ["R"], "flags": 1}
            R = self.handle.rpc("job-info.lookup", lookup).get()["R"]
            try:
                self.pool.register_alloc(job["id"], R)
                if "free" in job and self.has("frees-what-changed") and self.has_changed(R):
                    self.pool.free(job["id"])
                elif "free" in job and not self.has("holds-what-was-freed"):
                    self.pool.free(job["id"], part_of(R, job["free"]))
            except ValueError as exc:
                job_raise_async(self.handle, job["id"], "scheduler-restart", 0, str(exc))

    def has_changed(self, R):
        """Whether ranks have other properties than when a job was given R."""
        now = self.pool.to_dict()["execution"].get("properties", {})
        return R["execution"].get("properties", {}) != now

    def changed(self, future):
        try:
            update = future.get()
        except OSError:
            self.handle.reactor_stop()
            return
        future.reset()
        self.pool.mark_up(update.get("up", ""))
        if not self.has("uses-down-ranks"):
            self.pool.mark_down(update.get("down", ""))
        if update.get("shrink") and not self.has("waits-for-ever"):
            self.pool.remove_ranks(update["shrink"])
        self.look()

    def answer(self, msg, jobid, kind, **keys):
        self.handle.respond(msg, {"id": jobid, "type": kind, **keys})

    @request_handler("sched.alloc", prefix=False)
    def alloc(self, msg):
        job = msg.payload
        try:
            request = self.pool.parse_resource_request(job["jobspec"])
            duration = job["jobspec"]["attributes"]["system"].get("duration", 0.0)
        except (ValueError, KeyError) as exc:
            self.answer(msg, job["id"], DENY, note=f"the jobspec makes no sense: {exc}")
            return
        self.waiting[job["id"]] = [job["priority"], msg, request, duration]
        self.look()

    @request_handler("sched.cancel", prefix=False)
    def cancel(self, msg):
        jobid = msg.payload["id"]
        if jobid in self.waiting:
            request = self.waiting.pop(jobid)[1]
            self.answer(request, jobid, CANCEL)
            if self.has("cancels-twice"):
                self.answer(request, jobid, CANCEL)
        self.look()

    @request_handler("sched.prioritize", prefix=False)
    def prioritize(self, msg):
        if self.has("deaf-to-priorities"):
            return
        for jobid, priority in msg.payload["jobs"]:
            if jobid in self.waiting:
                self.waiting[jobid][0] = priority
        self.look()

    @request_handler("sched.free", prefix=False)
    def free(self, msg):
        done = msg.payload
        final = done.get("final", False)
        try:
            if self.has("frees-at-once"):
                self.pool.free(done["id"])
            else:
                self.pool.free(done["id"], done["R"], final)
        except ValueError as exc:
            print(f"flawed: {exc}", file=sys.stderr)
        self.look()

    def look(self):
        """One pass: in order, up to the first job that does not fit."""
        for jobid, (_, msg, request, duration) in sorted(
            self.waiting.items(), key=lambda item: (-item[1][0], item[0])
        ):
            try:
                R = self.pool.alloc(jobid, request).to_dict()
            except InsufficientResources:
                return
            except InfeasibleRequest as exc:
                del self.waiting[jobid]
                if self.has("error-for-denial"):
                    self.handle.respond_error(msg, errno.EINVAL, str(exc))
                else:
                    self.answer(msg, jobid, DENY, note=str(exc))
                continue
            del self.waiting[jobid]
            self.start(jobid, msg, R, duration)

    def start(self, jobid, msg, R, duration):
        start = time.time()
        end = start + duration if duration else self.pool.expiration
        R["execution"].update(starttime=start, expiration=0.0 if self.has("no-end") else end)
        if not self.has("R-not-stored"):
            txn = KVSTxn(self.handle, JobID(jobid).kvs)
            txn.put("R", json.dumps(R), raw=True)
            txn.commit()
        self.answer(msg, jobid, SUCCESS, R=R)


def part_of(R, ranks):
    """The part of an R that is on these ranks (an idset)."""
    rest = ResourcePool(R)
    held = {rank for entry in R["execution"]["R_lite"] for rank in IDset(entry["rank"])}
    rest.remove_ranks(held.difference(IDset(ranks)))
    return rest.to_dict()


def mod_main(h, *args):
    Small(h, *args).run()
