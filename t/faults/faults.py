#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""Fault runs: random histories against whole instances, seed by seed.

    faults.py --seeds 0-999                     each scheduler and both pools, 1000 seeds
    faults.py --seconds 60                      as many seeds as fit into a minute
    faults.py --seeds 17 --scheduler sched-fifo --pool rv1 --verbose
    faults.py --replay failure.json...
    faults.py --seeds 0-9999999 --events 1000000 --part 1/2
                                                a campaign: half of it, for one of two cores

Faults are the steps of a history other than submitting jobs and letting time pass. A failure prints
the broken rule, the seed, and a minimized history; the exit status is 1.
"""

import argparse
import gc
import itertools
import json
import os
import re
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
for path in (HERE, os.path.join(TOP, "src/embedded"), os.path.join(TOP, "src/bindings/python")):
    if path not in sys.path:
        sys.path.insert(0, path)

import history as histories  # noqa: E402
from books import MEMORY  # noqa: E402
from driver import Driver  # noqa: E402
from site_rules import EVERYTHING  # noqa: E402

#: Functions of mistaken.py.
MISTAKEN = [
    f"{name}={HERE}/mistaken.py:{function}"
    for name, function in (("rank", "rank"), ("candidates", "rank"), ("predict", "predict"))
]
SCHEDULERS = {
    "sched-fifo": ("sched-fifo", ()),
    "sched-simple": ("sched-simple", ()),
    "sched-backfill": ("sched-backfill", ()),
    "conservative": ("sched-backfill", ("reservations=unlimited",)),
    "replanned": ("sched-backfill", ("reservations=4", "guarantee=none")),
    "candidates": ("sched-backfill", ("candidates=shortest", "predict=last2")),
    "ranked": ("sched-backfill", ("rank=wfp3", "candidates=area", "predict=class", "promise=2")),
    "bounded": ("sched-backfill", ("profile=short-waits", "within=30")),
    "bounded-at-once": ("sched-backfill", ("promise=all", "within=0", "rank=area", "predict=last2")),
    "bounded-order": ("sched-backfill", ("promise=all", "within=100", "candidates=unicef")),
    "mistaken": ("sched-backfill", ("promise=all", "within=10", *MISTAKEN)),
}  # fmt: skip
POOLS = ("rv1", "tree")

#: The number of characters of a failure that identify its rule: the rest describes jobs.
KIND_LENGTH = 25


def run_history(history, scheduler, pool):
    """Run one history; returns None, or the broken rule as text."""
    name, args = SCHEDULERS[scheduler]
    driver = failure = None
    try:
        # Estimates are made in copies of schedulers, without an effect on them: a few histories
        # check this.
        estimates = 0 if len(history) % 16 else 100
        if histories.asks_for(history, "memory"):
            args = (*args, f"pool-amounts=memory={MEMORY}G")
        gives_way = histories.asks_for(history, "queue")
        driver = Driver(name, pool == "tree", args, gives_way, estimates)
        driver.run(history)
    except Exception as exc:
        failure = described(exc)
    try:
        if driver is not None:
            driver.close()
    except Exception as exc:
        # The first error is more informative.
        failure = failure or described(exc)
    return failure


def described(exc):
    where = "".join(traceback.format_tb(exc.__traceback__, limit=-4))
    return f"{type(exc).__name__}: {exc}\n{where}"


def kind_of(failure):
    """The broken rule: the first words of the failure, without the jobs and times it names."""
    return re.sub(r"[0-9.]+", "", failure.partition("\n")[0])[:KIND_LENGTH]


def history_of(seed, scheduler, all_tables=False):
    """The history of a seed.

    For a scheduler that makes promises, every fourth gives it no excuse to break one; every fourth
    has reservations, and every fourth limits and licences; of the rest, every eighth of either kind
    has preemption; and in every fourth, some of them with limits, jobs limit their wait. With
    `all_tables` each history has all of these, except reservations, which are in every other
    one."""
    if all_tables:
        everything = dict.fromkeys(("policing", "preempting", "impatient"), True)
        history = histories.make(seed, reserving=seed % 2 == 1, **everything)
        for step in history:
            if step[0] == "configure":
                step[1] = EVERYTHING[step[1] % len(EVERYTHING)]
        return history
    calm = seed % 4 == 3 and SCHEDULERS[scheduler][0] == "sched-backfill"
    chosen = {"reserving": seed % 4 == 2, "policing": seed % 4 == 1}
    chosen.update(preempting=seed % 8 in (4, 7), impatient=seed % 8 in (0, 5))
    return histories.make(seed, calm=calm, **chosen)


def report(seed, scheduler, pool, history, failure):
    """Print a failure with the shortest history that can be found."""
    kind = kind_of(failure)

    def fails(candidate):
        found = run_history(candidate, scheduler, pool)
        return found is not None and kind_of(found) == kind

    print(f"FAIL seed={seed} scheduler={scheduler} pool={pool}\n{failure}", flush=True)
    short = histories.shrink(history, fails)
    print(f"shrunk to {len(short)} of {len(history)} steps; --replay reads this:")
    print(json.dumps({"scheduler": scheduler, "pool": pool, "history": short}), flush=True)
    print(run_history(short, scheduler, pool), flush=True)


def replay(paths):
    """Run recorded histories; returns the exit status."""
    failures = 0
    for path in paths:
        with open(path) as file:
            case = json.load(file)
        failure = run_history(case["history"], case["scheduler"], case["pool"])
        failures += failure is not None
        print(f"{os.path.basename(path)}: {failure or 'ok'}", flush=True)
    return 1 if failures else 0


def part(text):
    """N/M: the Nth of M parts."""
    number, count = map(int, text.split("/"))
    if not 1 <= number <= count:
        raise ValueError(text)
    return number, count


def idset(text):
    low, _, high = text.partition("-")
    return range(int(low), int(high or low) + 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--seeds", type=idset, help="N or LOW-HIGH")
    add("--seconds", type=float, help="stop after so long (default: when the seeds are done)")
    add("--events", type=int, help="stop after so many faults")
    add("--part", type=part, default=(1, 1), help="N/M: the Nth of M parts of the seeds")
    add("--all-tables", action="store_true", help="all tables of a site in each history")
    add("--scheduler", choices=SCHEDULERS, action="append")
    add("--pool", choices=POOLS, action="append")
    add("--replay", nargs="+", help="files with what failures printed")
    add("--verbose", action="store_true")
    args = parser.parse_args()
    if args.replay:
        return replay(args.replay)
    bounded = args.seeds is None
    seeds = args.seeds or (itertools.count() if args.seconds else range(100))
    started = time.monotonic()
    end = started + args.seconds if args.seconds else None
    runs = steps = faults = 0
    last = None
    combinations = list(itertools.product(args.scheduler or SCHEDULERS, args.pool or POOLS))
    for seed in seeds:
        if seed % args.part[1] != args.part[0] - 1:
            continue
        # A bounded run lacks time, not seeds: one combination per seed, in turn.
        one = combinations[(seed // 4) % len(combinations)]
        for scheduler, pool in [one] if bounded else combinations:
            if args.verbose:
                print(f"seed {seed}: {scheduler} {pool}", flush=True)
            history = history_of(seed, scheduler, args.all_tables)
            failure = run_history(history, scheduler, pool)
            runs += 1
            if runs % 20 == 0:
                # A scheduler makes full collections rare, as if it had a process of its own.
                gc.collect()
            steps += len(history)
            faults += sum(step[0] not in histories.CALM for step in history)
            if failure is not None:
                report(seed, scheduler, pool, history, failure)
                return 1
        last = seed
        if end is not None and time.monotonic() > end:
            break
        if args.events and faults >= args.events:
            break
    took = f"{time.monotonic() - started:.0f} s, {time.process_time():.0f} s of processor time"
    print(f"{runs} histories up to seed {last}, {steps} steps, {faults} faults in {took}")
    print(f"{runs} passed, 0 failed, 0 skipped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
