# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux sched explain``: why a job waits, one sentence per line.

The job manager sends a job's request to the scheduler once its dependencies are met, it has a
priority, it is not held, its queue is started, and fewer than ``queue-depth`` requests are open.
Until then the scheduler does not know the job, so ``job-list`` and ``job-manager`` are queried.
"""

from __future__ import annotations

import argparse
import errno
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from flux.job import JobID, JobInfo
from flux.scheduler.attributes import printable
from flux.scheduler.command.subcommand import (
    CommandError,
    Context,
    Subcommand,
    format_duration,
    read_jobid,
    until_text,
)
from flux.scheduler.host import counted


class Explain(Subcommand):
    help = "say why a pending job waits, or list all pending jobs with the reasons"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("jobid", nargs="?", metavar="JOBID", help="a pending job")
        parser.add_argument("-a", "--all", action="store_true", help="all pending jobs")

    def ask(self, context: Context) -> dict[str, Any]:
        options = context.options
        if options.all == (options.jobid is not None):
            raise ValueError("give either a job id or --all")
        if options.all:
            return context.ask("explain", {"all": True})
        answer = self.explain_job(read_jobid(options.jobid), context)
        _find_housekeeping(answer, context.handle)
        return answer

    def show(self, answer: dict[str, Any], context: Context) -> None:
        if context.options.all:
            self._print_table(answer, context)
        else:
            for job in answer["jobs"]:
                print("\n".join(map(printable, self.lines(job, answer, context))))

    def _print_table(self, answer: dict[str, Any], context: Context) -> None:
        rows = []
        for job in answer["jobs"]:
            estimate = job["t_estimate"] and context.time(job["t_estimate"], answer["now"])
            rows.append((job["name"], job.get("queue"), estimate, job["reason"]))
        self.print_table(context, ("JOBID", "QUEUE", "ESTIMATE", "REASON"), rows)
        more = count_pending(context.handle) - len(rows) - answer.get("others", 0)
        if more > 0:
            jobs = counted(more, "pending job")
            print(f"{jobs} not sent to the scheduler yet: flux sched explain JOBID says why")

    def explain_job(self, jobid: int, context: Context) -> dict[str, Any]:
        """Return why a job waits: the scheduler's answer or, in the same form, the reason why the
        job manager has not sent it to the scheduler. Raises CommandError if the job is not pending,
        or is unknown."""
        handle = context.handle
        name = JobID(jobid).f58
        job = look_up_job(handle, jobid)
        if job is None:
            return context.ask("explain", {"id": jobid})
        state = state_or_result(job)
        if state not in ("DEPEND", "PRIORITY", "SCHED"):
            raise CommandError(f"{name} is not a pending job: its state is {state}")
        now = time.time()
        reason = reason_in_job_manager(job, lambda when: context.time(when, now))
        if reason is None:
            try:
                return context.ask("explain", {"id": jobid})
            except CommandError as refusal:
                # The scheduler refuses jobs without a request.
                if refusal.errno != errno.EINVAL:
                    raise
            try:
                reason = reason_of_queue(handle, job.get("queue"))
            except OSError as exc:
                text = f"{name} has not been sent to the scheduler: {exc.strerror}"
                raise CommandError(text, exc.errno) from None
        found = {
            "id": jobid,
            "name": name,
            "queue": job.get("queue"),
            "priority": job.get("priority"),
            "verdict": "waits",
            "reason": reason,
            "t_estimate": None,
            "t_estimate_kind": None,
        }
        return {"now": now, "made": now, "jobs": [found], "others": 0}

    def lines(self, job: dict[str, Any], answer: dict[str, Any], context: Context) -> list[str]:
        """Return the scheduler's answer about one job, one sentence per line."""
        now = answer["now"]
        verdict = {"waits": "waits", "never": "can never run as things are", "starts": "can start"}
        reason = job["reason"] or "nothing keeps it from starting"
        lines = [f"{job['name']} {verdict[job['verdict']]}: {reason}"]
        if job.get("total") is not None:
            unit = job["unit"]
            lines.append(
                f"  needs {counted(job['needed'], unit[:-1])}; of {counted(job['total'], 'node')} "
                f"{job['matching']} match, {job['up']} of them are up, {job['large_enough']} are "
                f"large enough; {counted(job['available'], unit[:-1])} free now"
                + (f" on {counted(job['free'], 'node')}" if unit == "slots" else "")
            )
        for one in job.get("excluded") or ():
            nodes = counted(one["nodes"], "node")
            lines.append(f"  {one['constraint']} excludes {nodes}: rank {one['ranks']}")
        for one in job.get("behind") or ():
            until = until_text(one["end"], now, context)
            lines.append(f"  behind {one['name']}, {one['state']}, {until}")
        if job.get("behind_more"):
            lines.append("  and other jobs that end earlier")
        if job.get("reservation"):
            one = job["reservation"]
            start, end = context.time(one["start"], now), context.time(one["end"], now)
            lines.append(f"  reservation {one['name']}: {start} to {end}")
        for one in job.get("rules") or ():
            if one["reason"] != job["reason"]:
                lines.append(f"  and {one['reason']}")
        if (job.get("limit") or {}).get("t_again"):
            one = job["limit"]
            when = context.time(one["t_again"], now)
            after = f", when {one['job']} ends" if one.get("job") else ""
            lines.append(f"  limit {one['name']}: again about {when}{after}")
        if (job.get("budget") or {}).get("t_again"):
            when = context.time(job["budget"]["t_again"], now)
            lines.append(f"  budget {job['budget']['name']}: begins anew at {when}")
        if job.get("preemption"):
            lines.append(f"  could start now by ending {job['preemption']['text']}")
        if job.get("borrowers"):
            one = job["borrowers"]
            lines.append(f"  {one['text']}; ended at {context.time(one['end'], now)}")
        fits = job.get("fits") or {}
        if fits.get("limit"):
            limit = format_duration(fits["limit"])
            lines.append(f"  it could start now with a time limit of {limit} or less")
        if fits.get("count"):
            lines.append(f"  it could start now with {counted(fits['count'], job['unit'][:-1])}")
        if job.get("rank") is not None:
            run = format_duration(job["expected_run"])
            text = f"  rank {job['rank']:.6g} among jobs of its priority; expected to run for {run}"
            lines.append(text)
        if (job.get("fairshare") or {}).get("place"):
            one = job["fairshare"]
            whose = one.get("user", "its user")
            whose += f" in bank {one['bank']}" if "user" in one and one["bank"] else ""
            place = f"{one['place']} of {one['of']}"
            lines.append(f"  fair share: {whose} is number {place} whose jobs wait")
        if job.get("t_latest"):
            lines.append(f"  starts by {context.time(job['t_latest'], now)} at the latest")
        if job.get("latest_start"):
            lines.append(f"  given up at {context.time(job['latest_start'], now)} if it waits then")
        if job.get("t_estimate"):
            kind = job.get("t_estimate_kind") or "planned"
            lines.append(f"  starts about {context.time(job['t_estimate'], now)} ({kind})")
        if job.get("t_likely"):
            lines.append(f"  {likely_text(job, now, context)}")
        age = now - answer["made"]
        if age >= 1:
            lines.append(f"  (as of {format_duration(age)} ago)")
        return lines


