"""The resource eventlog as it grows (RFC 44)."""

from flux.abc.journal import JournalConsumerBase, JournalEventBase

__all__ = ["ResourceJournalConsumer", "ResourceJournalEvent"]


class ResourceJournalEvent(JournalEventBase):
    """An event of the resource eventlog.

    Attributes:
        R (dict): with ``resource-define``, the inventory
    """

    def __init__(self, event, R=None):
        super().__init__(event)
        self.R = R


class ResourceJournalConsumer(JournalConsumerBase):
    """Reads ``resource.journal``.

    Args:
        flux_handle (Flux): handle
        since (float): leave out events up to this time, in seconds since the epoch
        include_sentinel (bool): give `SENTINEL_EVENT` after the past
    """

    def __init__(self, flux_handle, since=0.0, include_sentinel=False):
        topic = "resource.journal"
        super().__init__(flux_handle, topic, since=since, include_sentinel=include_sentinel)

    def process_response(self, resp):
        return {"R": resp.get("R")}

    def create_event(self, entry, R=None):
        return ResourceJournalEvent(entry, R)
