# SPDX-License-Identifier: LGPL-3.0-or-later
"""Random small machines, played by the definition and by a scheduler among fake services.

A `Case` is a kind of site by name; `history` draws its jobs from a seed, `play` runs them under the
scheduler, and `Player` by `flux.scheduler.definition`. Both use the pool's requests and choice of
ranks among those with room: these are not compared.
"""

import random
from math import inf
from typing import NamedTuple

from definition_loans import Lending, Loans
from definition_preemption import AFTER, GRACE, WAIT, Evictions, note_searches
from definition_use import CONFIG as CONFIG_OF_USE
from definition_use import DAY_S, TO_MIDNIGHT, UseOverTime
from peers import START_TIME, Simulation, jobspec, machine

from flux.resource.plan.availability import Availability, Demand, Use
from flux.resource.pool.groups import GroupBinding, Groups
from flux.resource.pool.inventory import pairs
from flux.resource.pool.masks import members, popcount, take
from flux.resource.request import Claimant
from flux.resource.ResourcePool import ResourcePool
from flux.resource.TreePool import TreePool
from flux.scheduler.definition import LATE_START_S, RANKS, Counter, Job, is_open
from flux.scheduler.history import expected_run
from flux.scheduler.policies.backfilling import LATE_S
from flux.scheduler.policies.ranks import RANKS as FORMULAS

NODES, CORES, GPUS = 8, 4, 2

#: Names of the reservations, and their user; seconds between the windows of one that repeats, and the
#: number of them.
WINDOWS = ("window", "other")
MEMBER = 1001
EVERY, TIMES = 900, 12
#: Of a reservation that is made midway: seconds from then to its start, its duration, and the window
#: of one that is not there.
LEAD, BOOKED = 30.0, 120.0
NEVER = Use(inf, inf, None, {})

#: By name: module, arguments, and their equivalent in the definition.
POLICIES = {
    "fifo": ("sched-fifo", (), {"policy": "strict"}),
    "easy": ("sched-backfill", (), {}),
    "unlimited": ("sched-backfill", ("promise=unlimited",), {"depth": inf}),
    "depth": ("sched-backfill", ("promise=4",), {"depth": 4}),
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
    "mixed": {
        "sharing": {"all": {"mode": "bank"}, "left": {"mode": "user", "properties": ["left"]}}
    },
    "racks": {
        "topology": {"rack": {"groups": {f"r{n}": f"n[{2 * n}-{2 * n + 1}]" for n in range(4)}}}
    },
}
CONFIG["preferred"] = CONFIG["racks"]
CONFIG.update(CONFIG_OF_USE)
for feature, grace in (("preemption", 0.0), ("grace", GRACE)):
    standby = {"queues": ["standby"], "after": AFTER, "wait": WAIT, "grace": grace}
    CONFIG[feature] = {
        "queues": {"batch": {}, "standby": {}},
        "preemption": {"standby": standby},
    }


INTO = {**standby, "wait": "30d", "into-promises": True}
CONFIG["into"] = {**CONFIG["grace"], "preemption": {"standby": INTO}}


class Case(NamedTuple):
    """A kind of site: a policy, whether jobs request whole nodes (else parts), further features."""

    policy: str
    whole: bool
    features: tuple = ()
    tree: bool = False


class Arrival(NamedTuple):
    """A job: arrival (seconds from the beginning), jobspec, run time, user and priority."""

    at: float
    spec: dict
    run: float
    userid: int
    priority: int

    @property
    def limit(self):
        return self.spec["attributes"]["system"]["duration"] or inf

    def end(self, start, expected):
        """Its end, from its start and the end that the scheduler expects, seconds since the epoch: if
        it runs longer than its limit, it is ended only at the end of a window."""
        is_late = self.limit < self.run < inf and expected > start + self.limit - 1
        return start + self.run if is_late else min(start + self.run, expected)

    def moved_end(self, start, now, seconds):
        """Its end if its limit is changed by some seconds, or if it gets one; None if that is
        impossible now."""
        if start + self.limit <= now:
            return None
        return (
            now + 120 + seconds if self.limit == inf else max(now + 1, start + self.limit + seconds)
        )


