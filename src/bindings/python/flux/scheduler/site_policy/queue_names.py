# SPDX-License-Identifier: LGPL-3.0-or-later
"""Resolution of queue names with virtual queues (RFC 33)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class QueueNames:
    """The parents of virtual queues.

    A virtual queue is another queue for the resources of its parent. In a site's tables, such as a
    limit, a parent's name includes its virtual queues; a virtual queue's name, or one that is not
    configured, stands only for itself.
    """

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def read(self, config: dict[str, Any]) -> bool:
        """Read the parents from the configuration, ``queues.NAME.parent``. Return whether one has
        changed."""
        queues = config.get("queues")
        parents = {}
        for name, queue in queues.items() if isinstance(queues, dict) else ():
            parent = queue.get("parent") if isinstance(queue, dict) else None
            if isinstance(parent, str):
                parents[name] = parent
        changed = parents != self._parents
        self._parents = parents
        return changed

    def parent(self, queue: str | None) -> str | None:
        """Return the parent of a virtual queue, or None for other queues.  O(1)."""
        return None if queue is None else self._parents.get(queue)

    def covers(self, name: str, queue: str | None) -> bool:
        """Whether `name` includes a job's queue (None: it has none).  O(1)."""
        return queue is not None and (queue == name or self._parents.get(queue) == name)

    def any_covers(self, names: Iterable[str], queue: str | None) -> bool:
        """Whether one of some names includes a job's queue."""
        return any(self.covers(name, queue) for name in names)
