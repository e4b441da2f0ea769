# SPDX-License-Identifier: LGPL-3.0-or-later
"""The policies of the library, to load, to read and to derive from.

`Fifo` (``fifo``)
    Jobs start in strict order.
`Simple` (``fifo``)
    The same, under the name of the scheduler that Flux loads by default.
`Backfill` (``backfill``)
    Jobs may start ahead of others if they delay no promised start.

The modules ``sched-fifo``, ``sched-simple`` and ``sched-backfill`` load them. A site's own policy
is a file with a class derived from one of them, and ``mod_main`` (``doc/guide/scheduler-policies``).

Read ``fifo`` first: it is one method. ``backfill`` has the options. Its
`flux.scheduler.decision.Decision` is one of three, each in its own file: ``backfilling``, one pass,
job by job, with the common base of all three and the record of promises; ``by_rank``, with promises
to heads; ``by_latest_start``, with a latest start for every job, stored in ``latest_starts``.
`flux.scheduler.walk` skips jobs that need no examination, `flux.resource.plan` finds the times at
which promises fit. ``ranks`` has the formulas of ranks.

Anything here may change, as long as every start in the recorded schedules agrees with the
definitions of EASY and conservative backfill (``t/python/simulate``, ``doc/reference/schedules``).
Nothing outside this package depends on its contents; code that two policies need goes into
`flux.scheduler.policy`.
"""

from flux.scheduler.policies.backfill import Backfill
from flux.scheduler.policies.fifo import Fifo
from flux.scheduler.policies.fifo import Simple

__all__ = ["Backfill", "Fifo", "Simple"]
