# SPDX-License-Identifier: LGPL-3.0-or-later
"""The embedded instance: one process with all services that a Flux scheduler talks to, on `flux_engine`.

`broker` loads modules and starts an instance; `services` are those services (kvs, resource, job manager, ...), which
communicate by messages; job-list and job-info read the job manager's jobs and the KVS; `cmd` is the ``flux`` command.
"""
