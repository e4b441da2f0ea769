# SPDX-License-Identifier: LGPL-3.0-or-later
"""Limit the nodes that a user may hold: max-nodes=N.

A user's nodes are tracked from hello to the last free, also when a job's nodes are freed a few at a
time.
"""

import heapq
from collections import Counter

from flux.resource import InsufficientResources
from flux.scheduler import Scheduler


class Limits(Scheduler):
    def __init__(self, h, *args):
        self.max_nodes = 4
        rest = []
        for arg in args:
            if arg.startswith("max-nodes="):
                value = arg[len("max-nodes=") :]
                if not value.isdigit():
                    raise ValueError(f"max-nodes={value!r}: expected a number of nodes")
                self.max_nodes = int(value)
            else:
                rest.append(arg)
        super().__init__(h, *rest)  # takes its own arguments, refuses others
        self.owner = {}  # job id: user id
        self.nodes = Counter()  # user id: nodes held

    def hello(self, jobid, priority, userid, t_submit, R):
        super().hello(jobid, priority, userid, t_submit, R)
        self.owner[jobid] = userid
        self.nodes[userid] += count_nodes(R)

    def alloc(self, request, jobid, priority, userid, t_submit, jobspec):
        if jobspec["attributes"]["system"].get("duration", 0) == 0:
            request.deny("a time limit is required")
            return
        self.owner[jobid] = userid
        super().alloc(request, jobid, priority, userid, t_submit, jobspec)

    def cancel(self, jobid):
        super().cancel(jobid)
        self.owner.pop(jobid, None)

    def free(self, jobid, R, final=False):
        super().free(jobid, R, final=final)
        self.nodes[self.owner[jobid]] -= count_nodes(R)
        if final:
            del self.owner[jobid]

    def schedule(self):
        for job in sorted(self._queue):
            user = self.owner[job.jobid]
            if self.nodes[user] + job.resource_request.nnodes > self.max_nodes:
                continue
            try:
                alloc = self.resources.alloc(job.jobid, job.resource_request)
            except InsufficientResources:
                return
            except OSError as reason:
                job.request.deny(str(reason))
            else:
                self.nodes[user] += count_nodes(alloc)
                job.request.success(alloc)
            self._queue.remove(job)
            heapq.heapify(self._queue)
            yield

    def stats_get(self):
        stats = super().stats_get()
        stats["nodes_by_user"] = {str(user): nodes for user, nodes in self.nodes.items() if nodes}
        return stats


def count_nodes(R):
    return R.to_resource_set().nnodes


def mod_main(h, *args):
    Limits(h, *args).run()
