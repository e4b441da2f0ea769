"""Base classes."""

from flux.abc.journal import JournalConsumerBase, JournalEventBase

__all__ = ["JournalConsumerBase", "JournalEventBase"]
