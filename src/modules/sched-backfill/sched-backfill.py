# SPDX-License-Identifier: LGPL-3.0-or-later
"""The broker module sched-backfill; the policy is `flux.scheduler.policies.backfill`."""

from flux.scheduler.policies.backfill import Backfill


def mod_main(h, *args):
    Backfill(h, *args).run()
