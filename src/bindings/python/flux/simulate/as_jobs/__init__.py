# SPDX-License-Identifier: LGPL-3.0-or-later
"""Runs as jobs of a Flux instance: ``--parallel=flux``.

- `runs`: in the command; writes what the runs need, and collects what they make
- `submit`: under ``flux python``, on the bindings of the instance; submits a job for each run, again if its node is lost
- `program`: in a job; makes one run

They meet in a directory: ``call.json``, what `submit` needs to know; ``case-N``, a workload; for each run ``N.task`` and ``N.progress``;
and for each of its jobs ``N.TRY.result``, and ``N.TRY.out`` and ``N.TRY.err``, what it printed.
"""
