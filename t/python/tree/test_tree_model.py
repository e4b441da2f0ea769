# SPDX-License-Identifier: LGPL-3.0-or-later
"""TreePool against the plain model: the same answers to the same random history."""

import copy

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from shared import runs
from tree_help import jobspec_of_shape, topo_R
from tree_model import Infeasible, Insufficient, Model, Node, Request, ids

from flux.resource.pool.masks import idset_text, members
from flux.resource.TreePool import TreePool

NAMES = ("socket", "numa", "tray", "slice")


@st.composite
def domains(draw, cores, gpus, depth=0):
    """A topology over some cores and GPUs (lists of ids); not all of them need be in it."""
    if depth == 3 or len(cores) < 2 or draw(st.integers(0, 3)) == 0:
        leaf = {"cores": text(cores)}
        if gpus:
            leaf["gpus"] = text(gpus)
        return leaf
    domain = {}
    parts = draw(st.integers(1, 3))
    near, far = list(gpus), []
    if gpus and draw(st.integers(0, 3)) == 0:
        far = [near.pop()]  # beside the level
    entries = []
    for i in range(parts):
        mine = cores[len(cores) * i // parts : len(cores) * (i + 1) // parts]
        own = near[len(near) * i // parts : len(near) * (i + 1) // parts]
        if mine:
            entries.append(draw(domains(mine, own, depth + 1)))
        else:
            far += own
    if draw(st.integers(0, 5)) == 0:
        entries.append(entries[0])  # two memories over the same cores
    domain[draw(st.sampled_from(NAMES))] = entries
    if len(cores) > 2 and draw(st.integers(0, 5)) == 0:
        # The same cores cut up another way, under another name.
        cut = draw(st.integers(1, len(cores) - 1))
        other = [{"cores": text(cores[:cut])}, {"cores": text(cores[cut:])}]
        domain.setdefault("slice", other)
    if far:
        domain["gpus"] = text(sorted(far))
    return domain


def text(numbers):
    return idset_text(sum(1 << number for number in numbers))


@st.composite
def kinds(draw):
    """(nodes, cores, gpus, topo) of one kind of node."""
    ncores = draw(st.integers(1, 12))
    ngpus = draw(st.integers(0, 4))
    topo = draw(domains(list(range(ncores)), list(range(ngpus))))
    # R may grant less than the topology has.
    extra = draw(st.sampled_from((0, 0, 0, 1, -1)))
    granted = max(1, ncores + extra)
    return draw(st.integers(1, 3)), f"0-{granted - 1}", f"0-{ngpus - 1}" if ngpus else "", topo


@st.composite
def ranges(draw, most):
    low = draw(st.integers(1, most))
    return (low, draw(st.integers(low, most + 2)) if draw(st.booleans()) else low)


@st.composite
def requests(draw):
    nodes = draw(st.one_of(st.none(), ranges(3)))
    if draw(st.integers(0, 3)) == 0:
        each = draw(st.sampled_from((1, 1, 1, 2)))
        return Request(nodes, draw(ranges(3)), 0, 0, level=draw(st.sampled_from(NAMES)), each=each)
    exclusive = nodes is not None and draw(st.integers(0, 4)) == 0
    slots, cores, gpus = draw(ranges(4)), draw(st.integers(1, 5)), draw(st.integers(0, 2))
    return Request(nodes, slots, cores, gpus, exclusive)


def entries(pool):
    """{rank: (cores, gpus)} of an allocation."""
    found = {}
    for mask, cores, gpus in pool.impl.entries():
        for rank in members(mask):
            found[rank] = (set(members(cores)), set(members(gpus)))
    return found


def both(kinds):
    R = topo_R(*kinds)
    nodes = []
    for count, cores, gpus, topo in kinds:
        nodes += [Node(ids(cores), ids(gpus), topo) for _ in range(count)]
    return TreePool(R), Model(nodes)


class Histories(RuleBasedStateMachine):
    @initialize(kinds=st.lists(kinds(), min_size=1, max_size=3))
    def start(self, kinds):
        self.pool, self.model = both(kinds)
        self.next = 1

    @rule(request=requests())
    def alloc(self, request):
        parsed = self.pool.parse_resource_request(jobspec_of_shape(request.shape()))
        try:
            expected, nslots = self.model.alloc(self.next, request)
        except Insufficient:
            expected = TreePool.InsufficientResources
        except Infeasible:
            expected = TreePool.InfeasibleRequest
        try:
            job = self.pool.alloc(self.next, parsed)
        except (TreePool.InsufficientResources, TreePool.InfeasibleRequest) as exc:
            assert type(exc) is expected, request.shape()
            assert str(exc)
            return
        assert entries(job) == expected, request.shape()
        execution = job.to_dict()["execution"]
        assert execution["nslots"] == nslots
        self.next += 1

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data())
    def free(self, data):
        jobid = data.draw(st.sampled_from(sorted(self.model.jobs)))
        held = sorted(self.model.jobs[jobid])
        if data.draw(st.booleans()) and held:
            rank = data.draw(st.sampled_from(held))
            cores, gpus = self.model.jobs[jobid][rank]
            children = {"core": text(cores), "gpu": text(gpus)}
            R = {"version": 1, "execution": {"R_lite": [{"rank": str(rank), "children": children}]}}
            self.pool.free(jobid, R, final=len(held) == 1)
            self.model.free(jobid, [rank])
        else:
            self.pool.free(jobid)
            self.model.free(jobid)
            self.model.jobs.pop(jobid, None)

    @rule(data=st.data())
    def up_and_down(self, data):
        rank = data.draw(st.sampled_from(sorted(self.model.nodes)))
        node = self.model.nodes[rank]
        node.up = not node.up
        (self.pool.mark_up if node.up else self.pool.mark_down)(str(rank))

    @precondition(lambda self: len(self.model.nodes) > 2)
    @rule(data=st.data())
    def shrink(self, data):
        if data.draw(st.integers(0, 3)):
            return
        rank = data.draw(st.sampled_from(sorted(self.model.nodes)))
        self.model.remove(rank)
        self.pool.remove_ranks(str(rank))

    @rule(request=requests())
    def a_copy_tells_the_same_and_leaves_no_trace(self, request):
        parsed = self.pool.parse_resource_request(jobspec_of_shape(request.shape()))
        before = self.pool.dumps(), self.pool.generation
        twin, model = self.pool.copy(), copy.deepcopy(self.model)
        try:
            expected = model.alloc(0, request)[0]
        except (Insufficient, Infeasible):
            expected = None
        try:
            found = entries(twin.alloc(0, parsed))
        except (TreePool.InsufficientResources, TreePool.InfeasibleRequest):
            found = None
        assert found == expected
        assert (self.pool.dumps(), self.pool.generation) == before

    @invariant()
    def sound(self):
        if hasattr(self, "pool"):
            self.pool._check()


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=runs(40, 120), stateful_step_count=25, deadline=None, derandomize=True,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


@settings(max_examples=60)
@given(found=st.lists(kinds(), min_size=1, max_size=3))
def test_R_out_and_in_again_is_the_same_pool(found):
    pool, _ = both(found)
    R = pool.to_dict()
    assert TreePool(R).to_dict() == R
    assert TreePool(R).dumps() == pool.dumps()
