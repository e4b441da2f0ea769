# SPDX-License-Identifier: LGPL-3.0-or-later
"""What preemption has done since the scheduler was loaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flux.scheduler.site_policy.preemption.record import Preemption, Victim

#: Why a job was ended for another that did not start in its place.
CAUSES = {
    "gone": "the job that was to start was canceled, held or withdrawn",
    "node": "a node that was kept for it went down or was drained",
    "refused": "the job manager would not end another victim",
    "rule": "a limit or licence kept the job from starting when its nodes were free",
    "configuration": "the table was removed",
}


class ClassCounts:
    """Counts of one class.

    Attributes:
        victims (int): jobs that were ended
        node_hours (float): that were lost with them
        useless (dict): how many of them were ended for nothing, by cause
        logged (int): jobs that would have been ended, with mode="log"
        borrowing (int): jobs that started in time promised to others
    """

    __slots__ = ("borrowing", "logged", "node_hours", "useless", "victims")

    def __init__(self) -> None:
        self.victims = 0
        self.node_hours = 0.0
        self.useless: dict[str, int] = {}
        self.logged = 0
        self.borrowing = 0


class PreemptionCounts:
    """Counts by class.

    Attributes:
        takers (int): jobs that started where others were ended for them
    """

    def __init__(self) -> None:
        self.takers = 0
        self._classes: dict[str, ClassCounts] = {}

    def _of(self, cls: str) -> ClassCounts:
        return self._classes.setdefault(cls, ClassCounts())

    def ended(self, victim: Victim, now: float) -> None:
        """A job was ended."""
        counts = self._of(victim.cls)
        counts.victims += 1
        counts.node_hours += victim.node_hours(now)

    def only_logged(self, victims: Iterable[Victim]) -> None:
        """Jobs would have been ended."""
        for victim in victims:
            self._of(victim.cls).logged += 1

    def borrows(self, victim: Victim) -> None:
        """A job has started in time that is promised to another."""
        self._of(victim.cls).borrowing += 1

    def served(self, preemption: Preemption) -> None:
        """The job for whom others were ended has started."""
        if preemption.ended:
            self.takers += 1

    def useless(self, preemption: Preemption, cause: str) -> None:
        """It has not, for a cause of `CAUSES`."""
        self.ended_uselessly([preemption.victims[jobid] for jobid in preemption.ended], cause)

    def ended_uselessly(self, victims: Iterable[Victim], cause: str) -> None:
        """Jobs were ended for one that has not started, for a cause of `CAUSES`."""
        for victim in victims:
            by_cause = self._of(victim.cls).useless
            by_cause[cause] = by_cause.get(cause, 0) + 1

    def by_class(self) -> Iterator[dict[str, Any]]:
        """An object for each class of which a job was ended, or would have been."""
        for name, counts in sorted(self._classes.items()):
            yield {
                "class": name,
                "victims": counts.victims,
                "node_hours": counts.node_hours,
                "useless": sum(counts.useless.values()),
                "useless_by": dict(counts.useless),
                "logged": counts.logged,
                "borrowing": counts.borrowing,
            }
