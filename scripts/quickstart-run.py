# SPDX-License-Identifier: LGPL-3.0-or-later
"""The part of scripts/quickstart inside its instance: the commands a user would type, and their output.

Everything goes through the flux command, so that each line can be repeated by hand.
"""

import os
import re
import shlex
import subprocess
import sys
import time

JOBS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "quickstart.jobs")
# Longer than the jobs take on a slow machine: exceeded only if the scheduler is stuck.
PATIENCE = 90


def flux(*words, check=True):
    """Run a flux command; return its standard output."""
    done = subprocess.run(
        ["flux", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    if check and done.returncode:
        sys.exit(f"quickstart: '{typed(*words)}' failed:\n{done.stderr.strip()}")
    return done.stdout


def typed(*words):
    """Return a flux command as it would be typed; job ids need no quotes."""
    return " ".join(["flux", *(w if w.isalnum() else shlex.quote(w) for w in words)])


def show(*words, check=True):
    """Run a flux command and print it with its output, as in a terminal."""
    print("$ " + typed(*words), flush=True)
    done = subprocess.run(
        ["flux", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    print(done.stdout + "\n" if done.stdout else "", end="", flush=True)
    if check and done.returncode:
        sys.exit(f"quickstart: that command failed (exit code {done.returncode})")


def read_jobs():
    """Return the lines of the jobs file, each as a list of words."""
    with open(JOBS, encoding="utf-8") as stream:
        return [shlex.split(line) for line in stream if line.strip() and not line.startswith("#")]


class Progress:
    """Jobs done, running and waiting, and cores in use: a live bar on a terminal (with rich), plain lines elsewhere."""

    def __init__(self, total):
        self.total = total
        self.bar = None
        self.last = None
        try:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn
        except ImportError:
            return
        console = Console()
        if console.is_terminal:
            self.bar = Progress(
                TextColumn("  {task.completed:.0f} of {task.total:.0f} jobs done"),
                BarColumn(bar_width=30),
                TextColumn("{task.fields[state]}"),
                console=console,
            )
            self.task = self.bar.add_task("", total=total, state="")

    def __enter__(self):
        if self.bar:
            self.bar.start()
        return self

    def __exit__(self, *exc):
        if self.bar:
            self.bar.stop()

    def update(self, counts, cores):
        done = self.total - counts["pending"] - counts["running"]
        running, pending = counts["running"], counts["pending"]
        state = f"{running} running, {pending} waiting, {cores} of 128 cores in use"
        if self.bar:
            self.bar.update(self.task, completed=done, state=state)
        elif (done, state) != self.last:
            print(f"  {done:>2} of {self.total} jobs done: {state}", flush=True)
        self.last = (done, state)


def count_jobs():
    """Return how many jobs are running, pending and so on, by ``flux jobs --stats-only``."""
    # Its exit code says whether there are active jobs.
    text = flux("jobs", "-a", "--stats-only", check=False)
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", text)}
    return {"pending": counts.get("pending", 0), "running": counts.get("running", 0)}


def cores_in_use():
    text = flux("resource", "list", "--state=allocated", "-no", "{ncores}").strip()
    return int(text or 0)


def submit(lines):
    """Submit each line; return the job ids by job name."""
    ids = {}
    for words in lines:
        name = next(w.partition("=")[2] for w in words if w.startswith("--job-name="))
        ids[name] = flux("submit", *words).split()
        shown = typed(
            "submit", *(w for w in words if not w.startswith(("--job-name", "--setattr")))
        )
        shown = shown if len(shown) < 60 else shown[:57] + "..."
        print(f"  {len(ids[name]):>2} x {name:<14} {shown}", flush=True)
        if name == "whole-machine":
            explain(ids[name][0])
    return ids


def explain(jobid):
    """Ask why a job is pending, once the scheduler has annotated it (a moment after the submission)."""
    words = ["jobs", "-no", "{annotations.sched.reason_pending}", jobid]
    while flux("jobs", "-no", "{status_abbrev}", jobid).strip() in ("PD", "D", "P", "S"):
        reason = flux(*words, check=False).strip()
        if reason:
            print(f"\n  why does it not run?\n  $ {typed(*words)}\n  {reason}\n", flush=True)
            return
        time.sleep(0.05)


def wait(ids):
    """Cancel the unwanted job and follow the others to their end; return False if they do not end."""
    unwanted = ids["unwanted"][0]
    print()
    show("cancel", unwanted)
    print()
    end = time.monotonic() + PATIENCE
    with Progress(sum(len(group) for group in ids.values())) as progress:
        while True:
            counts = count_jobs()
            progress.update(counts, cores_in_use())
            if not counts["pending"] + counts["running"]:
                break
            if time.monotonic() > end:
                return False
            time.sleep(0.2)
    print(flush=True)
    return True


def main():
    print("An instance of 8 nodes, 16 cores and 2 GPUs each. First come, first served:\n")
    show("module", "remove", "sched-simple")
    show("module", "load", "sched-fifo")
    lines = read_jobs()
    print("\nThe jobs (scripts/quickstart.jobs):\n")
    ids = submit(lines)
    if not wait(ids):
        show("jobs", "-a", check=False)
        show("dmesg", check=False)
        sys.exit(f"quickstart: after {PATIENCE} s there are still jobs that have not ended")
    show("jobs", "-a")
    show("resource", "list")
    show("module", "stats", "sched-fifo")
    print("What real commands printed:\n")
    for name in ("greeting", "calendar", "typo"):
        show("job", "attach", ids[name][0], check=False)
    print("Why 'impossible' failed:\n")
    show("jobs", "-no", "{exception.note}", ids["impossible"][0])
    print(
        "To do this by hand:\n"
        "\n"
        f"  export PATH={shlex.quote(os.path.dirname(os.path.dirname(JOBS)))}/src/cmd:$PATH\n"
        "  flux start --conf=fake-resources.nnodes=8 --conf=fake-resources.cores-per-node=16 \\\n"
        "             --conf=fake-resources.gpus-per-node=2\n"
        "  flux module remove sched-simple; flux module load sched-fifo\n"
        "  flux submit -N2 -n8 -c2 hostname; flux jobs -a\n"
        "\n"
        "A scheduler of your own is one file: README.md has the smallest. The guide: doc/ (make html)."
    )
    return 0


sys.exit(main())
