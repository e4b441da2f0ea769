# SPDX-License-Identifier: LGPL-3.0-or-later
"""Shared by the benchmarks. To be imported before anything of this tree, which it puts first on the path."""

import argparse
import csv
import gc
import importlib.util
import json
import math
import os
import resource
import sys
import time
import tracemalloc
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv" / "bin" / "python"

if importlib.util.find_spec("greenlet") is None:  # run as t/bench/NAME, by the system's Python
    if not VENV.exists():
        sys.exit(f"{sys.argv[0]}: {sys.executable} has no module greenlet: run scripts/venv first")
    os.execv(VENV, [str(VENV), *sys.argv])
sys.path[:0] = [
    str(ROOT / room)
    for room in (
        "src/bindings/python", "src/embedded", "t/python", "t/python/jobs", "t/python/scheduler", "t/python/simulate",
    )
]  # fmt: skip


def run(doc, names, help="small numbers, to see that it runs"):
    """Run functions ``bench_NAME(quick)`` of a program by its arguments; print their results as one JSON object."""
    benches = {name[6:]: function for name, function in names.items() if name.startswith("bench_")}
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=help)
    parser.add_argument("names", nargs="*", choices=[[], *benches], help="which (default: all)")
    options = parser.parse_args()
    chosen = options.names or benches
    print(json.dumps({name: benches[name](options.quick) for name in chosen}, indent=2))


def best(function, seconds):
    """Processor time of a call, in seconds: the best mean of eight rounds, which take `seconds` together; of
    the thread, see scheduler_meter.py."""
    clock = time.thread_time
    start = clock()
    function()
    once = max(clock() - start, 1e-7)
    number = max(1, min(2000, int(seconds / 8 / once)))
    result = math.inf
    for _ in range(8):
        start = clock()
        for _ in range(number):
            function()
        result = min(result, (clock() - start) / number)
    return result


def growth(values):
    """Exponent of growth with the number of nodes: least squares of log(value) over log(nodes); 0 for a single size."""
    points = [(math.log(nodes), math.log(value)) for nodes, value in values.items()]
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def size_of(make):
    """Bytes that the result of a call holds."""
    gc.collect()
    tracemalloc.start()
    kept = make()
    gc.collect()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del kept
    return size


def resident():
    """Bytes of memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as stream:
        return int(stream.read().split()[1]) * resource.getpagesize()


def simple_table(rows):
    """Rows of texts as a reStructuredText simple table; the first is the header."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    bar = "  ".join("=" * width for width in widths)
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join([bar, lines[0], bar, *lines[1:], bar])


def write_csv(path, rows):
    """A trace for flux simulate: rows of id, submit, run, limit, cores, gpus."""
    with path.open("w", encoding="ascii", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(("id", "submit", "run", "limit", "cores", "gpus"))
        writer.writerows(rows)


def simulate(path, scheduler, **machine):
    """Run a trace: (outcome, summary, seconds of processor time)."""
    from flux.simulate import policy, run
    from flux.simulate.run import Settings
    from flux.simulate.trace import Trace

    trace = Trace(str(path), **machine)
    workload = trace.workload()
    (one,) = policy.parse([scheduler])
    began = time.process_time()
    outcome, summary = run.simulate(workload, one, Settings(config=trace.config))
    return outcome, summary, time.process_time() - began


def started(nodes, size, cores=64, gpus=0):
    """An embedded instance of `size` ranks under the virtual clock, with nodes that are not there."""
    from flux.scheduler.testing import make_R
    from flux_embedded.broker.instance import Instance
    from flux_engine.kernel.clock import VirtualClock

    R = make_R(nodes, cores, gpus, f"node[0-{nodes - 1}]")
    instance = Instance(size=size, clock=VirtualClock(), R=R)
    instance.start()
    return instance
