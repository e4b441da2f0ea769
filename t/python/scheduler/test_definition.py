# SPDX-License-Identifier: LGPL-3.0-or-later
"""The definition of a decision (`flux.scheduler.definition`): against recorded schedules, rule by rule, and our
schedulers against it on random small machines.

FLUX_TEST_LONG=1 takes longer prefixes and more histories.
"""

import heapq
import os
from itertools import combinations
from math import inf

import pytest
from definition_play import POLICIES, Case, compare
from shared import corner_cases, load_json, recorded_cases

from flux.resource.plan.availability import Demand, Use
from flux.scheduler.definition import RANKS, Counter, Job, State, decide, victims_for
from flux.scheduler.policies.ranks import RANKS as FORMULAS

LONG = bool(os.environ.get("FLUX_TEST_LONG"))

#: By the policy of a recording: what it is in the definition.
RECORDED = {
    "fcfs": {"policy": "strict"},
    "easy": {},
    "depth4-kept": {"depth": 4},
    "depth4-plan": {"depth": 4, "is_kept": False},
    "conservative-kept": {"depth": inf},
    "conservative-plan": {"depth": inf, "is_kept": False},
}

#: The same of golden/schedules/ranked, with the formulas of rank and candidates.
RANKED = {
    "easy-sjbf": ({"is_kept": False, "has_candidates": True}, "fcfs", "shortest"),
    "easy-saf": ({"is_kept": False}, "area", "fcfs"),
    "easy-expansion": ({"is_kept": False}, "expansion", "fcfs"),
    "easy-wfp3": ({"is_kept": False}, "wfp3", "fcfs"),
    "easy-f1": ({"is_kept": False}, "f1", "fcfs"),
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
        now, freed = min(times), False
        while ends and ends[0][0] == now:
            del state.running[heapq.heappop(ends)[2]]
            freed = True
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
        for job in decide(state, now, freed):
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


@pytest.mark.parametrize("policy", recorded_cases(sorted(RECORDED)))
def test_recorded_schedule(policy):
    recorded = load_json(f"golden/schedules/sdsc-sp2-{policy}-batch-1000.json")
    jobs = load_json("golden/schedules/input-sdsc-sp2.json")["jobs"]
    rows, want = prefix(jobs, recorded["start"], 900 if LONG else 120)
    got = replay(rows, recorded["procs"], RECORDED[policy])
    assert {id: got[id] for id in want} == want


@pytest.mark.parametrize("policy", recorded_cases(sorted(RANKED)))
def test_recorded_schedule_by_ranks(policy):
    recorded = load_json(f"golden/schedules/ranked/sdsc-sp2-{policy}.json")
    trace = load_json("golden/schedules/input-sdsc-sp2.json")
    rows, want = prefix(trace["jobs"], recorded["start"], 1500 if LONG else 150)
    got = replay(rows, trace["procs"], *RANKED[policy])
    assert {id: got[id] for id in want} == want


# -- our schedulers --------------------------------------------------------------------------------

#: Features of which every pair is played.
FEATURES = (
    "limits",
    "licenses",
    "planned",
    "sharing",
    "racks",
    "max-wait",
    "gpus",
    "memory",
    "constraints",
    "priorities",
    "no-limit",
    "reservation",
)


def is_compared(case):
    """Whether the starts have to be equal; doc/reference/definition.rst says why others may differ."""
    has = set(case.features)
    if has & {"sharing", "racks", "gpus", "memory"} and case.whole:
        return False  # jobs ask for parts of nodes then
    if has >= {"licenses", "planned"}:
        return False  # one table
    if case.whole and "reservation" in has:
        # The scheduler counts nodes again when the window has begun.
        if "no-limit" in has and case.policy in ("easy", "none"):
            return False
        return "limits" not in has or case.policy not in ("unlimited", "none")
    return True


def cases():
    """Every feature with every policy, and every pair of features with one of them."""
    found = []
    sets = [(), *[(one,) for one in FEATURES], *combinations(FEATURES, 2)]
    for number, features in enumerate(sets):
        policies = list(POLICIES)
        if len(features) == 2 and not LONG:
            policies = [policies[number % len(policies)]]
        for policy in policies:
            for whole in (True, False):
                case = Case(policy, whole, features, tree=number % 2 == 1)
                if is_compared(case):
                    found.append(case)
    return found


@pytest.mark.parametrize(
    "case",
    cases(),
    ids=lambda c: "-".join([c.policy, "nodes" if c.whole else "parts", *c.features]),
)
def test_jobs_start_when_the_definition_says(case):
    for seed in range(40 if LONG else 2):
        assert compare(case, seed) == [], seed


#: Histories that have found a bug of a scheduler, with what it was.
FOUND = (
    # Of the jobs that one limit let in and another refused, the next in line were not let in.
    (Case("fifo", True, ("limits",)), 2),
    # A job that a limit kept back gave up its promise, and those ahead of it were not looked at again.
    (Case("easy", True, ("limits",)), 17),
    # A promise of licences that is bound to ranks moved from one time to come to another.
    (Case("unlimited", False, ("planned",)), 1),
    # With rank=, jobs waited for one whose licences were in use; and of those that came back, the first
    # in the order of the queue did.
    (Case("rank", True, ("licenses",)), 2),
    # With guarantee=none, a job whose licences others took meanwhile kept its promise when one came.
    (Case("none", False, ("licenses",)), 4),
    # There a timer for a promise whose job had started made a pass, in which others found other ranks.
    (Case("none", False), 30),
    # For licences that are not there at a time, tries to move promises were used up.
    (Case("unlimited", False, ("planned",), tree=True), 24),
    # What is kept of ranks for a job behind one without a limit was as of an earlier pass; and for
    # slots it did not matter where that one is.
    (Case("easy", False, ("no-limit",)), 7),
    (Case("easy", False, ("no-limit",), tree=True), 7),
    # Of the jobs that a limit let in and that found no room, only some gave way to others.
    (Case("easy", True, ("limits",)), 19),
    (Case("easy", True, ("limits", "max-wait")), 6),
    # One that was let in by a limit and kept out by a licence gave way to nobody; in strict order jobs that
    # a limit had let in stayed behind one that was given up.
    (Case("fifo", True, ("limits", "licenses")), 8),
    (Case("fifo", True, ("limits", "max-wait")), 5),
    # Promises moved in a row past a job that a licence had just let in.
    (Case("unlimited", True, ("licenses", "priorities")), 7),
    # A job whose licences were in use by now still kept one on other nodes from a promise.
    (Case("easy", False, ("licenses", "constraints")), 23),
    # With guarantee=none, promises on other nodes kept planned licences from a job ahead of them.
    (Case("none", True, ("planned", "constraints")), 3),
    # In the definition, a job that was offered too many nodes was offered others when it gave up its promise.
    (Case("easy", False, ("limits",)), 5),
    # What was offered to a job was remembered for others with another limit of time.
    (Case("easy", False, ("limits",), tree=True), 12),
    # In the definition, promises stayed where they were that had been moved for a job which a limit refused.
    (Case("easy", False, ("limits",)), 16),
    (Case("unlimited", False, ("limits",)), 1),
    # A span of planned licences that ends with a promise was too short by a rounding.
    (Case("unlimited", False, ("limits", "planned"), tree=True), 7),
    # What jobs behind a promised one leave it of a limit was not in the definition.
    (Case("easy", True, ("limits", "constraints")), 0),
    # With promise=all, a gap between promises was too short for a job by a rounding; of those that a limit
    # had kept back only some were promised another time; a job that was about to start, or was the only one
    # with its priority and about to start, had all be looked at in vain, who then lost their promises; and
    # higher priorities were not in the definition.
    (Case("all", True, ("licenses",)), 6),
    (Case("all", False, ("limits",)), 4),
    (Case("all", True, ("limits", "priorities"), tree=True), 0),
    (Case("all", False, ("limits", "priorities")), 6),
    # A job whose window was over its limit of nodes was not tried elsewhere.
    (Case("all", False, ("limits", "reservation")), 5),
    # A promise of planned licences on ranks that were shared could move to none but its own, and was kept
    # though others were on them by then.
    (Case("unlimited", False, ("planned", "sharing")), 1),
    # In the definition, what is kept for a job behind one without a limit kept a reservation's group out.
    (Case("easy", False, ("no-limit", "reservation"), tree=True), 22),
    (Case("unlimited", True, ("no-limit", "reservation")), 3),
    # What was kept for a job without a limit that a licence had let in did not count against the promise to
    # one behind it, which had no end either: each kept the other from starting, for ever.
    (Case("easy", True, ("licenses", "no-limit")), 5),
    # With promise=all, a job that had room only beside jobs of others that share nodes with nobody else was
    # not the head, but one behind it was. In the definition, a member that ends with its window kept off
    # ranks that were promised to another user after it.
    (Case("all", False, ("sharing",), tree=True), 5),
    (Case("easy", False, ("sharing", "reservation")), 2),
    # In the definition, a job was promised planned licences of which nobody knows when they come back.
    (Case("easy", True, ("planned", "no-limit"), tree=True), 1),
    # Planned licences were not kept for a job that waits for jobs without a limit; and in the definition it
    # claimed ranks of which it needs nothing.
    (Case("easy", False, ("planned", "no-limit"), tree=True), 1),
    (Case("easy", False, ("sharing", "no-limit")), 3),
    # In the definition, a job that waits for another offer was asked again when a window ended.
    (Case("easy", False, ("limits", "reservation")), 27),
    # In the definition with promise=all, a job that fits and would break promises was asked about limits behind
    # a head, and lost its own promise.
    (Case("all", False, ("limits", "sharing"), tree=True), 12),
    # In the definition, nobody waited for a candidate of which a licence had come free meanwhile.
    (Case("candidates", False, ("licenses", "constraints")), 6),
    # In the definition, an open promise behind a job whose promise could not be kept stayed, and a job kept its
    # open promise after those behind it were made anew.
    (Case("unlimited", True, ("no-limit", "licenses")), 32),
    (Case("unlimited", False, ("no-limit", "limits")), 8),
    # An offer that a limit had refused was remembered for an equal job behind, although promises made
    # since kept the pool from offering it.
    (Case("unlimited", False, ("no-limit", "limits"), tree=True), 18),
    # Open promises of planned licences kept a job ahead aside, and it came back, for ever (in the definition);
    # jobs did not come back for licences that are in use, but for a known time.
    (Case("unlimited", True, ("planned", "no-limit")), 26),
    (Case("unlimited", False, ("planned", "no-limit"), tree=True), 11),
    # In the definition, a job without a place was tried once more on the ranks of jobs counted with it.
    (Case("easy", False, ("limits", "gpus", "memory", "priorities")), 7),
    # A job of a reservation's group was to have its planned licences for longer than until its window's end;
    # and was promised a start outside, so that it did not start in its window.
    (Case("unlimited", False, ("planned", "reservation")), 9),
    (Case("unlimited", False, ("planned", "sharing", "constraints", "reservation")), 4),
    # Licences of a job in a window came back only at the window's end.
    (Case("unlimited", False, ("planned", "sharing", "constraints", "reservation")), 11),
    # Open promises of licences kept them from a job in a window, which could not start.
    (
        Case("unlimited", False, ("planned", "sharing", "racks", "no-limit", "reservation")),
        7,
    ),
    # With candidates=, jobs of a reservation's group went in the order of candidates behind a promise on
    # other nodes, if no job had room outside.
    (
        Case(
            "candidates",
            False,
            ("planned", "max-wait", "memory", "constraints", "reservation"),
            tree=True,
        ),
        17,
    ),
    # So did those ahead of the promise.
    (
        Case(
            "candidates",
            False,
            ("limits", "licenses", "racks", "memory", "reservation"),
            tree=True,
        ),
        2,
    ),
    # There such a job, as a candidate, kept jobs behind it from a promise.
    (
        Case(
            "candidates",
            False,
            ("limits", "racks", "gpus", "constraints", "priorities", "reservation"),
            tree=True,
        ),
        19,
    ),
    # An open promise in a rack was kept in one that the pool would choose if it was idle.
    (Case("none", False, ("racks", "no-limit")), 15),
    # In the definition with promise=all, a pass examined all jobs for one of a reservation's group that a
    # licence held back, and they lost their latest starts; in the scheduler, for one whose window was over.
    (Case("all", True, ("licenses", "priorities", "reservation"), tree=True), 26),
    (Case("all", False, ("licenses", "priorities", "reservation"), tree=True), 21),
    # In the definition, a promise stayed on ranks that an open promise to another user had claimed since.
    (Case("easy", False, ("limits", "sharing", "racks", "constraints", "no-limit")), 1),
)


@pytest.mark.parametrize("case, seed", FOUND)
def test_what_was_found(case, seed):
    assert compare(case, seed) == []


# -- rules as data -------------------------------------------------------------------------------------


def machine(ranks=4, **options):
    return State(dict.fromkeys(range(ranks), (8, 0)), **options)


def nodes(id, count, limit, ranks=0b1111, **options):
    """A job of whole nodes."""
    return Job(id, (Demand(count, (8, 0), True, True, ranks),), limit, **options)


def cores(id, count, limit, **options):
    """A job of so many cores of one node."""
    return Job(id, (Demand(1, (count, 0), True, False, 0b1111),), limit, **options)


def ids(jobs):
    return [job.id for job in jobs]


def times(state):
    return {job.id: use.start for job, use in state.promises.items()}


def test_a_job_goes_ahead_if_it_keeps_the_promise():
    state = machine()
    state.pending = [nodes(1, 3, 100), nodes(2, 4, 50), nodes(3, 1, 100), nodes(4, 1, 101)]
    assert ids(decide(state, 0.0)) == [1, 3]
    assert times(state) == {2: 100.0}


def test_nobody_waits_for_a_job_over_a_limit():
    state = machine(counters={"bank": Counter(2)})
    state.pending = [
        nodes(1, 2, 100, takes={"bank": 2}),
        nodes(2, 1, 50, takes={"bank": 1}),
        nodes(3, 2, 900),
    ]
    assert ids(decide(state, 0.0)) == [1, 3]
    assert times(state) == {}


def test_a_planned_licence_is_promised_with_nodes():
    state = machine(counters={"matlab": Counter(1, planned=True)})
    state.pending = [nodes(id, 1, 100, takes={"matlab": 1}) for id in (1, 2)]
    assert ids(decide(state, 0.0)) == [1]
    assert times(state) == {2: 100.0}


def test_a_limit_of_nodes_is_counted_where_the_job_would_be():
    state = machine(counters={"user": Counter(2, RANKS)})
    state.pending = [cores(id, 3, 100, takes={"user": 1}) for id in (1, 2, 3, 4, 5)]
    assert ids(decide(state, 0.0)) == [1, 2, 3, 4]  # on two nodes


def test_users_keep_off_each_others_nodes():
    state = machine(2)
    state.pending = [cores(id, 2, 100, claim=who) for id, who in ((1, "a"), (2, "b"), (3, "c"))]
    state.pending.append(cores(4, 2, 100, claim="a"))
    assert ids(decide(state, 0.0)) == [1, 2, 4]
    assert times(state) == {3: 100.0}


def test_a_job_in_one_rack_waits_for_one():
    state = machine()
    ranks = {1: (8, 0)}, {3: (8, 0)}
    for id, where, end in ((8, ranks[0], 100.0), (9, ranks[1], 60.0)):
        state.running[nodes(id, 1, end)] = Use(0.0, end, None, where)
    racks = tuple(Demand(2, (8, 0), True, True, ranks) for ranks in (0b0011, 0b1100))
    state.pending = [Job(1, racks, 10.0)]
    assert decide(state, 0.0) == []
    assert times(state) == {1: 60.0}


def test_jobs_that_end_before_a_reservation_go_ahead_and_its_members_run_in_it():
    state = machine(2, depth=2)
    reservation = nodes(-1, 2, 100)
    state.promises[reservation] = Use(100.0, 200.0, None, {0: (8, 0), 1: (8, 0)})
    state.pending = [nodes(1, 1, 101), nodes(2, 1, 100), nodes(9, 2, 100, window=reservation)]
    assert ids(decide(state, 0.0)) == [2]
    assert times(state) == {-1: 100.0, 1: 200.0}
    state.running = {reservation: state.promises.pop(reservation)}
    assert ids(decide(state, 100.0)) == [9]


def test_the_fewest_that_help_are_ended():
    state = machine(3)
    for id, rank in ((7, 0), (8, 1), (9, 2)):
        job = nodes(id, 1, 1000, level=0, after=10.0 * rank)
        state.running[job] = Use(0.0, 1000.0, None, {rank: (8, 0)})
    assert ids(victims_for(state, nodes(1, 1, 50, level=1), 15.0)) == [8]
    assert victims_for(state, nodes(1, 3, 50, level=1), 15.0) == []  # the last runs undisturbed


def test_a_job_that_is_late_is_given_up_and_others_take_its_place():
    state = machine()
    state.running[nodes(9, 1, 100)] = Use(0.0, 100.0, None, {0: (8, 0)})
    state.pending = [nodes(1, 4, 50, latest=5.0), nodes(2, 3, 200)]
    assert decide(state, 0.0) == []
    assert ids(decide(state, 5.0)) == [2]
