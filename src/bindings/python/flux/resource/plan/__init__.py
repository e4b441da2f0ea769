# SPDX-License-Identifier: LGPL-3.0-or-later
"""Plans: future starts of jobs, as running jobs end.

Files:

- ``plan.py``: the interface of a plan, and the theory. Start here.
- ``counted_strategy.py`` and ``bound_strategy.py``: the two ways to keep promises; the latter has the
  pool's jobs and requests in terms of availability. ``strategy.py``: their base class.
- ``timeline.py``: numbers of free units over time, and moves of promises in them to earlier times.
- ``availability.py``: the definition of room on ranks over time, and of whether bound promises can
  be kept. ``plain_availability.py``: it, with numbered uses.
- ``compiled.py``: both in C (``_flux_plan``), used if built.
- ``tokens.py``: resources on no rank, such as licences. ``claims.py``: ranks that some jobs may not
  share.

The public interface is ``Plan``, whole. It uses only the view of a pool described in
``ResourcePoolImplementation``, so that it works on a site's pools; this must stay so. All other
modules may change, as long as no job starts at another time: ``t/python/resource`` compares plans
with an exhaustive search, ``t/python/simulate/test_schedules.py`` with recorded schedules.
``t/bench/pool`` and ``t/bench/sched`` measure them.
"""

from flux.resource.plan.plan import Plan

__all__ = ("Plan",)
