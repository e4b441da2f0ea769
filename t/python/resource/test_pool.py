# SPDX-License-Identifier: LGPL-3.0-or-later
"""Pools one property at a time: R in and out, wrappers, hooks, errors."""

import errno
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pool_model import R_of, ask, parts_of

import flux.resource
from flux.resource import (
    InfeasibleRequest,
    InsufficientResources,
    ResourcePool,
    ResourcePoolImplementation,
    Rv1Pool,
)
from flux.resource.pool import state
from flux.resource.pool.placement import Placement


def R(lite=None, **execution):
    lite = lite or [{"rank": "0-3", "children": {"core": "0-3", "gpu": "0-1"}}]
    return {"version": 1, "execution": dict({"R_lite": lite}, **execution)}


def lite(*entries):
    """R_lite of (ranks, cores, GPUs); None: without GPUs."""
    return [
        {"rank": ranks, "children": {"core": cores, **({} if gpus is None else {"gpu": gpus})}}
        for ranks, cores, gpus in entries
    ]


def test_exceptions():
    assert ResourcePool.InfeasibleRequest is InfeasibleRequest
    assert ResourcePool.InsufficientResources is InsufficientResources
    for cls, code in ((InsufficientResources, errno.ENOSPC), (InfeasibleRequest, errno.EOVERFLOW)):
        exc = cls("too little of it")
        assert isinstance(exc, OSError) and exc.errno == code
        assert str(exc) == "too little of it" == exc.reason
        assert str(pickle.loads(pickle.dumps(exc))) == "too little of it"
        assert str(cls())


# -- R in --------------------------------------------------------------------------------------------------


def test_forms_of_R():
    R1 = R(nodelist=["n[0-3]"], starttime=5.0, expiration=9.0)
    expected = ResourcePool(R1).to_dict()
    assert expected["execution"]["starttime"] == 5.0 and expected["execution"]["expiration"] == 9.0
    assert ResourcePool(json.dumps(R1)).to_dict() == expected
    assert ResourcePool(json.dumps(R1).encode()).to_dict() == expected
    assert Rv1Pool(json.dumps(R1)).to_dict() == expected
    impl = Rv1Pool(R1)
    log = object()
    pool = ResourcePool(impl)
    assert isinstance(pool, Rv1Pool) and ResourcePool(impl, log=log).log is log
    pool.alloc(1, ask(impl))
    assert impl.held_ranks(1) and impl.log is log  # both are one pool
    with pytest.raises(TypeError, match="expected R, got ResourcePool"):
        ResourcePool(pool)
    for empty in (ResourcePool(), Rv1Pool()):
        assert empty.to_dict()["execution"]["R_lite"] == []
        assert empty.dumps() == "" == str(ResourcePool())
    assert ResourcePool(R1).version == 1
    assert ResourcePool(R1).known_options == {"amounts", "cores_per_gpu", "system_cores"}


def test_entries_of_R_lite():
    twice = ResourcePool(R(lite(("0-1", "0-1", None), ("1-2", "1-3", "0"))))
    assert twice.dumps() == "rank0/core[0-1] rank1/core[0-3],gpu0 rank2/core[1-3],gpu0"
    only_gpus = [{"rank": "0", "children": {"gpu": "0-1"}}]
    pool = ResourcePool(R(only_gpus))
    assert pool.dumps() == "rank0/gpu[0-1]"
    assert pool.to_dict()["execution"]["R_lite"] == only_gpus


def test_nothing_on_a_rank():
    partly = R(lite(("0", "", None), ("1", "0-1", "")), nodelist=["a,b"])
    pool = ResourcePool(partly)
    assert pool.to_dict()["execution"]["R_lite"] == lite(("1", "0-1", None))
    assert pool.to_dict()["execution"]["nodelist"] == ["b"]
    pool._check()
    whole = ResourcePool(R(lite(("0-1", "0-3", None))))
    for form in (partly, ResourcePool(partly), json.dumps(partly)):
        whole.register_alloc(1, form)
        whole._check()
        assert whole.copy_allocated().dumps() == "rank1/core[0-1]"
        whole.free(1, form, final=True)
        whole._check()


