#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""A guest who means harm, to the scheduler of the running instance; on either host.

    flux start flux python t/campaign/guests.py [--seed N] [--seconds N] [--json]

A client with the credentials of a guest sends requests of every topic, in sizes from a byte to 50 MB and in shapes that cost
a reader most, and floods of them. Meanwhile the owner asks every 50 ms, as the job manager would. Three bounds are
checked: the longest time that the owner waits, the memory that the scheduler keeps afterwards, and that nothing
which names a job or a bank of the owner (names at random) is in an answer to the guest. The exit status is 1 if one is exceeded.
"""

import argparse
import collections
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
PING_S = 0.05
#: Seconds in which a request is answered.
ANSWER_SECONDS = 30.0
SIZES = (1, 1000, 100000, 1000000, 10000000, 50000000)
#: Requests of one flood, and seconds in which one is read and refused.
FLOOD = 5000
READ_S = 50e-6
TOPICS = (
    "sched.when sched.explain sched.windows sched.plan sched.stats sched.reservations sched.limits sched.preempt"
    " sched.preemptions sched.reserve sched.unreserve sched.alloc sched.free sched.cancel sched.prioritize sched.expiration"
    " sched.resource-status sched.quiescent feasibility.check sched.disconnect"
).split()
GUEST = {"FLUX_HANDLE_USERID": "9999", "FLUX_HANDLE_ROLEMASK": "0x2"}
#: Requests that get no response of their own.
UNANSWERED = ("sched.free", "sched.cancel", "sched.prioritize", "sched.alloc", "sched.disconnect")


def jobspec(**system):
    made = json.loads(JobspecV1.from_command(["true"]).dumps())
    made["attributes"]["system"] = {"duration": 60, **system}
    return made


def in_jobspec(text):
    """A question with `text`, JSON, as the job's constraint."""
    return json.dumps({"jobspec": jobspec(constraints="HERE")}).replace('"HERE"', text)


def texts(count, make):
    return ",".join(map(make, range(count)))


