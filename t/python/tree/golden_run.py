# SPDX-License-Identifier: LGPL-3.0-or-later
"""Run the ops of a recorded pool case, and report answers that differ from the recorded ones."""

from flux.resource import ResourcePool
from flux.resource.pool.masks import members, parse_idset
from flux.resource.TreePool import TreePool

POOLS = {"TreePool": TreePool, "ResourcePool": ResourcePool}


def expand(text):
    """A hostlist as a list of names, for comparing."""
    from flux.hostlist import Hostlist

    return list(Hostlist(text))


def meaning(R):
    """The content of an R object, in a canonical form."""
    execution = R["execution"]
    what = {}
    for entry in R["execution"]["R_lite"]:
        for rank in members(parse_idset(entry["rank"])):
            children = entry["children"]
            what[rank] = (
                parse_idset(children.get("core", "")),
                parse_idset(children.get("gpu", "")),
            )
    hosts = [name for text in execution.get("nodelist") or [] for name in expand(text)]
    properties = {
        name: parse_idset(ranks) for name, ranks in (execution.get("properties") or {}).items()
    }
    scheduling = R.get("scheduling")
    topo = {}
    if scheduling is not None:
        for entry in scheduling.get("children", []):
            for rank in members(parse_idset(entry["ranks"])):
                topo.setdefault(rank, {k: v for k, v in entry.items() if k != "ranks"})
        scheduling = {key: value for key, value in scheduling.items() if key != "children"}
    return {
        "ranks": what,
        "hosts": hosts,
        "properties": properties,
        "nslots": execution.get("nslots"),
        "starttime": execution.get("starttime") or 0,
        "expiration": execution.get("expiration") or 0,
        "scheduling": scheduling,
        "topo": topo,
    }


class Run:
    """One case: its pool, its jobs' allocations, and a stack of copies."""

    def __init__(self, case, resources):
        R = case["R"]
        if isinstance(R, str):
            R = resources[R]
        self.pool = POOLS[case["pool"]](R)
        self.jobs = {}
        self.stack = []

    def shown(self, pool):
        return {"R": meaning(pool.to_dict()), "dumps": pool.dumps()}

    def op(self, op):
        """The answer to one op; errors are raised."""
        return getattr(self, "op_" + op["op"])(op)

    def op_alloc(self, op):
        request = self.pool.parse_resource_request(op["jobspec"])
        alloc = self.pool.alloc(op["jobid"], request)
        self.jobs[op["jobid"]] = alloc
        return self.shown(alloc)

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

    def op_mark_up(self, op):
        self.pool.mark_up(op["ids"])

    def op_mark_down(self, op):
        self.pool.mark_down(op["ids"])

    def op_remove_ranks(self, op):
        self.pool.remove_ranks(op["ids"])

    def op_allocated(self, op):
        return self.shown(self.pool.copy_allocated())

    def op_down(self, op):
        return self.shown(self.pool.copy_down())

    def op_show(self, op):
        return self.shown(self.pool)

    def op_copy(self, op):
        self.stack.append(self.pool)
        self.pool = self.pool.copy()

    def op_drop(self, op):
        self.pool = self.stack.pop()


def compare(answer, recorded):
    """The difference of an answer from the recorded one, as text; None: none."""
    if recorded is None or "R" not in recorded:
        return None if answer == recorded else f"{answer} instead of {recorded}"
    expected = meaning(recorded["R"])
    if answer["dumps"] != recorded["dumps"]:
        return f"{answer['dumps']} instead of {recorded['dumps']}"
    wrong = [key for key in expected if answer["R"][key] != expected[key]]
    if wrong:
        return "; ".join(f"{key}: {answer['R'][key]} instead of {expected[key]}" for key in wrong)
    return None


def differences(case, resources):
    """[(index of the op, text)] of the answers in a case that differ from the recorded ones."""
    found = []
    try:
        run = Run(case, resources)
    except Exception as exc:
        recorded = case["results"][0]
        names = [one.__name__ for one in type(exc).__mro__]
        if recorded.get("error") not in names:
            found.append((0, f"{type(exc).__name__}: {exc} instead of {recorded}"))
        return found
    if not case["ops"]:
        return [(0, "the pool was made")]
    for position, (op, recorded) in enumerate(zip(case["ops"], case["results"])):
        try:
            answer = run.op(op)
        except Exception as exc:
            names = [one.__name__ for one in type(exc).__mro__]
            if recorded.get("error") not in names:
                found.append((position, f"{type(exc).__name__}: {exc} instead of {recorded}"))
            continue
        finally:
            run.pool._check()
        if "error" in recorded:
            found.append((position, f"{answer and answer.get('dumps')} instead of {recorded}"))
            continue
        text = compare(answer, recorded["ok"])
        if text:
            found.append((position, text))
    return found
