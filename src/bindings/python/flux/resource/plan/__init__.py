# SPDX-License-Identifier: LGPL-3.0-or-later
"""Plans: future starts of jobs, as running jobs end.

Files:

- ``plan.py``: the interface of a plan, and the theory. Start here.
- ``strategies.py``: the switch between the two ways to keep promises. ``strategy.py``: their
  interface; ``counted_strategy.py`` and
  ``bound_strategy.py``. ``promise.py``: the promises.
- ``counted_profile.py``: availability as numbers of units over time. ``count_timeline.py``: such
  numbers.
- ``room_on_ranks.py``: availability of a pool's ranks, and requests' demands on them.
- ``availability.py``: the definition of room on ranks over time, and of whether bound promises can
  be kept. ``compiled_availability.py``: the same in C (``_flux_plan/availability.c``), if built;
  otherwise ``plain_availability.py`` runs the definition.
- ``room_counts.py``: number of nodes or slots with room for a request now.
- ``tokens.py``: resources on no rank, such as licences. ``claims.py``: ranks that some jobs may not
  share.
- ``believed_ends.py``: a pool with a scheduler's believed ends of jobs.
- ``promise_moves.py``: moves of counted promises to earlier times. ``compiled.py``: these moves and
  the timelines in C (``_flux_plan``), if built.

The public interface is ``Plan``, whole. It uses only the view of a pool described in
``ResourcePoolImplementation``, so that it works on a site's pools; this must stay so. All other
modules may change, as long as no job starts at another time: ``t/python/resource`` compares plans
with an exhaustive search, ``t/python/simulate/test_schedules.py`` with recorded schedules.
``t/bench/pool`` and ``t/bench/sched`` measure them.
"""

from flux.resource.plan.plan import Plan

__all__ = ("Plan",)
