# SPDX-License-Identifier: LGPL-3.0-or-later
"""The policies that come with the library, to load, to read and to derive from.

`Fifo` (``fifo``)
    Jobs start strictly in order.
`Simple` (``simple``)
    The same, under the name that Flux loads by default.
`Backfill` (``backfill``)
    Jobs go ahead if they delay nobody who was promised a start.

The modules ``sched-fifo``, ``sched-simple`` and ``sched-backfill`` load them. A site's own is a
file with a class derived from one of them, and ``mod_main``::

    from flux.scheduler.policies import Backfill

    class ShortestFirst(Backfill):
        def order(self, job):
            return (-job.priority, job.resource_request.duration)

    def mod_main(h, *args):
        ShortestFirst(h, *args).run()

Read ``fifo`` first: it is one method. ``backfill`` has the options. How it decides is a
`flux.scheduler.decision.Decision` in a file of its own: ``in_order``, one pass, job by job;
``by_rank``, with promises to heads; ``by_latest_start``, with a latest start for every job. What
they have in common is in ``backfilling``, with the book of who has which promise. Which jobs need no
look is found by `flux.scheduler.walk`, and where a promise fits by `flux.resource.plan`. The formulas of ranks are in ``ranks``.

What may be touched: anything, as long as every start in the recorded schedules stays what the
definitions of EASY and conservative backfill say (``t/python/simulate``,
``doc/reference/schedules``). Nothing outside this package depends on what is in it; what two
policies need goes into `flux.scheduler.policy`.
"""

from flux.scheduler.policies.backfill import Backfill
from flux.scheduler.policies.fifo import Fifo
from flux.scheduler.policies.simple import Simple

__all__ = ["Backfill", "Fifo", "Simple"]
