# SPDX-License-Identifier: LGPL-3.0-or-later
"""First come, first served: `Fifo`, and `Simple`, the same under the name of the scheduler that Flux
loads by default, with hooks for Flux's own tests."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

from flux.scheduler.host import name_of
from flux.scheduler.policy import PolicyScheduler, reasons_and_estimates, take_order


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
            ``order=queue``, with a reservation, and once an admission rule has kept a job waiting
    """

    queue_depth = 8

    def __init__(self, h: Any, *args: str) -> None:
        super().__init__(h, *args)
        take_order(self)

    schedule = PolicyScheduler.start_in_order
    forecast = reasons_and_estimates


# Bits of the module's debug word (``flux module debug --setbit BIT sched-simple``).
DEBUG_FAIL_ALLOC = 1
DEBUG_ANNOTATE_REASON_PENDING = 2
DEBUG_EXPIRATION_UPDATE_DENY = 4


class Simple(Fifo):
    """`Fifo` with hooks for tests.

    Bits of the module's debug word:

    - 1: deny every request
    - 2: annotate pending jobs only with "insufficient resources" and the number of jobs ahead of
      them
    - 4: refuse to change the expiration of a job

    Args:
        h: the Flux handle
        *args (str): module arguments: those of `Fifo`, and ``test-hello-nopartial``: hello omits
            jobs that have returned part of their resources
    """

    schedule_when_empty = False  # alloc() below keeps jobs in the usual queue

    def __init__(self, h: Any, *args: str) -> None:
        super().__init__(h, *args)
        #: job id -> number of jobs ahead, as annotated
        self._annotated: dict[int, int] = {}
        if "test-hello-nopartial" in self._pending_args:
            self._pending_args.remove("test-hello-nopartial")
            self.hello_partial_ok = False

    def hello(self, jobid: int, priority: int, userid: int, t_submit: float, R: Any) -> None:
        self.log.debug(
            f"hello: id={name_of(jobid)} priority={priority} userid={userid} t_submit={t_submit:.1f}"
        )
        super().hello(jobid, priority, userid, t_submit, R)

    def alloc(
        self, request: Any, jobid: int, priority: int, userid: int, t_submit: float, jobspec: Any
    ) -> None:
        if self.debug_test(DEBUG_FAIL_ALLOC):
            request.deny("DEBUG_FAIL_ALLOC")
        else:
            super().alloc(request, jobid, priority, userid, t_submit, jobspec)

    def expiration(self, msg: Any, jobid: int, expiration: float) -> None:
        if self.debug_test(DEBUG_EXPIRATION_UPDATE_DENY):
            self.handle.respond_error(msg, errno.EINVAL, "Rejecting expiration update for testing")
        else:
            super().expiration(msg, jobid, expiration)

    def _answered(self, jobid: int, event: str) -> None:
        self._annotated.pop(jobid, None)
        super()._answered(jobid, event)

    def forecast(self) -> Iterator[float | None]:
        if self.debug_test(DEBUG_ANNOTATE_REASON_PENDING):
            yield from self.jobs_ahead()
        else:
            yield from super().forecast()

    def jobs_ahead(self) -> Iterator[None]:
        """Annotate each pending job with the number of jobs ahead of it."""
        for ahead, job in enumerate(self._backlog.in_order()):
            # A request that was withdrawn since the first step is not the one that came after it.
            if self._annotated.get(job.jobid) != ahead and not job.request.finalized:
                self._annotated[job.jobid] = ahead
                job.request.annotate(
                    {"sched": {"reason_pending": "insufficient resources", "jobs_ahead": ahead}}
                )
            yield
