# SPDX-License-Identifier: LGPL-3.0-or-later
"""Constraints (RFC 31): which are valid."""

import pytest

from flux_engine.formats import constraint

REJECTED = [
    {"foo": ["a"]}, {"properties": "ssd"}, {"and": ["ssd"]}, {"ranks": ["2-1"]}, [], None, {"hostlist": ["n[1"]},
    {"properties": [1]}, {"properties": ["^"]}, {"properties": ["a&b"]}, {"properties": [""]}, {"or": {}},
]  # fmt: skip


@pytest.mark.parametrize("obj", REJECTED, ids=repr)
def test_objects_that_are_wrong(obj):
    with pytest.raises(ValueError, match="constraint|idset|hostlist"):
        constraint.validate(obj)


def test_depth_is_bounded():
    obj = {}
    for _ in range(10000):
        obj = {"not": [obj]}
    with pytest.raises(ValueError, match="nested too deeply"):
        constraint.validate(obj)
