# SPDX-License-Identifier: LGPL-3.0-or-later
"""Random small machines, played by the definition and by a scheduler among fake services.

A `Case` is a kind of site by name; `history` draws its jobs from a seed, `play` runs them under the
scheduler, and `Player` by `flux.scheduler.definition`. Both use the pool's requests and choice of
ranks among those with room: these are not compared.
"""

import heapq
import random
from math import inf
from typing import NamedTuple

from peers import Simulation, jobspec, machine

from flux.resource.plan.availability import Demand, Use
from flux.resource.pool.groups import GroupBinding, Groups
from flux.resource.pool.inventory import pairs
from flux.resource.pool.masks import members, popcount, take
from flux.resource.request import Claimant
from flux.resource.ResourcePool import ResourcePool
from flux.resource.TreePool import TreePool
from flux.scheduler.definition import RANKS, Counter, Job, State
from flux.scheduler.history import expected_run
from flux.scheduler.policies.in_order import LATE_S
from flux.scheduler.policies.ranks import RANKS as FORMULAS

NODES, CORES, GPUS = 8, 4, 2

#: The reservation: start (seconds from the beginning), duration, ranks, and user.
WINDOW = (60.0, 240.0, (0, 1), 1001)

#: By name: module, arguments, and their equivalent in the definition.
POLICIES = {
    "fifo": ("sched-fifo", (), {"policy": "strict"}),
    "easy": ("sched-backfill", (), {}),
    "unlimited": ("sched-backfill", ("promise=unlimited",), {"depth": inf}),
    "none": (
        "sched-backfill",
        ("promise=4", "guarantee=none"),
        {"depth": 4, "keeps_promises": False},
    ),
    "all": ("sched-backfill", ("promise=all", "within=2m"), {"policy": "all", "within": 120.0}),
    "rank": ("sched-backfill", ("rank=area",), {"keeps_promises": False}),
    "candidates": (
        "sched-backfill",
        ("candidates=shortest",),
        {"keeps_promises": False, "has_candidates": True},
    ),
}

#: Rules of a site, by the name of the feature.
CONFIG = {
    "limits": {
        "limits": {
            "user": {"per": "user", "max": {"nodes": 4, "jobs": 5}},
            "bank": {"per": "bank", "max": {"cores": 20}},
        }
    },
    "licenses": {"licenses": {"matlab": 3}},
    "planned": {"licenses": {"matlab": {"total": 3, "plan": True}}},
    "memory": {"amounts": {"memory": "64G"}},
    "sharing": {"sharing": {"all": {"mode": "user"}}},
    "racks": {
        "topology": {"rack": {"groups": {f"r{n}": f"n[{2 * n}-{2 * n + 1}]" for n in range(4)}}}
    },
}


class Case(NamedTuple):
    """A kind of site: a policy, whether jobs request whole nodes (else parts), further features."""

    policy: str
    whole: bool
    features: tuple = ()
    tree: bool = False


class Arrival(NamedTuple):
    """A job: arrival (seconds from the beginning), jobspec, run time and user."""

    at: float
    spec: dict
    run: float
    userid: int
    priority: int


def draw(rnd, case, at, to_limits):
    """A job of a kind of site."""
    has = set(case.features)
    # No two ends at the same time: the order of their messages is not defined.
    limit = rnd.randint(5, 400) + rnd.random()
    run = limit if to_limits or rnd.random() < 0.4 else rnd.uniform(0.01, 1) * limit
    keys = {"bank": rnd.choice("ab"), "duration": limit}
    if "no-limit" in has and rnd.random() < 0.2:
        keys["duration"] = 0
    if has & {"licenses", "planned"} and rnd.random() < 0.5:
        keys["licenses"] = {"matlab": rnd.randint(1, 2)}
    if "max-wait" in has and rnd.random() < 0.5:
        keys["max-wait"] = rnd.choice([0, 30, 100, 200])
    most = 8
    if "constraints" in has and (case.whole or rnd.random() < 0.7):
        most = 4
        keys["constraints"] = {"properties": [rnd.choice(["left", "^left"])]}
    is_member = "reservation" in has and rnd.random() < 0.2
    if is_member:
        most = min(most, len(WINDOW[2]))
        keys["reservation"] = "window"
    if "racks" in has and rnd.random() < 0.5:
        most = 2
        keys["placement"] = {"level": "rack", "mode": "required"}
    if "limits" in has:
        most = min(most, 4)
    if case.whole:
        keys.update(nodes=rnd.randint(1, most), exclusive=True)
    else:
        keys["cores"] = rnd.choice([2, 3])
        if "gpus" in has and rnd.random() < 0.5:
            keys["gpus"] = rnd.randint(1, 2)
        if rnd.random() < 0.5:
            keys["nodes"] = rnd.randint(1, most)
        else:
            keys["slots"] = rnd.randint(1, most)
        if "memory" in has and rnd.random() < 0.7:
            keys["memory"] = {"per-slot": f"{rnd.choice([4, 20, 24, 40])}G"}
    priority = rnd.choice([16, 16, 16, 20]) if "priorities" in has else 16
    userid = WINDOW[3] if is_member else rnd.randint(1001, 1003)
    return Arrival(at, jobspec(**keys), run, userid, priority)


