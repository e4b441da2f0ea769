# SPDX-License-Identifier: LGPL-3.0-or-later
"""Play the operations of recorded pool cases, and compare the answers with the recorded ones."""

import shared

from flux.hostlist import Hostlist
from flux.resource import ResourcePool
from flux.resource.pool.masks import members, parse_idset
from flux.resource.TreePool import TreePool

NOW = 1000000000.0
POOLS = {"TreePool": TreePool, "ResourcePool": ResourcePool}


def load(name):
    """(R by name, cases) of a recorded file; both empty without the data."""
    if shared.data_dir() is None:
        return {}, []
    data = shared.load_json(f"golden/{name}.json")
    return data["resources"], data["cases"]


def meaning(R):
    """The content of an R object, in a canonical form."""
    execution = R["execution"]
    what = {}
    for entry in R["execution"]["R_lite"]:
        units = [parse_idset(entry["children"].get(kind, "")) for kind in ("core", "gpu")]
        what.update(dict.fromkeys(members(parse_idset(entry["rank"])), units))
    hosts = [name for text in execution.get("nodelist") or [] for name in Hostlist(text)]
    properties = (execution.get("properties") or {}).items()
    scheduling = R.get("scheduling")
    topo = {}
    if scheduling is not None:
        for entry in scheduling.get("children", []):
            for rank in members(parse_idset(entry["ranks"])):
                topo.setdefault(rank, {k: v for k, v in entry.items() if k != "ranks"})
        # flux-core's own pool does not record the numbers that an instance in a job changes.
        scheduling = {k: v for k, v in scheduling.items() if k not in ("children", "cores")}
    return {
        "ranks": what,
        "hosts": hosts,
        "properties": {name: parse_idset(ranks) for name, ranks in properties},
        "nslots": execution.get("nslots"),
        "starttime": execution.get("starttime") or 0,
        "expiration": execution.get("expiration") or 0,
        "scheduling": scheduling,
        "topo": topo,
    }


def shown(R, dumps):
    return {"dumps": dumps, **meaning(R)}


class Run:
    """One case: its pool, its jobs' allocations, and a stack of copies."""

    def __init__(self, case, resources):
        R = case["R"]
        if isinstance(R, str):
            R = resources[R]
        self.pool = POOLS[case["pool"]](R)
        self.pool.clock = lambda: NOW
        self.jobs = {}
        self.stack = []

    def answer(self, op):
        """The answer to an operation; an exception that it raised."""
        try:
            found = getattr(self, "op_" + op["op"])(op)
        except (OSError, ValueError, TypeError, KeyError) as exc:
            return exc
        finally:
            self.pool._check()
        return shown(found.to_dict(), found.dumps()) if hasattr(found, "to_dict") else found

    def op_alloc(self, op):
        request = self.pool.parse_resource_request(op["jobspec"])
        alloc = self.pool.alloc(op["jobid"], request)
        self.jobs[op["jobid"]] = alloc
        return alloc

    def op_check_feasibility(self, op):
        self.pool.check_feasibility(self.pool.parse_resource_request(op["jobspec"]))

    def op_free(self, op):
        R = None
        jobid = op["jobid"]
        if "R" in op:
            R = op["R"]
        elif "ranks" in op:
            R = ResourcePool(self.jobs[jobid].to_dict())
            held = 0
            for entry in R.to_dict()["execution"]["R_lite"]:
                held |= parse_idset(entry["rank"])
            R.remove_ranks(members(held & ~parse_idset(op["ranks"])))
        elif op.get("all"):
            R = self.jobs[jobid].to_dict()
        self.pool.free(jobid, R, op.get("final", False))

    def op_register_alloc(self, op):
        self.pool.register_alloc(op["jobid"], ResourcePool(op["R"]))

    def op_of_that_name(self, op):
        """A call of the pool whose arguments are those of the operation, in order."""
        args = [op[key] for key in ("jobid", "expiration", "ids") if key in op]
        getattr(self.pool, op["op"])(*args)

    op_mark_up = op_mark_down = op_remove_ranks = op_of_that_name
    op_update_expiration = op_set_expiration = op_of_that_name

    def op_job_end_times(self, op):
        return {str(jobid): end for jobid, end in self.pool.job_end_times()}

    def op_allocated(self, op):
        return self.pool.copy_allocated()

    def op_down(self, op):
        return self.pool.copy_down()

    def op_show(self, op):
        return self.pool

    def op_copy(self, op):
        self.stack.append(self.pool)
        self.pool = self.pool.copy()

    def op_drop(self, op):
        self.pool = self.stack.pop()

    def op_bumps(self, op):
        before = self.pool.generation
        self.answer(op["inner"])
        return self.pool.generation != before


def expected(op, recorded):
    """The recorded answer in this pool's form."""
    if op["op"] == "job_end_times":
        return {
            jobid: NOW + float(end[len("now+") :]) if isinstance(end, str) else end
            for jobid, end in recorded.items()
        }
    if isinstance(recorded, dict):
        return shown(recorded["R"], recorded["dumps"])
    return recorded


def is_error(answer, recorded):
    """Whether an answer is the recorded exception, or one derived from it, with a text."""
    names = [cls.__name__ for cls in type(answer).__mro__]
    return recorded["error"] in names and str(answer)


def brief(answer, like):
    """An answer in the form in which a sensible one is given: ``(dumps, nslots)`` or dumps; the
    name of an exception."""
    if isinstance(answer, Exception):
        return type(answer).__name__
    if isinstance(like, tuple):
        return answer["dumps"], answer["nslots"]
    return answer and answer["dumps"]


def check(case, resources, sensible):
    """Play a case: each answer has to be the recorded one.

    Args:
        case (dict): the case
        resources (dict): R by the names that cases use
        sensible (dict): by the name of a case with a `quirk`, the answers that are another: number of
            the operation to dumps, ``(dumps, nslots)``, the name of an exception, or None
    """
    assert (case["name"] in sensible) == bool(case.get("quirk"))
    if not case["ops"]:
        (recorded,) = case["results"]
        try:
            answer = Run(case, resources).pool
        except ValueError as exc:
            answer = exc
        assert is_error(answer, recorded), answer
        return
    own = sensible.get(case["name"], {})
    run = Run(case, resources)
    for number, (op, recorded) in enumerate(zip(case["ops"], case["results"])):
        answer = run.answer(op)
        if number in own:
            assert brief(answer, own[number]) == own[number], op
        elif "error" in recorded:
            assert is_error(answer, recorded), (op, answer)
        elif isinstance(answer, Exception):
            raise answer
        else:
            assert answer == expected(op, recorded["ok"]), op
