"""The events of all jobs as they come."""

from flux.abc.journal import JournalConsumerBase, JournalEventBase
from flux.job.JobID import JobID

__all__ = ["JournalConsumer", "JournalEvent"]


class JournalEvent(JournalEventBase):
    """An event of a job.

    Attributes:
        jobid (JobID): the job; -1 for the marker between the past and new events
        jobspec (dict): with ``submit``, the jobspec without its environment, else None
        R (dict): with ``alloc``, the resources, else None
    """

    def __init__(self, jobid, event, jobspec=None, R=None):
        super().__init__(event)
        self.jobid = jobid if jobid == -1 else JobID(jobid)
        self.jobspec = jobspec if self.get("name") == "submit" else None
        self.R = R if self.get("name") == "alloc" else None

    def is_empty(self):
        return self.jobid == -1

    def __str__(self):
        if self.is_empty():
            return "-1: End of historical data stream"
        words = [f"{self.jobid.f58}:", f"{self.timestamp:.5f}", self.name, self.context_string]
        words += [f"{key}={value}" for key in ("jobspec", "R") if (value := getattr(self, key))]
        return " ".join(filter(None, words))


class JournalConsumer(JournalConsumerBase):
    """Reads ``job-manager.events-journal``.

    Args:
        flux_handle (Flux): handle
        full (bool): with all events there have been, those of inactive jobs included
        since (float): leave out events up to this time, in seconds since the epoch
        include_sentinel (bool): give `SENTINEL_EVENT` after the past
    """

    SENTINEL_EVENT = JournalEvent(-1, {})

    def __init__(self, flux_handle, full=True, since=0.0, include_sentinel=False):
        topic = "job-manager.events-journal"
        super().__init__(flux_handle, topic, None, full, since, include_sentinel)

    @property
    def request_payload(self):
        return {"full": self.full}

    def process_response(self, resp):
        return {"jobid": resp["id"], "jobspec": resp.get("jobspec"), "R": resp.get("R")}

    def create_event(self, entry, jobid=-1, jobspec=None, R=None):
        return JournalEvent(jobid, entry, jobspec, R)
