# SPDX-License-Identifier: LGPL-3.0-or-later
"""The running instance as a workload: its jobs and resources, from now on.

The instance, which may be a real one, is queried with ordinary messages through ``flux python``,
and not changed.
"""

import json
import math
import os
import shutil
import subprocess
import sys
import time

from flux.simulate.engine.manager import default_queue
from flux.simulate.job import NO_LIMIT, Job
from flux.simulate.machine import Machine
from flux.simulate.workload.build import Workload
from flux.simulate.workload.record import Notes
from flux_engine.formats import eventlog, jobid, states
from flux_engine.formats import jobspec as spec

#: Configuration tables of site policy that apply in a simulation too; a site's own code does not.
POLICY_TABLES = (
    "amounts", "budgets", "fairshare", "licenses", "limits", "preemption", "reservations", "sharing", "topology",
)  # fmt: skip

#: Run time of a job without a limit, in seconds.
FOREVER = 1e9


class LiveError(ValueError):
    """The instance cannot be queried; the text says why."""


def flux_command(option):
    """Return the path of the enclosing instance's ``flux`` command. Raises LiveError if there is no
    such command; the text names the option that needs it."""
    program = getattr(sys.modules["__main__"], "__file__", None) or ""
    # Under the embedded instance's command, this is that command itself; else it is looked up on
    # PATH.
    command = program if os.path.basename(program) == "flux" else shutil.which("flux")
    if command is None:
        raise LiveError(f"{option}: no flux command on the PATH")
    return command


def probe(*args):
    """Return the answer of `probe.py` run in the instance of ``FLUX_URI``. Raises LiveError if
    there is no instance, or it does not answer."""
    command = flux_command("--live")
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "probe.py")
    words = [command, "python", script, *args]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise LiveError(f"--live: the instance cannot be asked: {lines[-1]}")
    return json.loads(done.stdout)


def workload_of(answer, machine=None, unit=None):
    """Return the pending and running jobs in an answer of `probe` as a `Workload`, on the instance's machine or another.
    Raises LiveError if no job is pending."""
    notes = Notes()
    now = answer["now"]
    resources = answer["resources"]
    given = machine is not None
    machine = machine or Machine(resources["R"], "of the instance")
    notes.fact(f"machine: {machine} ({machine.source})")
    unit = unit or ("node" if machine.nodes == machine.cores else "core")
    files = answer["files"]
    pending, running = [], []
    for entry in sorted(answer["jobs"], key=lambda entry: (-entry.get("priority", 0), entry["id"])):
        texts = files.get(str(entry["id"]), {})
        state = entry["state"]
        if "jobspec" not in texts:
            notes.count("jobs left out: no jobspec to be had")
        elif state in (states.RUN, states.CLEANUP):
            if given:
                notes.count("running jobs left out: they run on another machine")
            elif "R" in texts:
                running.append(_running(entry, texts, now, notes))
        elif state == states.SCHED:
            pending.append(_pending(entry, texts, machine, unit, notes))
        else:
            notes.count("jobs left out: they wait for a dependency or a priority")
    notes.fact("jobs are taken to run until their limit")
    if not pending:
        raise LiveError("--live: no job waits for resources")
    workload = Workload(pending, machine, unit, now, notes, "the running instance")
    workload.running = running
    if not given:
        unusable = [resources.get("offline", ""), *resources.get("drain", {})]
        workload.down = ",".join(text for text in unusable if text)
        if workload.down:
            notes.fact(f"ranks {workload.down} are offline or drained")
        if resources.get("exclude"):
            workload.config = {"resource": {"exclude": resources["exclude"]}}
    config = answer.get("config", {})
    workload.queues = config.get("queues", {})
    for name, table in config.items():
        if name.removeprefix("sched-") in POLICY_TABLES:
            workload.config[name] = table
    if queue := default_queue(config):  # for jobs of a script
        workload.config["policy"] = {"jobspec": {"defaults": {"system": {"queue": queue}}}}
    return workload


def _job(entry, texts, run, limit, size):
    user = str(entry.get("username") or entry["userid"])
    extra = {"jobspec": json.loads(texts["jobspec"]), "priority": entry.get("priority", 16)}
    more = user, entry.get("queue"), entry.get("urgency", 16), extra
    return Job(jobid.f58(entry["id"]), 0.0, run, limit, None, size, *more)


def _pending(entry, texts, machine, unit, notes):
    limit = entry.get("duration") or NO_LIMIT
    if not limit:
        notes.count("jobs have no limit and never end")
    resources = json.loads(texts["jobspec"])["resources"]
    asked = spec.count_resources(resources)
    nodes, cores = asked["node"], asked["core"]
    if any(one["type"] == "node" and one.get("exclusive") for one, _ in spec.walk(resources)):
        cores = nodes * machine.cores_per_node
    size = cores if unit == "core" else nodes or -(-cores // machine.cores_per_node)
    return _job(entry, texts, limit or FOREVER, limit, max(size, 1))


def _running(entry, texts, now, notes):
    R = json.loads(texts["R"])
    end = entry.get("expiration") or R["execution"].get("expiration") or 0
    if not end:
        notes.count("jobs have no limit and never end")
        end = now + FOREVER
    start = entry.get("t_run", now)
    left = max(0.0, end - now)
    return _job(entry, texts, left, math.ceil(left), 1), R, start, max(end, now)


LEGEND = "start of each waiting job, in local time, if all jobs run to their limits"


def starts_table(summaries):
    """Return the start of each waiting job under each policy, as rows of text."""

    def text(when):
        return "never" if when is None else time.strftime("%a %d %b %H:%M:%S", time.localtime(when))

    unit = summaries[0]["unit"]
    rows = [["job", "user", f"{unit}s", *(summary["policy"] for summary in summaries)]]
    for id, (user, size) in summaries[0]["asked"].items():
        starts = [text(summary["starts"].get(id)) for summary in summaries]
        rows.append([id, user, str(size), *starts])
    return rows


def jobs_of_instance():
    """Return (R, [(id, events, R or None)]) of all jobs of the instance, for ``check --live``."""
    answer = probe("all")
    jobs = []
    for entry in sorted(answer["jobs"], key=lambda entry: entry["id"]):
        texts = answer["files"].get(str(entry["id"]), {})
        if "eventlog" in texts:
            R = json.loads(texts["R"]) if "R" in texts else None
            jobs.append((entry["id"], eventlog.parse(texts["eventlog"]), R))
    return answer["resources"]["R"], jobs
