"""Submitting jobs."""

import json

from flux.constants import (
    FLUX_JOB_DEBUG,
    FLUX_JOB_NOVALIDATE,
    FLUX_JOB_URGENCY_DEFAULT,
    FLUX_JOB_WAITABLE,
)
from flux.job.JobID import JobID
from flux_embedded.kernel.future import RPC
from flux_embedded.kernel.message import NODEID_ANY

__all__ = ["SubmitFuture", "submit", "submit_async", "submit_get_id"]


class SubmitFuture(RPC):
    """The answer to a submission."""

    def get_id(self):
        """Wait for the job's id, a JobID; OSError if the job was refused."""
        return JobID(self.get()["id"])


def submit_async(
    h,
    jobspec,
    urgency=FLUX_JOB_URGENCY_DEFAULT,
    waitable=False,
    debug=False,
    pre_signed=False,
    novalidate=False,
):
    """Submit a job; returns a SubmitFuture.

    Args:
        h (Flux): handle
        jobspec: Jobspec, JSON text, or dict
        urgency (int): 0 (held) to 31 (expedited)
        waitable (bool): allow `wait` for it
        debug (bool): have the job manager post debug events
        pre_signed (bool): not in the embedded instance, where nothing is signed
        novalidate (bool): skip validation (instance owner only)

    Raises:
        ValueError: the jobspec is no JSON object, or pre_signed is set
    """
    if pre_signed:
        raise ValueError("pre_signed: the embedded instance does not sign jobspecs")
    if isinstance(jobspec, (str, bytes)):
        jobspec = json.loads(jobspec)
    elif not isinstance(jobspec, dict):
        jobspec = jobspec.jobspec
    flags = 0
    if waitable:
        flags |= FLUX_JOB_WAITABLE
    if debug:
        flags |= FLUX_JOB_DEBUG
    if novalidate:
        flags |= FLUX_JOB_NOVALIDATE
    # As text, so that the caller may go on changing the object.
    payload = json.dumps({"jobspec": jobspec, "urgency": urgency, "flags": flags})
    return h.send_rpc(SubmitFuture, "job-ingest.submit", payload, None, NODEID_ANY, 0)


def submit(h, jobspec, urgency=FLUX_JOB_URGENCY_DEFAULT, **flags):
    """Submit a job and return its id, a JobID; arguments as for `submit_async`."""
    return submit_async(h, jobspec, urgency, **flags).get_id()


def submit_get_id(future):
    """Return the id of a submission's future."""
    return future.get_id()
