# SPDX-License-Identifier: LGPL-3.0-or-later
"""What a site enforces by tables of its configuration: limits, licences, sharing of nodes and the
like.

Each feature is an `AdmissionRule` of its own in a file of its own, a `table_rule.TableRule`, and is
switched on by its own table. Without the table it is not among the rules that a scheduler asks, so
it costs nothing.

- `table_rule` is the base of these rules: what one has to bring;
- `in_force` has the rules whose tables are there, and changes them when the configuration is loaded
  anew;
- `tables` is the one reader of the tables, `fields` helps to read what is in one;
- `limits` with `limit` are limits on what jobs hold at a time; `counts` is what can be limited,
  `holdings` what jobs hold, also where ranks have left the instance;
- `budgets` are limits on what jobs use in a period; `scope` says whose jobs a limit or a budget is for;
- `amounts` has the pool count memory and the like on nodes;
- `licenses` are counts of what is on no node, `elsewhere` reads how many are used by others;
- `sharing` says who may be on a node together;
- `placement` puts jobs into one rack, or into as few as can be;
- `queue_names` knows which queues a name covers: a parent covers its virtual queues;
- `preemption` ends running jobs of a low class for waiting ones;
- `fairshare` orders jobs of equal priority by what their users have used, which `usage` counts.
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
#: budget, licence, sharing, preemption, placement, fair share. The first that keeps a job from starting is the reason
#: that its user is told.
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