def likely_text(said: dict[str, Any], now: float, context: Context) -> str:
    """Format ``t_likely`` and ``t_p90``."""
    likely, late = (context.time(said[key], now) for key in ("t_likely", "t_p90"))
    return f"likely about {likely}, by {late} in nine cases of ten"


_ATTRIBUTES = ["userid", "state", "result", "urgency", "priority", "dependencies", "queue"]


def look_up_job(handle: Any, jobid: int) -> dict[str, Any] | None:
    """Return a job of the job list with `_ATTRIBUTES`; None if it does not exist, belongs to another
    user and the caller does not see all, or the job list does not answer."""
    try:
        answer = handle.rpc("job-list.list-id", {"id": jobid, "attrs": _ATTRIBUTES}).get()
    except OSError:
        return None
    job: dict[str, Any] = answer["job"]
    return job if job["userid"] == _user() or _sees_all(handle) else None


def _find_housekeeping(answer: dict[str, Any], handle: Any) -> None:
    """Set the state of jobs in housekeeping, which hold resources as running jobs do, if the job
    manager answers."""
    behind = [one for job in answer["jobs"] for one in job.get("behind") or ()]
    with suppress(OSError):
        stats = handle.rpc("job-manager.stats-get").get() if behind else {}
        for one in behind:
            if one["name"] in stats["housekeeping"]["running"]:
                one["state"] = "housekeeping"


