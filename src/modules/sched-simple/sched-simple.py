# SPDX-License-Identifier: LGPL-3.0-or-later
"""The broker module sched-simple; the policy is `flux.scheduler.policies.fifo`."""

from flux.scheduler.policies.fifo import Simple


def mod_main(h, *args):
    Simple(h, *args).run()
