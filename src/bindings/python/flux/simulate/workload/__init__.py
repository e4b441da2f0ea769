# SPDX-License-Identifier: LGPL-3.0-or-later
"""Where the jobs of a simulation come from: readers of traces, and models.

A reader yields `Record` objects and notes down what it left out or altered; `build` makes a
`Workload` of them.
"""
