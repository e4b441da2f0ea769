# SPDX-License-Identifier: LGPL-3.0-or-later
"""EASY and conservative backfill by their definitions and brute force, for comparison with
schedulers.

One pool of equal units, hard limits. At grain "batch" there is one pass at each instant after all ends and
submissions of it; else one after each of them, and the units of a job that must end then count as free.
Agrees on every start with all recorded schedules of golden/schedules.
"""

import heapq
from bisect import bisect_left

#: policy: (number of blocked jobs that are promised a start, None: all; whether promises are kept)
POLICIES = {
    "easy": (1, False),
    "depth4-plan": (4, False),
    "depth4-kept": (4, True),
    "conservative-plan": (None, False),
    "conservative-kept": (None, True),
}


class Free:
    """Free units from now on: running jobs end at their limits, promises use theirs."""

    def __init__(self, now, procs, running):
        gains = {}
        free = procs
        for end, size in running:
            free -= size
            gains[end] = gains.get(end, 0) + size
        self.times, self.free = [now], [free]
        for end in sorted(gains):
            free += gains[end]
            self.times.append(end)
            self.free.append(free)

    def take(self, start, end, size):
        first, last = self._cut(start), self._cut(end)
        for at in range(first, last):
            self.free[at] -= size

    def _cut(self, time):
        at = bisect_left(self.times, time)
        if at == len(self.times) or self.times[at] != time:
            self.times.insert(at, time)
            self.free.insert(at, self.free[at - 1])
        return at

    def first(self, size, length):
        """The first time from which `size` units are free for `length`."""
        since = None
        for at, time in enumerate(self.times):
            if self.free[at] < size:
                since = None
                continue
            if since is None:
                since = time
            if at + 1 == len(self.times) or self.times[at + 1] - since >= length:
                return since
        raise AssertionError("it never fits")


def schedule(jobs, procs, policy, grain="batch"):
    """Start times: {id: seconds, or None: refused}.

    Args:
        jobs (list): (id, submit, run, limit, size), by time of submission
        procs (int): number of units
        policy (str): one of POLICIES
        grain (str): "batch"; "event-end", "event-submit": the first kind of event at an instant
    """
    depth, kept = POLICIES[policy]
    jobs = {job[0]: job for job in jobs}
    coming = list(jobs)
    coming.reverse()
    queue, running, ends, start, promised = [], {}, [], {}, {}
    while coming or ends:
        now = min([entry[0] for entry in ends[:1]] + [jobs[id][1] for id in coming[-1:]])
        ended, left = False, True
        while left:
            ends_first = grain != "event-submit" or not (coming and jobs[coming[-1]][1] == now)
            if ends_first and ends and ends[0][0] == now:
                del running[heapq.heappop(ends)[2]]
                ended = True
            elif coming and jobs[coming[-1]][1] == now:
                id = coming.pop()
                if jobs[id][4] > procs:
                    start[id] = None
                else:
                    queue.append(id)
            else:
                break
            left = grain == "batch"
        if not kept:
            promised = {}
        free = Free(now, procs, [one for one in running.values() if one[0] > now])
        for id, when in promised.items():
            free.take(when, when + jobs[id][3], jobs[id][4])
        waiting = []
        for id in queue:
            _, _, run, limit, size = jobs[id]
            when = promised.get(id)
            if when is None:
                when = free.first(size, limit)
                if when == now or depth is None or len(promised) < depth:
                    free.take(when, when + limit, size)
                    promised[id] = when
            elif ended:
                free.take(when, when + limit, -size)
                when = promised[id] = min(when, free.first(size, limit))
                free.take(when, when + limit, size)
            if when > now:
                waiting.append(id)
                continue
            promised.pop(id)
            start[id] = now  # this many have: ends at one instant come in the order of starts
            running[id] = (now + limit, size)
            heapq.heappush(ends, (now + min(run, limit), len(start), id))
        queue = waiting
    return start
