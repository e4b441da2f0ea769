"""Messages, as handlers and watchers receive them."""

from flux_embedded.kernel.message import Message

__all__ = ["Message"]