@pytest.mark.parametrize(
    "bad, words",
    [
        *((bad, "expected R") for bad in (5, [])),
        *((bad, "object") for bad in ("[]", "5")),
        ("{", "Expecting"),
        ("[" * 100000, "nested"),
        ({}, "version None"),
        ({"version": 2, "execution": {}}, "version 2"),
        ({"version": True, "execution": {}}, "version True"),
        ({"version": [1]}, "version"),
        ({"version": 1}, "execution"),
        ({"version": 1, "execution": []}, "execution"),
        ({"version": 1, "execution": {}}, "R_lite"),
        *((R([bad]), r"R_lite\[0\]") for bad in (5, {"rank": "0"}, {"children": {"core": "0"}})),
        (R(lite=[*lite(("0", "0", None)), {"rank": "x", "children": {}}]), r"R_lite\[1\]"),
        (R(lite(("", "0", None))), "at least one rank"),
        (R(lite((0, "0", None))), "idset"),
        (R(lite(("0", 0, None))), "idset"),
        (R(lite(("0", "0", 0))), "idset"),
        (R(lite(("0-4294967295", "0", None))), "below"),
        (R(lite(("0", "0-4294967295", None))), "below"),
        (R(nodelist=["a[0-2]"]), "3 hosts for 4 ranks"),
        (R(nodelist=["a["]), "hostlist"),
        (R(nodelist="a[0-3]"), "array"),
        (R(nodelist=[5]), "hostlist"),
        (R(properties=[]), "properties"),
        (R(properties={"a": "9-1"}), "properties.'a'"),
        (R(properties={"a": None}), "properties"),
        (R(starttime="now"), "starttime"),
        (R(expiration=float("nan")), "expiration"),
        (R(expiration=10**400), "expiration"),
        (R(expiration=-1), "expiration"),
        (R(starttime=True), "starttime"),
        (R(starttime=100, expiration=100), "after starttime"),
        *((R(nslots=bad), "nslots") for bad in (0, "4", True)),
    ],
)
def test_bad_R(bad, words):
    with pytest.raises((ValueError, TypeError), match=words):
        ResourcePool(bad)
    with pytest.raises(ValueError):
        Rv1Pool(bad)


# -- R out -------------------------------------------------------------------------------------------------

rows = st.dictionaries(
    st.one_of(st.integers(0, 9), st.integers(0, 3000)),
    st.tuples(
        st.sets(st.integers(0, 40), min_size=1, max_size=8), st.sets(st.integers(0, 9), max_size=3)
    ),
    min_size=1,
    max_size=12,
)


@given(rows, st.booleans())
def test_R_round_trip(parts, named):
    """R in and out again is the same pool, however its entries are grouped."""
    hosts = {rank: f"n{rank}" for rank in parts} if named else None
    source = R_of(parts, hosts, {"p": {min(parts)}}, 77.0)
    pool = ResourcePool(source)
    again = pool.to_dict()
    assert parts_of(again) == parts
    assert ResourcePool(again).to_dict() == again
    assert ResourcePool(again).dumps() == pool.dumps()
    names = flux.hostlist.Hostlist([hosts[rank] for rank in sorted(parts)] if named else [])
    assert again["execution"].get("nodelist", []) == ([str(names.encode())] if named else [])
    ranks = [entry["rank"] for entry in again["execution"]["R_lite"]]
    assert sorted(ranks, key=lambda text: int(text.replace(",", "-").split("-")[0])) == ranks
    assert parts_of(pool.to_resource_set().to_dict()) == parts
    # As an allocation it can be entered in a pool, and given back.
    full = ResourcePool(source)
    full.register_alloc(1, pool)
    assert full.job_end_times() == [(1, 77.0)]
    full._check()
    full.free(1, again, final=True)
    full._check()
    assert full.copy_allocated().dumps() == ""


def test_allocation_is_a_pool():
    """An allocation is a pool that can be allocated from, with its own ranks."""
    pool = ResourcePool(R(nodelist=["n[0-3]"], properties={"+local": "0-3", "x": "2-3"}))
    pool.mark_down("0")
    alloc = pool.alloc(1, ask(pool, nodes=2, cores=2, gpus=1))
    assert alloc.dumps() == "rank[1-2]/core[0-1],gpu0"
    inner = alloc.alloc(7, ask(alloc, nodes=2))
    assert inner.dumps() == "rank[1-2]/core0"
    assert inner.to_dict()["execution"]["nodelist"] == ["n[1-2]"]
    assert alloc.to_dict()["execution"]["nslots"] == 2
    alloc._check()
    pool._check()
    with pytest.raises(InfeasibleRequest):
        alloc.alloc(8, ask(alloc, constraints={"properties": ["+local"]}))
    assert alloc.copy().copy_allocated().dumps() == "rank[1-2]/core0"


