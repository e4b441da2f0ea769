"""Messages, as handlers and watchers receive them."""

from flux_embedded.kernel.message import Message
from flux_embedded.kernel.watchers import MessageWatcher

__all__ = ["Message", "MessageWatcher"]
