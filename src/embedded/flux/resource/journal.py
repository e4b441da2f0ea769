"""The resource eventlog as it grows (RFC 44)."""

from flux.abc.journal import JournalConsumerBase, JournalEventBase

__all__ = ["ResourceJournalConsumer", "ResourceJournalEvent"]


class ResourceJournalEvent(JournalEventBase):
    """An event of the resource eventlog.

    Attributes:
        R (dict): with ``resource-define``, the inventory, else None
    """

    def __init__(self, event, R=None):
        super().__init__(event)
        self.R = R if self.name == "resource-define" else None


class ResourceJournalConsumer(JournalConsumerBase):
    """Reads ``resource.journal``.

    Args:
        h (Flux): handle
        since (float): leave out events up to this time, in seconds since the epoch
        include_sentinel (bool): give an event with ``is_empty()`` true after the past
    """

    def __init__(self, h, since=0.0, include_sentinel=False):
        super().__init__(h, "resource.journal", since=since, include_sentinel=include_sentinel)

    def process_response(self, resp):
        return [ResourceJournalEvent(event, resp.get("R")) for event in resp["events"]]

    def create_sentinel(self):
        return ResourceJournalEvent({"timestamp": 0.0, "name": "sentinel"})
