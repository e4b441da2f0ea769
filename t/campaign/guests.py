#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""A malicious guest attacks the scheduler of the running instance, on either host.

    flux start flux python t/campaign/guests.py [--seed N] [--seconds N] [--soak] [--userid N] [--busy]

A client with the credentials of a guest sends requests of every topic, in sizes from a byte to 50
MB and in shapes that are costliest to parse, and floods of them. Meanwhile the owner pings the
scheduler every 50 ms, and starts jobs one after the other. Three bounds are checked: the longest
wait of a ping and of a job for its resources, the memory that the scheduler keeps afterwards, and
that no answer to the guest names a job or a bank of the owner (with random names). With --busy, for a
machine with other work, the first is the scheduler's processor time during a ping alone. With --soak jobs
run for a minute without guests, a minute with guests that send the same to another service, and a
minute with guests; in the third, at least four fifths as many jobs as in the second must end. A
guest has its credentials for its requests only; with --userid it is that user of the host, which
needs root, a real Flux, and a run directory that others may enter. To measure the kept memory, set
MALLOC_TRIM_THRESHOLD_=1048576 in the environment of the instance: otherwise the C library of any
reader keeps up to twice the size of the largest message. The exit status is 1 if a bound is
exceeded.
"""

import argparse
import collections
import contextlib
import errno
import json
import os
import random
import subprocess
import sys
import threading
import time
import uuid

import flux
from flux.job import JobID, JobspecV1

#: The bounds: seconds, and bytes. A request of 50 MB takes the transport of a real Flux up to 0.4 s, also one that
#: the scheduler refuses unread.
MAX_STALL_S = 0.25
TRANSPORT_S_PER_BYTE = 0.75 / 50e6
MAX_KEPT = 20 << 20
#: The part of a run after which memory is first measured: the allocator keeps parts of the first storms' memory; only
#: the growth with each later storm counts.
WARM_UP = 0.25
PING_S = 0.05
#: For a soak: the minimum fraction of the jobs that end beside guests of another service, seconds
#: of a turn, and jobs at a time.
MIN_THROUGHPUT = 0.8
SOAK_TURN_S = 60.0
SOAK_JOBS = 50
#: A topic that a service of Flux itself refuses: the cost of guests alone.
ASIDE = "kvs.nosuch"
#: Seconds within which a guest is answered, regardless of the number of others, and the owner in
#: any case.
ANSWER_SECONDS = 300.0
OWNER_SECONDS = 30.0
SIZES = (1, 1000, 100000, 1000000, 10000000, 50000000)
#: Requests of one flood; the maximum ratio of the scheduler's to Flux's own processor time to
#: refuse one; guests of a crowd, and the requests of each.
FLOOD = 2000
BY_FLUX = 3.0
CROWD, OF_EACH = 20, 40
#: A request to the job manager: forget all but the last inactive jobs.
PURGE = {"age_limit": -1.0, "num_limit": 10, "batch": 100, "force": True}
#: Licences for which a job must wait.
LICENCES = 5000000
#: Shapes that are sent by several clients, or many times.
MASSES = ("flood", "disconnect", "crowd")
TOPICS = (
    "sched.when sched.explain sched.windows sched.plan sched.stats sched.reservations sched.limits sched.preempt"
    " sched.preemptions sched.reserve sched.unreserve sched.alloc sched.free sched.cancel sched.prioritize sched.expiration"
    " sched.shares sched.check-config sched.resource-status sched.quiescent feasibility.check sched.disconnect"
).split()
GUEST = {"FLUX_HANDLE_USERID": "9999", "FLUX_HANDLE_ROLEMASK": "0x2"}
#: A topic that Flux refuses for the scheduler: a flood of it measures Flux and the machine alone.
UNKNOWN = "sched.nosuch"
#: The measurements of each trial.
NAMES = {"ping": "a ping", "start": "a start", "busy": "the scheduler in a ping"}
#: Requests that get no response of their own.
UNANSWERED = ("sched.free", "sched.cancel", "sched.prioritize", "sched.alloc", "sched.disconnect")


def jobspec(**system):
    made = json.loads(JobspecV1.from_command(["true"]).dumps())
    made["attributes"]["system"] = {"duration": 60, **system}
    return made


def in_jobspec(text):
    """A query with `text`, JSON, as the job's constraint."""
    return json.dumps({"jobspec": jobspec(constraints="HERE")}).replace('"HERE"', text)


