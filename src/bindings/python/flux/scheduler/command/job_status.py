# SPDX-License-Identifier: LGPL-3.0-or-later
"""The state of a pending job that is not sent to the scheduler yet, and the reason.

The job manager sends a job's request to the scheduler once its dependencies are met, it has a
priority, it is not held, its queue is started, and fewer than ``queue-depth`` requests are open.
Until then the scheduler does not know the job, so ``job-list`` and ``job-manager`` are queried.
"""

from __future__ import annotations

import os
from typing import Any

from flux.job import JobInfo

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


def reason_in_job_manager(job: dict[str, Any]) -> str | None:
    """Return why the job manager does not send a job to the scheduler, or None if the job itself
    does not show it."""
    state = state_or_result(job)
    if state == "DEPEND":
        dependencies = job.get("dependencies") or ()
        return f"dependencies: {', '.join(dependencies) or 'not known yet'}"
    if job.get("urgency") == 0:
        return "held: its urgency is 0"
    if state == "PRIORITY":
        return "a plugin of the job manager has not given it a priority"
    return None


def reason_of_queue(handle: Any, job: dict[str, Any]) -> str:
    """Return why a ready job is not sent to the scheduler: its queue is stopped, or other jobs go
    first. Raises OSError if the job manager does not answer."""
    queue = job.get("queue")
    status = handle.rpc("job-manager.queue-status", {"name": queue} if queue else {}).get()
    if not status.get("start", True):
        name = f"queue {queue}" if queue else "the queue"
        why = status.get("stop_reason")
        return f"{name} is stopped{f': {why}' if why else ''}"
    return (
        "other jobs are sent to the scheduler first: it has as many requests as queue-depth allows"
    )
