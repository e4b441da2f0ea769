# SPDX-License-Identifier: LGPL-3.0-or-later
"""The embedded instance: one process with all services that a Flux scheduler talks to, on `flux_engine`.

`broker` loads modules and starts an instance; `services` are those services (kvs, resource, job manager, ...), which
communicate by messages only; `cmd` is the ``flux`` command.
"""
