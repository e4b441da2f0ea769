# SPDX-License-Identifier: LGPL-3.0-or-later
"""The policies that come with the library, to load, to read and to derive from.

Fifo       (`flux.scheduler.policies.fifo`) jobs start strictly in order
Simple     (`flux.scheduler.policies.simple`) the same, under the name that Flux loads by default
Backfill   (`flux.scheduler.policies.backfill`) jobs go ahead if they delay nobody who was promised a start

The modules ``sched-fifo``, ``sched-simple`` and ``sched-backfill`` load them. A site's own is a file with a
class derived from one of them, and ``mod_main``::

    from flux.scheduler.policies import Backfill

    class ShortestFirst(Backfill):
        def order(self, job):
            return (-job.priority, job.resource_request.duration)

    def mod_main(h, *args):
        ShortestFirst(h, *args).run()

`flux.scheduler.policies.promise_book` has what Backfill keeps of its promises. Nothing outside this
package depends on what is in it.
"""

from flux.scheduler.policies.backfill import Backfill
from flux.scheduler.policies.fifo import Fifo
from flux.scheduler.policies.simple import Simple

__all__ = ["Backfill", "Fifo", "Simple"]
