# SPDX-License-Identifier: LGPL-3.0-or-later
"""The definition of a decision (`flux.scheduler.definition`): against recorded schedules, and our schedulers
against it on random small machines.

FLUX_TEST_LONG=1 takes longer prefixes and more histories. Without it these are histories that have found a
bug, and one of each pair of features. FLUX_TEST_HISTORIES=FIRST-LAST takes histories of up to three features
at random, one for each of these seeds (1-10).
"""

import heapq
import os
import random
from itertools import combinations
from math import inf

import pytest
from definition_play import POLICIES, Case, compare
from shared import corner_cases, load_json, recorded_cases

from flux.resource.plan.availability import Demand, Use
from flux.scheduler.definition import Job, State, victims_for
from flux.scheduler.policies.ranks import RANKS as FORMULAS

LONG = bool(os.environ.get("FLUX_TEST_LONG"))

#: Policy of a recording -> its options in the definition.
RECORDED = {
    "fcfs": {"policy": "strict"},
    "easy": {},
    "depth4-kept": {"depth": 4},
    "depth4-plan": {"depth": 4, "keeps_promises": False},
    "conservative-kept": {"depth": inf},
    "conservative-plan": {"depth": inf, "keeps_promises": False},
}

#: The same of golden/schedules/ranked, with the formulas of rank and candidates.
RANKED = {
    "easy-sjbf": ({"keeps_promises": False, "has_candidates": True}, "fcfs", "shortest"),
    "easy-saf": ({"keeps_promises": False}, "area", "fcfs"),
    "easy-expansion": ({"keeps_promises": False}, "expansion", "fcfs"),
    "easy-wfp3": ({"keeps_promises": False}, "wfp3", "fcfs"),
    "easy-f1": ({"keeps_promises": False}, "f1", "fcfs"),
    "bounded-fcfs-0h": ({"policy": "all", "within": 0.0}, "fcfs", "fcfs"),
    "bounded-area-24h": ({"policy": "all"}, "area", "fcfs"),
    "bounded-expansion-24h": ({"policy": "all"}, "expansion", "fcfs"),
}


def replay(rows, procs, options, rank="fcfs", candidates="fcfs"):
    """Starts, by id, of jobs given as (id, submit, run, limit, size), on a line of units."""

    def formula(name, submit, limit, size):
        expected = float(max(1, limit))
        return lambda now: FORMULAS[name](now - submit, expected, size, submit - first + 1)

    state = State({0: (procs,)}, lines=True, **options)
    runs = {row[0]: row[2] for row in rows}
    first, coming, ends, starts = rows[0][1], rows[::-1], [], {}
    while coming or ends or state.pending:
        times = [one[0] for one in ends[:1]] + [row[1] for row in coming[-1:]]
        if state.policy == "all":
            times += [use.start for use in state.promises.values()]
        now = min(times)
        while ends and ends[0][0] == now:
            del state.running[heapq.heappop(ends)[2]]
        while coming and coming[-1][1] == now:
            id, submit, _, limit, size = coming.pop()
            if size > procs:
                starts[id] = None
                continue
            demand = Demand(size, (1,), False, False, 1)
            ranks = [formula(name, submit, limit, size) for name in (rank, candidates)]
            state.pending.append(
                Job(id, (demand,), float(limit), 0.0, submit=submit, rank=ranks[0])
            )
            state.pending[-1].candidate_rank = ranks[1]
        for job in state.decide(now):
            starts[job.id] = now
            heapq.heappush(ends, (now + min(runs[job.id], job.limit), len(starts), job))
    return starts


@pytest.mark.parametrize("case, policy", recorded_cases(corner_cases(RECORDED), values=2))
def test_corner_case(case, policy):
    got = replay(case["jobs"], case["procs"], RECORDED[policy])
    assert {str(id): start for id, start in got.items()} == case["start"][policy]


def prefix(jobs, starts, count):
    """The first jobs, and those of their starts that none behind them can have changed."""
    rows = jobs[:count]
    until = jobs[count][1]
    return rows, {row[0]: starts[str(row[0])] for row in rows if starts[str(row[0])] < until}


