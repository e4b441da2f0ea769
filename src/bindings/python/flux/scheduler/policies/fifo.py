# SPDX-License-Identifier: LGPL-3.0-or-later
"""First come, first served: jobs start in strict order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flux.scheduler.policy import PolicyScheduler


class Fifo(PolicyScheduler):
    """The job with the highest priority starts next; among equals, the one submitted first.

    While it does not fit, no job starts; with ``order=queue``, none that could use some of the same
    nodes: Flux queues on separate nodes never block each other, and of queues that share nodes the
    job with the higher priority goes first. Pending jobs are annotated with an estimated start and
    a reason.

    Args:
        h: the Flux handle
        *args (str): module arguments: ``order=strict|queue`` (default strict), ``reason-depth=N``,
            and those of `Scheduler`; ``queue-depth`` is 8 by default, unlimited with
            ``order=queue``
    """

    queue_depth = 8

    def __init__(self, h: Any, *args: str) -> None:
        super().__init__(h, *args)
        self._take_order()

    def schedule(self) -> Iterator[None]:
        return self.start_in_order()

    def forecast(self) -> Iterator[float | None]:
        yield from self.reasons()
        yield from self.estimates()
