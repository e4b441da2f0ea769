# SPDX-License-Identifier: LGPL-3.0-or-later
"""The recorded requests of golden/rv1pool-cases.json, and what this pool answers."""

import json

import pytest
import shared

from flux.hostlist import Hostlist
from flux.idset import IDset
from flux.resource import InfeasibleRequest, ResourcePool

NOW = 1000000000.0

#: Cases that show a habit of the reference, with what is right there: the
#: results that differ, by the number of the operation.
OWN_ANSWERS = {
    "stepped and listed counts are infeasible": {
        0: ("rank[0-3]/core0", 4),
        1: ("rank0/core[1-3]", 3),
        2: ("rank[1-3]/core1", 3),
        3: ("rank[1-2]/core[2-3]", 4),
        4: None,
    },
    "slot over node": {0: ("rank[0-1]/core[0-1]", 2)},
    "unknown types are passed through": {0: ("rank0/core[0-3]", 2)},
    "exclusive ignores how much fits": {0: InfeasibleRequest, 2: InfeasibleRequest},
    "empty operands": {0: InfeasibleRequest},
    "a partial free of some cores forgets the whole rank": {4: ("", None)},
    "a free that names no job": {2: ("rank0/core[0-3]", None)},
}


def load():
    path = shared.data_dir()
    if path is None:
        return {}, []
    with open(path / "golden" / "rv1pool-cases.json", encoding="utf-8") as stream:
        data = json.load(stream)
    return data["resources"], data["cases"]


RESOURCES, CASES = load()


def meaning(R):
    """What R says, whatever the order and grouping it says it in."""
    execution = R["execution"]
    ranks = {}
    for entry in execution["R_lite"]:
        for rank in IDset(entry["rank"]):
            children = entry["children"]
            ranks[rank] = [
                list(IDset(children.get("core", ""))),
                list(IDset(children.get("gpu", ""))),
            ]
    hosts = [str(host) for text in execution.get("nodelist", []) for host in Hostlist(text)]
    if hosts:
        assert len(hosts) == len(ranks)
        for rank, host in zip(sorted(ranks), hosts):
            ranks[rank].append(host)
    properties = execution.get("properties", {})
    return {
        "ranks": ranks,
        "properties": {name: list(IDset(ids)) for name, ids in properties.items()},
        "nslots": execution.get("nslots"),
        "starttime": execution.get("starttime", 0),
        "expiration": execution.get("expiration", 0),
        "scheduling": R.get("scheduling"),
    }


def cut(R, ranks):
    """R cut to an idset of ranks."""
    wanted = set(IDset(ranks))
    entries = []
    for entry in R["execution"]["R_lite"]:
        kept = ",".join(str(rank) for rank in IDset(entry["rank"]) if rank in wanted)
        if kept:
            entries.append({"rank": kept, "children": entry["children"]})
    return {"version": 1, "execution": {"R_lite": entries}}


class Player:
    """Plays the operations of a case on a pool."""

    def __init__(self, R):
        self.pool = ResourcePool(R)
        self.pool.clock = lambda: NOW
        self.stack = []
        self.given = {}

    def play(self, op):
        name = op["op"]
        try:
            return getattr(self, "op_" + name)(op)
        except (OSError, ValueError, TypeError, KeyError) as exc:
            return exc
        finally:
            self.pool._check()

    def shown(self, pool):
        return {"R": pool.to_dict(), "dumps": pool.dumps()}

    def op_alloc(self, op):
        request = self.pool.parse_resource_request(op["jobspec"])
        alloc = self.pool.alloc(op["jobid"], request)
        self.given[op["jobid"]] = alloc.to_dict()
        return self.shown(alloc)

    def op_check_feasibility(self, op):
        self.pool.check_feasibility(self.pool.parse_resource_request(op["jobspec"]))

    def op_free(self, op):
        R = op.get("R")
        if "ranks" in op:
            R = cut(self.given[op["jobid"]], op["ranks"])
        elif op.get("all"):
            R = self.given[op["jobid"]]
        self.pool.free(op["jobid"], R, final=op.get("final", False))

    def op_register_alloc(self, op):
        self.pool.register_alloc(op["jobid"], ResourcePool(op["R"]))

    def op_mark_up(self, op):
        self.pool.mark_up(op["ids"])

    def op_mark_down(self, op):
        self.pool.mark_down(op["ids"])

    def op_remove_ranks(self, op):
        self.pool.remove_ranks(op["ids"])

    def op_update_expiration(self, op):
        self.pool.update_expiration(op["jobid"], op["expiration"])

    def op_set_expiration(self, op):
        self.pool.set_expiration(op["expiration"])

    def op_job_end_times(self, op):
        return dict(self.pool.job_end_times())

    def op_allocated(self, op):
        found = self.pool.copy_allocated()
        return {"R": found.to_dict(), "dumps": found.dumps()}

    def op_down(self, op):
        found = self.pool.copy_down()
        return {"R": found.to_dict(), "dumps": found.dumps()}

    def op_show(self, op):
        return self.shown(self.pool)

    def op_copy(self, op):
        self.stack.append(self.pool)
        self.pool = self.pool.copy()

    def op_drop(self, op):
        self.pool = self.stack.pop()

    def op_bumps(self, op):
        before = self.pool.generation
        self.play(op["inner"])
        return self.pool.generation != before


def same(op, got, expected):
    """Compare an answer with the recorded one."""
    if "error" in expected:
        assert isinstance(got, Exception), got
        names = [cls.__name__ for cls in type(got).__mro__]
        assert expected["error"] in names, repr(got)
        assert str(got)
        return
    if isinstance(got, Exception):
        raise got
    expected = expected["ok"]
    if op["op"] == "job_end_times":
        wanted = {}
        for jobid, end in expected.items():
            if isinstance(end, str):
                end = NOW + float(end[len("now+") :])
            wanted[int(jobid)] = end
        assert got == wanted
    elif isinstance(expected, dict):
        assert got["dumps"] == expected["dumps"]
        assert meaning(got["R"]) == meaning(expected["R"])
    else:
        assert got == expected


@pytest.mark.parametrize(
    "case", shared.recorded_cases(CASES), ids=lambda case: case["name"].replace(" ", "-")
)
def test_golden(case):
    assert case["pool"] == "ResourcePool"
    R = RESOURCES[case["R"]] if isinstance(case["R"], str) else case["R"]
    own = OWN_ANSWERS.get(case["name"], {})
    assert bool(own) == ("quirk" in case)
    if not case["ops"]:
        with pytest.raises(ValueError, match="version 2"):
            ResourcePool(R)
        return
    player = Player(R)
    for number, (op, expected) in enumerate(zip(case["ops"], case["results"])):
        got = player.play(op)
        if number not in own:
            same(op, got, expected)
        elif own[number] is None:
            assert got is None
        elif isinstance(own[number], type):
            assert isinstance(got, own[number])
        else:
            if isinstance(got, Exception):
                raise got
            assert (got["dumps"], got["R"]["execution"].get("nslots")) == own[number]


def test_data():
    """Without recorded data the cases are skipped, not passed over."""
    shared.require_data()
    assert len(CASES) > 50
