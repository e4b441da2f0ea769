# SPDX-License-Identifier: LGPL-3.0-or-later
"""A simple implementation of the placement rules: sets of ids, one slot at a time, no index.

Written for the tests from the rules of the topology format, not from the pool's code.
"""

from pool_model import ids_of as ids

RESOURCES = ("cores", "gpus", "memory", "storage")


class Insufficient(Exception):
    pass


class Infeasible(Exception):
    pass


class Node:
    """A node: its resources, the free ones, its domains."""

    def __init__(self, cores, gpus, topo):
        self.cores, self.gpus = cores, gpus
        self.free_cores, self.free_gpus = set(cores), set(gpus)
        self.topo = topo
        self.up = True
        self.groups = []  # (level, cores, gpus) in the order of the topology
        height = self.walk(topo, top=True)
        self.levels = range(height + 1)

    def full(self, domain, top=False):
        """All cores and GPUs of a domain that the node has."""
        if top:
            return self.cores, self.gpus
        cores, gpus = ids(domain.get("cores", "")), ids(domain.get("gpus", ""))
        for name, below in domain.items():
            if name not in RESOURCES:
                for entry in below:
                    more = self.full(entry)
                    cores, gpus = cores | more[0], gpus | more[1]
        return cores & self.cores, gpus & self.gpus

    def walk(self, domain, top=False):
        mine = self.full(domain, top)
        if not mine[0]:
            return -1
        height, below = -1, []
        if "cores" not in domain:
            for name, entries in domain.items():
                if name not in RESOURCES:
                    for entry in entries:
                        level = self.walk(entry)
                        if level >= 0:
                            below.append(self.full(entry))
                        height = max(height, level)
        if below == [mine]:
            return height
        self.groups.append((height + 1, *mine))
        return height + 1

    def containers(self, name, domain=None):
        domain = self.topo if domain is None else domain
        found = []
        for key, entries in domain.items():
            for entry in entries if key not in RESOURCES else ():
                if key != name:
                    found += self.containers(name, entry)
                elif self.full(entry)[0]:
                    found.append(self.full(entry))
        return found

    def is_idle(self):
        return self.free_cores == self.cores and self.free_gpus == self.gpus

    def place_one(self, cores, gpus, c, g):
        """Cores and GPUs of one slot among these free ones, or None."""
        for level in self.levels:
            fits = [
                (len(mine & cores), mine & cores, own & gpus)
                for at, mine, own in self.groups
                if at == level and len(mine & cores) >= c and len(own & gpus) >= g
            ]
            if fits:
                chosen = fits[0] if g else min(fits, key=lambda fit: fit[0])
                return set(sorted(chosen[1])[:c]), set(sorted(chosen[2])[:g])
        return None

    def place(self, request, most, cores=None, gpus=None):
        """(slots, cores, gpus) for at most `most` slots."""
        cores = set(self.free_cores if cores is None else cores)
        gpus = set(self.free_gpus if gpus is None else gpus)
        taken = set(), set()
        slots = 0
        while slots < most:
            if request.level is not None:
                one = self.place_box(cores, gpus, request)
            else:
                one = self.place_one(cores, gpus, request.c, request.g)
            if one is None:
                break
            slots += 1
            cores -= one[0]
            gpus -= one[1]
            taken[0].update(one[0])
            taken[1].update(one[1])
        return slots, taken[0], taken[1]

    def place_box(self, cores, gpus, request):
        boxes = self.containers(request.level)
        free = [(mine, own) for mine, own in boxes if mine <= cores and own <= gpus]
        if request.each == 1:
            return free[0] if free else None
        for level in self.levels:
            for at, near, beside in self.groups:
                got, left = (set(), set()), request.each
                for mine, own in free:
                    inside = mine <= near and own <= beside
                    if at == level and left and inside and not mine & got[0] and not own & got[1]:
                        got[0].update(mine)
                        got[1].update(own)
                        left -= 1
                if not left:
                    return got
        return None


