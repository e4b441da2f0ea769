# SPDX-License-Identifier: LGPL-3.0-or-later
"""Every machine there is XML of, as a pool: each GPU can be had with a core, each core too."""

import pytest
from own_machines import MACHINES
from test_amend import recorded_machines
from tree_help import alloc

from flux.resource.draw.text import render_text
from flux.resource.hwloc.amend import amend, topology_from_xml
from flux.resource.TreePool import TreePool
from flux.scheduler.testing import jobspec
from flux_engine.formats import rset


@pytest.mark.parametrize(
    "xml",
    [pytest.param(MACHINES[name][0], id=name) for name in MACHINES]
    + [pytest.param(one.values[0], id=one.id) for one in recorded_machines()],
)
def test_pool_of_a_machine(hwloc, xml):
    _, ncores, ngpus = topology_from_xml(xml)
    R = amend(rset.uniform(["node0", "node1"], ncores, ngpus), xml)
    pool = TreePool(R)
    if ngpus:
        # One slot a GPU, or more GPUs a slot where there are fewer cores.
        each = -(-ngpus // ncores)
        spec = jobspec(nodes=1, slots=ngpus // each, gpus=each)
        job = pool.alloc(1, pool.parse_resource_request(spec))
        (entry,) = job.impl.entries()
        assert entry[0] == 1
        assert [bin(mask).count("1") for mask in entry[1:]] == [ngpus // each, ngpus // each * each]
    else:
        assert alloc(pool, 1, "slot/[core;gpu]") == "InfeasibleRequest"
    assert alloc(pool, 2, f"slot/core={ncores}") == (
        f"rank{1 if ngpus else 0}/core{'0' if ncores == 1 else f'[0-{ncores - 1}]'}"
    )
    assert alloc(pool, 3, f"node/slot={ncores + 1}/core") == "InfeasibleRequest"
    pool._check()
    assert len(render_text(R, {"a": R}).splitlines()) > 2
