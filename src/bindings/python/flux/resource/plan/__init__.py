# SPDX-License-Identifier: LGPL-3.0-or-later
"""Plans: which jobs start when, as running jobs end.

Which file to open:

- ``plan.py``: the interface of a plan, and the theory. Start here.
- ``strategies.py``: the switch between the two ways to keep promises. ``strategy.py``: their
  interface; ``counted_strategy.py`` and
  ``bound_strategy.py``. ``promise.py``: the promises.
- ``counted_profile.py``: availability as a number of units over time. ``count_timeline.py``: such
  numbers.
- ``room_on_ranks.py``: the availability of a pool's ranks, and the demands of requests on them.
- ``availability.py``: the definition of room on ranks over time, and of when promises that are bound to
  them can be kept. ``compiled_availability.py``: the same in C (``_flux_plan/availability.c``), where
  that was built; else ``plain_availability.py`` runs the definition.
- ``room_counts.py``: the number of nodes or slots of a request with room now.
- ``tokens.py``: resources on no rank, such as licences. ``claims.py``: ranks that some jobs may not
  share.
- ``believed_ends.py``: a pool with the job ends that a scheduler believes in.
- ``promise_moves.py``: how counted promises move to earlier times. ``compiled.py``: these moves and the timelines of numbers in C
  (``_flux_plan``), where that was built.
- ``start_bounds.py``: bounds of starts, learned from earlier searches.

The public interface is ``Plan``, whole. It uses only the view of a pool that
``ResourcePoolImplementation`` describes, so that it works on the pools of sites; that must stay so.
All other modules may be changed freely, as long as no job starts at another time:
``t/python/resource`` compares plans with an exhaustive one, and
``t/python/simulate/test_schedules.py`` with recorded schedules. A change that makes them slower
shows in ``t/bench/pool`` and ``t/bench/sched``.
"""

from flux.resource.plan.plan import Plan

__all__ = ("Plan",)
