# SPDX-License-Identifier: LGPL-3.0-or-later
"""Jobs that may share a node: ``[sharing.NAME]``."""

import pytest
from each_policy import POLICIES
from peers import R, Rig, jobspec, machine, ruled

from flux.idset import IDset
from flux.resource import ResourcePool
from flux.scheduler.admission import AdmissionRule
from flux.scheduler.policies import Backfill, Simple


def load(policy, args, sharing, rig=None, nodes=4, cores=4, **config):
    rig = rig or Rig(R(nodes, cores, properties={"shared": "0-1"}))
    rig.load(policy, *args, config={"sharing": sharing, **config})
    return rig


def spec(slots=1, **keys):
    keys.setdefault("duration", 100)
    return jobspec(slots, **keys)


def cores(rig, jobid):
    return sum(
        IDset(entry["children"]["core"]).count() * IDset(entry["rank"]).count()
        for entry in rig.success(jobid)["R"]["execution"]["R_lite"]
    )


USER, NODE = {"all": {"mode": "user"}}, {"all": {"mode": "node"}}
#: Nodes with a property are for one job each.
OWN = {"own": {"mode": "node", "properties": ["own"]}}


@POLICIES
def test_the_jobs_on_a_node_are_one_users(policy, args):
    rig = load(policy, args, USER)
    rig.alloc(range(1, 5), spec(1), userid=7)
    rig.alloc(range(5, 8), spec(1), userid=8)
    assert rig.started() == list(range(1, 8))
    assert set().union(*(rig.ranks(jobid) for jobid in (1, 2, 3, 4))) == {0}, "own nodes are filled"
    assert len(set().union(*(rig.ranks(jobid) for jobid in (5, 6, 7)))) == 1


@POLICIES
@pytest.mark.parametrize(
    "asked, nodes",
    [(spec(1), 1), (spec(4), 1), (spec(5), 2), (spec(1, nodes=2), 2), (spec(2, cores=3), 2)]
    + [(spec(1, nodes=1, exclusive=True), 1)],
    ids=["core", "node", "five", "nodes", "large", "exclusive"],
)
def test_whole_nodes(policy, args, asked, nodes):
    rig = load(policy, args, NODE)
    rig.alloc(1, asked, userid=7)
    assert len(rig.ranks(1)) == nodes and cores(rig, 1) == 4 * nodes
    (top,) = asked["resources"]
    if top["type"] == "slot":
        assert rig.success(1)["R"]["execution"]["nslots"] == top["count"]


@POLICIES
def test_by_queue_and_beside_jobs_of_other_queues(policy, args):
    """A job of another queue keeps off claimed nodes, and a claiming one off nodes with strangers."""
    queues = {"ci": {"policy": {"scheduler": {"sharing": "user"}}}, "kid": {"parent": "ci"}}
    rig = load(policy, args, {}, rig=Rig(R(2, 4)), queues=queues)
    rig.alloc(1, spec(1, queue="kid"), userid=7)
    rig.alloc(2, spec(1), userid=8)
    rig.alloc(3, spec(1), userid=9)
    assert rig.ranks(1) == {0} and rig.ranks(2) == rig.ranks(3) == {1}
    rig.alloc(4, spec(1, queue="ci"), userid=9)
    rig.alloc(5, spec(1), userid=7, priority=20)
    assert rig.started() == [1, 2, 3, 5]
    rig.free(2)
    rig.free(3)
    assert 4 in rig.started() and rig.ranks(4) == {1}


@POLICIES
def test_a_rule_that_comes_later_leaves_running_jobs_and_mixes_no_more(policy, args):
    rig = load(policy, args, {}, rig=Rig(R(1, 4)))
    rig.alloc(1, spec(1), userid=7)
    rig.alloc(2, spec(1), userid=8)
    rig.reconfigure({"sharing": USER})
    assert "sharing: jobs of several keys are on 1 node: they stay" in rig.logged(4)
    rig.alloc(3, spec(1), userid=7)
    assert rig.started() == [1, 2]
    rig.free(2)
    assert rig.started() == [1, 2, 3]
    rig.reconfigure({"sharing": {"all": {"mode": "nobody"}}})
    assert rig.logged(3)[-1].startswith("configuration: [sharing.all] mode='nobody': expected")


@POLICIES
def test_jobs_that_were_to_have_whole_nodes_share_them_when_the_rule_is_gone(policy, args):
    rig = load(policy, args, NODE, rig=Rig(R(2, 4)))
    rig.alloc({1: spec(1, nodes=2), 2: spec(2), 3: spec(1, nodes=2), 4: spec(5)})
    assert rig.started() == [1]
    rig.reconfigure({"sharing": {"all": {"mode": "user"}}})
    rig.reconfigure({})
    rig.free(1)
    assert rig.started() == [1, 2, 3]
    assert cores(rig, 2) == 2 and cores(rig, 3) == 2
    rig.free(2)
    assert cores(rig, 4) == 5


