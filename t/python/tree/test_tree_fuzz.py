# SPDX-License-Identifier: LGPL-3.0-or-later
"""Random R.scheduling: a consistent pool or a ValueError."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from shared import runs
from tree_help import alloc, topo_R

from flux.resource import ResourcePool
from flux.resource.draw.text import render_text
from flux.resource.TreePool import TreePool

KEYS = st.sampled_from("cores gpus memory socket numa ranks topo é node".split() + [""])
IDSETS = st.sampled_from("0 0-3 [0-1] 4-7 0-4294967295 3-1 x 0,1 00".split() + ["", " 0"])
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), IDSETS, st.text(max_size=3)),
    lambda below: st.one_of(st.lists(below, max_size=4), st.dictionaries(KEYS, below, max_size=4)),
    max_leaves=12,
)
ENTRY = st.fixed_dictionaries({"ranks": st.one_of(IDSETS, JSON), "topo": JSON})
CHILDREN = st.one_of(JSON, st.lists(st.one_of(ENTRY, JSON), max_size=3))
SCHEDULING = st.one_of(JSON, st.fixed_dictionaries({"children": CHILDREN}))
NUMAS = [{"cores": "4-5"}, {"cores": "6-7", "gpus": "1"}]
TOPO = {"socket": [{"cores": "0-3", "gpus": "0"}, {"numa": NUMAS}]}


def use(R):
    try:
        pool = TreePool(R)
    except ValueError as exc:
        assert str(exc)
        return
    shapes = ("slot/core", "slot/[core;gpu]", "slot/numa{x}", "slot/socket{x}")
    for jobid, shape in enumerate(shapes, 1):
        alloc(pool, jobid, shape)
    pool._check()
    assert ResourcePool(pool.to_dict()).dumps() == pool.dumps()
    render_text(pool.to_dict())


@settings(max_examples=runs(50, 300))
@given(scheduling=SCHEDULING)
def test_any_json(scheduling):
    R = topo_R((4, "0-7", "0-1", TOPO))
    R["scheduling"] = scheduling
    use(R)
    use(json.dumps(R))


def test_nesting_without_end():
    topo = {"cores": "0"}
    for _ in range(5000):
        topo = {"numa": [topo]}
    R = topo_R((1, "0-7", "0-1", TOPO))
    R["scheduling"]["children"][0]["topo"] = topo
    use(R)
    text = '{"version":1,"execution":{"R_lite":[{"rank":"0","children":{"core":"0"}}]},"scheduling":{"children":'
    use(text + '[{"ranks":"0","topo":' + '{"numa":[' * 50000 + "]}" * 50000 + "}]}}")
