#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-3.0-or-later
r"""Storms: an administrator, users and bad luck act on a running instance, many times a minute, while jobs run.

    CAMPAIGN_FLUX=$(command -v flux) flux start -Sbroker.module-nopanic=1 \
        flux python t/campaign/storms.py --seed 1 --seconds 60 --jobs 500
    ... --acts reload,switch              only these

It works on either host, through commands. At the end everything is repaired: then every job must
have ended, the records of all jobs must be legal without a resource allocated twice
(as for ``flux simulate check --live``), all resources must be free, and a job that requests all of them
must run. The exit status is 1 if not.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "faults"))

from books import resources_of  # noqa: E402

from flux import Flux  # noqa: E402
from flux.simulate.checking import Violation, check_instance  # noqa: E402

#: Time for all jobs to end.
PATIENCE_S = 120
SCHEDULERS = ("sched-fifo", "sched-simple", "sched-backfill")
BAD_TABLES = (
    '[sched-backfill]\npromise = "many"\n',
    "[sched-fifo]\nqueue-depth = -1\n",
    "[sched-simple]\nnosuch = 1\n[sched-backfill]\nqueue-depth = {}\n",
    "[reservations.r1]\nstart = 5\n",
    '[reservations.r1]\nstart = "2099-01-01T00:00:00Z"\nduration = "1h"\nnodes = 99999\n',
    "[reservations]\nr1 = 7\n",
    '[queues]\nbatch = "x"\n',
    "[policy]\njobspec = 3\n",
    '[limits.l1]\nper = "moon"\n[limits.l2]\nper = "user"\nmax = {nodes = "x", jobs = 1e400}\n',
    '[licenses]\nl1 = -1\nl2 = {total = 2, elsewhere = "/dev/zero", every = "1s"}\nl3 = nan\n',
    '[sharing.s1]\nmode = 7\n[topology.rack]\ngroups = "0-"\n[preemption.p1]\nafter = ["p1"]\n',
    "".join(f'[limits.l{n}]\nper = "user"\nmax = {{jobs = "{n}"}}\n' for n in range(1000)),
)


#: The command of the instance. ``flux python`` of a real Flux puts directories with others of that name first.
COMMAND = os.environ.get("CAMPAIGN_FLUX", "flux")


def flux(*args, seconds=60):
    """Run a command of the instance; returns (exit code, output)."""
    pipes = {"capture_output": True, "text": True, "check": False}
    try:
        done = subprocess.run([COMMAND, *args], timeout=seconds, **pipes)
    except subprocess.TimeoutExpired:
        return 124, f"flux {' '.join(args)}: no answer in {seconds} s"
    return done.returncode, done.stdout + done.stderr


def records():
    """Yield (job id, eventlog, R or None) of every job that the instance knows."""
    h = Flux()
    listed = h.rpc("job-list.list", {"max_entries": 0, "attrs": ["state"]}).get()["jobs"]
    for job in listed:
        query = {"id": job["id"], "keys": ["eventlog"], "flags": 0}
        text = h.rpc("job-info.lookup", query).get()["eventlog"]
        log = [json.loads(line) for line in text.splitlines()]
        R = None
        if any(event["name"] == "alloc" for event in log):
            R = json.loads(h.rpc("job-info.lookup", {**query, "keys": ["R"]}).get()["R"])
        yield job["id"], log, R


class Storm:
    """The acts on the instance, drawn by `chance`; their files go to a directory."""

    def __init__(self, chance, directory):
        self.chance = chance
        self.directory = directory
        self.ranks = int(flux("getattr", "size")[1])
        self.run = None
        names = [name for name in sorted(dir(self)) if name.startswith("do_")]
        self.acts = {name[3:].replace("_", "-"): getattr(self, name) for name in names}
        self.counts = dict.fromkeys(self.acts, 0)
        self.first = self.loaded()

    def submit(self, count):
        run = self.run or self.chance.choice(("0.1", "0.3", "1"))
        args = ["submit", f"--cc=1-{count}", "--quiet", "--wait-event=validate"]
        code, text = flux(*args, "-t", "1m", "sleep", run, seconds=300)
        if code:
            print(f"  submit: {text.strip()[-200:]}", flush=True)

    def act(self, names):
        """Do one act, which may be refused."""
        name = self.chance.choice(names)
        self.counts[name] += 1
        self.acts[name]()

    # -- acts --------------------------------------------------------------------------------------

    def loaded(self):
        """The scheduler that is loaded, or None."""
        text = flux("module", "list")[1]
        return next((name for name in SCHEDULERS if name in text.split()), None)

    def load(self, name=None):
        name = name or self.chance.choice(SCHEDULERS)
        return flux("module", "load", name)

    def do_reload(self):
        name = self.loaded()
        if name is None:
            self.load()
        else:
            flux("module", "reload", "-f", name)

    def do_switch(self):
        name = self.loaded()
        if name is not None:
            flux("module", "remove", "-f", name)
        self.load()

    def _process(self):
        """The process of the scheduler's module, if modules have processes."""
        name = self.loaded()
        if name is None:
            return None
        broker = flux("getattr", "broker.pid")[1].strip()
        command = ["pgrep", "-P", broker, "-f", name]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        pids = [int(pid) for pid in found.stdout.split()]
        return pids[0] if pids else None

    def do_kill(self):
        pid = self._process()
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            time.sleep(0.2)
            self.load()

    def do_stop(self):
        pid = self._process()
        if pid is not None:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(self.chance.choice((0.1, 1.0)))
            os.kill(pid, signal.SIGCONT)

    def do_drain(self):
        flux("resource", "drain", str(self.chance.randrange(self.ranks)), "storm")

    def do_undrain(self):
        flux("resource", "undrain", str(self.chance.randrange(self.ranks)))

    def do_queue(self):
        flux("queue", "stop", "--all")
        flux("queue", "start", "--all")

    def do_config(self):
        path = os.path.join(self.directory, "bad.toml")
        with open(path, "w") as file:
            file.write(self.chance.choice(BAD_TABLES))
        flux("config", "load", path)
        with open(path, "w") as file:
            file.write("")
        flux("config", "load", path)

    def do_cancel(self):
        flux("cancel", "--all", seconds=300)
        self.submit(20)

    def do_submit(self):
        self.submit(20)

    def do_expiration(self):
        ids = flux("jobs", "-no", "{id.f58}", "-f", "running")[1].split()
        for id in ids[:3]:
            flux("update", id, f"duration={self.chance.choice(('+10', '30', '2m'))}")

    def do_resource_reload(self):
        """The resource service is reloaded, and with it the modules that acquire its resources."""
        name = self.loaded()
        if name is not None:
            flux("module", "remove", "-f", name)
        flux("module", "reload", "-f", "resource", seconds=30)
        self.load(name)

    # -- invariants --------------------------------------------------------------------------------

    def repair(self):
        """Undo the acts, so that every job can end."""
        for rank in range(self.ranks):
            flux("resource", "undrain", str(rank))
        flux("queue", "start", "--all")
        if self.loaded() is None:
            code, text = self.load()
            if code:
                raise Violation(f"no scheduler can be loaded: {text}")

    def restore(self):
        """Load the original scheduler."""
        name = self.loaded()
        if self.first not in (None, name):
            flux("module", "remove", "-f", name)
            self.load(self.first)

    def inventory(self):
        return json.loads(flux("kvs", "get", "resource.R")[1])

    def check(self, seconds):
        """All jobs end within `seconds`, and their records are legal; else a Violation."""
        code, text = flux("queue", "drain", "--timeout", f"{seconds}s", seconds=seconds + 60)
        if code:
            left = flux("jobs", "-no", "{id.f58} {state} {annotations}")[1]
            raise Violation(f"jobs do not end: {text.strip()}\n{left}")
        found = list(records())
        check_instance(self.inventory(), found)
        for id, log, _ in found:
            names = [event["name"] for event in log]
            if names[-1] != "clean":
                raise Violation(f"job {id} has not ended: {names}")
            if names.count("alloc") > 1 or names.count("free") != names.count("alloc"):
                raise Violation(f"job {id} was given or has given back something else: {names}")
        status = Flux().rpc("sched.resource-status").get()
        held = status.get("allocated") or {}
        lite = (held.get("execution") or {}).get("R_lite") or []
        if lite:
            raise Violation(f"resources are still held: {lite}")
        up = resources_of(status["all"], "resource.sched-status")
        cores = sum(resource[1] == "core" for resource in up)
        return self.checked(found, cores, "no job that asks for everything runs")

    def checked(self, found, cores, text):
        """Run a job, which is a Violation if it does not run; the numbers of jobs and of allocations that were checked."""
        code, said = flux("run", "-t", "1m", "-n", str(cores), "true", seconds=90)
        if code:
            raise Violation(f"{text}: {said}")
        return len(found), sum(R is not None for _, _, R in found)

    def check_loss(self, seconds):
        """As `check`, after the loss of a broker: its state is gone, but no job is in limbo."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = list(records())
            if all(log[-1]["name"] == "clean" for _, log, _ in found):
                break
            time.sleep(1)
        left = [id for id, log, _ in found if log[-1]["name"] != "clean"]
        if left:
            raise Violation(f"jobs do not end after a broker was lost: {left}")
        check_instance(self.inventory(), found)
        return self.checked(found, 1, "no job runs after a broker was lost")

    def lose_broker(self):
        """Kill the broker of the last rank."""
        code, pid = flux("exec", "-r", str(self.ranks - 1), "flux", "getattr", "broker.pid")
        if code:
            raise Violation(f"the broker of rank {self.ranks - 1} does not answer: {pid}")
        os.kill(int(pid), signal.SIGKILL)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--seed", type=int, default=0)
    add("--seconds", type=float, default=20)
    add("--jobs", type=int, default=100, help="submitted at the beginning")
    add("--run", help="seconds that jobs take (default: 0.1 to 1)")
    add("--acts", help="names, with commas between them (default: all)")
    add("--pause", type=float, default=1.0, help="seconds between them (1)")
    add("--lose-broker", action="store_true", help="kill one broker (on a real Flux only)")
    args = parser.parse_args()
    chance = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as directory:
        storm = Storm(chance, directory)
        storm.run = args.run
        names = args.acts.split(",") if args.acts else sorted(storm.acts)
        unknown = set(names) - set(storm.acts)
        if unknown:
            sys.exit(f"storms.py: {', '.join(unknown)}: there is {', '.join(storm.acts)}")
        storm.submit(args.jobs)
        if args.lose_broker:
            time.sleep(1)
            storm.lose_broker()
        end = time.monotonic() + args.seconds
        while time.monotonic() < end:
            storm.act(names)
            time.sleep(args.pause)
        done = ", ".join(f"{name} {count}" for name, count in storm.counts.items() if count)
        try:
            storm.repair()
            check = storm.check_loss if args.lose_broker else storm.check
            jobs, spans = check(PATIENCE_S)
            storm.restore()
        except Violation as violation:
            print(f"FAIL seed={args.seed} after {done}\n{violation}", flush=True)
            return 1
    print(f"seed {args.seed}: {done}; {jobs} jobs, {spans} allocations checked")
    return 0


if __name__ == "__main__":
    sys.exit(main())
