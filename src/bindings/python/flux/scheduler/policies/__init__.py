# SPDX-License-Identifier: LGPL-3.0-or-later
"""The policies that come with the library, to load, to read and to derive from.

`Fifo` (``fifo``)
    Jobs start strictly in order.
`Simple` (``simple``)
    The same, under the name that Flux loads by default.
`Backfill` (``backfill``)
    Jobs may start ahead of others if they delay no promised start.

The modules ``sched-fifo``, ``sched-simple`` and ``sched-backfill`` load them. A site's own is a
file with a class derived from one of them, and ``mod_main``::

    from flux.scheduler.policies import Backfill

    class ShortestFirst(Backfill):
        def order(self, job):
            return (-job.priority, job.resource_request.duration)

    def mod_main(h, *args):
        ShortestFirst(h, *args).run()

Read ``fifo`` first: it is one method. ``backfill`` has the options. Its
`flux.scheduler.decision.Decision` is one of three, each in a file of its own: ``in_order``, one
pass, job by job; ``by_rank``, with promises to heads; ``by_latest_start``, with a latest start for
every job, kept in ``latest_starts``. Their common base is in ``backfilling``, with the record of promises.
`flux.scheduler.walk` finds the jobs that need no examination, `flux.resource.plan` the times at
which promises fit. The formulas of ranks are in ``ranks``.

Anything here may be changed, as long as every start in the recorded schedules stays as the
definitions of EASY and conservative backfill have it (``t/python/simulate``,
``doc/reference/schedules``). Nothing outside this package depends on its contents; code that two
policies need goes into `flux.scheduler.policy`.
"""

from flux.scheduler.policies.backfill import Backfill
from flux.scheduler.policies.fifo import Fifo
from flux.scheduler.policies.simple import Simple

__all__ = ["Backfill", "Fifo", "Simple"]
