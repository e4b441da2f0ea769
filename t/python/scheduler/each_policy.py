# SPDX-License-Identifier: LGPL-3.0-or-later
"""For tests of invariants under each policy."""

import pytest

from flux.scheduler.policies import Backfill, Fifo, Simple

#: By name, the class of a policy and its arguments.
TABLE = {
    "fifo": (Fifo, ("queue-depth=unlimited",)),
    "fifo-by-queue": (Fifo, ("order=queue",)),
    "simple": (Simple, ("queue-depth=unlimited",)),
    "easy": (Backfill, ()),
    "conservative": (Backfill, ("promises=unlimited",)),
    "no-guarantee": (Backfill, ("guarantee=none",)),
    "promise-all": (Backfill, ("promise=all",)),
    "short-waits": (Backfill, ("profile=short-waits",)),
}


def under(*names):
    """Parametrize a test by ``policy, args``: those of `TABLE` with these names."""
    return pytest.mark.parametrize("policy, args", [TABLE[name] for name in names], ids=names)


POLICIES = under("fifo", "fifo-by-queue", "simple", "easy", "conservative", "promise-all")
