# SPDX-License-Identifier: LGPL-3.0-or-later
"""Runs as jobs of a Flux instance: ``--parallel=flux``.

`runs` writes the input and collects the results; `submit`, under ``flux python`` on the instance's bindings, submits a job per run,
again if its node is lost; `program` makes one run, in such a job. They share a directory: ``call.json`` is the input of `submit`;
``case-N`` is a workload. Each run has ``N.task`` and ``N.progress``, each of its jobs ``N.TRY.result``, and its output ``N.TRY.out``
and ``N.TRY.err``.
"""
