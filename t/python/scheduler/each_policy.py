# SPDX-License-Identifier: LGPL-3.0-or-later
"""For a test of what must hold under each policy."""

import pytest

from flux.scheduler.policies import Backfill, Fifo, Simple

POLICIES = pytest.mark.parametrize(
    "policy, args",
    [
        (Fifo, ("queue-depth=unlimited",)),
        (Fifo, ("order=queue",)),
        (Simple, ("queue-depth=unlimited",)),
        (Backfill, ()),
        (Backfill, ("promises=unlimited",)),
        (Backfill, ("promise=all",)),
    ],
    ids=["fifo", "fifo-by-queue", "simple", "easy", "conservative", "promise-all"],
)
