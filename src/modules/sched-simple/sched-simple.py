# SPDX-License-Identifier: LGPL-3.0-or-later
"""The broker module sched-simple; the policy is `flux.scheduler.policies.simple`."""

from flux.scheduler.policies.simple import Simple


def mod_main(h, *args):
    Simple(h, *args).run()
