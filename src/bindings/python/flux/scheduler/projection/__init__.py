# SPDX-License-Identifier: LGPL-3.0-or-later
"""Projections: the scheduler's own decisions on a copy of its state, run ahead in virtual time.

``sched.when``, estimates and the reasons derived from them assume that all jobs run to their limits
and no other arrives. The scheduler itself computes the outcome. Its process is forked, which
copies the state of the pool, the policy and every rule, including a site's; in the copy time is
virtual and jobs end at their limits; and the same code decides. So a prediction and the actual
start cannot disagree.

A fork takes about 25 microseconds per megabyte of the scheduler (10 ms at 400 MB) and is made
between two reactor turns; the play runs on another core, in parallel with the scheduler. OpenPBS
copies its universe in memory for the same purpose (``simulate.c``); Redis forks to save its data.
"""
