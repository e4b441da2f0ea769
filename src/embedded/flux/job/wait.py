"""Waiting for waitable jobs."""

from collections import namedtuple

from flux.constants import FLUX_JOBID_ANY
from flux.job.JobID import JobID
from flux_embedded.kernel.future import RPC

__all__ = ["JobWaitResult", "wait", "wait_async", "wait_get_status"]

#: A job that was waited for: its id, whether it succeeded, and if not, why.
JobWaitResult = namedtuple("JobWaitResult", ("jobid", "success", "errstr"))


class JobWaitFuture(RPC):
    """The answer to `wait_async`."""

    def get_status(self):
        """Wait for the job and return a JobWaitResult."""
        answer = self.get()
        return JobWaitResult(
            answer["id"], bool(answer["success"]), answer.get("errstr", "").encode()
        )


def wait_async(h, jobid=None):
    """Wait for a waitable job (default: any) to become inactive; returns a future."""
    payload = {"id": FLUX_JOBID_ANY if jobid is None else int(JobID(jobid))}
    return JobWaitFuture(h, "job-manager.wait", payload)


def wait(h, jobid=None):
    """Wait for a waitable job (default: any) and return its JobWaitResult.

    Raises:
        ChildProcessError: not waitable, waited for before, or none left
    """
    return wait_async(h, jobid).get_status()


def wait_get_status(future):
    """Return the JobWaitResult of a future made by `wait_async`."""
    return future.get_status()