def history(case, seed):
    """The jobs of a seed by arrival, the last one alone; an even seed's all run to their limits."""
    rnd = random.Random(f"{case} {seed}")
    jobs, at = [], 0.0
    for _ in range(rnd.randint(6, 25)):
        jobs.append(draw(rnd, case, at, seed % 2 == 0))
        at += rnd.choice([0, 0, rnd.uniform(1, 40)])
    last = draw(rnd, case, at + 3, True)
    return [*jobs, last._replace(priority=16)]  # as `sched.when` assumes


class Played(NamedTuple):
    """The result of a history: starts by job id, seconds since the epoch; its beginning; and the
    answer of `sched.when` about the last job, if it was queried."""

    starts: dict
    begin: float
    said: object


def config_of(case):
    config = {}
    for feature in case.features:
        for table, entries in CONFIG.get(feature, {}).items():
            config.setdefault(table, {}).update(entries)
    return config


class Enforced(Simulation):
    """Jobs that would run beyond their limits are ended."""

    def told(self, payload):
        if payload["type"] == 0:
            left = payload["R"]["execution"]["expiration"] - self.now
            if left > 0:
                self.runtime[payload["id"]] = min(self.runtime[payload["id"]], left)
        super().told(payload)


def play(case, jobs, ask):
    """Run a history under the scheduler."""
    module, args, _ = POLICIES[case.policy]
    rig = Enforced(machine(case.tree, NODES, gpus=GPUS, properties={"left": "0-3"}))
    rig.instance.config = config_of(case)
    rig.load(module, "queue-depth=unlimited", "log-level=err", "estimate-depth=0", *args)
    rig.settle()
    begin, said = rig.now, None
    if "reservation" in case.features:
        start, duration, ranks, userid = WINDOW
        hosts = ",".join(f"n{rank}" for rank in ranks)
        entry = {"name": "window", "start": begin + start, "duration": duration, "hosts": hosts}
        users = [userid] if userid > 0 else []
        rig.answer("reserve", reservation={**entry, "zone": "UTC", "users": users})
    for jobid, job in enumerate(jobs, 1):
        if begin + job.at > rig.now:
            rig.wait(begin + job.at - rig.now)
        if ask and jobid == len(jobs):
            rig.client.userid = job.userid
            said = rig.answer("when", jobspec=job.spec)
            rig.client.userid = 0
        rig.submit(jobid, job.spec, job.run, userid=job.userid, priority=job.priority)
    rig.wait(40000)
    assert not rig.logged(3), rig.logged(3)
    return Played(dict(rig.begun), begin, said)


