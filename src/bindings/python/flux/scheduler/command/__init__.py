# SPDX-License-Identifier: LGPL-3.0-or-later
"""The command ``flux sched``: sends requests to the scheduler and prints the answers.

======================  =========================================================================
``cli.py``              the command line: a class per subcommand, and their table `COMMANDS`
``subcommand.py``       the base class of subcommands, and the connection to the scheduler
``explain.py``          ``flux sched explain``, also for jobs not sent to the scheduler yet
``reserve.py``          ``flux sched reserve``, ``unreserve`` and ``reservations``
``top.py``              the live view of ``flux sched top``
``plan_chart.py``       the chart of ``flux sched plan``, as text and as SVG
``topology.py``         ``flux sched topology``
``prometheus.py``       the metrics of ``flux sched stats --prometheus``
``jobspec_options.py``  options that describe a job, as in ``flux submit``
``formatting.py``       durations, times and tables as text
``new_file.py``         atomic replacement of a file
======================  =========================================================================

The command computes nothing on jobs and resources: answers come from `flux.scheduler.query` and
`flux.scheduler.reservations`, which run in the scheduler, or other services of the instance. Nothing here is public. Users rely on the
options, on ``--json``, which prints the answers unchanged, and on the names of the metrics;
doc/man/flux-sched.rst describes them. A new subcommand is a class in ``cli.py``, a line in
`COMMANDS`, and a paragraph in that page.
"""
