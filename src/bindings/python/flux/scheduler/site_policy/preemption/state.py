# SPDX-License-Identifier: LGPL-3.0-or-later
"""What the parts of preemption know in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flux.scheduler.site_policy.preemption.classes import Classes
from flux.scheduler.site_policy.preemption.counts import PreemptionCounts
from flux.scheduler.site_policy.preemption.placeholders import Placeholders
from flux.scheduler.site_policy.preemption.record import Record
from flux.scheduler.site_policy.preemption.running import RunningJobs

if TYPE_CHECKING:
    from flux.scheduler.host import ErrorReporter
    from flux.scheduler.rule_host import RuleHost


class PreemptionState:
    """What the parts of preemption know in common.

    Args:
        host (RuleHost): the scheduler
        errors (ErrorReporter): where trouble is reported

    Attributes:
        classes (Classes): the classes in force
        running (RunningJobs): the jobs that run
        record (Record): what is under way
        placeholders (Placeholders): keeps resources for the job that others end for
        counts (PreemptionCounts): what was done so far
        host, errors: as given
    """

    def __init__(self, host: RuleHost, errors: ErrorReporter) -> None:
        self.host, self.errors = host, errors
        self.classes = Classes(host.queue_names)
        self.running = RunningJobs(host)
        self.record = Record(host)
        self.placeholders = Placeholders(host)
        self.counts = PreemptionCounts()
