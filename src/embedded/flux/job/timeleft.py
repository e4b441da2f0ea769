"""How much time is left."""

import os

import flux
from flux.job.JobID import JobID
from flux.job.kvslookup import job_kvs_lookup

__all__ = ["timeleft"]


def timeleft(h=None):
    """Return the seconds left to the job this runs in, or else to the instance; ``inf`` without a limit.

    Raises:
        OSError: no instance can be reached
    """
    h = flux.Flux() if h is None else h
    if "FLUX_JOB_ID" in os.environ:
        R = job_kvs_lookup(h, JobID(os.environ["FLUX_JOB_ID"]), ["R"])["R"]
    else:
        R = h.rpc("resource.status").get()["R"]
    expiration = R["execution"].get("expiration") or float("inf")
    return max(0.0, expiration - h.rpc("broker.now").get()["now"])
