# SPDX-License-Identifier: LGPL-3.0-or-later
"""Classes of jobs that may be preempted: entries of the table ``[preemption]``, and the class of a
job."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from flux.scheduler.site_policy.tables import Fields

if TYPE_CHECKING:
    from flux.scheduler.attributes import SystemAttributes
    from flux.scheduler.site_policy.tables import QueueNames

#: System attribute with which a job consents to preemption: seconds of run time after which it may
#: be preempted (RFC 14).
OFFER = "preemptible-after"

#: Rank of a job without a class: no job preempts it, and it may preempt every class.
HIGHEST = inf

#: Rank of a job that names a reservation: it neither preempts nor gives way.
NEITHER = -inf


class PreemptionClass(NamedTuple):
    """A class of jobs that may be preempted: an entry of the table. Its jobs give way to jobs of a
    higher rank."""

    name: str
    rank: int
    # queues whose jobs are in this class; a parent includes its virtual queues
    queues: tuple[str, ...]
    # whether jobs with ``preemptible-after`` are in it, unless their queue is in another class
    attribute: bool = False
    after: float = 0.0  # seconds that its jobs run undisturbed
    grace: float = 0.0  # seconds between the warning and the end
    signal: int = 0  # number of the signal that goes with the warning; 0: none
    wait: float = 0.0  # seconds that a job must have waited to preempt jobs of this class
    max_jobs: float = inf  # maximum number of jobs of this class ended for one job
    max_node_hours: float = inf  # maximum node-hours of this class lost for one job
    log_only: bool = False  # whether preemptions are only logged
    # whether its jobs may start into time promised to a job of a higher rank
    into_promises: bool = False


def read_class(key: str, value: Any) -> PreemptionClass:
    """Parse an entry ``[preemption.NAME]``. Raises ValueError if the entry is invalid; the text
    begins with the key."""
    fields = Fields(value)
    rank, queues = fields.whole("rank", 0), fields.names("queues")
    attribute = fields.flag("attribute")
    if not queues and not attribute:
        raise ValueError("queues is missing: expected a list of names, or attribute=true")
    most = fields.table("max") or Fields({})
    jobs, node_hours = most.whole("jobs", least=1), most.number("node-hours")
    most.end()
    read = PreemptionClass(
        key,
        rank or 0,
        queues,
        attribute,
        after=fields.seconds("after") or 0.0,
        grace=fields.seconds("grace") or 0.0,
        signal=_signal_number(fields.text("signal")),
        wait=fields.seconds("wait") or 0.0,
        max_jobs=inf if jobs is None else jobs,
        max_node_hours=inf if node_hours is None else node_hours,
        log_only=fields.choice("mode", ("cancel", "log"), "cancel") == "log",
        into_promises=fields.flag("into-promises"),
    )
    fields.end()
    return read


def _signal_number(name: str | None) -> int:
    """Return the number of a signal, such as ``SIGUSR1`` or ``USR1``; 0 for None. Raises ValueError
    if it is not a signal."""
    if name is None:
        return 0
    try:
        return int(signal.Signals["SIG" + name.upper().removeprefix("SIG")])
    except (AttributeError, KeyError):
        pass
    raise ValueError(f"signal={name!r}: expected the name of a signal such as 'SIGUSR1'")


class PreemptionTerms(NamedTuple):
    """How a job preempts and is preempted."""

    cls: PreemptionClass | None  # its class; None: it has none, and no job preempts it
    rank: float  # rank to compare jobs by
    after: float  # seconds that it runs undisturbed
    queue: str | None  # its queue, or None


#: The terms of a running job without a class.
WITHOUT_CLASS = PreemptionTerms(None, HIGHEST, inf, None)


class Classes:
    """The classes in force."""

    def __init__(self, names: QueueNames) -> None:
        self.entries: dict[str, PreemptionClass] = {}  # name -> class
        self._names = names

    def of_queue(self, queue: str | None) -> PreemptionClass | None:
        """Return the class of a queue's jobs, or None. The queue's own name takes precedence over
        its parent's; if two classes have the same queue, the first by name counts."""
        by_name = [one for _, one in sorted(self.entries.items())]
        own = [one for one in by_name if queue is not None and queue in one.queues]
        covering = (one for one in by_name if self._names.any_covers(one.queues, queue))
        return own[0] if own else next(covering, None)

    def terms(self, attributes: SystemAttributes) -> PreemptionTerms:
        """Return the terms of a job, by its system attributes.  O(classes)."""
        queue, offered = attributes.queue, attributes.get(OFFER)
        if type(offered) not in (int, float) or not 0 <= offered < inf:
            offered = None  # ignored, so that a typing error ends no job
        if attributes.reservation is not None:
            return PreemptionTerms(None, NEITHER, inf, queue)
        own = self.of_queue(queue)
        if own is not None:
            after = own.after if offered is None else min(own.after, float(offered))
            return PreemptionTerms(own, own.rank, after, queue)
        offers = [one for _, one in sorted(self.entries.items()) if one.attribute]
        if offers and offered is not None:
            # It consents from that time on, not before.
            after = max(offers[0].after, float(offered))
            return PreemptionTerms(offers[0], offers[0].rank, after, queue)
        return PreemptionTerms(None, HIGHEST, inf, queue)

    def may_take(self, terms: PreemptionTerms) -> bool:
        """Whether such a job may preempt some class."""
        return any(one.rank < terms.rank for one in self.entries.values())

    def grace(self, names: Iterable[str]) -> float:
        """Return the seconds between the warning and the end of jobs of some classes: the
        maximum."""
        entries = self.entries
        return max([entries[name].grace for name in names if name in entries], default=0.0)
