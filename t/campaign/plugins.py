#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-3.0-or-later
r"""Jobtap plugins that do in a callback what none should, in a running instance of either host.

    CAMPAIGN_FLUX=$(command -v flux) flux start \
        flux python t/campaign/plugins.py [--seed N] [--rounds N] [--only NAME]

Each round loads a plugin that misbehaves in some topics, runs jobs, cancels some, and removes the
plugin. Invariants: the job manager answers, errors are in the log with the plugin's file and line,
and every job comes to its end. On a real Flux FLUX_JOBTAP_PYTHON names python.so.
"""

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time

import flux
import flux.job
from flux.job import JobspecV1

TOPICS = (
    "job.create",
    "job.validate",
    "job.new",
    "job.state.depend",
    "job.state.priority",
    "job.priority.get",
    "job.state.sched",
    "job.state.run",
    "job.state.cleanup",
    "job.state.inactive",
    "job.event.*",
    "job.inactive-add",
    "job.destroy",
    "plugin.query",
    "conf.update",
)
#: Name -> the body of a callback, and whether the log names its file and line. Topics that can fail
#: report to the user instead.
DEEDS = {
    "raises": ("raise ValueError('odd')", True),
    "interrupts": ("raise KeyboardInterrupt", True),
    "exits": ("sys.exit(3)", True),
    "exits at once": ("os._exit(3)", True),
    "aborts": ("os.abort()", True),
    "becomes another": ("os.execv('/bin/true', ['true'])", True),
    "recurses": ("return callback(p, topic, args)", True),
    "returns a float": ("return 3.5", True),
    "returns a text": ("return 'yes'", True),
    "returns a list": ("return [1]", True),
    "returns an object": ("return object()", True),
    "returns NaN": ("return {'priority': float('nan'), 'annotations': {'x': float('inf')}}", True),
    "returns wrong answers": (
        "return {'priority': 'x', 'annotations': 5, 'R': {}, 'updates': 3}",
        False,
    ),
    "returns what refers to itself": ("d = {}\n    d['d'] = d\n    return d", True),
    "returns something deep": (
        "d = {}\n    for _ in range(100000): d = {'d': d}\n    return d",
        True,
    ),
    "forks": (
        "pid = os.fork()\n    if pid == 0: os._exit(0)\n    try:\n        os.waitpid(pid, 0)\n"
        "    except ChildProcessError:\n        pass",
        False,
    ),
    "runs a command": ("assert subprocess.run(['sh', '-c', 'exit 7']).returncode == 7", False),
    "starts threads": (
        "for _ in range(3):\n        t = threading.Thread(target=other, args=(p,), daemon=True)\n"
        "        t.start()\n        t.join()",
        False,
    ),
    "changes signals": ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", True),
    "sets an alarm": ("signal.alarm(1)", True),
    "grows": ("p.kept.append(bytearray(100000))", False),
    "annotates much": ("return {'annotations': {'big': 'x' * 100000}}", False),
    "posts much": ("[post(p, topic) for _ in range(50)]", False),
    "changes its handlers": ("p.add_handler('job.state.run', callback)", False),
    "stops the reactor": ("p.handle.reactor_stop_error()", True),
    "runs a reactor": ("p.handle.reactor_run()", True),
    "waits for the job manager": ("p.handle.rpc('job-manager.getinfo').get()", True),
    "refuses": ("return -1", False),
}
SOURCE = """\
import os, signal, subprocess, sys, threading
from flux.jobtap import CURRENT_JOB
def plugin_init(p):
    p.kept = []
    for topic in {topics!r}:
        p.add_handler(topic, callback)
    p.add_handler("job.new", new) if "job.new" not in {topics!r} else None
def new(p, topic, args):
    p.job_subscribe(CURRENT_JOB)
def other(p):
    try:
        p.reprioritize_all()
    except OSError:
        pass
def post(p, topic):
    try:
        p.event_post(CURRENT_JOB, "campaign", {{"topic": topic}})
    except OSError:
        pass
def callback(p, topic, args):
    {body}
"""
FIRST_LINE, LAST_LINE = 20, 30


class Violation(Exception):
    """An invariant is broken."""


