# SPDX-License-Identifier: LGPL-3.0-or-later
"""The embedded instance: one process that plays every part a Flux scheduler talks to, on `flux_engine`.

`broker` loads modules and starts an instance; `services` are the parts (kvs, resource, job manager, ...), which talk to one
another by message only; `cmd` is the ``flux`` command in front of it all.
"""
