"""Exceptions, signals and cancellation."""

import signal

from flux.job.JobID import JobID

__all__ = [
    "cancel",
    "cancel_async",
    "job_kill",
    "job_kill_async",
    "job_raise",
    "job_raise_async",
    "kill",
    "kill_async",
]


def job_raise_async(h, jobid, exc_type, severity=0, note=None):
    """Raise an exception on a job; returns a future.

    Args:
        h (Flux): handle
        jobid: job id, as int or in any encoding
        exc_type (str): exception type
        severity (int): 0 is fatal, 7 the least severe
        note (str): text for the user

    The future fails with FileNotFoundError ``unknown job id`` if there is no such job.
    """
    payload = {"id": int(JobID(jobid)), "type": exc_type, "severity": severity}
    if note is not None:
        payload["note"] = note
    return h.rpc("job-manager.raise", payload)


def job_raise(h, jobid, exc_type, severity=0, note=None):
    """Raise an exception on a job and wait until it is raised."""
    job_raise_async(h, jobid, exc_type, severity, note).get()


def cancel_async(h, jobid, reason=None):
    """Cancel a job: a fatal exception of type ``cancel``; returns a future."""
    return job_raise_async(h, jobid, "cancel", 0, reason)


def cancel(h, jobid, reason=None):
    """Cancel a job."""
    cancel_async(h, jobid, reason).get()


def kill_async(h, jobid, signum=None):
    """Send a signal to a running job; returns a future."""
    return h.rpc(
        "job-manager.kill", {"id": int(JobID(jobid)), "signum": int(signum or signal.SIGTERM)}
    )


def kill(h, jobid, signum=None):
    """Send a signal to a running job."""
    kill_async(h, jobid, signum).get()


job_kill_async = kill_async
job_kill = kill
