"""What scripts/quickstart does inside its instance: the commands a user would type, and their output.

Everything goes through the flux command, so that each line can be repeated by hand.
"""

import os
import re
import shlex
import subprocess
import sys
import time

JOBS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "quickstart.jobs")
# Longer than the jobs take on a slow machine: only a scheduler that is stuck gets there.
PATIENCE = 90


def flux(*words, check=True):
    """Run a flux command; return its standard output."""
    done = subprocess.run(["flux", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if check and done.returncode:
        sys.exit("quickstart: '{}' failed:\n{}".format(shlex.join(["flux", *words]), done.stderr.strip()))
    return done.stdout


def show(*words, check=True):
    """Run a flux command and print it with its output, as in a terminal."""
    print("$ " + shlex.join(["flux", *words]), flush=True)
    done = subprocess.run(["flux", *words], stderr=subprocess.STDOUT)
    if check and done.returncode:
        sys.exit("quickstart: that command failed (exit code {})".format(done.returncode))
    print(flush=True)


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
                TextColumn("  {task.completed:.0f} of {task.total:.0f} jobs done"), BarColumn(bar_width=30),
                TextColumn("{task.fields[state]}"), console=console,
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
        state = "{} running, {} waiting, {} of 128 cores in use".format(counts["running"], counts["pending"], cores)
        if self.bar:
            self.bar.update(self.task, completed=done, state=state)
        elif (done, state) != self.last:
            print("  {:>2} of {} jobs done: {}".format(done, self.total, state), flush=True)
        self.last = (done, state)


def count_jobs():
    """Return how many jobs are running, pending and so on, by ``flux jobs --stats-only``."""
    text = flux("jobs", "-a", "--stats-only")
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
        kind = words[: next(i for i, w in enumerate(words) if not w.startswith("-"))]
        shape = " ".join(w for w in kind if not w.startswith(("--job-name", "--setattr")))
        print("  {:>2} x {:<14} flux submit {} ...".format(len(ids[name]), name, shape), flush=True)
    return ids


def wait(ids):
    """Follow the jobs to their end; on the way say why the whole-machine job waits, and cancel the unwanted one."""
    whole, unwanted = ids["whole-machine"][0], ids["unwanted"][0]
    asked = ["jobs", "-no", "{annotations.sched.reason_pending}", whole]
    reason = flux(*asked, check=False).strip()
    total = sum(len(group) for group in ids.values())
    if reason:
        print("\n  why does 'whole-machine' wait?\n$ {}\n{}\n".format(shlex.join(["flux", *asked]), reason), flush=True)
    print("$ flux cancel {}          # the unwanted one\n".format(unwanted), flush=True)
    flux("cancel", unwanted)
    end = time.monotonic() + PATIENCE
    with Progress(total) as progress:
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
    print("The jobs (scripts/quickstart.jobs):\n")
    ids = submit(lines)
    if not wait(ids):
        show("jobs", "-a", check=False)
        show("dmesg", check=False)
        sys.exit("quickstart: after {} s there are still jobs that have not ended".format(PATIENCE))
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
        "  export PATH={}/src/cmd:$PATH\n"
        "  flux start --conf=fake-resources.nnodes=8 --conf=fake-resources.cores-per-node=16 \\\n"
        "             --conf=fake-resources.gpus-per-node=2\n"
        "  flux module remove sched-simple; flux module load sched-fifo\n"
        "  flux submit -N2 -n8 -c2 hostname; flux jobs -a\n"
        "\n"
        "A scheduler of your own is one file: README.md has the smallest. The guide: doc/ (make html).".format(
            os.path.dirname(os.path.dirname(JOBS))
        )
    )
    return 0


sys.exit(main())
