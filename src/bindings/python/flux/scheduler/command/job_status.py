# SPDX-License-Identifier: LGPL-3.0-or-later
"""Why a pending job is not with the scheduler yet, and where it is.

The job manager hands a job over once its dependencies are met, it has a priority, nobody holds it,
its queue is started, and fewer jobs than ``queue-depth`` are with the scheduler.  Of a job that is
still short of one of these the scheduler has never heard, so the job list and the job manager are
asked.
"""

import os
from typing import Any, Dict, Optional

from flux.job import JobInfo

_ATTRIBUTES = ["userid", "state", "result", "urgency", "priority", "dependencies", "queue"]


def look_up_job(handle: Any, jobid: int) -> Optional[Dict[str, Any]]:
    """What the job list has of a job that the caller may ask about; None if it has nothing, or cannot
    be asked."""
    try:
        answer = handle.rpc("job-list.list-id", {"id": jobid, "attrs": _ATTRIBUTES}).get()
    except OSError:
        return None
    job: Dict[str, Any] = answer["job"]
    return job if job["userid"] == _user() or _is_owner(handle) else None


def count_pending(handle: Any) -> int:
    """How many jobs are pending, wherever they are; 0 if that is not known to the caller."""
    if not _is_owner(handle):
        return 0
    try:
        states = handle.rpc("job-list.job-stats").get()["job_states"]
    except OSError:
        return 0
    return sum(states[state] for state in ("depend", "priority", "sched"))


def _user() -> int:
    return int(os.environ.get("FLUX_HANDLE_USERID", os.getuid()))


def _is_owner(handle: Any) -> bool:
    return _user() == int(handle.attr_get("security.owner"))


def state_or_result(job: Dict[str, Any]) -> str:
    """Its state, or how it ended: "SCHED", "RUN", "COMPLETED"."""
    status: str = JobInfo(job).status
    return status


def reason_in_job_manager(job: Dict[str, Any]) -> Optional[str]:
    """Why the job manager keeps a job to itself, as far as the job tells; None if it does not."""
    state = state_or_result(job)
    if state == "DEPEND":
        dependencies = job.get("dependencies") or ()
        return f"dependencies: {', '.join(dependencies) or 'not known yet'}"
    if job.get("urgency") == 0:
        return "held: its urgency is 0"
    if state == "PRIORITY":
        return "a plugin of the job manager has not given it a priority"
    return None


def reason_of_queue(handle: Any, job: Dict[str, Any]) -> str:
    """Why a job that could be with the scheduler is not: its queue is stopped, or others go first.

    Raises:
        OSError: the job manager does not say
    """
    queue = job.get("queue")
    status = handle.rpc("job-manager.queue-status", {"name": queue} if queue else {}).get()
    if not status.get("start", True):
        name = f"queue {queue}" if queue else "the queue"
        why = status.get("stop_reason")
        return f"{name} is stopped{f': {why}' if why else ''}"
    return "others are handed to the scheduler first: it has as many jobs as queue-depth allows"
