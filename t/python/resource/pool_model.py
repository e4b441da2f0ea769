# SPDX-License-Identifier: LGPL-3.0-or-later
"""A pool as sets of cores, for comparison: slow and simple.

It shares no code with the code under test.  Requests are ``Ask`` objects: the
accepted numbers are lists.
"""

import copy

from flux.scheduler.testing import jobspec

ENDLESS = 10000


class Insufficient(Exception):
    pass


class Infeasible(Exception):
    pass


def ask(pool, *args, **keys):
    """A pool's request, of the arguments of `jobspec`."""
    return pool.parse_resource_request(jobspec(*args, **keys))


class Ask:
    """A request, and the equivalent jobspec. A count is a number, or (accepted numbers, count of a jobspec)."""

    def __init__(self, nodes, slots, cores, gpus=0, exclusive=False, duration=0.0, constraint=None):
        self.nodes, self.nodes_count = (
            ([nodes], nodes) if isinstance(nodes, int) else nodes or (None, None)
        )
        self.slots, self.slots_count = ([slots], slots) if isinstance(slots, int) else slots
        self.cores = cores
        self.gpus = gpus
        self.exclusive = exclusive
        self.duration = duration
        self.constraint = constraint

    def jobspec(self):
        counts = self.slots_count, self.cores, self.gpus, self.nodes_count
        spec = jobspec(*counts, self.duration, constraints=self.constraint)
        if self.exclusive:
            spec["resources"][0]["exclusive"] = True
        return spec

    def __repr__(self):
        counts = f"nodes={self.nodes_count!r} slots={self.slots_count!r}"
        exclusive = " exclusive" if self.exclusive else ""
        return f"Ask({counts} cores={self.cores} gpus={self.gpus}{exclusive} {self.constraint!r})"


def matches(constraint, rank, host, properties):
    """RFC 31 for one rank, taken literally."""
    if constraint is None:
        return True
    answers = []
    for name, values in constraint.items():
        if name == "properties":
            for value in values:
                has = rank in properties.get(value.lstrip("^"), ())
                answers.append(has != value.startswith("^"))
        elif name == "hostlist":
            answers.append(host in values)
        elif name == "ranks":
            answers.append(any(rank == int(value) for value in values))
        else:
            each = [matches(one, rank, host, properties) for one in values]
            answers.append({"and": all(each), "or": any(each), "not": not all(each)}[name])
    return all(answers)


def largest(accepted, limit):
    """The largest accepted number that is not above a limit, or None."""
    fitting = [number for number in accepted if number <= limit]
    return max(fitting) if fitting else None


