"""Schedulers in Python: override `Scheduler.schedule`, and the protocols are taken care of.

Scheduler            base class of a scheduler module (RFC 27, RFC 28)
AllocRequest         one request for resources, answered exactly once
PendingJob           a job that waits for its answer, kept in ``Scheduler._queue``

`flux.scheduler.policy` has what the schedulers of this project share beyond that and what a
site's own may use too: stamping R, start time estimates, reasons why a job is pending.
"""

from flux.scheduler.base import Scheduler
from flux.scheduler.pools import _pool_class_from_uri, _pool_class_from_writer  # noqa: F401  (named in the guide)
from flux.scheduler.requests import PendingJob
from flux.scheduler.requests import AllocRequest

__all__ = ["AllocRequest", "PendingJob", "Scheduler"]
