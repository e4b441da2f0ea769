# SPDX-License-Identifier: LGPL-3.0-or-later
"""Classes of jobs that may be preempted: entries of the table ``[preemption]``, and the class of a
job."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from flux.scheduler.site_policy.fields import Fields
from flux.scheduler.times import seconds_of

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

#: Values of ``mode=``.
MODES = ("cancel", "log")


class PreemptionClass(NamedTuple):
    """A class of jobs that may be preempted: an entry of the table."""

    name: str
    # jobs of this class give way to jobs of a higher rank, and preempt those of a lower rank
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
    # whether its jobs may start into time promised to a job of a higher rank, and are ended before
    # it
    into_promises: bool = False


def read_class(key: str, value: Any) -> PreemptionClass:
    """Parse an entry ``[preemption.NAME]``. Raises ValueError if the entry is invalid; the text
    begins with the key."""
    fields = Fields(value)
    rank = fields.whole("rank", 0)
    queues = fields.names("queues")
    attribute = fields.flag("attribute")
    if not queues and not attribute:
        raise ValueError("queues is missing: expected a list of names, or attribute=true")
    most = fields.table("max")
    jobs = node_hours = None
    if most is not None:
        jobs = most.whole("jobs", least=1)
        node_hours = most.number("node-hours")
        most.end()
    read = PreemptionClass(
        name=key,
        rank=rank or 0,
        queues=queues,
        attribute=attribute,
        after=fields.seconds("after", 0.0) or 0.0,
        grace=fields.seconds("grace", 0.0) or 0.0,
        signal=_signal_number(fields.text("signal")),
        wait=fields.seconds("wait", 0.0) or 0.0,
        max_jobs=inf if jobs is None else jobs,
        max_node_hours=inf if node_hours is None else node_hours,
        log_only=fields.choice("mode", MODES, "cancel") == "log",
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


def kill_timeout_of(config: dict[str, Any]) -> float:
    """Return the seconds between SIGTERM and SIGKILL for the tasks of a job
    (``exec.kill-timeout``)."""
    table = config.get("exec")
    seconds = seconds_of(table.get("kill-timeout") if isinstance(table, dict) else None)
    return DEFAULT_KILL_TIMEOUT_S if seconds is None else seconds


#: Default of ``exec.kill-timeout``.
DEFAULT_KILL_TIMEOUT_S = 5.0


class PreemptionTerms(NamedTuple):
    """How a job preempts and is preempted."""

    cls: PreemptionClass | None  # its class; None: it has none, and no job preempts it
    rank: float  # rank to compare jobs by
    after: float  # seconds that it runs undisturbed
    queue: str | None  # its queue, or None


class Classes:
    """The classes in force."""

    def __init__(self, names: QueueNames) -> None:
        self.entries: dict[str, PreemptionClass] = {}  # name -> class
        self._names = names

    def of_queue(self, queue: str | None) -> PreemptionClass | None:
        """Return the class of a queue's jobs, or None. The queue's own name takes precedence over
        its parent's; if two classes have the same queue, the first by name counts."""
        found = None
        for _, one in sorted(self.entries.items()):
            if queue is not None and queue in one.queues:
                return one
            if found is None and self._names.any_covers(one.queues, queue):
                found = one
        return found

    def terms(self, attributes: SystemAttributes) -> PreemptionTerms:
        """Return the terms of a job, by its system attributes.  O(classes)."""
        queue = attributes.queue
        if attributes.reservation is not None:
            return PreemptionTerms(None, NEITHER, inf, queue)
        own, offered = self.of_queue(queue), _seconds(attributes.get(OFFER))
        if own is not None:
            after = own.after if offered is None else min(own.after, offered)
            return PreemptionTerms(own, own.rank, after, queue)
        offers = [one for _, one in sorted(self.entries.items()) if one.attribute]
        if offers and offered is not None:
            # It consents from that time on, not before.
            return PreemptionTerms(offers[0], offers[0].rank, max(offers[0].after, offered), queue)
        return PreemptionTerms(None, HIGHEST, inf, queue)

    def may_take(self, terms: PreemptionTerms) -> bool:
        """Whether such a job may preempt some class."""
        lowest = min([one.rank for one in self.entries.values()], default=HIGHEST)
        return terms.rank > lowest

    def grace(self, names: Iterable[str]) -> float:
        """Return the seconds between the warning and the end of jobs of some classes: the
        maximum."""
        entries = self.entries
        return max([entries[name].grace for name in names if name in entries], default=0.0)


def _seconds(value: Any) -> float | None:
    """Parse a user's ``preemptible-after``; None if it is not a number of seconds: it is then
    ignored, so that a typing error ends no job."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < inf:
        return None
    return float(value)
