# SPDX-License-Identifier: LGPL-3.0-or-later
"""The list of jobs: service ``job-list`` (RFC 43).

`service` has the methods, `attributes` those of a job, `filter` the constraints of a query.
"""
