"""What the job list knows about jobs (RFC 43)."""

import signal

from flux.constants import (
    FLUX_JOB_RESULT_CANCELED,
    FLUX_JOB_RESULT_COMPLETED,
    FLUX_JOB_RESULT_FAILED,
    FLUX_JOB_RESULT_TIMEOUT,
    FLUX_JOB_STATE_CLEANUP,
    FLUX_JOB_STATE_DEPEND,
    FLUX_JOB_STATE_INACTIVE,
    FLUX_JOB_STATE_NEW,
    FLUX_JOB_STATE_PRIORITY,
    FLUX_JOB_STATE_RUN,
    FLUX_JOB_STATE_SCHED,
)
from flux.job.JobID import JobID
from flux_embedded.kernel.future import RPC
from flux_embedded.kernel.message import NODEID_ANY

__all__ = ["JobInfo", "get_job", "job_list", "job_list_id", "result", "result_async"]

_STATES = {
    FLUX_JOB_STATE_NEW: "NEW",
    FLUX_JOB_STATE_DEPEND: "DEPEND",
    FLUX_JOB_STATE_PRIORITY: "PRIORITY",
    FLUX_JOB_STATE_SCHED: "SCHED",
    FLUX_JOB_STATE_RUN: "RUN",
    FLUX_JOB_STATE_CLEANUP: "CLEANUP",
    FLUX_JOB_STATE_INACTIVE: "INACTIVE",
}
_RESULTS = {
    FLUX_JOB_RESULT_COMPLETED: "COMPLETED",
    FLUX_JOB_RESULT_FAILED: "FAILED",
    FLUX_JOB_RESULT_CANCELED: "CANCELED",
    FLUX_JOB_RESULT_TIMEOUT: "TIMEOUT",
}


class JobInfo:
    """A job of the list: its attributes by name (RFC 43), those it lacks as None.

    Args:
        job (dict): what the job list sent
    """

    def __init__(self, job):
        self._job = dict(job)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return self._job.get(name)

    @property
    def id(self):
        return JobID(self._job["id"])

    @property
    def state(self):
        """The state's name, such as ``RUN``."""
        return _STATES.get(self._job.get("state"), "")

    @property
    def result(self):
        """``COMPLETED``, ``FAILED``, ``CANCELED``, ``TIMEOUT``; empty while active."""
        return _RESULTS.get(self._job.get("result"), "")

    @property
    def returncode(self):
        """The exit code of a job that ran, minus the signal's number if one ended it, else None."""
        status = self._job.get("waitstatus")
        if status is None:
            return None
        return -(status & 127) if status & 127 else status >> 8

    @property
    def runtime(self):
        """Seconds it ran; 0.0 if it did not or still does."""
        start, end = self._job.get("t_run"), self._job.get("t_cleanup")
        return end - start if start and end else 0.0

    @property
    def signal(self):
        """The signal that ended it, or None."""
        code = self.returncode
        return signal.Signals(-code) if code is not None and code < 0 else None

    def to_dict(self):
        """The attributes as the job list sent them."""
        return dict(self._job)

    def __repr__(self):
        return f"<JobInfo {self.id.f58} {self.state} {self.result}>"


class JobListRPC(RPC):
    def get_jobs(self):
        """Wait for the jobs, a list of dict."""
        return self.get()["jobs"]

    def get_jobinfos(self):
        """Wait for the jobs; yield a JobInfo each."""
        for job in self.get_jobs():
            yield JobInfo(job)


class JobListIdRPC(RPC):
    def get_job(self):
        """Wait for the job, a dict."""
        return self.get()["job"]

    def get_info(self):
        """Wait for the job, a JobInfo."""
        return JobInfo(self.get_job())

    get_jobinfo = get_info


def job_list(h, max_entries=1000, attrs=("all",), since=0.0, constraint=None):
    """Request jobs; returns a future with ``get_jobs()`` and ``get_jobinfos()``.

    Args:
        h (Flux): handle
        max_entries (int): at most so many; 0: all
        attrs (iterable of str): attribute names
        since (float): only jobs that became inactive after this time
        constraint (dict): filter of RFC 43; default: all jobs
    """
    payload = {"max_entries": max_entries, "attrs": list(attrs), "since": since}
    if constraint is not None:
        payload["constraint"] = constraint
    return h.send_rpc(JobListRPC, "job-list.list", None, payload, NODEID_ANY, 0)


def job_list_id(h, jobid, attrs=("all",)):
    """Request one job; returns a future with ``get_job()`` and ``get_info()``."""
    payload = {"id": int(JobID(jobid)), "attrs": list(attrs)}
    return h.send_rpc(JobListIdRPC, "job-list.list-id", None, payload, NODEID_ANY, 0)


def get_job(h, jobid):
    """Return one job as a dict, or None if it is unknown."""
    try:
        return job_list_id(h, jobid).get_job()
    except FileNotFoundError:
        return None


def result_async(h, jobid):
    """Wait for a job to become inactive; returns a future with ``get_info()``."""
    payload = {"id": int(JobID(jobid)), "attrs": ["all"], "state": FLUX_JOB_STATE_INACTIVE}
    return h.send_rpc(JobListIdRPC, "job-list.list-id", None, payload, NODEID_ANY, 0)


def result(h, jobid):
    """Wait for a job to become inactive and return its JobInfo."""
    return result_async(h, jobid).get_info()
