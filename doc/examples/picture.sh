#!/bin/sh
# Draw what sched-backfill makes of a few jobs on eight nodes:
#
#     flux start --virtual-time --conf=fake-resources.nnodes=8 sh doc/examples/picture.sh schedule.svg
flux module remove sched-simple
flux module load sched-backfill

# The queue is stopped while jobs come in: the virtual clock would run each one before the next is there.
flux queue stop --quiet
job() {
    flux submit --quiet --job-name="$1" -N"$2" -x -t "$3" --setattr=exec.test.run_duration="$3" true
}
job climate 4 3h
job genome  2 90m
job fold    1 4h
job lattice 8 2h
job wing    5 150m
job mesh    3 1h
job sweep   1 150m
job post    2 45m
job pack    1 50m
flux queue start --quiet
flux queue drain

flux jobs -a -o "{name} {nnodes} {t_run} {t_cleanup} {ranks}" --no-header |
    flux python -c '
import sys
from flux.scheduler.command.plan_chart import Chart

jobs = [line.split() for line in sys.stdin]
begin = min(float(start) for _, _, start, _, _ in jobs)
running, promised = [], []
for name, nodes, start, end, ranks in jobs:
    job = {"name": name, "nodes": int(nodes), "start": float(start), "end": float(end), "ranks": ranks}
    (running if float(start) < begin + 1 else promised).append(job)
until = max(job["end"] for job in promised)
plan = {"now": begin, "until": until, "ranks": "0-7", "down": "", "running": running, "promised": promised}
print(Chart(plan).text(100))
open(sys.argv[1], "w").write(Chart(plan).svg())
' "$1"