class Request:
    """nodes, slots: (min, max); nodes None: anywhere. level, each: containers of a slot."""

    def __init__(self, nodes, slots, c, g, exclusive=False, level=None, each=1):
        self.nodes, self.slots = nodes, slots
        self.c, self.g = c, g
        self.exclusive, self.level, self.each = exclusive, level, each

    def shape(self):
        def count(pair):
            return str(pair[0]) if pair[0] == pair[1] else f"{pair[0]}-{pair[1]}"

        text = f"slot={count(self.slots)}/"
        if self.level is not None:
            text += f"{self.level}={self.each}{{x}}"
        elif self.g:
            text += f"[core={self.c};gpu={self.g}]"
        else:
            text += f"core={self.c}"
        if self.nodes is not None:
            mark = "{x}" if self.exclusive else ""
            text = f"node={count(self.nodes)}{mark}/{text}"
        return text


class Model:
    """A pool: rank to Node, job to {rank: (cores, gpus)}."""

    def __init__(self, nodes):
        self.nodes = dict(enumerate(nodes))
        self.jobs = {}

    def alloc(self, jobid, request):
        """{rank: (cores, gpus)}, nslots. Insufficient or Infeasible is raised."""
        up = [(node, rank) for rank, node in self.nodes.items() if node.up]
        free = [(len(node.free_cores), len(node.free_gpus), rank) for node, rank in up]
        order = [rank for _, _, rank in sorted(free)]
        found = self.choose(request, order, empty=False)
        if found is None:
            if self.choose(request, sorted(self.nodes), empty=True) is None:
                raise Infeasible
            raise Insufficient
        given, nslots = found
        for rank, (cores, gpus) in given.items():
            self.nodes[rank].free_cores -= cores
            self.nodes[rank].free_gpus -= gpus
        self.jobs[jobid] = given
        return given, nslots

    def room(self, rank, request, empty):
        """The number of slots that fit on a node now, or (`empty`) on an idle one."""
        node = self.nodes[rank]
        if empty:
            return node.place(request, 10**6, node.cores, node.gpus)[0]
        if request.exclusive and not node.is_idle():
            return 0
        return node.place(request, 10**6)[0]

    def choose(self, request, order, empty):
        rooms = [(rank, self.room(rank, request, empty)) for rank in order]
        rooms = [(rank, room) for rank, room in rooms if room]
        low, high = request.slots
        if request.nodes is None:
            total = sum(room for _, room in rooms)
            if total < low:
                return None
            left = nslots = min(total, high)
            given = {}
            for rank, room in rooms:
                if left and not empty:
                    slots, cores, gpus = self.nodes[rank].place(request, min(room, left))
                    given[rank] = (cores, gpus)
                    left -= slots
            return given, nslots
        rooms = [(rank, room) for rank, room in rooms if room >= low]
        if len(rooms) < request.nodes[0]:
            return None
        nodes = min(len(rooms), request.nodes[1])
        slots = min(high, sorted((room for _, room in rooms), reverse=True)[nodes - 1])
        given = {}
        for rank, room in rooms:
            if room >= slots and len(given) < nodes and not empty:
                node = self.nodes[rank]
                if request.exclusive:
                    given[rank] = (set(node.cores), set(node.gpus))
                else:
                    given[rank] = node.place(request, slots)[1:]
        return given, nodes * slots

    def free(self, jobid, ranks=None):
        given = self.jobs[jobid]
        for rank in list(given) if ranks is None else ranks:
            cores, gpus = given.pop(rank)
            if rank in self.nodes:
                self.nodes[rank].free_cores |= cores
                self.nodes[rank].free_gpus |= gpus
        if not given:
            del self.jobs[jobid]

    def remove(self, rank):
        del self.nodes[rank]
        for given in self.jobs.values():
            given.pop(rank, None)
