# SPDX-License-Identifier: LGPL-3.0-or-later
"""The broker module sched-fifo; the policy is `flux.scheduler.policies.fifo`."""

from flux.scheduler.policies.fifo import Fifo


def mod_main(h, *args):
    Fifo(h, *args).run()
