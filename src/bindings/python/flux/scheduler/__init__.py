# SPDX-License-Identifier: LGPL-3.0-or-later
"""Schedulers for Flux in Python: override `Scheduler.schedule`, and the protocols are taken care
of.

`Scheduler` is the base class of a scheduler module (RFC 27, RFC 28). An `AllocRequest` is one
request for resources, answered exactly once; a `PendingJob` waits for its answer in
``Scheduler._queue``.

**Which file to open**, to follow a start from the message to the answer:

``base``
    `Scheduler`, whole: the messages, the methods to override, the start of the module
``requests``
    the table of requests and of the states of jobs
``queue``
    the order in which jobs wait; `queue.Backlog` for policies that look past the head
``passes``
    when `Scheduler.schedule` and `Scheduler.forecast` are called
``policy``, ``policies``
    `policy.PolicyScheduler`: starts, and the answers to ``flux sched``; and the policies (a package)
``decision``, ``forecasts``
    the two other parts of a policy's scheduler: the decision, and the annotations for users
``host``
    time, timers, the log, and R in the KVS
``hello``
    the start: the resources, and the jobs that run already

``definition``, with ``flux.resource.plan.availability``
    how it is decided who starts, in plain Python that nothing runs but tests: what all this has to
    agree with

Beside that:

``admission``
    admission rules, which may keep a job from starting although it fits
``rule_host``
    the interface of a scheduler for the rules of the library
``attributes``
    the system attributes of a jobspec; nothing else reads them
``states``
    the states of requests, jobs and windows, as tables
``walk``
    which jobs of a backlog a pass examines, and in which order; jobs in the order of the queue, however
    many, and for which groups of them there is room
``checkpoint``, ``history``, ``run_time_service``
    state kept over a reload; run times of jobs, and where they come from
``messages``, ``options``, ``pools``
    reading messages, module arguments, the class of the pool, and its answers about requests
``odds_service``
    likely starts of pending jobs: their calibration and their answers
``misspelled``
    methods of a policy that are never called
``projection``
    the future: the scheduler itself, forked and played forward (a package)
``query``, ``command``
    the answers for ``flux sched``, and the command itself (packages)
``reservations``
    the first admission rule (a package)
``wait_limits``
    the second: jobs that are given up when they would start too late
``site_policy``
    the rules that tables of the configuration switch on: limits, licences, sharing, preemption (a
    package)
``testing``
    for tests of a site's policy (a package)

**Extension.** A new reason not to start a job is an admission rule in a file of its own;
another way to choose jobs is a policy. Neither takes a change here. ``requests``, ``queue``,
``passes`` and ``host`` know of no policy, rule or reservation; ``policy`` knows the rules that it
makes. Messages are checked in ``messages``, and an exception of an override ends
in `host.ErrorReporter`: on a real broker a module that fails takes the instance with it.
"""

from flux.scheduler.base import Scheduler
from flux.scheduler.pools import _pool_class_from_uri, _pool_class_from_writer  # noqa: F401  (named in the guide)
from flux.scheduler.requests import PendingJob
from flux.scheduler.requests import AllocRequest
from flux.scheduler.site_code import import_beside

__all__ = ["AllocRequest", "PendingJob", "Scheduler", "import_beside"]