def texts(count, make):
    return ",".join(map(make, range(count)))


def in_list(operator, count, make):
    """A query with a constraint of so many values."""
    return in_jobspec(json.dumps({operator: list(map(make, range(count)))}))


#: Shape -> function of a size in bytes, giving the text of a payload of about that size.
SHAPES = {
    "long": lambda size, chance: in_jobspec(json.dumps({"properties": ["x" * size]})),
    "deep": lambda size, chance: in_jobspec('{"not": [' * (size // 10) + "]}" * (size // 10)),
    "arrays": lambda size, chance: "[" * size,
    "wide": lambda size, chance: in_jobspec("{" + texts(size // 10, lambda n: f'"k{n}": 1') + "}"),
    "list": lambda size, chance: in_jobspec('{"ranks": [' + ",".join("0" * (size // 2)) + "]}"),
    "properties": lambda size, chance: in_list(
        "properties", size // 22, lambda n: f"^{chance.random()}"
    ),
    "hosts": lambda size, chance: in_list(
        "hostlist", size // 20, lambda n: f"d{n}[0-{chance.choice((20000, 1048574))}]"
    ),
    "number": lambda size, chance: in_jobspec("9" * size),
    "floats": lambda size, chance: in_jobspec(f'{{"or": [NaN, Infinity, 1e999, {1 << 200}]}}'),
    "keys": lambda size, chance: json.dumps({"id": 1 << 63, "k" * size: None}),
    "surrogates": lambda size, chance: '{"jobspec": "' + "\\ud800" * (size // 6) + '"}',
}


def trials(chance):
    """Topics, shapes and sizes, without end: the worst first, then each topic with each shape, in
    random sizes."""
    for topic in (UNKNOWN, UNKNOWN, "sched.when", "sched.windows", "sched.limits"):
        yield topic, "flood", 0
    yield "sched.when", "disconnect", 0
    for shape in SHAPES:
        yield "sched.when", shape, 1000000
    yield "sched.windows", "crowd", 0
    while True:
        some = [(topic, shape) for topic in TOPICS for shape in (*SHAPES, *MASSES)]
        chance.shuffle(some)
        for topic, shape in some:
            # The costliest requests for a scheduler have a jobspec.
            if shape not in MASSES and chance.random() < 0.7:
                topic = "sched.when"
            size = 0 if shape in MASSES else chance.choices(SIZES, (2, 4, 4, 4, 2, 1))[0]
            yield topic, shape, size


def plain(topic, licence):
    """A payload that is answered, if a guest's is at all."""
    return {
        "sched.when": {"jobspec": jobspec(licenses={licence: LICENCES})},
        "sched.explain": {"all": True},
        "sched.preempt": {"id": 1, "dry_run": True},
    }.get(topic, {})


def send(h, topic, payload):
    flags = flux.constants.FLUX_RPC_NORESPONSE if topic in UNANSWERED else 0
    return h.rpc(topic, payload, flags=flags)


def answers(h, futures, canaries):
    """The results of requests, with their counts, and each canary that an answer names."""
    results = collections.Counter()
    leaks = {}

    def came(future):
        try:
            text = json.dumps(future.get(), ensure_ascii=False)
            result = "answered"
        except OSError as exc:
            text, result = exc.strerror or "", errno.errorcode.get(exc.errno, str(exc.errno))
        results[result] += 1
        for name in canaries:
            if name in text:
                leaks.setdefault(f"LEAK of {name}", text[:500])
        nonlocal left
        left -= 1
        if not left:
            h.reactor_stop()

    left = len(futures)
    for future in futures:
        future.then(came)
    h.reactor_run()
    results.update({f"{what}: {text}": 1 for what, text in leaks.items()})
    return results


def attack(seed, seconds, canaries, licence, to):
    """The guest's requests; prints a line of JSON for each trial. All are sent to the topic `to`,
    if that is not None."""
    h = flux.Flux()
    chance = random.Random(seed)
    end = time.monotonic() + seconds
    for topic, shape, size in trials(chance):
        if time.monotonic() >= end:
            return
        print(json.dumps({"begins": [topic, shape, size]}), flush=True)
        if shape in MASSES:
            make, each = {
                "flood": (lambda: [h], FLOOD),
                "disconnect": (lambda: [flux.Flux()], 500),
                "crowd": (lambda: list(map(one_of_crowd, range(CROWD))), OF_EACH),
            }[shape]
            clients, payload = make(), json.dumps(plain(topic, licence))
            ask = lambda one: [send(one, to or topic, payload) for _ in range(each)]
            open_ = [(one, ask(one)) for one in clients]
        else:
            open_ = [(h, [send(h, to or topic, SHAPES[shape](size, chance))])]
        results = collections.Counter()
        if shape != "disconnect" and (to or topic) not in UNANSWERED:
            for one, futures in open_:
                results.update(answers(one, futures, canaries))
        open_ = clients = one = None
        print(json.dumps({"ended": [topic, shape, size], "results": results}), flush=True)


def one_of_crowd(number):
    """Another client; with separate credentials, if the owner may choose them."""
    if "FLUX_HANDLE_USERID" in os.environ:
        os.environ["FLUX_HANDLE_USERID"] = str(10000 + number)
    return flux.Flux()


# -- the owner's side ------------------------------------------------------------------------------


def memory_of(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def processor_time_of(pid):
    """Processor seconds of a process, all threads, to a microsecond if the kernel provides it."""
    used = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as stream:
            used += int(stream.read().split()[0])
    return used / 1e9


def process_of(broker, module):
    """The process in which the scheduler runs: one of its own on a real Flux, the broker's otherwise."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/cmdline", encoding="utf-8", errors="replace") as stream:
                    words = stream.read().split("\0")
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as stream:
                    parent = int(stream.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == broker and any(module in word for word in words):
                return int(name)
    return broker


def job_of(duration, run):
    """A jobspec of a mock job of the owner."""
    spec = JobspecV1.from_command(["true"])
    spec.duration = duration
    spec.setattr("system.exec.test.run_duration", run)
    return spec


def module_of(h):
    for name in ("sched-backfill", "sched-fifo", "sched-simple"):
        try:
            h.rpc(f"{name}.stats-get").get()
        except OSError:
            continue
        return name
    raise SystemExit("no scheduler answers")


class Machine:
    """An instance in private mode with jobs of the owner, whose names and numbers of licences, `canaries`, must be
    in no answer to the guest."""

    def __init__(self, h):
        self._h = h
        self._former = h.rpc("config.get").get()
        bank, self.licence = (f"{kind}{uuid.uuid4().hex[:12]}" for kind in ("canary", "licence"))
        used, free = random.randrange(LICENCES, 9999999), random.randrange(1000000, LICENCES)
        access = {"private-mode": True, "allow-guest-user": True}
        changed = {"access": access, "licenses": {self.licence: used + free}}
        h.rpc("config.load", {**self._former, **changed}).get()
        # The first runs, leaving a core, and the others wait for licences.
        self._ids = [self._submit(bank, count) for count in (used, *[used + free] * 39)]
        self.canaries = [bank, str(used)]
        for one in self._ids:
            self.canaries += [str(one), str(JobID(one).f58), str(JobID(one).f58plain)]
        self.canaries = [one for one in self.canaries if len(one) > 6]

    def _submit(self, bank, licences):
        spec = job_of(3600, "3600s")
        spec.setattr("system.bank", bank)
        spec.setattr("system.licenses", {self.licence: licences})
        return int(flux.job.submit(self._h, spec))

    def close(self):
        """Restore the instance."""
        for one in self._ids:
            flux.job.cancel(self._h, one)
        self._h.rpc("config.load", self._former).get()


class Starts(threading.Thread):
    """Starts jobs of the owner, one after the other; `waits` has the seconds from each one's priority to its resources."""

    def __init__(self):
        super().__init__(daemon=True)
        self.waits = collections.deque()
        self._ends = threading.Event()
        self._ended = False
        self.start()

    def run(self):
        h = flux.Flux()
        spec = job_of(600, "0.001s")
        while not self._ends.wait(PING_S):
            id = flux.job.submit(h, spec, urgency=31)
            times = {event.name: event.timestamp for event in flux.job.event_watch(h, id)}
            self.waits.append(times["alloc"] - times["priority"])
            # The embedded instance keeps its job records in the measured process.
            h.rpc("job-manager.purge", PURGE).get()
        self._ended = True

    def stop(self):
        """Returns whether all of them have started."""
        self._ends.set()
        self.join(OWNER_SECONDS)
        return self._ended


def soak(seed, seconds):
    """Jobs of a second on all cores but one, in turns of a minute: without guests, with guests that
    send the same to a service of Flux that refuses all of it, and with guests; returns the jobs
    ended per second in each case. The cases are run in this order and then in reverse, since the
    KVS of a real Flux slows down as it grows."""
    h = flux.Flux()
    machine = Machine(h)
    spec = job_of(60, "1s")

    def submit(count):
        more = {"urgency": 31, "waitable": True}
        for one in [flux.job.submit_async(h, spec, **more) for _ in range(count)]:
            one.get()

    submit(SOAK_JOBS)
    jobs, took = [0, 0, 0], [0.0, 0.0, 0.0]
    end = time.monotonic() + seconds
    turn = 0
    while time.monotonic() < end:
        case = (0, 1, 2, 2, 1, 0)[turn % 6]
        with contextlib.ExitStack() as stack:
            if case:
                to = ASIDE if case == 1 else None
                guest = start_guest(machine, seed + turn, SOAK_TURN_S, to=to)
                stack.enter_context(guest)
                stack.callback(guest.kill)
                said = threading.Thread(target=guest.stdout.read, daemon=True)
                said.start()
                time.sleep(2)  # until it has begun
            began = time.monotonic()
            while time.monotonic() < began + SOAK_TURN_S - 4:
                if not flux.job.wait(h).success:
                    sys.exit("VIOLATION a job has failed")
                submit(1)
                jobs[case] += 1
            took[case] += time.monotonic() - began
        turn += 1
    for _ in range(SOAK_JOBS):
        flux.job.wait(h)
    machine.close()
    return [count / max(1e-9, one) for count, one in zip(jobs, took)]


def start_guest(machine, seed, seconds, userid=None, to=None):
    """The process of a guest; with a nice value, since real guests would not use the scheduler's
    processors."""
    call = [sys.executable, os.path.abspath(__file__), "--attack"]
    call += [f"--seconds={seconds}", f"--seed={seed}"]
    call += [f"--userid={userid}"] if userid else []
    call += [f"--to={to}"] if to else []
    env = os.environ if userid else {**os.environ, **GUEST}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    guest = subprocess.Popen(["nice", "-n19", *call], env=env, **pipes)
    guest.stdin.write(json.dumps([machine.canaries, machine.licence]))
    guest.stdin.close()
    return guest


def run(seed, seconds, userid, busy_machine):
    """The campaign; returns its figures."""
    h = flux.Flux()
    module = module_of(h)
    machine = Machine(h)
    broker = int(h.attr_get("broker.pid"))
    pid = process_of(broker, module)

    def ask():
        began, used = time.monotonic(), processor_time_of(pid)
        h.rpc("sched.resource-status").wait_for(OWNER_SECONDS).get()
        return time.monotonic() - began, processor_time_of(pid) - used

    ask()
    shapes = {}
    leaks = {}  # by topic, one
    waits = {}  # by trial, the longest concurrent ping, start, and processor time in a ping
    trials = collections.deque()  # when each began, and its topic, shape and size
    before = None

    def waited(**took):
        """Note waits that have just ended, in seconds, with the largest trial in that time: a
        request of 50 MB is read by the broker after the guest has sent the next."""
        since = time.monotonic() - max(took.values()) - PING_S
        overs = [began for began, _ in trials][1:] + [float("inf")]
        there = [trial for (_, trial), over in zip(trials, overs) if over > since]
        if there:
            trial = max(there, key=lambda one: (one[1] in MASSES, one[2]))
            longest = waits.setdefault(tuple(trial), {"ping": 0.0, "start": 0.0, "busy": 0.0})
            longest.update({kind: max(longest[kind], one) for kind, one in took.items()})

    starts = Starts()
    began = time.monotonic()
    end = began + seconds + ANSWER_SECONDS
    with start_guest(machine, seed, seconds, userid) as guest:
        said = collections.deque()
        read = lambda: said.extend((time.monotonic(), line) for line in guest.stdout)
        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        while reader.is_alive() or said:
            try:
                took, busy = ask()
                if time.monotonic() > end:
                    raise TimeoutError(f"a guest has waited for {ANSWER_SECONDS:.0f} s")
            except OSError as exc:
                guest.kill()
                sys.exit(f"VIOLATION no answer, {list(trials)[-1:]}: {exc}")
            while said:
                when, line = said.popleft()
                line = json.loads(line)
                if "begins" in line:
                    trials.append((when, line["begins"]))
                else:
                    results = line["results"]
                    topic, shape, _ = line["ended"]
                    leaks.update((topic, one) for one in results if one.startswith("LEAK"))
                    shape = shapes.setdefault(shape, collections.Counter())
                    shape.update(requests=max(1, sum(results.values())))
            while len(trials) > 1 and trials[1][0] < time.monotonic() - OWNER_SECONDS:
                trials.popleft()
            waited(ping=took, busy=busy)
            while starts.waits:
                waited(start=starts.waits.popleft())
            if before is None and len(waits) > 4 and time.monotonic() > began + seconds * WARM_UP:
                before = memory_of(pid)
            time.sleep(PING_S)
        failed = guest.wait()
    wrong = [] if starts.stop() else [f"a job has failed or not started in {OWNER_SECONDS} s"]
    longest = {"ping": 0.0, "start": 0.0, "busy": 0.0}
    of_flux = waits.pop((UNKNOWN, "flood", 0), {"ping": 0.0})["ping"]
    for (topic, shape, size), found in waits.items():
        bound = MAX_STALL_S + TRANSPORT_S_PER_BYTE * size
        bound += BY_FLUX * of_flux if shape in MASSES else 0.0
        entry = shapes.setdefault(shape, collections.Counter())
        for kind, took in found.items():
            longest[kind] = max(longest[kind], took)
            if took > entry[kind]:
                entry[kind] = round(took, 3)
            # The embedded instance is one process.
            over = took > (bound if kind != "busy" or pid == broker else MAX_STALL_S)
            if over and (kind == "busy" or not busy_machine):
                wrong.append(f"{NAMES[kind]} took {took:.3f} s: {shape} of {size} bytes to {topic}")
    kept = []
    for _ in range(10):
        ask()
        kept.append(memory_of(pid))
        time.sleep(0.2)
    machine.close()
    kept = min(kept) - (before or min(kept))
    wrong += [f"{kept} bytes are kept"] if kept > MAX_KEPT else []
    wrong += [f"{topic}: {one}" for topic, one in leaks.items()]
    wrong += [f"the guest ended with {failed}"] if failed else []
    found = {"module": module, **longest, "of_flux": of_flux, "kept": kept, "leaks": len(leaks)}
    return {**found, "shapes": shapes}, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--seed", type=int, default=0)
    add("--seconds", type=float, default=20.0)
    add("--busy", action="store_true", help="bound processor time, not waits")
    add("--userid", type=int, help="the guest is this user of the host")
    add("--to", help=argparse.SUPPRESS)
    add("--soak", action="store_true", help="jobs run, with and without guests")
    add("--attack", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.attack:
        if options.userid:
            os.setgroups([])
            os.setgid(options.userid)
            os.setuid(options.userid)
        attack(options.seed, options.seconds, *json.load(sys.stdin), options.to)
        return 0
    if options.soak:
        without, aside, hostile = soak(options.seed, options.seconds)
        print(
            f"jobs/s: {without:.2f} without guests, {aside:.2f} with guests of {ASIDE}, {hostile:.2f} with guests;"
            f" {hostile / without:.2f} and {hostile / aside:.2f} of these"
        )
        return hostile < MIN_THROUGHPUT * aside
    found, wrong = run(options.seed, options.seconds, options.userid, options.busy)
    for shape, one in sorted(found["shapes"].items()):
        print(
            f"{shape:<12}{one['requests']:>8} requests; longest ping {one['ping']:.3f} s, start {one['start']:.3f} s,"
            f" processor time in a ping {one['busy']:.3f} s"
        )
    print(
        f"{found['module']}: longest ping {found['ping']:.3f} s ({found['of_flux']:.3f} s behind what Flux refuses),"
        f" start {found['start']:.3f} s, processor time of the scheduler in a ping {found['busy']:.3f} s,"
        f" kept {found['kept'] / 1e6:.1f} MB, {found['leaks']} leaks"
    )
    for text in wrong:
        print(f"VIOLATION {text}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
