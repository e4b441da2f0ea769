# SPDX-License-Identifier: LGPL-3.0-or-later
"""Constraints: the text form (RFC 35), the objects (RFC 31), and what they match."""

import json

import pytest
import shared

from flux_embedded.formats import constraint, constraint_text, idset

TEXT = {
    "": {},
    " \n": {},
    "big": {"properties": ["big"]},
    "big,small": {"properties": ["big", "small"]},
    "a b c": {"properties": ["a", "b", "c"]},
    "a&b && c and d": {"properties": ["a", "b", "c", "d"]},
    "a|b": {"or": [{"properties": ["a"]}, {"properties": ["b"]}]},
    "a or b c": {"or": [{"properties": ["a"]}, {"properties": ["b", "c"]}]},
    "-a": {"not": [{"properties": ["a"]}]},
    "not (a|b)": {"not": [{"or": [{"properties": ["a"]}, {"properties": ["b"]}]}]},
    "not not a": {"not": [{"not": [{"properties": ["a"]}]}]},
    "host:n[1-2],n5": {"hostlist": ["n[1-2],n5"]},
    "a host:x rank:1-2": {"and": [{"properties": ["a"]}, {"hostlist": ["x"]}, {"ranks": ["1-2"]}]},
    "ssd (gpu|-host:n[1-4])": {
        "and": [
            {"properties": ["ssd"]},
            {"or": [{"properties": ["gpu"]}, {"not": [{"hostlist": ["n[1-4]"]}]}]},
        ]
    },
    "'a b'": {"properties": ["a b"]},
    'foo:"x y"': {"foo": ["x y"]},
    "a-b": {"properties": ["a-b"]},
}

BAD_TEXT = {
    "&&": "Invalid token '&&' at position 0",
    "-(a|b)": "Invalid token '(' at position 1",
    "big,host:n1": "invalid character ',' in operator 'big,host:'",
    "a )": "Invalid token ')' at position 2",
    "(a": "Unclosed parenthesis in position 0",
    "a |": "Unexpected end of input in 'a |'",
    "-": "Unexpected end of input in '-'",
    "--a": "Invalid token '-' at position 1",
    "'a": 'Illegal character "\'" at position 0',
    "host:": "missing operand after 'host:'",
    "(" * 1000 + "a": "constraint is nested too deeply",
    "not " * 1000 + "a": "constraint is nested too deeply",
}

# Ranks 0-3 on node[0-3]; ssd: 0-1, slow: 1-2, +batch: 0,3
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


@pytest.mark.parametrize("text", TEXT)
def test_text(text):
    assert constraint_text.parse(text) == TEXT[text]


@pytest.mark.parametrize("text", BAD_TEXT)
def test_text_that_is_wrong(text):
    with pytest.raises(ValueError) as info:
        constraint_text.parse(text)
    assert str(info.value) == BAD_TEXT[text]


def test_recorded_requirements():
    tried = 0
    for line in shared.data_path("golden/jobspecs.jsonl").read_text().splitlines():
        record = json.loads(line)
        for arg in record["args"]:
            if not arg.startswith("--requires="):
                continue
            text = arg.partition("=")[2]
            tried += 1
            if record["rc"]:
                with pytest.raises(ValueError) as info:
                    constraint_text.parse(text)
                assert f"--requires='{text}': {info.value}\n" in record["stderr"]
            else:
                system = record["jobspec"]["attributes"]["system"]
                assert constraint_text.parse(text) == system["constraints"]
    assert tried >= 13


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
