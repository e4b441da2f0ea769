# SPDX-License-Identifier: LGPL-3.0-or-later
"""Site policy from configuration tables: limits, licences, sharing of nodes and others.

Each feature is a `table_rule.TableRule`, an `AdmissionRule` in its own file, enabled by its own
table. Without the table it is not among a scheduler's rules, and costs nothing.
"""

from __future__ import annotations

from flux.scheduler.site_policy.amounts import AmountRule
from flux.scheduler.site_policy.budgets import BudgetRule
from flux.scheduler.site_policy.fairshare import FairShareRule
from flux.scheduler.site_policy.licenses import LicenseRule
from flux.scheduler.site_policy.limits import LimitRule
from flux.scheduler.site_policy.placement import PlacementRule
from flux.scheduler.site_policy.preemption.rule import PreemptionRule
from flux.scheduler.site_policy.sharing import SharingRule
from flux.scheduler.site_policy.table_rule import TableRule

#: The rules of this package, in the order of checks, after the reservations. The first one that
#: keeps a job from starting gives the reason shown to its user.
RULES: tuple[type[TableRule], ...] = (
    LimitRule,
    BudgetRule,
    LicenseRule,
    SharingRule,
    PreemptionRule,
    PlacementRule,
    FairShareRule,
    AmountRule,
)