class Change(NamedTuple):
    """An event beside arrivals and ends: its time (seconds from the beginning), kind, job or rank, and
    value: a priority, or seconds that are added to a job's limit; of a reservation (``window``) that is
    made at the beginning, its start, its ranks (a mask) and its duration; of one that is made midway
    (``book``, ``give-up``), its ranks."""

    at: float
    kind: str
    number: int
    value: float = 0.0


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
    if "early" in has and rnd.random() < 0.5:
        keys.update({"max-wait": rnd.choice([100, 200, 400]), "early": True})
    if "deadline" in has and keys["duration"] and rnd.random() < 0.5:
        keys["deadline"] = begin_of(case) + at + limit + rnd.uniform(0, 300)
    if has & {"preemption", "grace", "into"}:
        keys["queue"] = rnd.choice(["batch", "standby"])
    most = 8
    if "constraints" in has and (case.whole or rnd.random() < 0.7):
        most = 4
        keys["constraints"] = {"properties": [rnd.choice(["left", "^left"])]}
    is_member = has & {"reservation", "windows", "repeats", "booked"} and rnd.random() < 0.2
    if is_member:
        most = min(most, 2)
        some = WINDOWS if has & {"windows", "booked"} else WINDOWS[:1]
        keys["reservation"] = rnd.choice(some)
    if "racks" in has and rnd.random() < 0.5:
        most = 2
        keys["placement"] = {"level": "rack", "mode": "required"}
    if "preferred" in has and rnd.random() < 0.5:
        most = 2
        keys["placement"] = {"level": "rack", "mode": "preferred", "wait": rnd.choice([0, 20, 90])}
    if "limits" in has:
        most = min(most, 4)
    if case.whole:
        keys.update(nodes=rnd.randint(1, most), exclusive=True)
    else:
        keys["cores"] = rnd.choice([2, 3])
        if has & {"gpus", "gpu-cores"} and rnd.random() < 0.5:
            keys["gpus"] = rnd.randint(1, 2)
        if rnd.random() < 0.5:
            keys["nodes"] = rnd.randint(1, most)
        else:
            keys["slots"] = rnd.randint(1, most)
        if "memory" in has and rnd.random() < 0.7:
            keys["memory"] = {"per-slot": f"{rnd.choice([4, 20, 24, 40])}G"}
    priority = rnd.choice([16, 16, 16, 20]) if "priorities" in has else 16
    if "updates" in has and to_limits and keys["duration"]:
        run = inf
    if "late" in has and not to_limits and rnd.random() < 0.3:
        run = rnd.uniform(1, 1.3) * limit
    userid = MEMBER if is_member else rnd.randint(1001, 1003)
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


def changes(case, seed, jobs):
    """The reservations of a seed, and its changes, by time. None comes after a question about the
    last job."""
    rnd, found = random.Random(f"{case} {seed} changes"), []
    end = jobs[-1].at - 1 if seed % 2 == 0 else jobs[-1].at + 300

    def add(kind, number, value=0.0, after=0.0):
        found.append(Change(rnd.uniform(after, end), kind, number, value))

    for _ in range(4):
        if "urgency" in case.features:
            add("urgency", rnd.randint(1, len(jobs) - 1), rnd.choice([8, 16, 20]))
        if "holds" in case.features:
            add("hold", rnd.randint(1, len(jobs) - 1))
            add("release", found[-1].number, after=found[-1].at)
        if "updates" in case.features:
            add("update", rnd.randint(1, len(jobs) - 1), rnd.uniform(-100, 200))
    if "booked" in case.features:
        ranks = rnd.sample(range(NODES), rnd.randint(2, 5))
        add("book", sum(1 << rank for rank in ranks))
        if rnd.random() < 0.5:
            add("give-up", found[-1].number, after=found[-1].at)
    if "down" in case.features:
        for rank in rnd.sample(range(NODES), 2):
            add("down", rank)
            add("up", rank, after=found[-1].at)
    has_one = {"reservation", "repeats"} & {*case.features}
    windows = [Change(60.0, "window", 0b11, 240.0)] if has_one else []
    others = {"reservation", "repeats", "windows"} & {*case.features}
    if (
        "booked" in case.features
        or case.whole
        and {"preemption", "grace"} & {*case.features}
        and not others
    ):
        # One after all jobs, so that promises are bound to ranks throughout.
        windows.append(Change(30000.0, "window", 0b1, 60.0))
    if "windows" in case.features:
        ranks = rnd.sample(range(NODES), rnd.randint(2, 5))
        for some in (ranks[:-1], ranks[-1:]):
            times = rnd.uniform(0, 200), rnd.uniform(60, 300)
            windows.append(Change(times[0], "window", sum(1 << one for one in some), times[1]))
    return [*windows, *sorted(found)]


