#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""Requests of every kind, right and bent, from the owner and from guests, to a scheduler.

    messages.py --seeds 0-999 [--module NAME] [--requests N]

Each seed is a new scheduler among fake services (`flux.scheduler.testing`), which receives requests
and changes of its resources. `Campaign` checks the invariants: an error or a drop, never a hang, an
exit, a lost job, or an unauthorized change of state.
"""

import argparse
import math
import os
import random
import signal
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
for path in (
    HERE,
    os.path.join(TOP, "t/python/scheduler"),
    os.path.join(TOP, "src/embedded"),
    os.path.join(TOP, "src/bindings/python"),
):
    if path not in sys.path:
        sys.path.insert(0, path)

import payloads  # noqa: E402
from peers import R, Rig, check_requests, jobspec  # noqa: E402

MODULES = {
    "sched-fifo": ("queue-depth=unlimited",),
    "sched-simple": (),
    "sched-backfill": ("promise=4", "queue-depth=unlimited"),
}
GUEST = (1001, 2)
OWNER = (0, 1)
NODES = 4


#: Job ids that bending may produce.
ODD_IDS = {value for value in payloads.ODD if type(value) is int and 0 <= value < 1 << 64}


class Violation(Exception):
    """An invariant is broken."""


class Campaign:
    """A scheduler, and its requests; all random numbers come from `chance`."""

    def __init__(self, chance, module):
        self.chance = chance
        self.module = module
        self.done = []  # the sent requests, for the report
        self.lines = 0  # of the log, checked so far
        self.rig = Rig(R(NODES, 4, 1, properties={"a": "0-1"}))
        self._running_jobs()
        self.rig.load(module, *MODULES[module])
        self.rig.settle()
        if self.rig.task.ended:
            raise Violation(f"{module} has ended while it was loaded: {self.rig.task.failure}")

    def _running_jobs(self):
        """The running jobs in the job manager's answer to hello; some are bent."""
        chance = self.chance
        for jobid in range(1000, 1000 + chance.randrange(4)):
            entry = {"id": jobid, "priority": 16, "userid": 0, "t_submit": 1.0}
            held = R(str(jobid - 1000), 1) if chance.random() < 0.5 else payloads.R(chance)
            self.rig.info.R[jobid] = payloads.bend(chance, held) if chance.random() < 0.2 else held
            if chance.random() < 0.4:
                entry = payloads.bend(chance, entry)
            if isinstance(entry, dict) and type(entry.get("id")) is int and entry["id"] > 0:
                self.rig.manager.running.append(entry)

    def run(self, requests):
        """Send so many requests, then end all jobs; a broken invariant is a Violation."""
        for _ in range(requests):
            what = self.chance.random()
            if what < 0.12:
                self._resources()
            elif what < 0.2:
                self._wait(self.chance.choice((0.1, 5, 100)))
            elif what < 0.5:
                self._guest()
            else:
                self._owner()
            self._check()
        self._end()

    def _wait(self, seconds):
        """Let time pass without messages: there are passes for starts and ends that are due, and an
        estimate per second."""
        self.rig.settle()
        before = self.rig.sched.stats_get()
        self.rig.wait(seconds)
        passes = self.rig.sched.stats_get()["sched_passes"] - before["sched_passes"]
        if passes > 50 + 5 * seconds:
            raise Violation(f"{passes} passes in {seconds} s without a request")

    # -- requests ----------------------------------------------------------------------------------

    def _request(self):
        chance = self.chance
        topic = chance.choice(sorted(payloads.SCHEMAS) + ["sched.alloc"] * 4 + ["sched.free"])
        payload = payloads.make(chance, topic)
        if chance.random() < 0.5:
            payload = payloads.bend(chance, payload)
        if topic == "sched.free" and chance.random() < 0.5:
            # A job's actual resources.
            allocs = [one for _, errnum, one in self._answers("sched.alloc", 0) if not errnum]
            held = [answer for answer in allocs if answer["type"] == 0]
            if held:
                answer = chance.choice(held)
                payload = {"id": answer["id"], "R": answer["R"], "final": chance.random() < 0.8}
        return topic, payloads.text_of(chance, payload)

    def _send(self, who, topic, text):
        self.done.append((who, topic, text))
        rig = self.rig
        rig.client.userid, rig.client.rolemask = who
        before = len(rig.received)
        wants_answer = topic not in payloads.UNANSWERED
        full = topic.replace("NAME", self.module)
        rig.send_text(full, text, respond=wants_answer)
        if self.chance.random() < 0.8:
            rig.settle()
        rig.client.userid, rig.client.rolemask = OWNER
        return full, before

    def _answers(self, full, before):
        return [answer for answer in self.rig.received[before:] if answer[0] == full]

    def _owner(self):
        topic, text = self._request()
        full, before = self._send(OWNER, topic, text)
        if topic in payloads.OPEN or topic in payloads.UNANSWERED:
            return
        self._answered_once(full, before)

    def _answered_once(self, full, before):
        for _ in range(20):
            self.rig.settle()
            if self._answers(full, before):
                break
            self.rig.wait(1)
        count = len(self._answers(full, before))
        if count != 1:
            raise Violation(f"{full}: {count} answers")

    def _guest(self):
        """A guest's request changes nothing."""
        self.rig.settle()
        before_state = self._state()
        topic, text = self._request()
        full, before = self._send(GUEST, topic, text)
        self.rig.settle()
        if topic not in payloads.UNANSWERED:
            self._answered_once(full, before)
            answer = self._answers(full, before)[0]
            if not answer[1] and topic not in payloads.QUESTIONS:
                raise Violation(f"a guest may {full}: {answer}")
        if self._state() != before_state:
            raise Violation(f"{full} of a guest has changed {self._state()} from {before_state}")

    def _state(self):
        """The state that no query and no guest may change: allocations, pending jobs,
        reservations."""
        sched = self.rig.sched
        pool = sched.resources
        held = {jobid: pool.held_ranks(jobid) for jobid, _ in pool.job_end_times()}
        waiting = [(job.jobid, job.priority) for job in sched._queue]
        listed = self.rig.ask("sched.reservations")[1]
        names = [(one["name"], str(one.get("users"))) for one in listed.get("reservations", ())]
        return held, waiting, names

    def _resources(self):
        """The resource service reports a change; some of it is bent."""
        chance = self.chance
        ranks = chance.choice(("0", "1", "2", "3", "0-3", "1-2"))
        update = {chance.choice(("up", "down", "up", "down", "expiration", "shrink")): ranks}
        if "expiration" in update:
            update = {"expiration": chance.choice((0.0, 4e9))}
        if "shrink" in update and chance.random() < 0.9:
            update = {"up": ranks}
        if chance.random() < 0.5:
            update = payloads.bend(chance, update)
        text = payloads.text_of(chance, update)
        self.done.append(("resource", text))
        if self.rig.resource.stream is not None:
            self.rig.resource.respond(self.rig.resource.stream, text)

    # -- invariants --------------------------------------------------------------------------------

    def _check(self):
        rig = self.rig
        if rig.task.ended:
            raise Violation(
                f"{self.module} has ended: {rig.task.failure!r}; {rig.logged(settle=False)[-3:]}"
            )
        rig.sched.resources._check()
        check_requests(rig.sched)
        for line in rig.logged(settle=False)[self.lines :]:
            # R in hello and a policy's own code may have any fault, which is logged in full.
            if "\nTraceback" in line and line.split("\n")[0] in payloads.SCHEMAS:
                raise Violation(f"not foreseen: {line}")
        self.lines = len(rig.logged(settle=False))
        if not math.isfinite(rig.now):
            raise Violation(f"the clock shows {rig.now}")

    def _end(self):
        """All pending jobs are cancelled and answered, and a new job runs."""
        rig = self.rig
        rig.client.userid, rig.client.rolemask = OWNER
        rig.wait(5)
        self._check()
        # Deferred jobs are not in the queue.
        for jobid in sorted({job.jobid for job in rig.sched._queue} | set(range(30)) | ODD_IDS):
            rig.cancel(jobid)
        rig.wait(1)
        if rig.sched._queue or len(rig.sched._requests):
            raise Violation(f"left over: {rig.sched._queue}, {len(rig.sched._requests)} requests")
        for one in rig.ask("sched.reservations")[1].get("reservations", ()):
            rig.ask("sched.unreserve", {"name": one["name"]})
        if rig.sched.resources.ranks:
            rig.alloc(5000, jobspec(1))
            rig.settle()
            rig.wait(5)
            if not any(
                full == "sched.alloc" and not errnum and answer["id"] == 5000
                for full, errnum, answer in rig.received
            ):
                raise Violation("a new job is not answered")
        number, answer = rig.ask("sched.quiescent")
        if number:
            raise Violation(f"sched.quiescent: {answer}")
        rig.unload()


