"""A job's eventlog as it grows (RFC 18, 21)."""

import errno

from flux.constants import FLUX_RPC_NORESPONSE, FLUX_RPC_STREAMING
from flux.eventlog import EventLogEvent
from flux.job.JobID import JobID
from flux_embedded.kernel.future import RPC
from flux_embedded.kernel.message import NODEID_ANY

__all__ = [
    "EventLogEvent",
    "JobEventWatchFuture",
    "JobException",
    "event_wait",
    "event_watch",
    "event_watch_async",
]


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


class JobEventWatchFuture(RPC):
    """A stream of events."""

    def get_event(self, autoreset=True):
        """Wait for the next event; None at the end of the log.

        Args:
            autoreset (bool): be ready for the one after it
        """
        try:
            event = EventLogEvent(self.get()["event"])
        except OSError as exc:
            if exc.errno == errno.ENODATA:
                return None
            raise
        if autoreset:
            self.reset()
        return event

    def cancel(self, stop=False):
        """Ask for the end of the stream.

        Args:
            stop (bool): and call back no more
        """
        payload = {"matchtag": self.matchtag}
        self.handle.rpc("job-info.eventlog-watch-cancel", payload, flags=FLUX_RPC_NORESPONSE)
        if stop:
            self.stop()


def event_watch_async(h, jobid, eventlog="eventlog"):
    """Watch a job's eventlog; returns a JobEventWatchFuture.

    Args:
        h (Flux): handle
        jobid: job id, as int or in any encoding
        eventlog (str): ``eventlog``, or another path in the job's directory
    """
    payload = {"id": int(JobID(jobid)), "path": eventlog, "flags": 0}
    return h.send_rpc(
        JobEventWatchFuture,
        "job-info.eventlog-watch",
        None,
        payload,
        NODEID_ANY,
        FLUX_RPC_STREAMING,
    )


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
