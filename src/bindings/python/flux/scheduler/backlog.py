"""`flux.scheduler.queue.Backlog` under the name that the guide first gave it."""

from flux.scheduler.queue import Backlog

__all__ = ["Backlog"]
