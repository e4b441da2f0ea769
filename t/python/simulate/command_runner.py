"""``flux simulate`` as a user runs it, and the tables it writes."""

import csv
import subprocess
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]
FLUX = TOP / "src" / "cmd" / "flux"


def flux(*args, code=0, **options):
    """Run it; returns what it printed, as text."""
    done = subprocess.run(
        [str(FLUX), "simulate", *map(str, args)],
        capture_output=True,
        text=True,
        timeout=120,
        **options,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr or code, done.stderr
    return done


def rows(directory):
    """The lines of a result's jobs.csv."""
    with open(directory / "jobs.csv", newline="") as stream:
        return list(csv.DictReader(stream))


def write_rows(directory, table):
    """Write them again."""
    with open(directory / "jobs.csv", "w", newline="") as stream:
        writer = csv.DictWriter(stream, table[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


#: The scheduler of the guide, with room for something else at the beginning of each pass.
GUIDE = """
import heapq
from flux.resource import InfeasibleRequest, InsufficientResources
from flux.scheduler import Scheduler

class Mine(Scheduler):
    passes = 0

    def schedule(self):
        Mine.passes += 1
        %s
        while self._queue:
            job = self._queue[0]
            try:
                alloc = self.resources.alloc(job.jobid, job.resource_request)
            except InsufficientResources:
                break
            except InfeasibleRequest as exc:
                job.request.deny(str(exc))
            else:
                job.request.success(alloc)
            heapq.heappop(self._queue)

def mod_main(h, *args):
    Mine(h, *args).run()
"""