class Player:
    """Plays a history by the definition.

    Args:
        case (Case): the kind of site
        begin (float): the beginning, seconds since the epoch

    Attributes:
        starts (dict): the starts, by job id
    """

    def __init__(self, case, begin):
        self.case, self.now, self.begin = case, begin, begin
        self.starts = {}
        config = config_of(case)
        self.pool = (TreePool if case.tree else ResourcePool)(
            machine(case.tree, NODES, gpus=GPUS, properties={"left": "0-3"}),
            amounts=config.get("amounts"),
        ).impl
        self.pool.clock = lambda: self.now
        self.racks = None
        if "topology" in config:
            masks = {f"r{n}": 3 << 2 * n for n in range(NODES // 2)}
            self.racks = Groups("rack", masks)
            self.pool.pack_by([self.racks])
        options = POLICIES[case.policy][2]
        (units,) = self.pool.inventory.kinds
        has = self.pool.inventory.counts_of(units)
        self.state = State(dict.fromkeys(range(NODES), has), **options)
        if case.whole and "reservation" not in case.features:
            self.state.lines = True
            split = "constraints" in case.features
            self.state.totals = {0: (4,), 1: (4,)} if split else {0: (NODES,)}
        else:
            self.state.choose = self.choose
        for name, most in (("matlab", 3),):
            self.state.counters[name] = Counter(
                most, None, "planned" in case.features and case.policy not in ("fifo", "all")
            )
        if "limits" in case.features:
            for user in (1001, 1002, 1003):
                of = 0 if self.state.lines else RANKS
                self.state.counters[f"nodes {user}"] = Counter(4, of, is_left=True)
                self.state.counters[f"jobs {user}"] = Counter(5, is_left=True)
            for bank in "ab":
                most = 20 // CORES if self.state.lines else 20
                self.state.counters[f"cores {bank}"] = Counter(most, 0, is_left=True)
        self.window = None
        if "reservation" in case.features:
            start, duration, ranks, _ = WINDOW
            every = Demand(len(ranks), has, True, True, sum(1 << rank for rank in ranks))
            self.window = Job(-1, (every,), duration)
            times = begin + start, begin + start + duration
            self.state.promises[self.window] = Use(*times, None, dict.fromkeys(ranks, has))
        self.requests = {}
        self.placed = {}
        self.held = set()
        self.rules = bool(
            set(case.features) - {"gpus", "memory", "constraints", "no-limit", "priorities"}
        )

    # -- jobs --------------------------------------------------------------------------------------

    def job(self, jobid, arrival):
        """The `Job` of an arrival; None: it never fits."""
        system = arrival.spec["attributes"]["system"]
        request = self.pool.parse_resource_request(arrival.spec)
        within = system.get("placement") and GroupBinding(self.racks, most=1)
        if within:
            request = request.with_shape(request.shape.replace(within=within))
        shape = request.shape
        ranks = self.pool.match_mask(request)
        each = self.pool.inventory.padded(shape.need)
        if shape.node_count is not None:
            demand = Demand(shape.node_count.min, each, True, shape.exclusive, ranks)
        else:
            demand = Demand(shape.slot_count.min, each, False, False, ranks)
        if self.state.lines:
            lines = (
                sum(1 << n for n in range(2) if ranks >> 4 * n & 15)
                if len(self.state.totals) > 1
                else 1
            )
            demand = Demand(demand.count, (1,), False, False, lines)
        if "sharing" in self.case.features:
            demand = demand._replace(claim=Claimant((arrival.userid,), (-1,)))
        demands = (demand,)
        if within:
            demands = tuple(map(demand.on, self.racks.masks))
        submit = self.now
        limit = request.duration or inf
        takes = dict(system.get("licenses", {}))
        if "limits" in self.case.features:
            cores = demand.count * (1 if self.state.lines else CORES if demand.whole else each[0])
            least = 0 if self.state.lines else demand.count if demand.per_node else 0
            takes[f"nodes {arrival.userid}"] = demand.count if self.state.lines else least
            takes[f"jobs {arrival.userid}"] = 1
            takes[f"cores {system['bank']}"] = cores
        wait = system.get("max-wait")
        size = request.ncores if hasattr(request, "ncores") else 1
        self.requests[jobid] = request
        return Job(
            jobid,
            demands,
            limit,
            order=-arrival.priority,
            wants=-1 if self.case.policy == "fifo" else demand.ranks,  # fifo: order=strict
            submit=submit,
            takes=takes,
            window=self.window if "reservation" in system else None,
            latest=inf if wait is None else submit + wait,
            rank=lambda now: (
                FORMULAS["area"](now - submit, expected_run(None, limit), size, 1.0)
                if self.case.policy == "rank"
                else 0.0
            ),
            candidate_rank=lambda now: (
                FORMULAS["shortest"](now - submit, expected_run(None, limit), size, 1.0)
                if self.case.policy == "candidates"
                else 0.0
            ),
        )

    def choose(self, job, ranks, room, until):
        """The amounts that the pool allocates to a job on some ranks (a mask) until a time, as for
        a plan."""
        self.follow()
        request, pool = self.requests[job.id], self.pool
        shape, index = request.shape, pool.index
        if shape.node_count is None and shape.slot_count.max > 1:
            index = index.copy()
            runs = self.state.running.values()
            kept = [use for use in room.uses if not any(use is one for one in runs)]
            for rank in members(ranks):
                if any(rank in u.where and u.start < until for u in kept):
                    each = pool.inventory.padded(shape.need)
                    demand = Demand(1 << 20, each, False, False, 1 << rank, job.demands[0].claim)
                    slots, _ = room.room(demand, self.now, until)
                    keep(index, rank, [slots * need for need in each])
        placed = pool.place_request(request, index, ranks)
        if placed is None:
            return None
        inventory, found = pool.inventory, {}
        for ranks, units in pairs(placed[0]):
            amounts = inventory.counts_of(units)
            for rank in members(ranks):
                before = found.get(rank, (0,) * len(amounts))
                found[rank] = tuple(map(sum, zip(before, amounts)))
        self.placed[job.id] = (found, placed)
        return found

    def follow(self):
        """Enter the allocations of the running jobs into the pool."""
        pool = self.pool
        for job, use in self.state.running.items():
            if job.id in self.held or job is self.window:
                continue
            self.held.add(job.id)
            request = self.requests[job.id]
            found, placed = self.placed.get(job.id, (None, None))
            if found != use.where:  # other jobs were moved for it
                index = pool.index.copy()
                for rank, amounts in use.where.items():
                    keep(index, rank, amounts)
                placed = pool.place_request(request, index, sum(1 << rank for rank in use.where))
            pool.grant(job.id, request, *placed)

    # -- the history -------------------------------------------------------------------------------

    def run(self, jobs):
        """Play it; returns the starts."""
        state, ends = self.state, []
        coming = [(self.begin + job.at, number, job) for number, job in enumerate(jobs, 1)][::-1]
        by_id = dict(enumerate(jobs, 1))
        wakes = set()
        while coming or ends or wakes or any(job.latest < inf for job in state.pending):
            times = [one[0] for one in ends[:1]] + [one[0] for one in coming[-1:]]
            times += [job.latest for job in state.pending if self.now < job.latest < inf]
            self.now = min([*times, *wakes])
            is_woken = self.now in wakes
            if self.window in state.promises and state.promises[self.window].start <= self.now:
                state.running[self.window] = state.promises.pop(self.window)
            elif self.window in state.running and state.running[self.window].end <= self.now:
                del state.running[self.window]
            while ends and ends[0][0] <= self.now:  # several at the end of a window
                _, _, job = heapq.heappop(ends)
                del state.running[job]
                self.pool.free(job.id) if state.choose else None
                is_woken = True
            if not is_woken:
                while coming and coming[-1][0] <= self.now:
                    _, number, arrival = coming.pop()
                    state.pending.append(self.job(number, arrival))
            for job in state.decide(self.now):
                self.starts[job.id] = self.now
                end = min(self.now + by_id[job.id].run, state.running[job].end)
                heapq.heappush(ends, (end, job.id, job))
            if state.choose is not None:
                self.follow()
            wakes = self.wakes()
        return self.starts

    def wakes(self):
        """When the scheduler has a pass without a message: a promise comes due without a job's
        end."""
        state, late = self.state, 0.0
        if state.policy == "all":
            times = [use.start for use in state.promises.values()]
        elif (
            state.lines
            and not (self.rules or any(use.start == -inf for use in state.promises.values()))
            and state.running
        ):
            times = []
        else:
            times, late = [use.start for use in state.promises.values()], LATE_S
        found = {time + late for time in times if self.now < time < inf}
        for uses in (state.promises, state.running):
            use = uses.get(self.window)
            found |= {time for time in use and (use.start, use.end) or () if time > self.now}
        return found


def keep(index, rank, amounts):
    """Reduce a rank in an index of a pool to the given amounts."""
    inventory, free = index.inventory, index.free(rank)
    some = free & inventory.core_mask
    kept = take(some, min(amounts[0], popcount(some)))
    some = inventory.gpus(free)
    kept |= take(some, min(amounts[1], popcount(some))) << inventory.shift
    kept |= inventory.take_amounts(free, amounts[2:])
    if kept != free:
        index.take((rank, free ^ kept))


def compare(case, seed, ask=True):
    """The differences between the definition and the scheduler in a history, as sentences."""
    jobs = history(case, seed)
    real = play(case, jobs, ask and seed % 2 == 0)
    mine = Player(case, real.begin).run(jobs)
    wrong = []
    for jobid in range(1, len(jobs) + 1):
        one, other = real.starts.get(jobid), mine.get(jobid)
        if (one is None) != (other is None) or (one is not None and abs(one - other) > 1e-5):
            shown = [None if t is None else round(t - real.begin, 3) for t in (one, other)]
            wrong.append(f"job {jobid}: scheduler {shown[0]}, definition {shown[1]}")
    # The end of a job without a limit is unknown, so `when` need not have an answer either.
    if real.said is not None and "no-limit" not in case.features:
        said, start = real.said["start"], real.starts.get(len(jobs))
        if (said is None) != (start is None) or (said is not None and abs(said - start) > 0.1):
            shown = [None if t is None else round(t - real.begin, 3) for t in (said, start)]
            wrong.append(f"when said {shown[0]}, it started {shown[1]}")
    return wrong
