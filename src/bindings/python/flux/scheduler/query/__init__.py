# SPDX-License-Identifier: LGPL-3.0-or-later
"""The scheduler's answers to queries: reasons, expected starts, free windows, the plan.

A query changes nothing, and hardly delays a pass:

- ``sched.when`` is answered by a copy of the scheduler, run ahead in virtual time
  (`flux.scheduler.projection`); other answers come from the pool and from a copy of the plan that
  is at most a second old (`source.QuerySource.plan`), with the time of that copy.
- Long answers are computed in steps of a millisecond, interleaved with the scheduler's work, one
  query after another (`answering.Answering`). A long list is encoded entry by entry.

Compatibility: scripts read answers, which may get new keys, but no key may change its meaning.
Everything needed from the scheduler is in ``source``; nothing is changed. A guest learns nothing
about others' jobs (`answering.Caller`).

Times are seconds since the epoch, or None if unknown.
"""