class Model:
    """Ranks with sets of cores and GPUs, and the jobs that hold them."""

    def __init__(self, ranks, properties):
        self.ranks = {
            rank: {"host": host, "cores": set(cores), "gpus": set(gpus)}
            for rank, (host, cores, gpus) in ranks.items()
        }
        self.up = set(self.ranks)
        self.properties = {name: set(members) for name, members in properties.items()}
        self.jobs = {}
        self.ends = {}
        self.removed = set()

    def clone(self):
        return copy.deepcopy(self)

    def all_of(self, rank):
        return set(self.ranks[rank]["cores"]), set(self.ranks[rank]["gpus"])

    def free_on(self, rank):
        cores, gpus = self.all_of(rank)
        for parts in self.jobs.values():
            if rank in parts:
                cores -= parts[rank][0]
                gpus -= parts[rank][1]
        return cores, gpus

    def matching(self, ask):
        found = set()
        for rank, info in self.ranks.items():
            if matches(ask.constraint, rank, info["host"], self.properties):
                found.add(rank)
        return found

    def select(self, ask, empty=False):
        """``(parts, nslots)``, or None; ``empty``: as if all were free and up."""
        ranks = self.matching(ask)
        if not empty:
            ranks &= self.up
        free = {}
        for rank in ranks:
            free[rank] = self.all_of(rank) if empty else self.free_on(rank)
        order = sorted(ranks, key=lambda r: (-len(free[r][0]), -len(free[r][1]), r))
        if ask.exclusive:
            order = [rank for rank in order if free[rank] == self.all_of(rank)]
        room = {}
        for rank in order:
            room[rank] = len(free[rank][0]) // ask.cores
            if ask.gpus:
                room[rank] = min(room[rank], len(free[rank][1]) // ask.gpus)
        slots = ask.slots
        nodes = ask.nodes
        if ask.exclusive and nodes is None:
            nodes, slots = slots, [1]
        if nodes is None:
            wanted = largest(slots, sum(room.values()))
            if wanted is None:
                return None
            plan = {}
            left = wanted
            for rank in order:
                plan[rank] = min(left, room[rank])
                left -= plan[rank]
            return self.parts(ask, plan, free), wanted
        order = [rank for rank in order if room[rank] >= min(slots)]
        count = largest(nodes, len(order))
        if count is None:
            return None
        each = min(slots)
        if len(slots) > 1:
            each = largest(slots, sorted((room[rank] for rank in order), reverse=True)[count - 1])
            order = [rank for rank in order if room[rank] >= each]
        plan = dict.fromkeys(order[:count], each)
        return self.parts(ask, plan, free), count * each

    def parts(self, ask, plan, free):
        parts = {}
        for rank, slots in plan.items():
            if not slots:
                continue
            if ask.exclusive:
                parts[rank] = self.all_of(rank)
            else:
                cores, gpus = map(sorted, free[rank])
                parts[rank] = set(cores[: slots * ask.cores]), set(gpus[: slots * ask.gpus])
        return parts

    def alloc(self, jobid, ask, now, expiration=0.0):
        selected = self.select(ask)
        if selected is None:
            if self.select(ask, empty=True) is None:
                raise Infeasible
            raise Insufficient
        self.jobs[jobid] = selected[0]
        self.ends[jobid] = now + ask.duration if ask.duration else expiration
        return selected

    def free(self, jobid, ranks=None):
        if ranks is None:
            self.jobs.pop(jobid, None)
            self.ends.pop(jobid, None)
        else:
            for rank in ranks:
                self.jobs[jobid].pop(rank, None)

    def register(self, jobid, parts, end):
        for rank, (cores, gpus) in parts.items():
            if rank not in self.ranks:
                raise ValueError
            free_cores, free_gpus = self.free_on(rank)
            if not cores <= free_cores or not gpus <= free_gpus:
                raise ValueError
        self.jobs[jobid] = {rank: (set(c), set(g)) for rank, (c, g) in parts.items()}
        self.ends[jobid] = end

    def remove(self, ranks):
        for rank in ranks:
            if self.ranks.pop(rank, None):
                self.removed.add(rank)
            self.up.discard(rank)
            for members in self.properties.values():
                members.discard(rank)
            for parts in self.jobs.values():
                parts.pop(rank, None)

    def allocated(self):
        """Rank to ``(cores, gpus)`` of all allocations."""
        held = {}
        for parts in self.jobs.values():
            for rank, (cores, gpus) in parts.items():
                mine = held.setdefault(rank, (set(), set()))
                mine[0].update(cores)
                mine[1].update(gpus)
        return held


def R_of(parts, hosts=None, properties=None, expiration=0.0):
    """An R object of a dict of rank to ``(cores, gpus)``."""
    entries = []
    for rank in sorted(parts):
        cores, gpus = parts[rank]
        children = {"core": ids_text(cores)}
        if gpus:
            children["gpu"] = ids_text(gpus)
        entries.append({"rank": str(rank), "children": children})
    execution = {"R_lite": entries, "starttime": 0.0, "expiration": expiration}
    if hosts is not None:
        execution["nodelist"] = [hosts[rank] for rank in sorted(parts)]
    if properties:
        execution["properties"] = {name: ids_text(ids) for name, ids in properties.items() if ids}
    return {"version": 1, "execution": execution}


def ids_text(ids):
    return ",".join(str(one) for one in sorted(ids))


def ids_of(text):
    """The ids of idset text, brackets or not."""
    ids = set()
    for item in text.strip("[]").split(","):
        if item:
            low, _, high = item.partition("-")
            ids.update(range(int(low), int(high or low) + 1))
    return ids


def parts_of(R):
    """Rank to ``(cores, gpus)`` of an R object."""
    parts = {}
    for entry in R["execution"]["R_lite"]:
        children = entry["children"]
        for rank in ids_of(entry["rank"]):
            assert rank not in parts
            parts[rank] = (ids_of(children.get("core", "")), ids_of(children.get("gpu", "")))
    return parts