@POLICIES
def test_pending_jobs_follow_the_properties_of_nodes(policy, args):
    rig = load(policy, args, {**OWN, **USER}, rig=Rig(R(1, 4)))
    rig.alloc(1, spec(4), userid=7)
    rig.alloc(2, spec(2), userid=8)
    assert rig.started() == [1]
    rig.resource.update(property_add={"own": "0"})
    rig.free(1)
    assert cores(rig, 2) == 4
    rig.alloc(3, spec(2), userid=7)
    rig.alloc(4, spec(2), userid=8)
    assert rig.started() == [1, 2]
    rig.resource.update(property_remove={"own": "0"})
    rig.free(2)
    assert rig.started() == [1, 2, 3] and cores(rig, 3) == 2
    assert rig.reason(4) == "1 node has room but is another user's"


@POLICIES
def test_a_limit_denies_a_job_whose_request_has_grown_beyond_it(policy, args):
    limits = {"bank": {"per": "bank", "banks": ["red"], "max": {"cores": 3}, "deny": True}}
    rig = load(policy, args, OWN, rig=Rig(R(1, 4)), limits=limits)
    rig.alloc({1: spec(4), 2: spec(1, bank="red")})
    rig.resource.update(property_add={"own": "0"})
    assert rig.denied(2) == "limit bank: needs 4 cores, at most 3 are allowed"


@POLICIES
def test_a_soft_limit_lets_a_job_back_whose_request_has_shrunk(policy, args):
    limits = {"user": {"per": "user", "max": {"cores": 3}, "soft": True}}
    rig = load(policy, args, OWN, rig=Rig(R(1, 4, properties={"own": "0"})), limits=limits)
    rig.alloc(1, spec(4, bank="red"), userid=8)
    rig.alloc(2, spec(1), userid=7)
    rig.arrive(3, spec(2), userid=9)
    rig.resource.update(property_remove={"own": "0"})
    rig.free(1)
    assert rig.started()[:2] == [1, 2]


class Told(AdmissionRule):
    name = "told"

    def __init__(self, host):
        super().__init__(host)
        self.of = []

    def alloc(self, job, attributes):
        self.of.append((job.jobid, job.resource_request.exclusive))

    def cancel(self, jobid):
        self.of.append((jobid, None))


@POLICIES
def test_to_a_rule_of_a_site_another_request_is_a_new_one(policy, args):
    rig = load(ruled(policy, Told), args, OWN, rig=Rig(R(1, 4)))
    rig.alloc({1: spec(3), 2: spec(2), 3: spec(1, nodes=1, exclusive=True)})
    assert rig.started() == [1]
    rig.resource.update(property_add={"own": "0"})
    rig.settle()
    assert rig.rule("told").of == [(1, False), (2, False), (3, True), (2, None), (2, True)]


class Unplanned(ResourcePool):
    def can(self, operation):
        return operation != "plan" and super().can(operation)


def test_claims_need_a_pool_that_can_plan():
    policy = type("Policy", (Simple,), {"pool_class": Unplanned})
    rig = load(policy, (), USER)
    assert "[sharing.all] mode='user': the pool of this scheduler cannot plan" in rig.logged(3)[-1]


POOLS = pytest.mark.parametrize("tree", [False, True], ids=["Rv1Pool", "TreePool"])


@POOLS
def test_the_top_view_has_claimed_cores_that_are_idle(tree):
    rig = load(Backfill, (), USER, rig=Rig(machine(tree, 2)))
    rig.alloc(1, spec(1), userid=0)
    rig.alloc(2, spec(3), userid=99999)
    assert rig.answer("stats")["claims"] == [
        {"mode": "user", "whose": whose, "nodes": 1, "idle_cores": idle}
        for whose, idle in (("root", 3), ("99999", 1))
    ]


def sockets(count, **keys):
    """A job that asks for so many whole sockets, anywhere."""
    asked = spec(count, **keys)
    slot = {"type": "slot", "count": count, "label": "task"}
    slot["with"] = [{"type": "socket", "count": 1, "exclusive": True}]
    return {**asked, "resources": [slot]}


def test_more_containers_than_there_are_nodes_for():
    rig = load(Backfill, (), NODE, rig=Rig(machine(True, 2)))
    rig.alloc(1, sockets(5), userid=7)
    assert "exclusive 'socket' container" in rig.denied(1)


@pytest.mark.parametrize("args", [(), ("promise=unlimited",), ("profile=short-waits", "within=10")])
def test_a_job_of_a_group_that_outlives_its_window_makes_promises_beside_its_claim_anew(args):
    """Cores are left beside it, and no other user may have them: a promise that counted on the node cannot be kept."""
    rig = load(Backfill, args, USER, nodes=2)
    rig.reserve("dat", 20, 30, nodes=1, users=[7], at_end="run")
    rig.alloc(1, spec(4, duration=1000), userid=8)
    rig.alloc(2, spec(1, duration=100), userid=9)
    assert rig.started() == [1]
    begin = rig.now
    assert rig.shown(2)["t_estimate"] == pytest.approx(begin + 50, abs=1)
    rig.wait(20)
    rig.alloc(3, spec(1, duration=300, reservation="dat"), userid=7)
    assert rig.started() == [1, 3]
    end = rig.success(3)["R"]["execution"]["expiration"]
    assert rig.shown(2)["t_estimate"] == pytest.approx(end, abs=1)
    assert rig.sched.planning.current().stale() == []
    rig.wait(40)
    assert not [line for line in rig.logged() if "bug" in line]
