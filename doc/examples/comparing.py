# SPDX-License-Identifier: LGPL-3.0-or-later
"""A notebook, as a script: is one more promise worth it, and who pays?

    flux python doc/examples/comparing.py

Each part between ``# %%`` is a cell; Jupyter, VS Code and Spyder read files of this form.
"""

# %% Jobs of a model on 64 nodes, the first 300 of them.
from flux.simulate import Trace, simulate

trace = Trace(model="lublin:bArr=0.47", nodes=64, jobs=300)
work = trace.workload()
print(f"{len(work.jobs)} jobs on {work.machine}")

# %% Three policies. A table is a DataFrame where pandas is installed, and a list of dicts where not.
runs = simulate(trace, ["sched-fifo", "sched-backfill promise=1,4"])
for run in runs:
    print(f"{run.policy}: mean wait {run.figures['wait_mean'] / 60:.0f} min, failed: {run.failed}")

# %% Who waits longest under the last one?
jobs = runs[-1].jobs
rows = jobs.to_dict("records") if hasattr(jobs, "to_dict") else jobs
slowest = max(rows, key=lambda row: row["wait"])
print(f"job {slowest['job']} of size {slowest['size']} waited {slowest['wait'] / 3600:.1f} h")

# %% Is it more than chance? Five workloads of the model, and intervals.
many = simulate(trace, ["sched-backfill promise=1,4"], seeds=5)
found = many.differences("wait_mean")
rows = found.to_dict("records") if hasattr(found, "to_dict") else found
for row in rows:
    print(
        f"{row['policy']}: {row['difference']:+.0f} s ± {row['interval']:.0f} s: {row['verdict']}"
    )

# %% And under a higher load?
busier = simulate(
    Trace(model="lublin:bArr=0.47", nodes=64, jobs=300, scale_arrivals=[1.0, 0.8]),
    ["sched-fifo", "sched-backfill"],
)
for run in busier:
    print(f"{run.variant}: {run.policy}: {run.figures['bsld_mean']:.0f}")
