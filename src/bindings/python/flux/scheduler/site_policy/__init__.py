# SPDX-License-Identifier: LGPL-3.0-or-later
"""Site policy from tables of the configuration: limits, licences, sharing of nodes and so on.

Each feature is a `table_rule.TableRule`, an `AdmissionRule` in a file of its own that its own table
switches on. Without the table it is not among a scheduler's rules, so it costs nothing.

- `table_rule`: the base of these rules;
- `in_force`: the rules whose tables exist, updated when the configuration is reloaded;
- `tables`: the one reader of the tables; `fields`: helpers to read a table's keys;
- `limits`, `limit`: limits on the resources that jobs hold at a time; `counts`: the quantities that
  can be limited; `holdings`: the resources that jobs hold, also on ranks that have left the
  instance;
- `budgets`: limits on the resources that jobs use in a period; `scope`: the jobs that a limit or a
  budget is for;
- `amounts`: memory and the like on nodes, counted by the pool;
- `licenses`: counts of things that are on no node; `elsewhere`: reads the numbers used by others;
- `sharing`: which jobs may share a node;
- `placement`: jobs in one rack, or in as few as possible;
- `queue_names`: the queues that a name covers: a parent covers its virtual queues;
- `preemption`: ends running jobs of a low class for waiting ones;
- `fairshare`: orders jobs of equal priority by their users' past use, which `usage` counts.
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

#: The rules of this package, in the order in which they are asked, after the reservations: limit,
#: budget, licence, sharing, preemption, placement, fair share. The first that keeps a job from
#: starting gives the reason that its user sees.
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
