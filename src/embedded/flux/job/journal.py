"""The events of all jobs as they come."""

from flux.abc.journal import JournalConsumerBase, JournalEventBase
from flux.constants import FLUX_JOBID_ANY
from flux.job.JobID import JobID

__all__ = ["JournalConsumer", "JournalEvent"]


class JournalEvent(JournalEventBase):
    """An event of a job.

    Attributes:
        jobid (JobID): the job
        jobspec (dict): with ``submit``, the jobspec without its environment, else None
        R (dict): with ``alloc``, the resources, else None
    """

    def __init__(self, jobid, event, jobspec=None, R=None):
        super().__init__(event)
        self.jobid = JobID(jobid)
        self.jobspec = jobspec if self.name == "submit" else None
        self.R = R if self.name == "alloc" else None

    def __str__(self):
        return f"{self.jobid.f58}: {super().__str__()}"


class JournalConsumer(JournalConsumerBase):
    """Reads ``job-manager.events-journal``.

    Args:
        h (Flux): handle
        full (bool): with all events there have been, those of inactive jobs included
        since (float): leave out events up to this time, in seconds since the epoch
        include_sentinel (bool): give an event with ``is_empty()`` true after the past
    """

    def __init__(self, h, full=True, since=0.0, include_sentinel=False):
        super().__init__(
            h,
            "job-manager.events-journal",
            full=full,
            since=since,
            include_sentinel=include_sentinel,
        )

    @property
    def request_payload(self):
        return {"full": self.full}

    def process_response(self, resp):
        jobspec, R = resp.get("jobspec"), resp.get("R")
        return [JournalEvent(resp["id"], event, jobspec, R) for event in resp["events"]]

    def create_sentinel(self):
        return JournalEvent(FLUX_JOBID_ANY, {"timestamp": 0.0, "name": "sentinel"})
