# SPDX-License-Identifier: LGPL-3.0-or-later
"""Faults in an R allocated by a scheduler, and cases that are no faults."""

import pytest

from flux.resource.allocations import Allocations


def R_of(*entries, hosts=("n[0-9]",)):
    lite = [{"rank": rank, "children": children} for rank, children in entries]
    return {"version": 1, "execution": {"R_lite": lite, "nodelist": list(hosts)}}


@pytest.fixture
def held():
    found = Allocations(
        R_of(("0-3", {"core": "0-3"}), ("4", {"core": "0-3", "gpu": "0"}), ("4", {"gpu": "1"}))
    )
    assert found.take(1, R_of(("0-1", {"core": "0-3"}))) is None
    assert found.take(2, R_of(("2", {"core": "0"}), ("3", {"core": "0-1"}))) is None
    return found


@pytest.mark.parametrize(
    "R, said",
    [
        (R_of(("9", {"core": "0"})), "the instance has no rank 9"),
        (R_of(("2", {"core": "3-4"})), "rank 2 has no core 3-4"),
        (R_of(("2,4", {"core": "2", "gpu": "0"})), "rank 2 has no core 2, gpu 0"),
        (R_of(("1-2", {"core": "3"})), "core 3 of rank 1 is job ƒ2's"),
        (R_of(("2-3", {"core": "1-2"})), "core 1 of rank 3 is job ƒ3's"),
        (R_of(("2", {"core": "2"}), ("2", {"core": "2-3"})), "core 2 of rank 2 is job ƒ4's"),
        (R_of(("2-3", {"core": "2-3"})), None),
        (R_of(("4", {"core": "0-3", "gpu": "0-1"})), None),
    ],
)  # fmt: skip
def test_the_mistake_in_R_is_named(held, R, said):
    assert held.take(3, R) == said


def test_a_rank_that_is_down_is_not_given(held):
    held.set_up("0-1,4")
    assert held.take(3, R_of(("2-3", {"core": "3"}))) == "rank 2-3 is down"
    held.give_back(3)
    held.set_up("0-4")
    assert held.take(3, R_of(("2-3", {"core": "3"}))) is None


def test_returned_units_are_free(held):
    held.give_back(1, "1")
    assert held.take(3, R_of(("1", {"core": "0-3"}))) is None
    assert held.take(4, R_of(("0", {"core": "0"}))) == "core 0 of rank 0 is job ƒ2's"
    held.give_back(4)
    held.give_back(1)
    held.give_back(2)
    assert held.take(5, R_of(("0,2-3", {"core": "0-3"}))) is None


@pytest.mark.parametrize(
    "R",
    [
        None, "R", {}, {"execution": None}, {"version": 1, "execution": {}}, R_of(),
        R_of((None, {"core": "0"})), R_of(("", {"core": "0"})), R_of(("3-1", {"core": "0"})), R_of(("0", None)),
        R_of(("0", {"core": 1})), R_of(("0", {"core": ["0"]})), R_of(("0", {"core": "x"})),
        R_of(("0", {"core": "0"}), hosts=()), R_of(("0", {"core": "0"}), hosts=(None,)),
        {**R_of(("0", {"core": "0"})), "version": 2},
    ],
)  # fmt: skip
def test_no_R(held, R):
    with pytest.raises(ValueError):
        held.take(3, R)
    assert held.take(3, R_of(("2-3", {"core": "2-3"}))) is None
