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
    """(slots per node or None, cores per slot) of a jobspec's resources, as far as specified."""

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
    """The tasks of a job, in order of their number (list of Placed)."""
    per_node, per_slot = slot_shape(jobspec["resources"])
    nodes = []
    for broker_rank, children in sorted(rset.children(R).items()):
        cores = len(idset.ids(children.get("core", "")))
        nodes.append((broker_rank, per_node or max(1, cores // per_slot)))
    nslots = R["execution"].get("nslots") or sum(slots for _, slots in nodes)
    ntasks = count_tasks(jobspec, nslots)
    # Tasks fill the slots node by node; tasks beyond the slots start again at the first.
    shares = [0] * len(nodes)
    left = ntasks
    while left > 0:
        for index, (_, slots) in enumerate(nodes):
            take = min(slots, left)
            shares[index] += take
            left -= take
    tasks = []
    for index, (broker_rank, _) in enumerate(nodes):
        for local_id in range(shares[index]):
            tasks.append(Placed(len(tasks), index, broker_rank, local_id))
    return tasks


#: The tasks of ``flux batch`` and ``flux alloc``; the instance starts in the first one.
ONE_EACH = {"type": "node"}


def shell_options(jobspec):
    """The shell options of a jobspec; ValueError if one of them requests an unsupported placement of tasks."""
    shell = jobspec["attributes"]["system"].get("shell") or {}
    options = shell.get("options") or {}
    by_node = options.get("per-resource")
    if "taskmap" in options or by_node not in (None, ONE_EACH, {**ONE_EACH, "count": 1}):
        raise ValueError("the embedded instance has no shell options taskmap and per-resource")
    return options


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
