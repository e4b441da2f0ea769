# SPDX-License-Identifier: LGPL-3.0-or-later
"""Schedulers for Flux in Python: override `Scheduler.schedule`; the library implements the
protocols.

`Scheduler` is the base class of a scheduler module (RFC 27, RFC 28). An `AllocRequest` is one
request for resources, answered exactly once; until then its `PendingJob` is in
``Scheduler._queue``.

**Files**, along the path of a start from the message to the answer:

``base``
    `Scheduler`: the messages, the methods to override, the start of the module
``requests``
    the table of requests and of the states of jobs
``queue``
    the order of pending jobs; `queue.Backlog` for policies that look past the head
``passes``
    when `Scheduler.schedule` and `Scheduler.forecast` are called
``policy``, ``policies``
    `policy.PolicyScheduler`: starts, and answers to ``flux sched``; the policies (a package)
``decision``, ``forecasts``
    the other two parts of a policy's scheduler: the decision, and annotations for users
``host``
    time, timers, the log, and R in the KVS
``hello``
    the start of the scheduler: resources and running jobs

``definition``, with ``flux.resource.plan.availability``
    the definition of each start, in plain Python that only tests run: all else here has to agree
    with it

Others:

``admission``
    admission rules, which may keep a job from starting although it fits
``rule_host``
    the interface of a scheduler to the library's rules
``attributes``
    the system attributes of a jobspec, read only here
``states``
    the states of requests, jobs and windows, as tables
``walk``
    the order in which a pass examines a backlog; jobs in queue order, at any length, and the groups
    of them for which there is room
``checkpoint``, ``history``
    state kept across reloads; run times of jobs
``messages``, ``options``, ``pools``
    reading of messages and answers with errors, module arguments and a site's files, selection of
    the pool's class, and the pool's answers on requests
``times``
    durations, wall-clock times and their recurrence, as users write and read them
``odds_service``
    likely starts of pending jobs: their calibration and their answers
``misspelled``
    mistakes in a site's classes: methods that are never called, names of the library that are taken
``projection``
    the future: the scheduler itself, forked and run ahead in virtual time (a package)
``query``, ``command``
    the answers for ``flux sched``, and the command itself (packages)
``reservations``
    the first admission rule (a package)
``wait_limits``
    the second: jobs given up because they would start too late
``site_policy``
    rules enabled by configuration tables: limits, licences, sharing, preemption (a package)
``testing``
    for tests of a site's policy (a package)

**Extension.** A new reason not to start a job is an admission rule in its own file; a new choice of
jobs is a policy. Neither changes files here. ``requests``, ``queue``, ``passes`` and ``host``
depend on no policy, rule or reservation; ``policy`` knows only the rules that it creates. Messages
are checked in ``messages``, and an exception of an override ends in `host.ErrorReporter`: on a real
broker a module that fails takes the instance down.
"""

from flux.scheduler.base import Scheduler
from flux.scheduler.pools import _pool_class_from_uri, _pool_class_from_writer  # noqa: F401  (named in the guide)
from flux.scheduler.requests import PendingJob
from flux.scheduler.requests import AllocRequest
from flux.scheduler.options import import_beside

__all__ = ["AllocRequest", "PendingJob", "Scheduler", "import_beside"]
