# SPDX-License-Identifier: LGPL-3.0-or-later
"""Resource shapes (RFC 46)."""

import json

import pytest
import shared

from flux_embedded.formats import shape

STEP = {"min": 3, "max": 9, "operator": "+", "operand": 3}


def core(count=1):
    return {"type": "core", "count": count}


GOOD = {
    "slot=2{a}/[core=3;gpu]": [
        {"type": "slot", "count": 2, "label": "a", "with": [core(3), {"type": "gpu", "count": 1}]}
    ],
    "[node=2/slot{s1}/core;slot=3-9:3{s2}/node{x}]": [
        {
            "type": "node",
            "count": 2,
            "with": [{"type": "slot", "count": 1, "label": "s1", "with": [core()]}],
        },
        {
            "type": "slot",
            "count": STEP,
            "label": "s2",
            "with": [{"type": "node", "count": 1, "exclusive": True}],
        },
    ],
    "slot=4,9/node": [
        {"type": "slot", "count": "4,9", "label": "default", "with": [{"type": "node", "count": 1}]}
    ],
    "slot{x}/core": [{"type": "slot", "count": 1, "label": "x", "with": [core()]}],
    "slot=4{ranks}/node{-x}": [
        {
            "type": "slot",
            "count": 4,
            "label": "ranks",
            "with": [{"type": "node", "count": 1, "exclusive": False}],
        }
    ],
    "node=2+": [{"type": "node", "count": {"min": 2}}],
    "node=[3-30]": [
        {"type": "node", "count": {"min": 3, "max": 30, "operator": "+", "operand": 1}}
    ],
    "node=2-64:2:*": [
        {"type": "node", "count": {"min": 2, "max": 64, "operator": "*", "operand": 2}}
    ],
    "node=2+:3:^": [{"type": "node", "count": {"min": 2, "operator": "^", "operand": 3}}],
    'memory=4{unit:GB,"a b":[1,x],+f,o:{k:1.5,l:true}}': [
        {
            "type": "memory",
            "count": 4,
            "unit": "GB",
            "a b": [1, "x"],
            "f": True,
            "o": {"k": 1.5, "l": True},
        }
    ],
}

BAD = {
    "": "a resource type",
    "slot": "contents of the slot",
    "slot{}/core": "a label",
    "[slot/core;slot/core]": "labeled",
    "[slot{a}/core;slot{a}/core]": "differ",
    "core=0": "above 0",
    "core=4:2": "above 0",
    "core=2-8:1:*": "must be 2 or more",
    "core=1-8:2:^": "must be 2 or more",
    "core=5-3": "less than",
    "core=": "a count",
    "[core": "']' or ';'",
    "core;gpu": "the end",
    "core{": "a key",
    "node{a:}": "a value",
    "/".join(["a"] * 1000): "nested too deeply",
    "a{b:" + "[" * 1000: "nested too deeply",
}


@pytest.mark.parametrize("text", GOOD)
def test_parse(text):
    assert shape.parse(text) == GOOD[text]


@pytest.mark.parametrize("text", BAD)
def test_what_is_wrong_is_named(text):
    with pytest.raises(ValueError) as info:
        shape.parse(text)
    assert BAD[text] in str(info.value)


def test_recorded_shapes():
    """A real `flux submit --resources-shape` keeps ranges as text and labels the slot task."""
    tried = 0
    for line in shared.data_path("golden/jobspecs.jsonl").read_text().splitlines():
        record = json.loads(line)
        for arg in record["args"]:
            if arg.startswith("--resources-shape="):
                made = shape.parse(arg.partition("=")[2], default_label="task", expand=False)
                assert json.dumps(made) == json.dumps(record["jobspec"]["resources"])
                tried += 1
    assert tried >= 7
