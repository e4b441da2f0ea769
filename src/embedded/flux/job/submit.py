"""Submitting jobs."""

import errno
import json

from flux.constants import (
    FLUX_JOB_DEBUG,
    FLUX_JOB_NOVALIDATE,
    FLUX_JOB_URGENCY_DEFAULT,
    FLUX_JOB_WAITABLE,
)
from flux.job.JobID import JobID
from flux.job.Jobspec import jobspec_text
from flux_embedded.formats import jobspec as _format
from flux_embedded.kernel.future import RPC

__all__ = ["SubmitFuture", "submit", "submit_async", "submit_get_id"]


class SubmitFuture(RPC):
    """The answer to a submission."""

    def get_id(self):
        """Wait for the job's id, a JobID; OSError if the job was refused."""
        return JobID(super().get()["id"])

    def get(self):
        """Wait until the job is submitted."""
        super().get()


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
        jobspec: Jobspec or its text
        urgency (int): 0 (held) to 31 (expedited)
        waitable (bool): allow `wait` for it
        debug (bool): have the job manager post debug events
        pre_signed (bool): `jobspec` is text in the envelope of flux-security's mechanism ``none``
        novalidate (bool): skip validation (instance owner only)

    Raises:
        OSError: EINVAL, the jobspec is None or no JSON
        TypeError: it is neither a Jobspec nor text
    """
    jobspec = jobspec_text(jobspec)
    if not pre_signed:
        try:
            _format.decode(jobspec)
        except ValueError as exc:
            raise OSError(errno.EINVAL, str(exc)) from None
    flags = 0
    if waitable:
        flags |= FLUX_JOB_WAITABLE
    if debug:
        flags |= FLUX_JOB_DEBUG
    if novalidate:
        flags |= FLUX_JOB_NOVALIDATE
    # As text, so that the caller may go on changing the object.
    key = "J" if pre_signed else "jobspec"
    payload = json.dumps({key: jobspec, "urgency": urgency, "flags": flags})
    return SubmitFuture(h, "job-ingest.submit", payload)


def submit(
    h,
    jobspec,
    urgency=FLUX_JOB_URGENCY_DEFAULT,
    waitable=False,
    debug=False,
    pre_signed=False,
):
    """Submit a job and return its id, a JobID; arguments as for `submit_async`."""
    return submit_async(h, jobspec, urgency, waitable, debug, pre_signed).get_id()


def submit_get_id(future):
    """Return the id of a submission's future."""
    return future.get_id()
