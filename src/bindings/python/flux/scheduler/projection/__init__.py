# SPDX-License-Identifier: LGPL-3.0-or-later
"""Projections: the scheduler's own decisions on a copy of its state, played forward.

``sched.when``, estimates and the reasons built on them all ask the same question: what happens
next, if every job takes its whole limit and no other job comes? The answer here is the scheduler
itself. The process is forked, which copies the state of the pool, the policy and every rule, those
of a site included; in the copy time is virtual and jobs end at their limits; and the same code
decides. So an answer and the start that follows cannot disagree.

Which file to open
==================

``virtual_host``  the host of the copy: virtual time, and the answers of Flux's services
``player``        ends running jobs, submits a newcomer, and notes the starts
``fork``          the copy as a child process, and its answers in the parent
``run_shares``    shares of their limits that jobs took, and run times drawn from them
``odds``          the outcome of plays with drawn run times, and its correction

A fork takes about 25 microseconds for each megabyte of the scheduler (10 ms at 400 MB) and is made
between two turns of the reactor; the play runs beside the scheduler, on another core. OpenPBS
copies its universe in memory for the same purpose (``simulate.c``); Redis forks to save its data.
"""
