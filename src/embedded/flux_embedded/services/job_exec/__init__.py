# SPDX-License-Identifier: LGPL-3.0-or-later
"""Execution of jobs: service ``job-exec`` (RFC 32, RFC 50).

`service` has the methods; `mock` pretends to run a job, `local` runs its command in processes of this
machine, laid out by `layout`.
"""
