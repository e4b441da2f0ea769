"""Idsets (RFC 22) and hostlists (RFC 29) as text."""

import random

import pytest

from flux_engine.formats import fsd, hostlist, idset


def test_a_duration_that_no_number_holds_is_refused():
    with pytest.raises(ValueError):
        fsd.parse("1e308d")


def test_the_greatest_set_costs_no_more_than_a_small_one():
    everything = idset.decode("0-4294967295")
    assert idset.count(everything) == 4294967296
    assert idset.encode(idset.difference(everything, [5, 6])) == "0-4,6-4294967295"


def test_sets_are_combined_as_python_combines_them():
    chance = random.Random(1)
    for _ in range(500):
        sets = [set(chance.sample(range(20), chance.randint(0, 15))) for _ in range(2)]
        a, b = map(idset.from_ids, sets)
        for function, ids in (
            (idset.union, sets[0] | sets[1]),
            (idset.difference, sets[0] - sets[1]),
            (idset.intersect, sets[0] & sets[1]),
        ):
            assert function(a, b) == idset.from_ids(ids)


def test_the_longest_list_has_2_to_the_20_names():
    assert len(hostlist.decode("n[0-1048575]")) == 1 << 20
    with pytest.raises(ValueError):
        hostlist.decode("n[0-1048575],m")