def count_pending(handle: Any) -> int:
    """Count the pending jobs of the instance, whether or not the scheduler knows them; 0 if the
    caller does not see all, or the job list does not answer."""
    if not _sees_all(handle):
        return 0
    try:
        states = handle.rpc("job-list.job-stats").get()["job_states"]
    except OSError:
        return 0
    return sum(states[state] for state in ("depend", "priority", "sched"))


def _user() -> int:
    return int(os.environ.get("FLUX_HANDLE_USERID", os.getuid()))


def _sees_all(handle: Any) -> bool:
    """Whether the caller is the instance owner or has the role admin. Roles are assigned on
    connection, so a query that others may not make finds out.
    """
    if _user() == int(handle.attr_get("security.owner")):
        return True
    try:
        handle.rpc("sched.plan", {"horizon": 1}).get()
    except OSError:
        return False
    return True


def state_or_result(job: dict[str, Any]) -> str:
    """Return a job's state or, if it is inactive, its result: "SCHED", "RUN", "COMPLETED"."""
    status: str = JobInfo(job).status
    return status


def reason_in_job_manager(job: dict[str, Any], text_of: Callable[[float], str]) -> str | None:
    """Return why the job manager does not send a job to the scheduler, or None if the job itself
    does not show it."""
    state = state_or_result(job)
    if state == "DEPEND":
        texts = []
        for one in job.get("dependencies") or ():
            name, _, value = one.partition("=")
            texts.append(f"{name}={text_of(float(value))}" if name == "begin-time" else one)
        return f"dependencies: {', '.join(texts) or 'not known yet'}"
    if job.get("urgency") == 0:
        return "held: its urgency is 0"
    if state == "PRIORITY":
        return "a plugin of the job manager has not given it a priority"
    return None


def reason_of_queue(handle: Any, queue: str | None) -> str:
    """Return why a ready job is not sent to the scheduler: its queue is stopped, other jobs go
    first, or flux-core 0.88 has restarted with named queues, which it shows as started, but sends
    no job of before until they are started again. Raises OSError if the job manager does not
    answer."""
    return warnings_of_queue(handle, queue).get("start") or (
        "the job manager has not sent it yet: queue-depth, or a restart before flux queue start"
    )


def warnings_of_queue(handle: Any, queue: str | None) -> dict[str, str]:
    """Return why jobs of a queue cannot be submitted (``enable``), and why they are not sent to the
    scheduler (``start``), as text; a key is missing if they are. Raises OSError if the job manager does not answer."""
    status = handle.rpc("job-manager.queue-status", {"name": queue} if queue else {}).get()
    name = f"queue {queue}" if queue else "the queue"
    found = {}
    for key, text, reason in (
        ("enable", "takes no jobs", "disable_reason"),
        ("start", "is stopped", "stop_reason"),
    ):
        if not status.get(key, True):
            why = status.get(reason)
            found[key] = f"{name} {text}{f': {why}' if why else ''}"
    return found
