# SPDX-License-Identifier: LGPL-3.0-or-later
"""Constraints (RFC 31): which are valid, and what they match."""

import pytest

from flux_embedded.formats import constraint, idset

MATCHES = [
    ({}, "0-3"), ({"and": []}, "0-3"), ({"or": []}, "0-3"), ({"properties": []}, "0-3"),
    ({"not": []}, ""), ({"not": [{}]}, ""), ({"properties": ["none"]}, ""), ({"hostlist": ["zz"]}, ""),
    ({"hostlist": []}, ""), ({"ranks": []}, ""),
    ({"properties": ["ssd", "^slow"]}, "0"),
    ({"properties": ["^ssd", "^slow"]}, "3"),
    ({"not": [{"properties": ["ssd", "slow"]}]}, "0,2-3"),
    ({"not": [{"properties": ["ssd"]}, {"properties": ["slow"]}]}, "0,2-3"),
    ({"or": [{"properties": ["ssd"]}, {"ranks": ["3"]}]}, "0-1,3"),
    ({"hostlist": ["node[1-2]", "node3"]}, "1-3"),
    ({"ranks": ["0", "2-3"]}, "0,2-3"),
    ({"properties": ["+batch"], "hostlist": ["node[0-1]"]}, "0"),
    ({"properties": ["^+batch"]}, "1-2"),
    ({"not": [{"not": []}]}, "0-3"), ({"properties": ["^none"]}, "0-3"),
]  # fmt: skip

REJECTED = [
    {"foo": ["a"]}, {"properties": "ssd"}, {"and": ["ssd"]}, {"ranks": ["2-1"]}, [], None, {"hostlist": ["n[1"]},
    {"properties": [1]}, {"properties": ["^"]}, {"properties": ["a&b"]}, {"properties": [""]}, {"or": {}},
]  # fmt: skip


@pytest.mark.parametrize("obj, ranks", MATCHES)
def test_match(obj, ranks):
    constraint.validate(obj)
    properties = {"ssd": "0-1", "slow": "1-2", "+batch": "0,3"}
    matching = constraint.match(
        obj,
        idset.decode("0-3"),
        {name: idset.decode(members) for name, members in properties.items()},
        lambda host: [int(host[4:])] if host.startswith("node") else [],
    )
    assert idset.encode(matching) == ranks


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