#: Maximum processor seconds of one seed; a thousandth of it is usual.
LONGEST = 10.0


def _too_long(signum, frame):
    raise Violation(f"hangs: it has taken {LONGEST:.0f} s of processor time")


def run_seed(seed, module, requests):
    """Run one seed; returns None, or the broken invariant as text."""
    campaign = None
    former = signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    try:
        campaign = Campaign(random.Random(f"{seed} {module}"), module)
        campaign.run(requests)
    except Exception as exc:
        sent = campaign.done[-4:] if campaign else []
        where = "".join(traceback.format_tb(exc.__traceback__, limit=-12))
        return f"{type(exc).__name__}: {exc}\n{where}after {str(sent)[:1500]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, former)  # other code uses it if it is free
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", default="0-9", help="N or LOW-HIGH")
    parser.add_argument("--module", choices=sorted(MODULES), action="append")
    parser.add_argument("--requests", type=int, default=150, help="for each seed (150)")
    args = parser.parse_args()
    low, _, high = args.seeds.partition("-")
    started = time.monotonic()
    runs = failures = 0
    for seed in range(int(low), int(high or low) + 1):
        for module in args.module or MODULES:
            failure = run_seed(seed, module, args.requests)
            runs += 1
            if failure:
                failures += 1
                print(f"FAIL seed={seed} module={module}\n{failure}", flush=True)
    print(f"{runs * args.requests} requests in {time.monotonic() - started:.0f} s")
    print(f"{runs - failures} passed, {failures} failed, 0 skipped")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