# -- life --------------------------------------------------------------------------------------------------


def test_no_second_allocation():
    pool = ResourcePool(R())
    request = ask(pool)
    pool.alloc(1234, request)
    with pytest.raises(ValueError, match="job ƒNH already has"):
        pool.alloc(1234, request)
    with pytest.raises(ValueError, match="already has"):
        pool.register_alloc(1234, R(lite(("3", "0", None))))
    pool._check()


@pytest.mark.parametrize("method", ["mark_up", "mark_down", "remove_ranks"])
def test_bad_ids(method):
    pool = ResourcePool(R())
    generation = pool.generation
    for bad in ("x", "2-1", None, 1.5, [None]):
        with pytest.raises(ValueError):
            getattr(pool, method)(bad)
    assert pool.generation == generation


EIGHT = lite(("0-1", "0-3", None), ("2-7", "0-7", "0-1"))


@pytest.mark.parametrize(
    "want, text",
    [
        ({"slots": 20, "cores": 2, "gpus": 1}, "unsatisfiable request: need 20 slot(s) with 1 GPU(s) each, only 12"),
        ({"nodes": 4, "exclusive": True}, "insufficient resources: needs 4 nodes (exclusive), 3 free of 8"),
        ({"slots": 19, "cores": 2}, "insufficient resources: needs 19 slots of 2 cores, 11 free on 6 of 8 nodes (2 down)"),
        (
            {"nodes": 4, "cores": 6, "constraints": {"properties": ["red"]}},
            "insufficient resources: needs 4 nodes with 6 cores, 1 free of 7 nodes matching constraint"
            " (1 too small, 2 down, 3 busy)",
        ),
    ],
)  # fmt: skip
def test_reasons(want, text):
    pool = ResourcePool(R(EIGHT, properties={"red": "1-7"}))
    pool.mark_down("6-7")
    pool.alloc(1, ask(pool, nodes=3, cores=6))
    request = ask(pool, **want)
    counts = pool.explain(request)
    assert counts.pop("reason").startswith(text)
    if "constraints" in want:
        with pytest.raises(InsufficientResources) as caught:
            pool.alloc(2, request)
        assert str(caught.value) == text
        assert counts == {
            "total": 8, "matching": 7, "large_enough": 6, "up": 5, "free": 1, "available": 1, "needed": 4, "unit": "nodes",
        }  # fmt: skip


@pytest.mark.parametrize(
    "arguments, text",
    [
        ((), "insufficient resources"),
        (("no room",), "no room"),
        ((lambda: "no room",), "no room"),
        ((errno.ENOSPC, "no room"), "no room"),
        ((5,), "5"),
    ],
)
def test_a_pool_of_a_site_raises_it_with_any_arguments_of_an_oserror(arguments, text):
    error = InsufficientResources(*arguments)
    assert (str(error), error.reason, error.errno) == (text, text, errno.ENOSPC)
    assert error.strerror == "insufficient resources"
    assert str(pickle.loads(pickle.dumps(error))) == text


@pytest.mark.parametrize(
    "want, text",
    [
        ({"slots": 60}, "need 60 slot(s) of 1 core(s), only 56 such slot(s) available (total cores: 56)"),
        (
            {"nodes": 4, "cores": 5, "constraints": {"properties": ["red"]}},
            "need 4 node(s) with 5 cores each, only 3 eligible"
            "; 4 of 8 nodes do not match the constraint; 1 of 8 nodes is too small",
        ),
        (
            {"cores": 9},
            "need 1 slot(s) of 9 core(s), only 0 such slot(s) available (total cores: 56); 8 of 8 nodes are too small",
        ),
        (
            {"slots": 13, "gpus": 1},
            "need 13 slot(s) with 1 GPU(s) each, only 12 available (total GPUs: 12); 2 of 8 nodes are too small",
        ),
        ({"nodes": 9, "exclusive": True}, "need 9 exclusive node(s), only 8 eligible"),
        (
            {"nodes": 7, "cores": 1, "gpus": 2},
            "need 7 node(s) with 1 cores and 2 GPUs each, only 6 eligible; 2 of 8 nodes are too small",
        ),
    ],
)  # fmt: skip
def test_reasons_for_never(want, text):
    pool = ResourcePool(R(EIGHT, properties={"red": "1-4"}))
    with pytest.raises(InfeasibleRequest) as caught:
        pool.check_feasibility(ask(pool, **want))
    assert str(caught.value) == "unsatisfiable request: " + text


