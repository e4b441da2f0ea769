# SPDX-License-Identifier: LGPL-3.0-or-later
"""Counts of RFC 14 and RFC 45, and products of them."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux.resource import ResourceCount
from flux.resource.ResourceCount import multiply

parse = ResourceCount.parse


@pytest.mark.parametrize(
    "count, values",
    [
        (4, [4]),
        ("4", [4]),
        ("[4]", [4]),
        ("1-10:3", [1, 4, 7, 10]),
        ("3-20:2:*", [3, 6, 12]),
        ("2-300:2:^", [2, 4, 16, 256]),
        ("2-300:3:^", [2, 8]),
        ("[2-64:2:*]", [2, 4, 8, 16, 32, 64]),
        ("4,9,16-17", [4, 9, 16, 17]),
        ("1-4:1:+", [1, 2, 3, 4]),
        ("3-5:1", [3, 4, 5]),
        ({"min": 2, "max": 5}, [2, 3, 4, 5]),
        ({"min": 3, "max": 12, "operator": "+", "operand": 3}, [3, 6, 9, 12]),
        ({"min": 1, "max": 5, "operator": "*", "operand": 2}, [1, 2, 4]),
    ],
)
def test_values(count, values):
    parsed = parse(count)
    assert list(parsed) == values
    assert parsed.min == values[0]
    assert parsed.fixed == (len(values) == 1)
    assert [n for n in range(values[-1] + 3) if parsed.accepts(n)] == values
    for limit in range(values[-1] + 3):
        fitting = [value for value in values if value <= limit]
        assert parsed.floor(limit) == (max(fitting) if fitting else None)
    assert list(parse(str(parsed))) == values
    assert parse(str(parsed)) == parsed
    assert hash(parse(str(parsed))) == hash(parsed)
    assert repr(parsed) == f"ResourceCount({parsed})"


def test_unbounded():
    assert list(itertools.islice(parse("2+:3"), 4)) == [2, 5, 8, 11]
    assert list(itertools.islice(parse("1+:2:*"), 4)) == [1, 2, 4, 8]
    assert parse("2+").max is None and parse("2+").simple
    assert not parse("2+:2").simple
    # Powers end where no count could be.
    assert len(list(parse("2+:9:^"))) < 10
    assert str(parse("2+")) == "2+" and str(parse("2-9:2:^")) == "2-9:2:^"


@pytest.mark.parametrize(
    "count",
    [
        0, -1, True, 2.5, "0", "0,4", "03", "5-3", "1-8:2:^", "2-8:1:*", "2-8:0", "2+:2:/", "[2+", "", "x", " 2", "2 ",
        {"max": 3}, {"min": 3, "max": 2}, {"min": 2, "operator": "*"}, {"min": 1, "operand": 2}, {"min": 1, "x": 1},
        {"min": "1"}, {"min": True}, {"min": 1, "max": 2.5}, {"min": 0}, {"min": 2, "operator": [], "operand": 2},
        None, [1], {}, "4:2", "4:2:*", "1-4294967296,4294967297", 10**30, "9" * 5000, {"min": 1, "max": 10**30}, "٣",
        {"min": 1, "operator": "+", "operand": 10**30}, "2-8:2:", "2+:+", "1-2-3", "2,1", "1,1", float("nan"),
    ],
)  # fmt: skip
def test_rejected(count):
    with pytest.raises(ValueError):
        parse(count)


def test_equality():
    assert parse("4") == 4 == parse(4)
    assert parse("2-4") != 2 and parse("2-4") != "2-4"
    assert parse("2-4") != parse("2-5")
    assert ResourceCount.parse(parse("2-4")) == parse("2-4")


counts = st.sampled_from([1, 2, 3, "2-4", "1-9:3", "1,3,4", "2-8:2:*", "2+", "2-9:2:^", "3+:2"])


@given(counts, counts, st.integers(0, 60))
def test_products(outer, inner, limit):
    """The outer count is made as large as it can be, then the inner one."""
    product = multiply(parse(outer), parse(inner))
    top = list(itertools.islice(parse(outer), 80))
    bottom = list(itertools.islice(parse(inner), 80))
    expected = None
    possible = [a for a in top if a * bottom[0] <= limit]
    if possible:
        expected = max(possible) * max(b for b in bottom if max(possible) * b <= limit)
    assert product.floor(limit) == expected
    assert product.min == top[0] * bottom[0]
    unbounded = parse(outer).max is None or parse(inner).max is None
    assert (product.max is None) == unbounded