@pytest.mark.parametrize("policy", recorded_cases(sorted({**RECORDED, **RANKED})))
def test_recorded_schedule(policy):
    name, long = f"sdsc-sp2-{policy}-batch-1000", 900
    if policy in RANKED:
        name, long = f"ranked/sdsc-sp2-{policy}", 1500
    recorded = load_json(f"golden/schedules/{name}.json")
    trace = load_json("golden/schedules/input-sdsc-sp2.json")
    rows, want = prefix(trace["jobs"], recorded["start"], long if LONG else 100)
    got = replay(rows, trace["procs"], *RANKED.get(policy, [RECORDED.get(policy)]))
    assert {id: got[id] for id in want} == want


# -- our schedulers --------------------------------------------------------------------------------

#: Features of which every pair is played.
FEATURES = (
    "limits", "licenses", "planned", "sharing", "racks", "max-wait", "gpus", "memory", "constraints", "priorities",
    "no-limit", "reservation", "order", "urgency", "holds", "updates", "late", "down", "preferred", "windows",
    "repeats", "booked", "preemption", "grace", "budgets", "fairshare",
    "deadline", "early", "mixed", "gpu-cores", "into",
)  # fmt: skip


def is_compared(case):
    """Whether the starts have to be equal; doc/reference/definition.rst says why others may differ."""
    has = set(case.features)
    if (
        has & {"sharing", "mixed", "racks", "gpus", "gpu-cores", "memory", "preferred"}
        and case.whole
    ):
        return False  # jobs ask for parts of nodes then
    kinds = has & {"reservation", "windows", "repeats", "booked"}
    if "down" in has and (kinds or has & {"preemption", "grace"} and case.whole):
        return False  # a reservation may be short of ranks, or get others
    if len(kinds) > 1:
        return False  # one or the other
    if "early" in has and (
        case.policy == "candidates"
        or has & {"limits", "licenses", "budgets", "preemption", "grace"}
    ):
        return False  # a job may be given up only for a promise that is certain
    if "fairshare" in has and has & {"licenses", "budgets"} and case.policy in ("easy", "depth"):
        return False  # a job takes precedence unless a rule has deferred it, once it was examined
    if "mixed" in has and has & {"preemption", "grace"}:
        return False  # a place among victims may be any
    if len(has & {"preemption", "grace", "into"}) > 1:
        return False  # one table
    one_table = {"licenses", "planned"}, {"sharing", "mixed"}
    return not any(has >= one for one in (*one_table, {"max-wait", "early"}))


