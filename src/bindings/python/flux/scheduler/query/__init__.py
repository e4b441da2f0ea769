# SPDX-License-Identifier: LGPL-3.0-or-later
"""The scheduler's answers to questions: why, when, what could start now, what is planned.

A question changes nothing, and costs a pass next to nothing:

- ``sched.when`` is answered by a copy of the scheduler that is played forward
  (`flux.scheduler.projection`); other answers come from the pool and from a copy of the plan that is at
  most a second old (`plan_snapshot.PlanSnapshot`); each says when that copy was made.
- Long answers are computed a millisecond at a time, between which the scheduler does its work, and
  one question after the other (`answering.Answering`). A long list is encoded entry by entry.

Which file to open
==================

``service``               `service.QueryService`: one method for each of ``sched.explain``, ``sched.when``,
                          ``sched.windows``, ``sched.plan`` and ``sched.stats``. Each is a generator
                          that yields where it may be interrupted, and returns the answer
``pending_reason``        why one job is pending, with numbers
``plan_snapshot``         the copy of the plan
``ingest``                the additions of job-ingest to a jobspec
``answering``             the caller, and answers in steps
``source``                all that is used of the scheduler

Compatibility: an answer may get new keys, but none may change its meaning: scripts read them.
The needs of an answer go into ``source``; nothing else of the scheduler is used
here, and nothing is changed. A guest is told nothing about the jobs of others (`answering.Caller`).

Times are seconds since the epoch; None stands for a time that is not known.
"""