class Played(NamedTuple):
    """The result of a history: starts and ranks by job id, seconds since the epoch; its beginning; and
    the answer of `sched.when` about the last job, if it was queried; and the searches for victims."""

    starts: dict
    ranks: dict
    begin: float
    said: object
    searches: list


def config_of(case):
    config = {}
    for feature in case.features:
        for table, entries in CONFIG.get(feature, {}).items():
            config.setdefault(table, {}).update(entries)
    return config


class Enforced(Simulation):
    """Jobs end after their run times; at their ends by R at the latest, if `ends_at_limit` is true for
    the job. Their limits may be changed, and they may be held."""

    def __init__(self, *args):
        super().__init__(*args)
        self.jobs, self.held, self.stopped_by = {}, {}, {}

    def enter(self, jobid, job, submit):
        self.jobs[jobid], self.held[jobid] = job, submit
        self.release(jobid)

    def told(self, payload):
        super().told(payload)
        if payload["type"] == 0:
            jobid = payload["id"]
            end = payload["R"]["execution"]["expiration"] or inf
            self.stop(jobid, self.jobs[jobid].end(self.now, end) - self.now)

    def stop(self, jobid, seconds):
        """End a job in some seconds."""

        def end():
            if self.stopped_by[jobid] is end:
                self.end(jobid, self.given[jobid])

        self.stopped_by[jobid] = end
        if seconds < inf:
            self.reactor.call_later(seconds, end)

    def release(self, jobid):
        if jobid in self.held:
            job, submit = self.jobs[jobid], self.held.pop(jobid)
            self.alloc(jobid, job.spec, userid=job.userid, priority=job.priority, t_submit=submit)

    def reserve(self, name, start, duration, ranks, **entry):
        """Make a reservation of ranks (a mask) for the member."""
        entry = {"name": name, "start": start, "duration": duration, **entry}
        entry["hosts"] = ",".join(f"n{rank}" for rank in members(ranks))
        self.answer("reserve", reservation={**entry, "zone": "UTC", "users": [MEMBER]})

    def change(self, one):
        """Make a change, if it concerns a pending or running job."""
        jobid = one.number
        pending = self.sched.pending(jobid)
        if one.kind == "down":
            self.resource.update(down=str(one.number))
        elif one.kind == "up":
            self.resource.update(up=str(one.number))
        elif one.kind == "book":
            self.reserve(WINDOWS[1], self.now + LEAD, BOOKED, one.number)
        elif one.kind == "give-up":
            self.answer("unreserve", name=WINDOWS[1])
        elif one.kind == "urgency" and pending:
            self.prioritize((jobid, one.value))
        elif one.kind == "hold" and pending:
            self.held[jobid] = pending.t_submit
            self.cancel(jobid)
        elif one.kind == "release":
            self.release(jobid)
        elif one.kind == "update" and jobid in self.given and jobid not in self.ended:
            job, begun = self.jobs[jobid], self.begun[jobid]
            end = job.moved_end(begun, self.now, one.value)
            if end is not None:
                self.expire(jobid, end)
                self.stop(jobid, max(0.0, job.end(begun, end) - self.now))


