"""A job's eventlog as it grows (RFC 18, 21)."""

import errno

from flux.constants import FLUX_RPC_STREAMING
from flux.eventlog import EventLogEvent
from flux.job.JobID import JobID
from flux.kvs import WatchImplementation

__all__ = [
    "MAIN_EVENTS",
    "EventLogEvent",
    "JobEventWatchFuture",
    "JobException",
    "event_wait",
    "event_watch",
    "event_watch_async",
]


#: Events of a job's main log (RFC 21) that a FluxExecutorFuture tells its callbacks of.
MAIN_EVENTS = frozenset(
    """
    submit depend priority flux-restart urgency alloc free start release finish clean debug exception
    """.split()
)


class JobException(Exception):
    """A fatal exception was raised on a job.

    Args:
        event (EventLogEvent): the exception event
    """

    def __init__(self, event):
        self.timestamp = event.timestamp
        self.type = event.context.get("type", "")
        self.severity = event.context.get("severity", 0)
        self.note = event.context.get("note", "")
        super().__init__(f"job.exception: type={self.type}: {self.note}")


class JobEventWatchFuture(WatchImplementation):
    """A stream of events."""

    cancel_topic = "job-info.eventlog-watch-cancel"

    def watch_get(self, response):
        return EventLogEvent(response["event"])

    def get_event(self, autoreset=True):
        """Wait for the next event; None at the end of the log (see `get`)."""
        return self.get(autoreset)


def event_watch_async(h, jobid, eventlog="eventlog"):
    """Watch a job's eventlog; returns a JobEventWatchFuture.

    Args:
        h (Flux): handle
        jobid: job id, as int or in any encoding
        eventlog (str): ``eventlog``, or another path in the job's directory
    """
    payload = {"id": int(JobID(jobid)), "path": eventlog, "flags": 0}
    return JobEventWatchFuture(h, "job-info.eventlog-watch", payload, flags=FLUX_RPC_STREAMING)


def event_watch(h, jobid, eventlog="eventlog"):
    """Yield the events of a job, waiting for each, until the log ends."""
    future = event_watch_async(h, jobid, eventlog)
    event = future.get_event()
    while event is not None:
        yield event
        event = future.get_event()


def event_wait(h, jobid, name, eventlog="eventlog", raiseJobException=True):
    """Wait for an event and return it.

    Args:
        h (Flux): handle
        jobid: job id, as int or in any encoding
        name (str): name of the event
        eventlog (str): path of the log
        raiseJobException (bool): see below

    Raises:
        JobException: a fatal exception came first
        OSError: the log ended without the event (ENODATA)
    """
    future = event_watch_async(h, jobid, eventlog)
    while True:
        event = future.get_event()
        if event is None:
            raise OSError(errno.ENODATA, f"eventlog ended before event='{name}'")
        if event.name == name:
            future.cancel(stop=True)
            return event
        if raiseJobException and event.name == "exception" and event.context.get("severity") == 0:
            future.cancel(stop=True)
            raise JobException(event)
