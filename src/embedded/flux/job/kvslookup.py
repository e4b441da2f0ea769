"""What the KVS has of a job."""

from flux.job.JobID import JobID
from flux_embedded.formats.jsontext import loads
from flux_embedded.kernel.future import RPC

__all__ = ["JobInfoLookupRPC", "JobKVSLookup", "job_info_lookup", "job_kvs_lookup"]

CURRENT = 2


class JobInfoLookupRPC(RPC):
    """The answer to `job_info_lookup`."""

    def get_decode(self):
        """Wait for the answer; jobspec and R as objects."""
        return _decoded(self.get())


def _decoded(data):
    return {key: loads(value) if key in ("R", "jobspec") else value for key, value in data.items()}


def job_info_lookup(h, jobid, keys=("jobspec",), flags=0):
    """Request data of a job; returns a future whose ``get()`` is a dict of texts.

    Args:
        h (Flux): handle
        jobid: job id, as int or in any encoding
        keys (iterable of str): such as ``R``, ``jobspec``, ``eventlog``
        flags (int): 2: with the updates of the eventlog applied
    """
    payload = {"id": int(JobID(jobid)), "keys": list(keys), "flags": flags}
    return JobInfoLookupRPC(h, "job-info.lookup", payload)


def job_kvs_lookup(h, jobid, keys=("jobspec",), decode=True, original=False):
    """Return data of a job as a dict with ``id`` and the keys; None for an unknown job or key.

    Args:
        h (Flux): handle
        jobid: job id, as int or in any encoding
        keys (iterable of str): such as ``R``, ``jobspec``, ``eventlog``
        decode (bool): jobspec and R as objects
        original (bool): as they were at first, without later updates
    """
    future = job_info_lookup(h, jobid, keys, 0 if original else CURRENT)
    try:
        return future.get_decode() if decode else future.get()
    except FileNotFoundError:
        return None


class JobKVSLookup:
    """Data of several jobs.

    Args:
        h (Flux): handle
        ids (iterable): job ids
        keys, decode, original: as for `job_kvs_lookup`

    Attributes:
        errors (list of str): what was not found, after `data`
    """

    def __init__(self, h, ids=(), keys=("jobspec",), decode=True, original=False):
        self.handle = h
        self.ids = list(ids)
        self.keys = list(keys)
        self.decode = decode
        self.original = original
        self.errors = []

    def data(self):
        """Return a dict for each job that is known."""
        found = []
        for jobid in self.ids:
            data = job_kvs_lookup(self.handle, jobid, self.keys, self.decode, self.original)
            if data is None:
                self.errors.append(f"JobID {JobID(jobid).orig} unknown")
            else:
                found.append(data)
        return found
