"""Python's cyclic garbage collector, in a process that is an instance."""

import gc


def settle():
    """Let the collector run seldom, and never visit the objects that exist already.

    An instance keeps every job, and its services make no cycles as they go. With the default thresholds
    the collector walks all of it repeatedly: with 20,000 jobs that is half the time of a job (600 us
    against 300 us). Affects the whole process: for ``flux start`` and benchmarks, not for a library.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 1000)
