# SPDX-License-Identifier: LGPL-3.0-or-later
"""Random histories of a pool, step by step against the model of sets."""

import json

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pool_model import ENDLESS, Ask, Infeasible, Insufficient, Model, R_of, ids_text, parts_of

from flux.resource import InfeasibleRequest, InsufficientResources, ResourcePool

RANKS = 6
NAMES = ("red", "blue", "+queue")


@st.composite
def counts(draw, top):
    """Accepted numbers, and a count of a jobspec that says so."""
    low = draw(st.integers(1, top))
    kinds = ["plain", "plain", "plain", "range", "open", "step", "list", "twice"]
    kind = draw(st.sampled_from(kinds))
    if kind == "range":
        high = draw(st.integers(low, top + 3))
        return list(range(low, high + 1)), {"min": low, "max": high}
    if kind == "open":
        return list(range(low, ENDLESS)), f"{low}+"
    if kind == "step":
        step = draw(st.integers(1, 3))
        return list(range(low, low + 9, step)), f"{low}-{low + 8}:{step}"
    if kind == "list":
        ids = sorted(draw(st.sets(st.integers(1, top + 2), min_size=2, max_size=4)))
        return ids, ",".join(str(one) for one in ids)
    if kind == "twice":
        values = [low * 2**n for n in range(6) if low * 2**n <= low * 9]
        return values, {"min": low, "max": low * 9, "operator": "*", "operand": 2}
    return [low], low


names = st.lists(st.sampled_from(["red", "^red", "blue", "^none", "+queue"]), max_size=2)
ranks = st.lists(st.integers(0, 9).map(str), min_size=1, max_size=4)
hosts = st.lists(st.sampled_from(["n0", "n1", "n3", "x7", "zz"]), min_size=1, max_size=4)
leaf = st.one_of(
    st.fixed_dictionaries({"properties": names}),
    st.fixed_dictionaries({"ranks": ranks}),
    st.fixed_dictionaries({"hostlist": hosts}),
)
operators = st.sampled_from(["and", "or", "not"])
nested = st.recursive(
    leaf,
    lambda inner: st.dictionaries(operators, st.lists(inner, max_size=3), min_size=1, max_size=2),
    max_leaves=4,
)
constraints = st.one_of(st.none(), st.none(), leaf, nested)


@st.composite
def asks(draw):
    with_nodes = draw(st.booleans())
    exclusive = draw(st.sampled_from([False, False, False, True]))
    return Ask(
        nodes=draw(counts(4)) if with_nodes else None,
        slots=draw(counts(4 if with_nodes else 8)),
        cores=draw(st.integers(1, 4)),
        gpus=draw(st.sampled_from([0, 0, 0, 1, 2])),
        exclusive=exclusive,
        duration=draw(st.sampled_from([0.0, 10.0, 20.5, 100.0])),
        constraint=draw(constraints),
    )


idsets = st.sets(st.integers(0, RANKS + 2), max_size=4)


