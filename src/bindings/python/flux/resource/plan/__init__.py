# SPDX-License-Identifier: LGPL-3.0-or-later
"""Plans: which jobs start when, as running jobs end.

Which file to open:

- ``plan.py``: what a plan is asked, and the theory. Start here.
- ``strategy.py``: the interface of the two ways to keep promises, ``counted_strategy.py`` and
  ``bound_strategy.py``. ``promise.py``: what they keep.
- ``counted_profile.py``: availability as a number of units over time. ``count_timeline.py``: such
  numbers.
- ``availability.py``: the definition of room on ranks over time, and of when promises that are bound to
  them can be kept. ``compiled_availability.py``: the same in C (``_flux_plan/availability.c``), where
  that was built; else ``plain_availability.py`` runs the definition.
- ``room_counts.py``: for how many nodes or slots of a request there is room now.
- ``tokens.py``: what is on no rank, such as licences. ``claims.py``: who may not be on a rank with whom.
- ``believed_ends.py``: a pool for a plan of a scheduler's own beliefs of ends.
- ``promise_moves.py``: how counted promises move to earlier times. ``compiled.py``: these moves and the timelines of numbers in C
  (``_flux_plan``), where that was built.
- ``start_bounds.py``: what earlier searches tell about later ones.

What others rely on: ``Plan``, whole. It uses nothing of a pool but the view that
``ResourcePoolImplementation`` describes, so that it works on the pools of sites; that must stay so.
All other modules may be changed freely, as long as no job starts at another time:
``t/python/resource`` compares plans with one that tries all ways, and
``t/python/simulate/test_schedules.py`` with recorded schedules. A change that makes them slower
shows in ``t/bench/pool`` and ``t/bench/sched``.
"""

from flux.resource.plan.plan import Plan

__all__ = ("Plan",)
