# SPDX-License-Identifier: LGPL-3.0-or-later
"""Sources of jobs: readers of traces, and models.

A reader yields `Record` objects, and notes each job that it leaves out or alters; `build` makes a
`Workload` of them.
"""
