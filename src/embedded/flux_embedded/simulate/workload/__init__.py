"""Where the jobs of a simulation come from: readers of traces, and models.

A reader yields `Record` objects and notes down what it left out or altered; `build` makes a
`Workload` of them.
"""