def play(case, jobs, changes, ask):
    """Run a history under the scheduler."""
    module, args, _ = POLICIES[case.policy]
    rig = Enforced(machine(case.tree, NODES, gpus=GPUS, properties={"left": "0-3"}))
    rig.instance.config = config_of(case)
    if "gpu-cores" in case.features:
        args = (*args, f"pool-cores-per-gpu={CORES // GPUS}")
    if "order" in case.features:
        args = (*args, "order=queue" if case.policy == "fifo" else "order=strict")
    rig.load(module, "queue-depth=unlimited", "log-level=err", "estimate-depth=0", *args)
    searches = []
    if {"preemption", "grace"} & {*case.features}:
        note_searches(rig.rule("preemption"), searches)
    rig.settle()
    begin, said = begin_of(case), None
    rig.wait(begin - rig.now)
    for name, one in zip(WINDOWS, windows_of(changes)):
        every = {"every": f"{every_of(case)}s"} if "repeats" in case.features else {}
        rig.reserve(name, begin + one.at, one.value, one.number, **every)
    for jobid, job in in_time(jobs, changes):
        if begin + job.at > rig.now:
            rig.wait(begin + job.at - rig.now)
        if isinstance(job, Change):
            rig.change(job)
            continue
        if ask and jobid == len(jobs):
            rig.client.userid = job.userid
            said = rig.answer("when", jobspec=job.spec)
            rig.client.userid = 0
        rig.enter(jobid, job, rig.now)
    rig.wait(length(case))
    assert not rig.logged(3), rig.logged(3)
    ranks = {jobid: rig.ranks(jobid) for jobid in rig.begun}
    return Played(dict(rig.begun), ranks, begin, said, searches)


def begin_of(case):
    """The beginning of a history, seconds since the epoch."""
    is_charged = "budgets" in case.features
    return START_TIME + (DAY_S - TO_MIDNIGHT - START_TIME % DAY_S if is_charged else 0)


def every_of(case):
    """Seconds between the windows of a reservation that repeats."""
    return int(DAY_S) if "budgets" in case.features else EVERY


def length(case):
    """Seconds of a history after its last event."""
    return 10 * DAY_S if "budgets" in case.features else 40000.0


def in_time(jobs, changes):
    """Jobs with their ids, and changes with 0, by time."""
    changes = [(0, one) for one in changes if one.kind != "window"]
    return sorted([*enumerate(jobs, 1), *changes], key=lambda one: one[1].at)


def windows_of(changes):
    return [one for one in changes if one.kind == "window"]


