"""A job's directory in the KVS (RFC 16)."""

from flux.job.JobID import JobID
from flux.kvs import get_dir


def job_kvs(h, jobid):
    """Return the job's directory, a KVSDir; FileNotFoundError for an unknown job."""
    return get_dir(h, JobID(jobid).kvs)


def job_kvs_guest(h, jobid):
    """Return the part of the job's directory that belongs to its user."""
    return get_dir(h, JobID(jobid).kvs + ".guest")
