# SPDX-License-Identifier: LGPL-3.0-or-later
"""Site policy from configuration tables: limits, licences, sharing of nodes and others.

Each feature is a `table_rule.TableRule`, an `AdmissionRule` in its own file, enabled by its own
table. Without the table it is not among a scheduler's rules, and costs nothing.

- `table_rule`: the base class of these rules;
- `in_force`: the rules with tables, updated when the configuration is reloaded;
- `tables`: the single reader of tables, and queue names, of which a parent includes its virtual
  queues; `fields`: helpers to read a table's keys;
- `counting`: counts the resources of jobs: the base of `limits`, on resources held at a time; `budgets`, on
  resources used in a period; `licenses`, which are on no node; and `fairshare`;
- `holdings`: the resources held by jobs, and by none;
- `amounts`: memory and other amounts on nodes, counted by the pool;
- `sharing`: jobs that may share a node;
- `placement`: jobs in one rack, or in the minimum number of racks;
- `preemption`: ends running jobs of a low class for waiting ones;
- `fairshare`: orders jobs of equal priority by their users' past use, counted by `usage`.
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
