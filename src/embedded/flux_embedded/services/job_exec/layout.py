# SPDX-License-Identifier: LGPL-3.0-or-later
"""The placement of a job's tasks, and their environments."""

from typing import NamedTuple

from flux_engine.formats import idset, jobid, rset
from flux_engine.formats.jobspec import count_resources, count_tasks


class Placed(NamedTuple):
    """One task: its number in the job, the index of its node in R, the broker rank, and its number on the node."""

    rank: int
    node: int
    broker_rank: int
    local_id: int


def slot_shape(resources):
    """Return (slots per node or None, cores per slot) of a jobspec's resources."""

    def first_slot(vertices, on_node, factor):
        for vertex in vertices:
            count = vertex["count"] if type(vertex.get("count")) is int else None
            if vertex["type"] == "slot":
                per_node = factor * count if on_node and count else None
                return per_node, max(1, count_resources(vertex.get("with", ()))["core"])
            found = first_slot(
                vertex.get("with", ()),
                on_node or vertex["type"] == "node",
                1 if vertex["type"] == "node" else factor * (count or 1),
            )
            if found is not None:
                return found
        return None

    return first_slot(resources, False, 1) or (None, 1)


def place(jobspec, R):
    """The tasks of a job, in order of their number (list of Placed); ValueError for shell options that place them in another way."""
    options = shell_options(jobspec)
    nodes = sorted(rset.children(R).items())
    cores = [len(idset.ids(children.get("core", ""))) for _, children in nodes]
    left = shares(options.get("per-resource"), cores) or fill(jobspec, R, cores)
    taskmap = options.get("taskmap") or {"scheme": "block"}
    stride = int(taskmap.get("value") or 1) if taskmap["scheme"] == "cyclic" else max(left)
    if taskmap["scheme"] not in ("block", "cyclic") or stride < 1:
        raise ValueError(f"failed to map tasks with {taskmap}: expected block, cyclic or cyclic:N")
    tasks, local_ids = [], [0] * len(nodes)
    while any(left):
        for index, (broker_rank, _) in enumerate(nodes):
            for _ in range(min(stride, left[index])):
                tasks.append(Placed(len(tasks), index, broker_rank, local_ids[index]))
                local_ids[index] += 1
                left[index] -= 1
    return tasks


def shares(per_resource, cores):
    """The number of tasks on each node by the shell option ``per-resource``; None without it."""
    if per_resource is None:
        return None
    kind, count = per_resource["type"], per_resource.get("count", 1)
    if kind not in ("node", "core"):
        raise ValueError(f"error distributing {count} tasks per-{kind} over R")
    return [count * (n if kind == "core" else 1) for n in cores]


def fill(jobspec, R, cores):
    """The number of tasks on each node: they fill the slots node by node; those beyond the slots start again at the first."""
    per_node, per_slot = slot_shape(jobspec["resources"])
    slots = [per_node or max(1, n // per_slot) for n in cores]
    found = [0] * len(slots)
    left = count_tasks(jobspec, R["execution"].get("nslots") or sum(slots))
    while left > 0:
        for index, room in enumerate(slots):
            take = min(room, left)
            found[index] += take
            left -= take
    return found


def shell_options(jobspec):
    shell = jobspec["attributes"]["system"].get("shell") or {}
    return shell.get("options") or {}


def task_environment(base, job_id, tasks, task, uri):
    """The environment of one task, on top of the job's (`base`)."""
    environment = {**base, **environment_on(task.broker_rank, job_id, uri)}
    environment["FLUX_JOB_SIZE"] = str(len(tasks))
    environment["FLUX_JOB_NNODES"] = str(1 + max(other.node for other in tasks))
    environment["FLUX_TASK_RANK"] = str(task.rank)
    environment["FLUX_TASK_LOCAL_ID"] = str(task.local_id)
    return environment


def environment_on(rank, job_id, uri):
    """The variables of all processes of a job on a broker rank: tasks and scripts."""
    # One broker plays all ranks: `flux getattr rank` reads the rank here.
    found = {"FLUX_JOB_ID": jobid.f58(job_id), "FLUX_EMBEDDED_RANK": str(rank)}
    return {**found, "FLUX_URI": uri} if uri else found