class PoolMachine(RuleBasedStateMachine):
    """A pool and its model; now and then a copy of both is put aside."""

    now = 1000.0

    @initialize(
        rows=st.lists(
            st.tuples(
                st.sampled_from([{0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1, 4, 5, 8}, set(range(8)), {3}]),
                st.sampled_from([set(), set(), {0, 1}, {1, 3}]),
            ),
            min_size=1,
            max_size=RANKS,
        ),
        gap=st.sampled_from([0, 0, 3]),
        expiration=st.sampled_from([0.0, 5000.0]),
        red=idsets,
        queue=idsets,
    )
    def make(self, rows, gap, expiration, red, queue):
        ranks = {n + (gap if n > 1 else 0): row for n, row in enumerate(rows)}
        hosts = {rank: f"n{rank}" if rank % 3 else f"x{rank}" for rank in ranks}
        properties = {"red": red & set(ranks), "+queue": queue & set(ranks)}
        R = R_of(ranks, hosts, properties, expiration)
        self.expiration = expiration
        self.pool = ResourcePool(R)
        self.pool.clock = lambda: self.now
        self.model = Model({r: (hosts[r], c, g) for r, (c, g) in ranks.items()}, properties)
        self.aside = []
        self.jobid = 0

    @rule(ask=asks())
    def alloc(self, ask):
        self.jobid += 1
        request = self.pool.parse_resource_request(ask.jobspec())
        try:
            parts, nslots = self.model.alloc(self.jobid, ask, self.now, self.expiration)
        except Infeasible:
            with pytest.raises(InfeasibleRequest) as caught:
                self.pool.alloc(self.jobid, request)
            assert str(caught.value).startswith("unsatisfiable request: ")
            with pytest.raises(InfeasibleRequest):
                self.pool.check_feasibility(request)
            return
        except Insufficient:
            with pytest.raises(InsufficientResources) as caught:
                self.pool.alloc(self.jobid, request)
            assert str(caught.value).startswith("insufficient resources: needs ")
            self.pool.check_feasibility(request)
            return
        alloc = self.pool.alloc(self.jobid, request)
        R = alloc.to_dict()
        assert parts_of(R) == parts
        assert R["execution"]["nslots"] == nslots
        assert R["execution"].get("properties", {}).keys() <= {"red", "blue"}
        # The allocation is a pool of its own, whose R is the same.
        again = ResourcePool(R)
        assert again.to_dict() == R
        assert again.dumps() == alloc.dumps()

    @precondition(lambda self: self.model.jobs)
    @rule(
        data=st.data(), how=st.sampled_from(["plain", "exact", "pool", "short", "more", "strange"])
    )
    def free(self, data, how):
        jobid = data.draw(st.sampled_from(sorted(self.model.jobs)))
        parts = self.model.jobs[jobid]
        if how == "plain":
            self.pool.free(jobid)
        elif how == "exact":
            self.pool.free(jobid, R_of(parts), final=True)
        elif how == "pool":
            self.pool.free(jobid, ResourcePool(R_of(parts)), final=True)
        elif how == "short":
            if len(parts) < 2:
                return
            wrong = dict(parts)
            del wrong[min(wrong)]
            self.refuse(jobid, R_of(wrong))
            return
        elif how == "more":
            # One core more on each rank: of the rank, of another rank, of none.
            for core in (min({0, 1, 2, 3, 4, 5, 8, 7, 6} - parts[rank][0]) for rank in parts):
                wrong = {rank: (cores | {core}, gpus) for rank, (cores, gpus) in parts.items()}
                if wrong != parts:
                    self.refuse(jobid, R_of(wrong))
            if parts:
                self.refuse(jobid, R_of({rank: (c | {60}, g) for rank, (c, g) in parts.items()}))
            return
        else:
            wrong = dict(parts)
            other = [r for r in self.model.ranks if r not in parts]
            wrong[other[0] if other else 77] = ({0}, set())
            self.refuse(jobid, R_of(wrong))
            return
        self.model.free(jobid)

    def refuse(self, jobid, R):
        with pytest.raises(ValueError):
            self.pool.free(jobid, R, final=True)

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data())
    def free_some_ranks(self, data):
        jobid = data.draw(st.sampled_from(sorted(self.model.jobs)))
        parts = self.model.jobs[jobid]
        if not parts:
            return
        ranks = data.draw(st.sets(st.sampled_from(sorted(parts)), min_size=1))
        self.pool.free(jobid, R_of({rank: parts[rank] for rank in ranks}))
        self.model.free(jobid, ranks)

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data())
    def free_some_cores(self, data):
        jobid = data.draw(st.sampled_from(sorted(self.model.jobs)))
        parts = self.model.jobs[jobid]
        # Cores that were given back before may have left a rank with GPUs only, or with nothing.
        ranks = [rank for rank, (cores, _) in sorted(parts.items()) if cores]
        if not ranks:
            return
        rank = data.draw(st.sampled_from(ranks))
        cores, gpus = parts[rank]
        if not cores:
            return
        given = data.draw(st.sets(st.sampled_from(sorted(cores)), min_size=1))
        self.pool.free(jobid, R_of({rank: (given, set())}))
        if given == cores and not gpus:
            del parts[rank]
        else:
            parts[rank] = (cores - given, gpus)

    @rule()
    def free_unknown(self):
        generation = self.pool.generation
        self.pool.free(99999)
        self.pool.free(99999, R_of({0: ({0}, set())}), final=True)
        assert self.pool.generation == generation

    @rule(
        rows=st.dictionaries(
            st.integers(0, RANKS),
            st.tuples(
                st.sets(st.integers(0, 8), min_size=1, max_size=3), st.sets(st.integers(0, 1))
            ),
            min_size=1,
            max_size=2,
        ),
        end=st.sampled_from([0.0, 1200.0]),
        form=st.sampled_from(["dict", "pool", "text"]),
    )
    def register(self, rows, end, form):
        self.jobid += 1
        R = R_of(rows, expiration=end)
        given = {"dict": R, "text": json.dumps(R), "pool": ResourcePool(R)}[form]
        try:
            self.model.register(self.jobid, rows, end)
        except ValueError:
            with pytest.raises(ValueError):
                self.pool.register_alloc(self.jobid, given)
        else:
            self.pool.register_alloc(self.jobid, given)

    @rule(ids=idsets, up=st.booleans())
    def mark(self, ids, up):
        if up:
            self.pool.mark_up(ids_text(ids))
            self.model.up |= ids & set(self.model.ranks)
        else:
            self.pool.mark_down(ids_text(ids))
            self.model.up -= ids

    @rule(up=st.booleans())
    def mark_all(self, up):
        if up:
            self.pool.mark_up("all")
            self.model.up = set(self.model.ranks)
        else:
            self.pool.mark_down("all")
            self.model.up = set()

    @rule(
        ids=st.sets(st.integers(0, RANKS + 2), max_size=2),
        form=st.sampled_from([ids_text, list, set]),
    )
    def remove(self, ids, form):
        self.pool.remove_ranks(form(ids))
        self.model.remove(ids)

    @rule(name=st.sampled_from(NAMES), ids=idsets, add=st.booleans())
    def set_property(self, name, ids, add):
        have = self.model.properties.setdefault(name, set())
        if add:
            self.pool.add_property(name, ids_text(ids))
            have |= ids & set(self.model.ranks)
        else:
            self.pool.remove_property(name, ids_text(ids))
            have -= ids

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data(), end=st.sampled_from([0.0, 900.0, 1100.0, 3000.0]))
    def extend(self, data, end):
        jobid = data.draw(st.sampled_from(sorted(self.model.jobs)))
        self.pool.update_expiration(jobid, end)
        self.model.ends[jobid] = end

    @rule(swap=st.booleans())
    def copy(self, swap):
        """Put a copy aside, or go on with the copy; the other must not notice."""
        pool, model = self.pool.copy(), self.model.clone()
        if swap:
            pool, self.pool = self.pool, pool
        self.aside = [(pool, model)]

    @precondition(lambda self: self.aside)
    @rule()
    def turn_to_the_other(self):
        pool, model = self.aside[0]
        self.aside = [(self.pool, self.model)]
        self.pool, self.model = pool, model

    @rule(ask=asks())
    def look_ahead(self, ask):
        """earliest(): free the jobs in the order of their ends until it fits."""
        request = self.pool.parse_resource_request(ask.jobspec())
        nodes, slots = (ask.nodes[:1], None) if ask.nodes else None, (ask.slots[:1], None)
        counts = nodes, slots, ask.cores, ask.gpus, ask.exclusive
        least = Ask(*counts, constraint=ask.constraint)
        model = self.model.clone()
        expected = None
        if model.select(least) is not None:
            expected = self.now
        else:
            for end, jobid in sorted((end, jobid) for jobid, end in model.ends.items() if end):
                model.free(jobid)
                if model.select(least) is not None:
                    expected = max(end, self.now)
                    break
        assert self.pool.earliest(request) == expected
        assert self.pool.copy().earliest(request) == expected

    @rule(ask=asks())
    def why(self, ask):
        request = self.pool.parse_resource_request(ask.jobspec())
        answer = self.pool.explain(request)
        matching = self.model.matching(ask)
        assert answer["total"] == len(self.model.ranks)
        assert answer["matching"] == len(matching)
        assert answer["up"] == len(matching & self.model.up)
        fits = self.model.select(ask) is not None
        # A count that leaves values out may be out of reach even with enough nodes.
        if fits:
            assert answer["available"] >= answer["needed"]
            assert answer["reason"] == ""
        elif answer["available"] < answer["needed"]:
            assert answer["reason"]

    @invariant()
    def same(self):
        if not hasattr(self, "pool"):
            return
        self.compare(self.pool, self.model)
        for pool, model in self.aside:
            self.compare(pool, model)

    def compare(self, pool, model):
        pool._check()
        assert parts_of(pool.allocated_to_dict()) == parts_of(pool.copy_allocated().to_dict())
        assert parts_of(pool.down_to_dict()) == parts_of(pool.copy_down().to_dict())
        held = {rank: parts for rank, parts in model.allocated().items() if parts[0] or parts[1]}
        assert parts_of(pool.copy_allocated().to_dict()) == held
        down = {r: (i["cores"], i["gpus"]) for r, i in model.ranks.items() if r not in model.up}
        assert parts_of(pool.copy_down().to_dict()) == down
        everything = {r: (i["cores"], i["gpus"]) for r, i in model.ranks.items()}
        assert parts_of(pool.to_dict()) == everything
        assert dict(pool.job_end_times()) == model.ends


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
