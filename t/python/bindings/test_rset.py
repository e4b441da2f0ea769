# SPDX-License-Identifier: LGPL-3.0-or-later
"""The model of R that commands, services and the bindings share."""

import pytest

from flux_engine.formats.rset import RSet

R2 = {
    "version": 1,
    "execution": {
        "R_lite": [
            {"rank": "0-2", "children": {"core": "0-3", "gpu": "1"}},
            {"rank": "3", "children": {"core": "0,2"}},
        ],
        "starttime": 0.0,
        "expiration": 5.0,
        "nodelist": ["n[0-2]", "m"],
        "properties": {"big": "0-1", "odd": "1,3"},
    },
}


class TestRSet:
    def test_round_trip(self):
        again = RSet(RSet(R2).to_dict()).to_dict()
        assert again == RSet(R2).to_dict()
        assert (
            again["execution"]["nodelist"] == ["n[0-2],m"]
            and again["execution"]["properties"] == R2["execution"]["properties"]
        )

    def test_set_operations(self):
        rset = RSet(R2)
        part = rset.select({1, 3})
        assert part.host_names() == ["n1", "m"] and part.properties == {"big": {1}, "odd": {1, 3}}
        rest = rset.select({0, 2})
        assert sorted(rest.have) == [0, 2]
        rest.add(part)
        assert rest.to_dict() == rset.to_dict()


def test_properties_of_ranks_that_are_not_there_are_refused():
    R = {**R2, "execution": {**R2["execution"], "properties": {"big": "0,7-8"}}}
    with pytest.raises(ValueError, match="execution.properties.big: rank 7-8 is not in R_lite"):
        RSet(R)
    assert RSet(R, lenient=True).properties == {"big": {0}}