class Rounds:
    """The rounds of a seed, in the instance around this process.

    Args:
        seed (int): of all random numbers
        directory (str): for files of plugins
    """

    def __init__(self, seed, directory):
        self.chance = random.Random(seed)
        self.directory = directory
        self.h = flux.Flux()
        self.python_so = os.environ.get("FLUX_JOBTAP_PYTHON")
        self.number = 0

    def rpc(self, topic, payload=None, seconds=60.0):
        return self.h.rpc(topic, payload).wait_for(seconds).get()

    def round(self, deed):
        """Load, run, cancel, remove, check.

        Raises:
            Violation: an invariant is broken
        """
        self.number += 1
        body, in_log = DEEDS[deed]
        count = self.chance.choice((1, 2, len(TOPICS)))
        topics = sorted(self.chance.sample(TOPICS, count))
        name = f"deed{self.number}"
        path = os.path.join(self.directory, name + ".py")
        with open(path, "w") as file:
            file.write(SOURCE.format(topics=topics, body=body))
        loaded = path
        if self.python_so:
            loaded = path[:-3] + ".so"
            os.symlink(self.python_so, loaded)
        what = f"{deed} in {', '.join(topics)}"
        is_loaded = True
        try:
            self.rpc("job-manager.jobtap", {"load": loaded})
        except OSError:
            is_loaded = False  # it refuses the configuration, or fails on it
        ids = self.submit(4)
        for id in self.chance.sample(ids, min(1, len(ids))):
            try:
                self.rpc(
                    "job-manager.raise", {"id": id, "type": "cancel", "severity": 0, "note": ""}
                )
            except OSError:
                pass  # it has ended already
        if is_loaded:
            try:
                self.rpc("job-manager.jobtap-query", {"name": os.path.basename(loaded)})
            except OSError:
                pass
            self.settle(ids, 5.0)
            self.rpc("job-manager.jobtap", {"remove": os.path.basename(loaded)})
        self.rpc("job-manager.getinfo")
        left = self.settle(ids, 60.0)
        if left:
            raise Violation(f"{what}: jobs in limbo: {left}")
        # A plugin's fault affects no later job: the state is as before.
        (id,) = self.submit(1)
        if self.settle([id], 60.0):
            raise Violation(f"{what}: a job without the plugin does not end")
        called = [topic for topic in topics if topic.startswith("job.state.")]
        if in_log and is_loaded and ids and called:
            lines = [line for line in self.log() if f"{name}.py" in line]
            places = [re.search(rf"\({name}\.py:(\d+) in ", line) for line in lines]
            if not any(place and FIRST_LINE <= int(place[1]) <= LAST_LINE for place in places):
                raise Violation(f"{what}: the log names no line: {lines[:5]}")

    def log(self):
        """The lines of the log."""
        # flux python of a real Flux puts directories with other commands of that name first.
        command = [os.environ.get("CAMPAIGN_FLUX", "flux"), "dmesg"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout.splitlines()

    def submit(self, count):
        """Submit jobs; returns the ids of the accepted ones."""
        ids = []
        for _ in range(count):
            spec = JobspecV1.from_command(["true"])
            spec.duration = 60
            spec.environment = dict(os.environ)
            try:
                ids.append(int(flux.job.submit(self.h, spec)))
            except OSError:
                pass
        return ids

    def settle(self, ids, seconds):
        """Wait until all these jobs are inactive; returns the others."""
        end = time.monotonic() + seconds
        while True:
            query = {"max_entries": 0, "attrs": ["state"]}
            query["constraint"] = {"states": ["pending", "running"]}
            jobs = self.rpc("job-list.list", query)["jobs"]
            left = [job for job in jobs if job["id"] in ids]
            if not left or time.monotonic() > end:
                return left
            time.sleep(0.1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, help="how many deeds (default: each once)")
    parser.add_argument("--only", choices=sorted(DEEDS))
    args = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        rounds = Rounds(args.seed, directory)
        deeds = [args.only] if args.only else sorted(DEEDS)
        rounds.chance.shuffle(deeds)
        for number in range(args.rounds or len(deeds)):
            try:
                rounds.round(deeds[number % len(deeds)])
            except (Violation, OSError) as exc:
                print(f"FAIL seed={args.seed} {deeds[number % len(deeds)]}: {exc}", flush=True)
                return 1
    print(f"seed {args.seed}: {rounds.number} plugins in {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
