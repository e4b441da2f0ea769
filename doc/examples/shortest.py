# SPDX-License-Identifier: LGPL-3.0-or-later
"""Among jobs of equal priority the shortest goes first, and backfill does the rest."""

from math import inf

from flux.scheduler.policies import Backfill


class ShortestFirst(Backfill):
    def order(self, job):
        return (-job.priority, job.resource_request.duration or inf)


def mod_main(h, *args):
    ShortestFirst(h, *args).run()
