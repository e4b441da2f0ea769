# SPDX-License-Identifier: LGPL-3.0-or-later
"""The command ``flux sched``: sends requests to the scheduler and prints the answers.

The command computes nothing on jobs and resources: answers come from `flux.scheduler.query` and
`flux.scheduler.reservations`, which run in the scheduler, or other services of the instance. Nothing here is public. Users rely on the
options, on ``--json``, which prints the answers unchanged, and on the names of the metrics;
doc/man/flux-sched.rst describes them. A new subcommand is a class in ``cli.py``, a line in
`COMMANDS`, and a paragraph in that page.
"""