class Player(Evictions, Loans, UseOverTime):
    """Plays a history by the definition.

    Args:
        case (Case): the kind of site
        real (Played): the scheduler's history: its beginning, and the ranks of running jobs for ranks
            that go down where units are only counted

    Attributes:
        starts (dict): the starts, by job id
    """

    def __init__(self, case, real, changes):
        begin = real.begin
        self.case, self.now, self.begin, self.real = case, begin, begin, real
        self.starts, self.ends, self.jobs = {}, {}, {}
        self.held_at, self.waited, self.submit, self.came, self.due = {}, {}, {}, {}, {}
        self.searches = list(real.searches)
        self.evictions = []
        self.wrong = []
        config = config_of(case)
        self.pool = (TreePool if case.tree else ResourcePool)(
            machine(case.tree, NODES, gpus=GPUS, properties={"left": "0-3"}),
            amounts=config.get("amounts"),
            cores_per_gpu=CORES // GPUS if "gpu-cores" in case.features else None,
        ).impl
        self.pool.clock = lambda: self.now
        self.racks = None
        if "topology" in config:
            masks = {f"r{n}": 3 << 2 * n for n in range(NODES // 2)}
            self.racks = Groups("rack", masks)
            self.pool.pack_by([self.racks])
        options = POLICIES[case.policy][2]
        (units,) = self.pool.inventory.kinds
        has = self.has = self.pool.inventory.counts_of(units)
        self.state = Lending(dict.fromkeys(range(NODES), has), **options)
        self.begin_loans()
        windows = windows_of(changes)
        if case.whole and not windows:
            self.state.lines = True
            split = "constraints" in case.features
            self.state.totals = {0: (4,), 1: (4,)} if split else {0: (NODES,)}
        else:
            self.state.choose = self.choose
        for name, most in (("matlab", 3),):
            self.state.counters[name] = Counter(
                most, None, "planned" in case.features and case.policy != "fifo"
            )
        if "limits" in case.features:
            for user in (1001, 1002, 1003):
                of = None if self.state.lines else RANKS
                self.state.counters[f"nodes {user}"] = Counter(4, of, is_assured=True)
                self.state.counters[f"jobs {user}"] = Counter(5, is_assured=True)
            for bank in "ab":
                most, of = (20 // CORES, None) if self.state.lines else (20, 0)
                self.state.counters[f"cores {bank}"] = Counter(most, of, is_assured=True)
        self.begin_use(CORES)
        #: by reservation, its windows, the active or next one first
        self.windows = {}
        for name, one in zip(WINDOWS, windows):
            where = dict.fromkeys(members(one.number), has)
            times = TIMES if "repeats" in case.features else 1
            starts = [begin + one.at + at * every_of(case) for at in range(times)]
            self.windows[name] = [Use(at, at + one.value, None, where) for at in starts]
            if times > 1:
                self.windows[name][-1].end = inf  # as many as planned
            self.state.windows += self.windows[name]
        self.requests = {}
        self.placed = {}
        self.held = set()

    # -- jobs --------------------------------------------------------------------------------------

    def job(self, jobid, is_over=False):
        """The `Job` of a request; `is_over`: its wait for its preference has ended."""
        arrival = self.jobs[jobid]
        system = arrival.spec["attributes"]["system"]
        request = self.pool.parse_resource_request(arrival.spec)
        placement = system.get("placement", {})
        count = request.shape.node_count
        is_one = count is not None and count.fixed and count.min == 1  # it is in a rack anyway
        within = placement and not is_one and GroupBinding(self.racks, most=1)
        if within and placement["mode"] == "preferred":
            if placement["wait"] and not is_over:
                self.due[jobid] = self.now + placement["wait"]
            else:
                within = None
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
        if "mixed" in self.case.features:
            keys = system["bank"], arrival.userid
            demand = demand._replace(claim=Claimant(keys, (~0b1111, 0b1111)))
        demands = (demand,)
        if within:
            demands = tuple(map(demand.on, self.racks.masks))
        submit = self.submit.setdefault(jobid, self.now)
        if not is_over:
            self.came[jobid] = self.now
        limit = request.duration or inf
        takes = dict(system.get("licenses", {}))
        cores = demand.count * (1 if self.state.lines else CORES if demand.whole else each[0])
        takes.update(self.hours_of(arrival, demand, cores))
        if "limits" in self.case.features:
            least = demand.count
            if not (self.state.lines or demand.per_node):
                by_rank = self.pool.slots_by_rank(shape)
                most = max([slots for slots, some in by_rank if some & ranks], default=0)
                least = -(-least // most) if most else 0
            takes[f"nodes {arrival.userid}"] = least
            takes[f"jobs {arrival.userid}"] = 1
            takes[f"cores {system['bank']}"] = cores
        wait = system.get("max-wait")
        latest = inf if wait is None else self.now + max(0.0, wait - self.waited.get(jobid, 0.0))
        latest = min(latest, system.get("deadline", inf) - limit) if limit < inf else latest
        size = request.ncores if hasattr(request, "ncores") else 1
        self.requests[jobid] = request
        may_end = system.get("queue") == "standby" and "reservation" not in system
        every = (self.case.policy == "fifo") != ("order" in self.case.features)  # order=strict
        return Job(
            jobid,
            demands,
            limit,
            order=-arrival.priority,
            wants=-1 if every else demand.ranks,
            is_possible=self.is_possible(demands),
            submit=submit,
            takes=takes,
            window=self.window_of(system.get("reservation")),
            latest=latest,
            is_early=self.case.policy != "rank" and "early" in system,
            class_rank=0.0 if may_end else inf,
            after=AFTER,
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

    def window_of(self, name):
        """The active or next window of a reservation; the last, if that is over."""
        windows = self.windows.get(name, [name and NEVER])
        there = [one for one in windows if one in self.state.windows]
        return there[0] if there else windows[-1]

    def is_possible(self, demands):
        """Whether a job fits if all others have ended."""
        room = Availability(self.state.totals)
        return any(room.room(one, 0.0, inf)[0] >= one.count for one in demands)

    def choose(self, job, ranks, room, until):
        """The amounts that the pool allocates to a job on some ranks (a mask) until a time, as for
        a plan."""
        self.follow()
        request, pool = self.requests[job.id], self.pool
        runs = self.state.running.items()
        gone = [o.id for o, u in runs if o.window is None and all(u is not r for r in room.uses)]
        if gone:  # in a search for victims
            pool = pool.copy()
        for jobid in gone:
            pool.free(jobid)
        shape, index = request.shape, pool.index.copy()
        for window in self.state.windows:
            is_begun = window.start <= self.now and window is not self.state.inside
            for rank in window.where if is_begun else ():
                keep(index, rank, (0,) * len(self.has))
        if shape.node_count is None and shape.slot_count.max > 1:
            running = [use for _, use in runs if use.start == -inf]
            kept = [use for use in room.uses if not any(use is one for one in running)]
            for rank in members(ranks):
                if any(rank in u.where and u.start < until for u in kept):
                    each = pool.inventory.padded(shape.need)
                    demand = Demand(1 << 20, each, False, False, 1 << rank, job.demands[0].claim)
                    slots, _ = room.room(demand, self.now, until)
                    keep(index, rank, [slots * need for need in each])
        placed = pool.place_request(request, index, ranks)
        if placed is None:
            return None
        found = self.amounts_of(placed[0])
        self.placed[job.id] = (found, placed)
        return found

    def amounts_of(self, selection):
        """The amounts of a selection of the pool, by rank."""
        inventory, found = self.pool.inventory, {}
        for ranks, units in pairs(selection):
            amounts = inventory.counts_of(units)
            for rank in members(ranks):
                before = found.get(rank, (0,) * len(amounts))
                found[rank] = tuple(map(sum, zip(before, amounts)))
        return found

    def follow(self):
        """Enter the allocations of the running jobs into the pool."""
        pool = self.pool
        for job, use in self.state.running.items():
            if job.id in self.held:
                continue
            self.held.add(job.id)
            request = self.requests[job.id]
            found, placed = self.placed.get(job.id, (None, None))
            # Other jobs were moved for it, or have taken its cores since they were chosen.
            if found != use.where or not pool.index.is_free(placed[0]):
                placed = self.place_on(pool, job, use.where)
            pool.grant(job.id, request, *placed)

    def place_on(self, pool, job, where):
        """Choose the units of a job among given amounts of some ranks."""
        index = pool.index.copy()
        for rank, amounts in where.items():
            keep(index, rank, amounts)
        return pool.place_request(self.requests[job.id], index, sum(1 << rank for rank in where))

    # -- the history -------------------------------------------------------------------------------

    def run(self, jobs, changes):
        """Play it; returns the starts."""
        state, ends = self.state, self.ends
        coming = in_time(jobs, changes)[::-1]
        wakes = set()
        while coming or ends or wakes or any(job.latest < inf for job in state.pending):
            times = [*ends.values()] + [self.begin + one.at for _, one in coming[-1:]]
            times += [job.latest for job in state.pending if self.now < job.latest < inf]
            times += [self.due[job.id] for job in state.pending if job.id in self.due]
            times += [one.time for one in self.searches[:1]]
            times += [one.deadline for one in self.evictions if not one.is_over]
            times += self.loan_times()
            times += [self.sort_at, self.period_at if state.running or coming else inf]
            self.now = state.now = min([*times, *wakes])
            is_woken = self.now in wakes
            if self.midnight <= self.now:
                self.begin_day()
            for window in [one for one in state.windows if one.end <= self.now]:
                state.windows.remove(window)
                self.move_members(window)
            have_ended = False
            for job in [job for job, end in ends.items() if end <= self.now]:
                del ends[job]
                use = state.running.pop(job)
                self.note_end(job, use)
                self.borrower_ended(job, use)
                self.pool.free(job.id) if state.choose else None
                is_woken = have_ended = True
            if have_ended and self.evictions:
                self.ask_refused(have_moved=False)  # before their jobs start
            is_woken |= self.go_on(have_ended)
            if have_ended:
                self.start_takers()
            self.go_on_with_loans()
            is_woken |= self.search_due(without_takers=True)
            before = len(state.pending)
            if not is_woken:
                while coming and self.begin + coming[-1][1].at <= self.now:
                    jobid, one = coming.pop()
                    if isinstance(one, Change):
                        self.change(one)
                    else:
                        self.jobs[jobid] = one
                        job = self.job(jobid)
                        job.share = self.share(job)
                        state.pending.append(job)
                self.search_due()
                for job in list(state.pending):
                    if self.due.get(job.id, inf) <= self.now:
                        self.prefer_no_more(job)
            self.keep_order()
            due = any(job.latest <= self.now for job in state.pending)
            if not (is_woken or due or state.freed or len(state.pending) > before):
                continue  # a change that concerns no job
            started = state.decide(self.now)
            closing = {window.end for window in state.windows if window.start <= self.now}
            for job in [job for job in started if job.id > 0]:
                self.starts[job.id] = self.now
                end, latest = state.running[job].end, self.now + job.limit
                end = job.until if self.loan_of(job) else end
                if end > latest - LATE_START_S and end not in closing:  # it ends with its window
                    end = latest
                ends[job] = self.jobs[job.id].end(self.now, end)
            if state.choose is not None:
                self.follow()
            for eviction in [one for one in self.evictions if one.job in started]:
                self.call_off(eviction)
            wakes = {time for time in self.wakes() if time < self.begin + length(self.case)}
        return self.starts

    def move_members(self, window):
        """Let the jobs that wait for a window that is over wait for the next."""
        (name,) = [name for name, windows in self.windows.items() if window in windows]
        for job in self.state.pending:
            if job.window is window:
                job.window = self.window_of(name)

    def change(self, one):
        """Make a change, as `Enforced.change` does."""
        state, is_all = self.state, self.state.policy == "all"
        for eviction in [
            e for e in self.evictions if e.job.id == one.number and one.kind == "hold"
        ]:
            self.call_off(eviction)
        job = {job.id: job for job in [*state.pending, *state.running]}.get(one.number)
        if one.kind in ("down", "up"):
            self.move_rank(one)
        elif one.kind == "book":
            self.book(one)
        elif one.kind == "give-up":
            self.give_up()
        elif one.kind == "release" and one.number in self.held_at:
            when, came, promise = self.held_at.pop(one.number)
            self.waited[one.number] = self.waited.get(one.number, 0.0) + when - came
            job = self.job(one.number)
            job.share = self.share(job)
            if job.latest < self.now:
                return  # it is denied
            state.pending.append(job)
            if promise is not None:
                state.put_back({job: promise})
        elif one.kind == "urgency" and job in state.pending:
            job.was_aside &= job.order == -one.value
            job.order = -one.value
            self.moved(job)
        elif one.kind == "hold" and job in state.pending:
            promise = state.promises.get(job) if is_all else None
            self.held_at[job.id] = self.now, self.came[job.id], promise
            state.pending.remove(job)
            state.drop(job)
            state.freed = True
        elif one.kind == "update" and job in state.running:
            start, use = self.starts[job.id], state.running[job]
            end = self.jobs[job.id].moved_end(start, self.now, one.value)
            if end is not None:
                is_later, state.freed = end > use.end, True
                use.end = job.until = end
                self.ends[job] = max(self.now, self.jobs[job.id].end(start, end))
                self.borrower_extended(job)
                if is_all and is_later:
                    state.put_back(state.promises)

    def book(self, one):
        """Make a reservation; if some promise cannot be kept beside it, all are made anew."""
        state, start = self.state, self.now + LEAD
        where = dict.fromkeys(members(one.number), self.has)
        window = Use(start, start + BOOKED, None, where)
        self.windows[WINDOWS[1]] = [window]
        known = {job: use for job, use in state.promises.items() if not is_open(use)}
        state.windows.append(window)
        self.retry_members(NEVER)
        state.hidden = [job for job in state.promises if job not in known]
        are_kept = all(
            state.holds(job) or state.promise(job, use.start) for job, use in known.items()
        )
        state.hidden = []
        if not are_kept:
            state.promises.update(known)
            self.renew()

    def give_up(self):
        """Give up that reservation; all jobs are examined, even if it is over."""
        (window,) = self.windows[WINDOWS[1]]
        if window in self.state.windows:
            self.state.windows.remove(window)
        self.retry_members(window)

    def retry_members(self, window):
        """Have the next pass examine all jobs, of reservations too; a job that waited for a window
        now waits for the present ranks of its reservation."""
        self.state.freed = True
        for job in self.state.pending:
            job.is_aside = job.is_aside and job.window is None
            if job.window is window:
                job.window = self.window_of(WINDOWS[1])

    def move_rank(self, one):
        """Let a rank go down, or come up."""
        state, rank = self.state, one.number
        if state.lines:
            line, by = rank * len(state.totals) // NODES, 1 if one.kind == "up" else -1
            state.totals[line] = (state.totals[line][0] + by,)
            for job, use in state.running.items():
                if rank in self.real.ranks.get(job.id, ()):
                    count = sum(use.where.pop(line, ())) + by
                    use.where.update({line: (count,)} if count else {})
        elif one.kind == "up":
            state.totals[rank] = self.has
            self.pool.mark_up(str(rank))
        else:
            del state.totals[rank]
            self.pool.mark_down(str(rank))
        self.ask_refused(have_moved=False)
        for eviction in [e for e in self.evictions if e.where.keys() - state.totals.keys()]:
            self.call_off(eviction)
        self.retry_takers()
        for job in state.pending:
            job.is_possible = self.is_possible(job.demands)
        if one.kind == "down":
            self.renew()

    def renew(self):
        """Make all promises anew: latest starts at once, others in the next pass."""
        state = self.state
        if state.policy == "all":
            state.put_back(state.promises)
        else:
            for job in list(state.promises):
                state.drop(job)

    def ask_refused(self, have_moved=True):
        """Have the next pass examine all jobs, the refused ones too; if only the order has changed, not
        those over a budget."""
        self.state.freed = True
        for job in filter(self.state.may_be_offered, self.state.pending):
            if not (have_moved and job.offer):
                job.was_refused, job.is_refused = job.is_refused, False

    def moved(self, job):
        """Take a job's promise back, except of a latest start: its place in the queue, or request, has
        changed. Those that were refused are examined again."""
        self.ask_refused()
        if self.state.policy != "all":
            self.state.drop(job)

    def prefer_no_more(self, job):
        """End a job's wait for its preference."""
        del self.due[job.id]
        job.demands, job.is_aside = self.job(job.id, is_over=True).demands, False
        self.moved(job)

    def wakes(self):
        """When the scheduler has a pass without a message: a promise comes due without a job's
        end."""
        state, late = self.state, 0.0
        if state.policy == "all":
            times = [use.start for use in state.promises.values()]
            times += [time + 2 * LATE_START_S for time in times if time <= self.now]
        elif self.case.policy in ("rank", "candidates") or (
            state.lines
            and "into" not in self.case.features
            and not any(is_open(use) for use in state.promises.values())
            and state.running
        ):
            times = []
        else:
            times, late = [use.start for use in state.promises.values()], LATE_S
        found = {time + late for time in times if self.now < time < inf}
        times = [time for window in state.windows for time in (window.start, window.end)]
        times += self.budget_wakes()
        return found | {time for time in times if self.now < time < inf}


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
    events = changes(case, seed, jobs)
    real = play(case, jobs, events, ask and seed % 2 == 0)
    player = Player(case, real, events)
    mine = player.run(jobs, events)
    wrong = player.wrong
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