def cases():
    """Cases and their seeds: every feature with every policy, and every pair of features with one of
    them, in one history each. FLUX_TEST_LONG=1 has all policies, nodes and parts, and 40 seeds."""
    sets = [(), *[(one,) for one in FEATURES], *combinations(FEATURES, 2)]
    sets.sort(key=lambda one: "into" in one)  # the others are those of before
    for number, features in enumerate(sets):
        for turn, policy in enumerate(POLICIES):
            if not LONG and len(features) == 2 and turn != number % len(POLICIES):
                continue
            kinds = [Case(policy, whole, features, number % 2 == 1) for whole in (True, False)]
            kinds = list(filter(is_compared, kinds))
            if not LONG and features:
                kinds = kinds[(number + turn) % 3 % 2 :][:1] or kinds
            for case in kinds:
                yield case, range(40) if LONG else [(number // 8 + turn) % 2]


@pytest.mark.parametrize(
    "case, seeds",
    [
        pytest.param(
            *one,
            id="-".join([one[0].policy, "nodes" if one[0].whole else "parts", *one[0].features]),
        )
        for one in cases()
    ],
)
def test_jobs_start_when_the_definition_says(case, seeds):
    for seed in seeds:
        assert compare(case, seed) == [], seed


FIRST, _, LAST = os.environ.get("FLUX_TEST_HISTORIES", "1-10").partition("-")


@pytest.mark.parametrize("seed", range(int(FIRST), int(LAST) + 1))
def test_jobs_of_random_features_start_when_the_definition_says(seed):
    rnd, case = random.Random(seed), None
    while case is None or not is_compared(case):
        features = tuple(rnd.sample(FEATURES, rnd.randint(0, 3)))
        policy, whole, tree = rnd.choice([*POLICIES]), rnd.random() < 0.5, rnd.random() < 0.5
        case = Case(policy, whole, features, tree)
    assert compare(case, seed) == [], case


#: Histories that have found a bug, of a scheduler or of the definition: a `Case`, and seeds. The commit that
#: added a line describes the bug.
FOUND = """
fifo nodes limits: 2
easy nodes limits: 17 19
unlimited parts planned: 1
rank nodes licenses: 2
none parts licenses: 4
none parts: 30
unlimited parts tree planned: 24
easy parts no-limit: 7
easy parts tree no-limit: 7
easy nodes limits max-wait: 6
fifo nodes limits licenses: 8
fifo nodes limits max-wait: 5
unlimited nodes licenses priorities: 7
easy parts licenses constraints: 23
none nodes planned constraints: 3
easy parts limits: 5 16
easy parts tree limits: 12
unlimited parts limits: 1
unlimited parts tree limits planned: 7
easy nodes limits constraints: 0
all nodes licenses: 6
all parts limits: 4
all nodes tree limits priorities: 0
all parts limits priorities: 6
all parts limits reservation: 5
unlimited parts planned sharing: 1
easy parts tree no-limit reservation: 22
unlimited nodes no-limit reservation: 3
easy nodes licenses no-limit: 5
all parts tree sharing: 5
easy parts sharing reservation: 2
easy nodes tree planned no-limit: 1
easy parts tree planned no-limit: 1
easy parts sharing no-limit: 3
easy parts limits reservation: 27
all parts tree limits sharing: 12
candidates parts licenses constraints: 6
unlimited nodes no-limit licenses: 32
unlimited parts no-limit limits: 8
unlimited parts tree no-limit limits: 18
unlimited nodes planned no-limit: 26
unlimited parts tree planned no-limit: 11
easy parts limits gpus memory priorities: 7
unlimited parts planned reservation: 9
unlimited parts planned sharing constraints reservation: 4 11
unlimited parts planned sharing racks no-limit reservation: 7
candidates parts tree planned max-wait memory constraints reservation: 17
candidates parts tree limits licenses racks memory reservation: 2
candidates parts tree limits racks gpus constraints priorities reservation: 19
none parts racks no-limit: 15
all nodes tree licenses priorities reservation: 26
all parts tree licenses priorities reservation: 21
easy parts limits sharing racks constraints no-limit: 1
all parts tree licenses memory reservation: 972
unlimited nodes limits reservation: 1
none nodes tree no-limit reservation: 27
all parts planned racks priorities no-limit: 981
none parts tree limits sharing max-wait memory reservation: 973
all parts tree limits planned sharing max-wait constraints: 981
candidates parts tree licenses no-limit reservation: 979
candidates parts tree planned sharing racks max-wait no-limit reservation: 970
all parts limits gpus reservation: 300
all parts licenses memory constraints no-limit reservation: 402
all parts planned max-wait gpus reservation: 501
all parts tree planned gpus no-limit reservation: 976
unlimited parts licenses reservation: 701
easy parts tree max-wait reservation: 801
unlimited parts tree limits planned no-limit: 980
unlimited parts limits gpus memory priorities no-limit: 983
unlimited parts tree memory constraints priorities no-limit reservation: 702
none parts tree sharing racks constraints no-limit: 30001
all nodes max-wait no-limit reservation: 30002
unlimited parts limits sharing no-limit: 40000
unlimited parts tree planned racks priorities: 60001
candidates nodes tree limits planned reservation: 60002
all parts tree sharing max-wait no-limit: 90000
easy parts tree sharing max-wait constraints: 120000 120001
easy nodes limits licenses constraints no-limit: 120001
fifo parts limits constraints priorities: 120002
fifo parts limits racks max-wait memory priorities reservation: 120001
unlimited parts urgency late: 1
easy parts memory holds updates windows: 210000
unlimited parts tree limits: 210000
depth nodes limits constraints priorities late: 200001
all parts tree racks down: 190002
all nodes no-limit reservation: 190002
fifo parts limits constraints order: 170000
easy parts tree licenses urgency: 1
unlimited parts tree planned reservation order late: 160001
unlimited nodes tree limits planned constraints urgency late down: 160001
depth parts licenses order urgency holds: 160001
easy nodes limits licenses max-wait constraints priorities no-limit: 130000
easy parts down: 140004
unlimited parts down: 140001
all nodes holds: 140005
all parts late: 140003
all nodes late: 140007
all parts max-wait memory order late: 230000
all nodes no-limit reservation urgency: 310000
all nodes licenses priorities no-limit order urgency holds: 310003
all parts planned no-limit down: 210001
all parts tree planned gpus order late preferred: 170001
unlimited parts repeats: 400001
fifo nodes tree limits constraints order: 410004 410007
fifo nodes limits constraints order: 410006
all parts tree limits late: 1
all parts tree no-limit reservation late: 500001
fifo parts tree limits reservation late: 430000
all parts limits licenses windows: 500000
all nodes limits urgency windows: 500001
all nodes no-limit updates late: 600001
easy nodes tree no-limit repeats: 720000
candidates parts gpus memory no-limit repeats: 720201
rank parts racks windows: 720003
rank parts limits gpus urgency late: 730001
unlimited parts tree memory no-limit repeats: 700200
all parts limits updates late: 700301
all nodes max-wait no-limit late down: 760002
depth parts updates preferred windows: 490124
depth parts planned reservation updates late: 491001
fifo nodes limits no-limit order booked constraints: 988045
depth parts tree limits constraints preferred: 984478
unlimited parts limits no-limit urgency late order: 984696
all parts limits planned sharing preferred reservation: 985045
none parts preemption: 9
unlimited parts tree preemption: 1
easy parts preemption: 29
rank nodes preemption: 6
rank parts tree preemption: 1
depth parts preemption no-limit: 102
none parts tree preemption no-limit: 103
candidates nodes tree budgets: 3
fifo nodes budgets: 6
fifo parts tree fairshare: 2 7
all parts tree order booked: 0
all parts tree grace: 6433
candidates parts limits grace: 997951
fifo parts grace limits urgency: 6413
depth nodes tree early: 6
unlimited parts early: 1
easy parts mixed limits: 997529
easy parts tree limits grace: 997911
all parts tree limits gpus grace: 997951
depth parts into holds max-wait: 55016
depth nodes into planned updates: 58046
all parts tree into priorities: 620870
depth parts updates no-limit budgets: 80191
unlimited parts updates no-limit booked: 73011
unlimited nodes tree updates no-limit constraints limits priorities: 64010
easy parts tree fairshare order: 90015
unlimited parts tree booked late mixed: 91135
unlimited parts tree grace: 92504
all nodes booked budgets: 92458
all parts down grace: 202266
all parts no-limit urgency: 96159
all nodes tree down fairshare max-wait: 203112
"""


def found():
    for line in FOUND.strip().splitlines():
        text, _, seeds = line.partition(":")
        policy, kind, *features = text.split()
        tree = features[:1] == ["tree"]
        case = Case(policy, kind == "nodes", tuple(features[tree:]), tree)
        yield from (pytest.param(case, int(seed), id=f"{text} {seed}") for seed in seeds.split())


@pytest.mark.parametrize("case, seed", list(found()))
def test_histories_that_have_found_a_bug(case, seed):
    assert compare(case, seed) == []


def nodes(id, count, limit, ranks=0b1111, **options):
    """A job of whole nodes."""
    return Job(id, (Demand(count, (8, 0), True, True, ranks),), limit, **options)


def test_the_fewest_that_help_are_ended():
    state = State(dict.fromkeys(range(3), (8, 0)))
    for id, rank in ((7, 0), (8, 1), (9, 2)):
        job = nodes(id, 1, 1000, class_rank=0, after=10.0 * rank)
        state.running[job] = Use(-inf, 1000.0, None, {rank: (8, 0)})
    state.now = 15.0
    assert [job.id for job in victims_for(state, nodes(1, 1, 50, class_rank=1))] == [8]
    # the last runs undisturbed
    assert victims_for(state, nodes(1, 3, 50, class_rank=1)) == []
