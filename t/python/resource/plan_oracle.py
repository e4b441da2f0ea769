# SPDX-License-Identifier: LGPL-3.0-or-later
"""An oracle for promises: can they be kept by some choice of ranks? Slow and simple: it tries all
choices.

It keeps its own records of the pool's answers, and shares no code with the code under test.
"""

import itertools
import math

from flux.idset import IDset

FOREVER = math.inf


class Books:
    """The allocations and promises on a few ranks, with their times.

    Args:
        full (dict): rank to ``(cores, gpus)``
        now (float): the time
    """

    def __init__(self, full, now):
        self.full = full
        self.now = now
        self.up = set(full)
        self.running = {}  # job id to (end, {rank: (cores, gpus)})
        self.promises = {}  # job id to (Ask, start, end)

    def started(self, jobid, R, end):
        """A job was allocated R, and ends at ``end``; 0: unknown."""
        held = {}
        for entry in R["execution"]["R_lite"]:
            children = entry["children"]
            counts = [len(IDset(children[kind])) if kind in children else 0 for kind in KINDS]
            for rank in IDset(entry["rank"]):
                held[rank] = tuple(counts)
        self.promises.pop(jobid, None)
        self.running[jobid] = (end or FOREVER, held)

    def _uses(self):
        """Per rank, ``(start, end, cores, gpus)`` of the running jobs."""
        uses = {rank: [] for rank in self.full}
        for end, held in self.running.values():
            for rank, counts in held.items():
                # An overdue job is assumed to end now.
                uses[rank].append((-FOREVER, max(end, self.now), *counts))
        return uses

    def possible(self, *more):
        """Whether all promises can be kept together with ``more``, each ``(Ask, start, end)``."""
        items = [*more, *self.promises.values()]
        return self._place(items, self._uses())

    def _place(self, items, uses):
        if not items:
            return True
        ask, start, end = items[0]
        for chosen in self._ways(ask, start, end, uses):
            for rank, counts in chosen:
                uses[rank].append((start, end, *counts))
            found = self._place(items[1:], uses)
            for rank, _ in chosen:
                uses[rank].pop()
            if found:
                return True
        return False

    def _ways(self, ask, start, end, uses):
        """All choices of ranks, and of resources on them, for one request."""
        room = {}
        for rank in sorted(self.up):
            if ask.constraint is not None and rank not in ask.ranks:
                continue
            free = self._least(rank, start, end, uses)
            if ask.exclusive:
                room[rank] = int(
                    free == self.full[rank] and self._slots(ask, free) >= self._per_node(ask)
                )
            elif ask.nodes is not None:
                room[rank] = int(self._slots(ask, free) >= min(ask.slots))
            else:
                room[rank] = self._slots(ask, free)
        able = [rank for rank in room if room[rank] > 0]
        if ask.exclusive:
            for ranks in itertools.combinations(able, self._nodes(ask)):
                yield [(rank, self.full[rank]) for rank in ranks]
        elif ask.nodes is not None:
            each = min(ask.slots)
            for ranks in itertools.combinations(able, min(ask.nodes)):
                yield [(rank, (each * ask.cores, each * ask.gpus)) for rank in ranks]
        else:
            for slots in spread(min(ask.slots), [room[rank] for rank in able]):
                yield [
                    (rank, (count * ask.cores, count * ask.gpus))
                    for rank, count in zip(able, slots)
                    if count
                ]

    def _per_node(self, ask):
        return 1 if ask.nodes is None else min(ask.slots)

    def _nodes(self, ask):
        return min(ask.slots) if ask.nodes is None else min(ask.nodes)

    def _slots(self, ask, free):
        slots = free[0] // ask.cores
        return min(slots, free[1] // ask.gpus) if ask.gpus else slots

    def _least(self, rank, start, end, uses):
        """The minimum free resources on a rank in a span."""
        cores = gpus = FOREVER
        for moment in [start] + [use[0] for use in uses[rank] if start < use[0] < end]:
            used = [use for use in uses[rank] if use[0] <= moment < use[1]]
            cores = min(cores, self.full[rank][0] - sum(use[2] for use in used))
            gpus = min(gpus, self.full[rank][1] - sum(use[3] for use in used))
        return max(0, cores), max(0, gpus)

    def earliest(self, ask, after=None):
        """The first time at which a request fits while all promises are kept; None if there is
        none."""
        after = self.now if after is None else after
        ends = [end for end, _ in self.running.values()]
        ends += [end for _, _, end in self.promises.values()]
        for time in sorted({after} | {end for end in ends if after < end < FOREVER}):
            if self.possible((ask, time, time + (ask.duration or FOREVER))):
                return time
        return None


KINDS = ("core", "gpu")


def spread(count, room):
    """All ways to distribute `count` over places with the given room."""
    if not room:
        if count == 0:
            yield ()
        return
    if sum(room) < count:
        return
    for here in range(min(count, room[0]), -1, -1):
        for rest in spread(count - here, room[1:]):
            yield (here, *rest)