#: Shape -> the text of a payload of about so many bytes.
SHAPES = {
    "long": lambda size, chance: in_jobspec(json.dumps({"properties": ["x" * size]})),
    "deep": lambda size, chance: in_jobspec('{"not": [' * (size // 10) + "]}" * (size // 10)),
    "arrays": lambda size, chance: "[" * size,
    "wide": lambda size, chance: in_jobspec("{" + texts(size // 10, lambda n: f'"k{n}": 1') + "}"),
    "list": lambda size, chance: in_jobspec('{"ranks": [' + ",".join("0" * (size // 2)) + "]}"),
    "properties": lambda size, chance: in_jobspec(
        json.dumps({"properties": [f"^{chance.random()}" for _ in range(size // 22)]})
    ),
    "hosts": lambda size, chance: in_jobspec(
        json.dumps(
            {"hostlist": [f"d{n}[0-{chance.randrange(1 << 40)}]" for n in range(size // 20)]}
        )
    ),
    "number": lambda size, chance: in_jobspec("9" * size),
    "floats": lambda size, chance: in_jobspec(f'{{"or": [NaN, Infinity, 1e999, {1 << 200}]}}'),
    "keys": lambda size, chance: json.dumps({"id": 1 << 63, "k" * size: None}),
    "surrogates": lambda size, chance: '{"jobspec": "' + "\\ud800" * (size // 6) + '"}',
}


def trials(chance):
    """Topics, shapes and sizes, for ever: floods first, then each topic with each shape, the sizes by chance."""
    for shape in ("flood", "disconnect"):
        for topic in ("sched.when", "sched.windows"):
            yield topic, shape, 0
    while True:
        some = [(topic, shape) for topic in TOPICS for shape in (*SHAPES, "flood", "disconnect")]
        chance.shuffle(some)
        for topic, shape in some:
            # Most of what costs a scheduler anything comes with a jobspec.
            if topic != "sched.when" and chance.random() < 0.7:
                topic = "sched.when"
            yield (
                topic,
                shape,
                0
                if shape in ("flood", "disconnect")
                else chance.choices(SIZES, (2, 4, 4, 4, 2, 1))[0],
            )


def plain(topic):
    return {
        "sched.when": {"jobspec": jobspec()},
        "sched.explain": {"all": True},
        "sched.preempt": {"id": 1, "dry_run": True},
    }.get(topic, {})


def send(h, topic, payload):
    flags = flux.constants.FLUX_RPC_NORESPONSE if topic in UNANSWERED else 0
    return h.rpc(topic, payload, flags=flags)


def attack(seed, seconds, canaries, only):
    """What the guest does; prints a line of JSON for each trial."""
    h = flux.Flux()
    chance = random.Random(seed)
    end = time.monotonic() + seconds
    for topic, shape, size in trials(chance):
        if time.monotonic() >= end:
            return
        if only and shape not in only:
            continue
        print(json.dumps({"begins": [topic, shape, size]}), flush=True)
        results = {}
        if shape == "disconnect":
            other = flux.Flux()
            for _ in range(500):
                send(other, topic, plain(topic))
            del other
        elif shape == "flood":
            futures = [send(h, topic, plain(topic)) for _ in range(FLOOD)]
        else:
            futures = [send(h, topic, SHAPES[shape](size, chance))]
        if shape != "disconnect" and topic not in UNANSWERED:
            while futures:
                # One that is waited for has file descriptors.
                future = futures.pop()
                try:
                    text = json.dumps(future.wait_for(ANSWER_SECONDS).get(), ensure_ascii=False)
                    result = "answered"
                except OSError as exc:
                    text, result = (
                        exc.strerror or "",
                        errno.errorcode.get(exc.errno, str(exc.errno)),
                    )
                results[result] = results.get(result, 0) + 1
                found = [name for name in canaries if name in text]
                if found:
                    results["leak"] = f"{found}: {text[:500]}"
        futures = []
        print(json.dumps({"ended": [topic, shape, size], "results": results}), flush=True)


# -- the owner's side ------------------------------------------------------------------------------


def memory_of(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def process_of(h, module):
    """The process in which the scheduler runs: one of its own on a real Flux, the broker's otherwise."""
    broker = int(h.attr_get("broker.pid"))
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


def module_of(h):
    for name in ("sched-backfill", "sched-fifo", "sched-simple"):
        try:
            h.rpc(f"{name}.stats-get").get()
        except OSError:
            continue
        return name
    raise SystemExit("no scheduler answers")


def submit(h, bank, count):
    """Jobs of the owner of which the guest is to learn nothing."""
    ids = []
    for _ in range(count):
        spec = JobspecV1.from_command(["sleep", "600"], num_tasks=1)
        spec.duration = 3600
        spec.setattr("system.bank", bank)
        ids.append(int(flux.job.submit(h, spec)))
    return ids


def run(seed, seconds, only):
    """The campaign; returns its figures."""
    h = flux.Flux()
    module = module_of(h)
    bank = f"canary{uuid.uuid4().hex[:12]}"
    ids = submit(h, bank, 40)
    canaries = [bank] + [
        text for one in ids for text in (str(one), str(JobID(one).f58), str(JobID(one).f58plain))
    ]
    canaries = [one for one in canaries if len(one) > 6]
    pid = process_of(h, module)

    def ask():
        began = time.monotonic()
        h.rpc("sched.resource-status").get()
        return time.monotonic() - began

    ask()
    call = [
        sys.executable,
        os.path.abspath(__file__),
        "--attack",
        f"--seconds={seconds}",
        f"--seed={seed}",
    ]
    call += [f"--only={','.join(only)}"] if only else []
    figures = {}
    worst = {}
    before = None
    at = None
    with subprocess.Popen(
        call, env={**os.environ, **GUEST}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as guest:
        guest.stdin.write(json.dumps(canaries))
        guest.stdin.close()
        said = collections.deque()
        reader = threading.Thread(target=lambda: said.extend(guest.stdout), daemon=True)
        reader.start()
        while reader.is_alive() or said:
            took = ask()
            if at:  # what was under way while the owner waited
                worst[tuple(at)] = max(worst.get(tuple(at), 0.0), took)
            while said:
                line = json.loads(said.popleft())
                at = line.get("begins") or line["ended"]
                worst[tuple(at)] = max(worst.get(tuple(at), 0.0), took)
                if "results" in line:
                    entry = figures.setdefault(at[1], {"requests": 0, "stall": 0.0, "by": None})
                    entry["requests"] += (
                        sum(n for n in line["results"].values() if isinstance(n, int)) or 1
                    )
                    if "leak" in line["results"]:
                        entry["leak"] = f"{at}: {line['results']['leak']}"
            if before is None and len(worst) > 4:
                before = memory_of(pid)  # what the first requests have it read in is no matter
            time.sleep(PING_S)
        failed = guest.wait()
    too_long = [
        f"a wait of {took:.3f} s for {shape} of {size} bytes to {topic}"
        for (topic, shape, size), took in worst.items()
        if took
        > MAX_STALL_S + TRANSPORT_S_PER_BYTE * size + (FLOOD * READ_S if shape == "flood" else 0)
    ]
    for (topic, shape, size), took in worst.items():
        entry = figures.setdefault(shape, {"requests": 0, "stall": 0.0, "by": None})
        if took > entry["stall"]:
            entry.update(stall=round(took, 3), by=f"{topic} of {size} bytes")
    kept = []
    for _ in range(10):
        ask()
        kept.append(memory_of(pid))
        time.sleep(0.2)
    for one in ids:
        flux.job.cancel(h, one)
    return {
        "module": module,
        "stall": max((one["stall"] for one in figures.values()), default=0.0),
        "kept": min(kept) - (before or min(kept)),
        "too_long": too_long,
        "leaks": [one["leak"] for one in figures.values() if "leak" in one],
        "guest": failed,
        "shapes": figures,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--only", default="", help="shapes, separated by commas")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--attack", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    only = [one for one in options.only.split(",") if one]
    if options.attack:
        attack(options.seed, options.seconds, json.load(sys.stdin), only)
        return 0
    found = run(options.seed, options.seconds, only)
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        for shape, one in sorted(found["shapes"].items()):
            print(
                f"{shape:<12}{one['requests']:>8} requests  longest wait {one['stall']:.3f} s ({one['by']})"
            )
        print(
            f"{found['module']}: longest wait {found['stall']:.3f} s, kept {found['kept'] / 1e6:.1f} MB, {len(found['leaks'])} leaks"
        )
    wrong = list(found["too_long"])
    wrong += [f"{found['kept']} bytes are kept"] if found["kept"] > MAX_KEPT else []
    wrong += [f"a leak: {one}" for one in found["leaks"]]
    wrong += [f"the guest ended with {found['guest']}"] if found["guest"] else []
    for text in wrong:
        print(f"VIOLATION {text}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
