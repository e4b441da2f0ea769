# SPDX-License-Identifier: LGPL-3.0-or-later
"""The recorded start times of golden/schedules, and our engine on the same jobs."""

from pathlib import Path

from flux.simulate.engine import Observer
from flux.simulate.engine.lean import LeanEngine
from flux.simulate.job import Job, Shape
from flux.simulate.machine import uniform

TOP = Path(__file__).resolve().parents[3]

#: policy of a recording -> module and arguments. `-plan` and `-kept` differ in the treatment of a
#: promise after an early end.
MODULES = {
    "fcfs": ("sched-fifo", ()),
    "easy": ("sched-backfill", ()),
    "depth4-kept": ("sched-backfill", ("reservations=4",)),
    "conservative-kept": ("sched-backfill", ("reservations=unlimited",)),
    "depth4-plan": ("sched-backfill", ("reservations=4", "guarantee=none")),
    "conservative-plan": ("sched-backfill", ("reservations=unlimited", "guarantee=none")),
}

#: The same for the recordings of golden/schedules/ranked.
RANKED = {
    "easy-sjbf": ("candidates=shortest",),
    "easy-saf": ("rank=area",),
    "easy-expansion": ("rank=expansion",),
    "easy-wfp3": ("rank=wfp3",),
    "easy-f1": ("rank=f1",),
    "bounded-fcfs-0h": ("promise=all", "within=0"),
    "bounded-area-24h": ("promise=all", "rank=area", "within=24h"),
    "bounded-expansion-24h": ("promise=all", "rank=expansion", "within=24h"),
    "bounded-expansion-24h-class": ("promise=all", "rank=expansion", "within=24h", "predict=class"),
    "bounded-wfp3-72h-class": ("promise=all", "rank=wfp3", "within=72h", "predict=class"),
}


class Starts(Observer):
    """An observer that records the starts of jobs; None: refused."""

    def __init__(self):
        self.start = {}
        #: the latest starts that jobs were promised, as known at their starts
        self.latest = {}

    def began(self, active):
        self.start[active.job.id] = active.start
        latest = active.annotations.get("sched", {}).get("t_latest")
        if latest is not None:
            self.latest[active.job.id] = latest

    def rejected(self, active, note):
        self.start[active.job.id] = None


def play(rows, procs, module, args=(), grain="batch", observer=None, users=None, **options):
    """Run jobs given as (id, submit, run, limit, procs); returns {id: start, seconds}.

    Args:
        rows (list): the jobs, by time of submission
        users (dict): their users, by id; None: all have the same user
        procs (int): size of the machine
        module (str): one of src/modules, or a file
        args (list of str): its arguments
        grain (str): as for `LeanEngine`
        observer: records the starts, instead of a `Starts`
    """
    users = users or {}
    jobs = [Job(*times, Shape(size, 1), size, user=users.get(times[0])) for *times, size in rows]
    starts = observer or Starts()
    path = module if "/" in module else str(TOP / "src" / "modules" / module / f"{module}.py")
    engine = LeanEngine(uniform(procs), jobs, path, args, starts, epoch=0.0, grain=grain, **options)
    engine.run()
    assert not engine.log.lines, engine.log.lines[:3]
    return starts.start


def differences(got, want):
    """[(id, recorded start, ours)] of the jobs whose starts differ, by recorded start; ids in
    `want` are text."""
    found = [(int(id), start, got.get(int(id))) for id, start in want.items()]
    wrong = [row for row in found if row[1] != row[2]]
    return sorted(wrong, key=lambda row: (row[1] is None, row[1]))