def test_a_failed_request_is_tried_again_after_a_release():
    pool = ResourcePool(R())
    pool.alloc(1, ask(pool, nodes=4, cores=4))
    request = ask(pool, cores=2)
    for _ in range(3):
        with pytest.raises(InsufficientResources):
            pool.alloc(2, request)
    copied = pool.copy()
    pool.free(1)
    assert pool.alloc(2, request).dumps() == "rank0/core[0-1]"
    with pytest.raises(InsufficientResources):
        copied.alloc(2, request)
    for change in (lambda p: p.free(1), lambda p: p.remove_ranks("3")):
        other = copied.copy()
        change(other)
        assert not other.impl.pool_state.blocked


def test_shared_states_are_bounded(monkeypatch):
    """With more states than are cached, free units of each rank are still those that its jobs leave."""
    monkeypatch.setattr(state, "MAX_SHARED_MASKS", 4)
    pool = ResourcePool(R_of({rank: (set(range(8)), {0, 1}) for rank in range(12)}))
    for jobid in range(40):
        pool.alloc(jobid, ask(pool, 1 + jobid % 2, 1 + jobid % 3 // 2))
        pool._check()
    assert len(state._shared) <= 4
    for jobid in range(40):
        pool.free(jobid)
    assert pool.copy_allocated().dumps() == ""


# -- wrappers and implementations --------------------------------------------------------------------------


class Log:
    def __init__(self):
        self.lines = []

    def __getattr__(self, name):
        return lambda text, *args: self.lines.append((name, text))


class Racks(Rv1Pool):
    known_options = frozenset(("racks",))
    name = "Racks"

    def __init__(self, R, log=None, racks=2, **kwargs):
        super().__init__(R, log=log, **kwargs)
        self.racks = racks
        self.log.info("racks")


class RackPool(ResourcePool):
    _impl_map = {1: Racks}
    made = 0

    def __init__(self, R, **kwargs):
        type(self).made += 1
        super().__init__(R, **kwargs)
        self.site = {"colour": "red"}


def test_subclass_is_kept():
    log = Log()
    made = RackPool.made
    pool = RackPool(R(), log=log, racks=5)
    assert log.lines == [("info", "racks")] and pool.known_options == {"racks"}
    alloc = pool.alloc(1, ask(pool))
    copied = pool.copy()
    for other in (alloc, copied, alloc.copy()):
        assert type(other) is RackPool and isinstance(other, Racks)
        assert other.site is pool.site and other.impl.racks == 5
    assert RackPool.made == made + 1
    assert pool.impl.log is log and copied.log is not log
    copied.log.info("to nobody")
    copied.log = log
    assert copied.impl.log is log
    assert len(log.lines) == 1


def test_a_subclass_that_makes_its_implementation_itself():
    class GuidePool(ResourcePool):
        _impl_map = {}

        def __init__(self, R, log=None, **kwargs):
            self.site = "early"
            super().__init__(Racks(R, log=log, racks=3))

        def alloc(self, jobid, request):
            self.asked = jobid
            return super().alloc(jobid, request)

    pool = GuidePool(R())
    alloc = pool.alloc(7, ask(pool))
    assert (alloc.site, alloc.racks, pool.asked) == ("early", 3, 7)
    assert isinstance(alloc, GuidePool) and type(alloc) is type(pool.copy()) is type(pool)
    assert pool.held_ranks(7) and type(GuidePool(R())) is type(pool)


def test_results_of_an_implementation_of_another_kind_are_of_the_class():
    class Text(ResourcePoolImplementation):
        version = 1

        def copy(self):
            return Text()

    class TextPool(ResourcePool):
        _impl_map = {1: Text}

    log = Log()
    pool = TextPool({"version": 1}, log=log)
    pool.site = "x"
    copied = pool.copy()
    assert type(copied) is TextPool and copied.site == "x" and copied.log is not log


def test_version_dispatch():
    for cls in (RackPool, Racks):
        with pytest.raises(ValueError, match=f"R version 3 not supported by {cls.__name__}"):
            cls(dict(R(), version=3))


# -- hooks -------------------------------------------------------------------------------------------------


def hooked(**methods):
    impl = type("Hooked", (Rv1Pool,), methods)
    return type("HookedPool", (ResourcePool,), {"_impl_map": {1: impl}})


def test_candidates():
    seen = []

    def look(self, candidates):
        seen.extend(candidates)
        return candidates[::-1]

    pool = hooked(_sort_candidates=look)(R(nodelist=["n[0-3]"]))
    pool.mark_down("3")
    assert pool.alloc(1, ask(pool, cores=2)).dumps() == "rank2/core[0-1]"
    rank, info, cores, gpus = seen[2]
    four, two = frozenset((0, 1, 2, 3)), frozenset((0, 1))
    assert (rank, cores, gpus) == (2, four, two)
    assert dict(info) == {"hostname": "n2", "cores": four, "gpus": two, "up": True}
    with pytest.raises(TypeError):
        info["up"] = False
    assert [one[0] for one in seen] == [0, 1, 2]
    assert seen[0][2] is seen[1][2] is info["cores"]  # sets are made once for all nodes in a state
    seen.clear()
    pool.alloc(2, ask(pool, nodes=2, exclusive=True))
    assert [one[0] for one in seen] == [0, 1]


@pytest.mark.parametrize("found", [None, 7, "x", [0, 1], [(0, 1)]])
def test_candidates_that_are_none(found):
    pool = hooked(_sort_candidates=lambda self, candidates: found)(R())
    with pytest.raises(ValueError) as caught:
        pool.alloc(1, ask(pool, cores=1))
    text = f"_sort_candidates: expected the candidates in order, got {found!r}"
    assert str(caught.value) == text


@pytest.mark.parametrize(
    "selected, words",
    [
        ([(9, {0}, ())], "not in the pool"),
        ([(10**12, {0}, ())], "not in the pool"),  # 125 GB of mask
        ([(0, {0}, ()), (0, {1}, ())], "twice"),
        ([(3, {0}, ())], "not up"),
        ([(1, {0}, ())], "not all free"),
        ([(0, {8}, ())], "not all free"),
        ([(0, {0}, {5})], "not all free"),
        ([(0, (), ())], "no cores and no gpus"),
        ([(0, {0})], "expected"),
        ([("0", {0}, ())], "expected"),
        ([(0, {-1}, ())], "expected"),
        ([(-1, {0}, ())], "expected"),
        ([(0, {10**9}, ())], "expected"),
        ([(0, 7, ())], "expected"),
        ([5], "expected"),
    ],
)
def test_choices_that_a_hook_may_not_make(selected, words):
    pool = hooked(_select_resources=lambda self, candidates, request: (selected, 1))(R())
    pool.register_alloc(5, R(lite(("1", "0", None))))
    pool.mark_down("3")
    before, state = pool.generation, pool.impl.pool_state.text()
    with pytest.raises(ValueError, match=words):
        pool.alloc(1, ask(pool))
    assert (pool.generation, pool.impl.pool_state.text()) == (before, state)
    pool._check()


@pytest.mark.parametrize(
    "answer, words",
    [
        (5, r"expected \(selected, nslots\), got 5"),
        ([(0, {0}, ())], r"expected \(selected, nslots\)"),
        (([(0, {0}, ())], 0), "expected a number of slots, 1 or more, got 0"),
        (([(0, {0}, ())], -3), "got -3"),
        (([(0, {0}, ())], None), "got None"),
    ],
)
def test_a_hook_returns_a_selection_and_a_number_of_slots(answer, words):
    pool = hooked(_select_resources=lambda self, candidates, request: answer)(R())
    with pytest.raises(ValueError, match=f"_select_resources: .*{words}"):
        pool.alloc(1, ask(pool))
    assert not pool.job_end_times()


@pytest.mark.parametrize(
    "placed, said",
    [
        (7, r"expected \(selection, nslots\), got 7"),
        (("ab", 1), "expected"),
        (((0,), 1), "expected"),
        (((), 1), "expected"),
        (((0, 0), 1), "expected"),
        (((0, 1, 1, 1), 0), "expected a number of slots, 1 or more, got 0"),
        (((0, 1, 9, 1), 2), "rank 9 is not up or not eligible"),
        (((0, 1, 3, 1), 2), "rank 3 is not up or not eligible"),
        (((0, 1, 0, 2), 2), "a rank is chosen twice"),
        (((0, 1, 1, 1), 2), "units chosen on rank 0-1 are not all free"),
        ((~0b111, 1), "expected"),
        (((~0b111, 1), 3), "not all free"),
        (((0, 1), 1), "1 nodes, 1 slots: the job asks for at least 2 and 2"),
    ],
)
def test_choices_that_a_placement_of_a_site_may_not_make(placed, said):
    class Mine(Placement):
        def place(self, index, shape, eligible):
            return placed

    pool = ResourcePool(R())
    pool.placement = Mine()
    pool.register_alloc(5, R(lite(("1", "0", None))))
    pool.mark_down("3")
    with pytest.raises(ValueError, match=rf"Mine.place\(\): .*{said}"):
        pool.alloc(1, ask(pool, 1, nodes=2))
    assert list(pool.job_end_times())[0][0] == 5
    pool._check()


@pytest.mark.parametrize(
    "nodes, said", [(2, r"each: the pool finds no place among the 4 eligible"), (5, r"each, only 4 eligible")]
)  # fmt: skip
def test_a_placement_of_a_site_that_finds_no_place(nodes, said):
    pool = ResourcePool(R())
    pool.placement = type("Mine", (Placement,), {"place": lambda *args: None})()
    with pytest.raises(InfeasibleRequest, match=rf"need {nodes} node\(s\) with 1 cores {said}"):
        pool.alloc(1, ask(pool, 1, nodes=nodes))


def raise_for_no_place(self, candidates, request=None):
    raise InsufficientResources("no place")


def test_a_hook_that_finds_nothing():
    hooks = [lambda *args, answer=answer: answer for answer in (None, ([], 0), ((), 0))]
    hooks.append(lambda *args: (iter(()), 0))
    kinds = [hooked(_select_resources=hook) for hook in (*hooks, raise_for_no_place)]
    text = "enough is free, but Rv1Pool finds no place"
    for kind in (*kinds, hooked(_sort_candidates=raise_for_no_place)):
        pool = kind(R())
        with pytest.raises(InsufficientResources, match=text):
            pool.alloc(1, ask(pool))
        with pytest.raises(InfeasibleRequest):
            pool.alloc(1, ask(pool, cores=9))


def choose_nothing(self, candidates, request):
    pass


def test_a_hook_without_return_is_told_once():
    log = Log()
    pool = hooked(_select_resources=choose_nothing)(R(), log=log)
    for jobid in (1, 2):
        with pytest.raises(InsufficientResources):
            pool.alloc(jobid, ask(pool))
    text = "choose_nothing() returned None, taken for ([], 0): is a return missing?"
    assert log.lines == [("warning", text)]


# -- the checks themselves ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spoil",
    [
        lambda impl: impl.index.partial.__setitem__(0, 0b1),
        lambda impl: impl.index.groups.clear(),
        lambda impl: impl.pool_state.jobs.__setitem__(9, (0.0, 0, 0b1)),
        lambda impl: impl.pool_state.jobs.clear(),
        lambda impl: setattr(impl.pool_state, "up", 1 << 9),
        lambda impl: setattr(impl.pool_state, "gone", 1),
        lambda impl: setattr(impl.index, "idle", 0),
        lambda impl: impl.index.keys.append(1),
        lambda impl: impl.inventory.matches.__setitem__(("ranks", ("0",)), 0),
        lambda impl: setattr(impl.index, "inventory", None),
    ],
)
def test_check_finds(spoil):
    pool = ResourcePool(R())
    pool.alloc(1, ask(pool, nodes=2, cores=2))
    pool._check()
    spoil(pool.impl)
    with pytest.raises((AssertionError, AttributeError)) as caught:
        pool._check()
    if caught.type is AssertionError:
        assert "pool: rank[0-3]" in str(caught.value) and "idle:" in str(caught.value)
