# SPDX-License-Identifier: LGPL-3.0-or-later
"""Which task of a job runs where, and with what environment."""

from typing import NamedTuple

from flux_engine.formats import idset, jobid, rset, taskmap
from flux_engine.formats.jobspec import count_tasks


class MapError(ValueError):
    """The shell option ``taskmap`` cannot be followed.

    Attributes:
        killed (bool): the shells are ended for it, not: end by themselves
    """

    def __init__(self, note, killed):
        super().__init__(note)
        self.killed = killed


class Placed(NamedTuple):
    """One task.

    Attributes:
        rank: its number in the job
        node: index of its node in R; host: the node's name; broker_rank
        local_id: its number on the node
        gpus, cores: idsets of what the job has on the node, "" for none
    """

    rank: int
    node: int
    host: str
    broker_rank: int
    local_id: int
    gpus: str
    cores: str


def slot_shape(resources):
    """(slots per node or None, cores per slot) of a jobspec's resources, as far as they say."""

    def cores_in(vertices):
        total = 0
        for vertex in vertices:
            count = vertex["count"] if type(vertex.get("count")) is int else 1
            total += count if vertex["type"] == "core" else count * cores_in(vertex.get("with", ()))
        return total

    def walk(vertices, on_node, factor):
        for vertex in vertices:
            count = vertex["count"] if type(vertex.get("count")) is int else None
            if vertex["type"] == "slot":
                per_node = factor * count if on_node and count else None
                return per_node, max(1, cores_in(vertex.get("with", ())))
            found = walk(
                vertex.get("with", ()),
                on_node or vertex["type"] == "node",
                1 if vertex["type"] == "node" else factor * (count or 1),
            )
            if found is not None:
                return found
        return None

    return walk(resources, False, 1) or (None, 1)


def per_resource_shares(jobspec, children):
    """Tasks on each node by the shell option ``per-resource`` ({type: node | core, count}); None without it."""
    per = shell_options(jobspec).get("per-resource")
    if any("total" in task["count"] for task in jobspec["tasks"]):
        return None
    if not isinstance(per, dict) or per.get("type") not in ("node", "core"):
        return None
    count = per.get("count", 1)
    if type(count) is not int or count < 1:
        return None
    return [
        count if per["type"] == "node" else count * len(idset.ids(what.get("core", "")))
        for what in children
    ]


def place(jobspec, R):
    """The tasks of a job, in order of their number (list of Placed)."""
    per_node, per_slot = slot_shape(jobspec["resources"])
    children = rset.children(R)
    nodes = []
    for broker_rank, host in zip(rset.ranks(R), rset.hosts(R)):
        cores = len(idset.ids(children[broker_rank].get("core", "")))
        nodes.append((broker_rank, host, per_node or max(1, cores // per_slot)))
    nslots = R["execution"].get("nslots") or sum(slots for _, _, slots in nodes)
    ntasks = count_tasks(jobspec, nslots)
    shares = per_resource_shares(jobspec, [children[broker_rank] for broker_rank, _, _ in nodes])
    left = 0
    if shares is None:
        # Tasks fill the slots node by node; more tasks than slots go round again.
        shares = [0] * len(nodes)
        left = ntasks
    while left > 0:
        for index, (_, _, slots) in enumerate(nodes):
            take = min(slots, left)
            shares[index] += take
            left -= take
            if not left:
                break
    tasks = []
    for index, ranks in enumerate(_map_tasks(jobspec, shares)):
        broker_rank, host, _ = nodes[index]
        what = children[broker_rank]
        for local_id, rank in enumerate(ranks):
            there = what.get("gpu", ""), what.get("core", "")
            tasks.append(Placed(rank, index, host, broker_rank, local_id, *there))
    return sorted(tasks, key=lambda task: task.rank)


def _map_tasks(jobspec, shares):
    """The task ids of each node by the shell option ``taskmap``; shares: how many tasks it gets.

    Raises:
        MapError: there is no such map
    """
    option = shell_options(jobspec).get("taskmap")
    option = option if isinstance(option, dict) else {}
    scheme, value = option.get("scheme", "block"), option.get("value") or ""
    if scheme == "block":
        if value:
            raise MapError(f"block taskmap does not accept a value (got {value})", True)
        return taskmap.block(shares)
    if scheme == "cyclic":
        if value and not (value.isdigit() and int(value)):
            raise MapError(f"invalid cyclic stride: {value}", True)
        return taskmap.cyclic(shares, int(value or 1))
    if scheme != "manual":
        raise MapError(f"failed to map tasks with scheme={scheme}", False)
    try:
        nodes = taskmap.decode(value)
    except ValueError as exc:
        raise MapError(f"taskmap={value}: {exc}", True) from None
    if [len(ranks) for ranks in nodes] != list(shares):
        raise MapError("failed to set new shell taskmap", False)
    return nodes


def nodes_of(tasks):
    """The task ids of each node that a job has tasks on: a map (see formats.taskmap)."""
    nodes = [[] for _ in range(max(task.node for task in tasks) + 1)]
    for task in tasks:
        nodes[task.node].append(task.rank)
    return nodes


def shell_options(jobspec):
    """The shell options of a jobspec."""
    shell = jobspec["attributes"]["system"].get("shell") or {}
    return shell.get("options") or {}


def task_environment(base, job_id, tasks, task, uri):
    """The environment of one task, on top of the job's (`base`)."""
    environment = dict(base)
    environment["FLUX_JOB_ID"] = jobid.f58(job_id)
    environment["FLUX_JOB_SIZE"] = str(len(tasks))
    environment["FLUX_JOB_NNODES"] = str(1 + max(other.node for other in tasks))
    environment["FLUX_TASK_RANK"] = str(task.rank)
    environment["FLUX_TASK_LOCAL_ID"] = str(task.local_id)
    # One broker plays all ranks: this is how `flux getattr rank` knows on which one it is asked.
    environment["FLUX_EMBEDDED_RANK"] = str(task.broker_rank)
    if uri:
        environment["FLUX_URI"] = uri
    return environment


def bind_gpus(environment, tasks, task, affinity):
    """Say in a task's environment which GPUs it may use.

    Args:
        affinity: the shell option ``gpu-affinity``: ``off``, ``per-task``, else all of the node for each task
    """
    if affinity == "off":
        return
    gpus = idset.ids(task.gpus)
    if affinity == "per-task":
        share = len(gpus) // sum(1 for other in tasks if other.node == task.node)
        gpus = gpus[task.local_id * share : (task.local_id + 1) * share]
    environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus)) or "-1"
    environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
