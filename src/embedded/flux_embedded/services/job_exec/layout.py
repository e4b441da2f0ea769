"""Which task of a job runs where, and with what environment."""

from flux_embedded.formats import idset, jobid, rset
from flux_embedded.formats.jobspec import count_tasks


class Placed:
    """One task.

    Attributes:
        rank (int): its number in the job
        node (int): index of its node in R; host (str): the node's name; broker_rank (int)
        local_id (int): its number on the node
        gpus (str): idset of the GPUs that the job has on the node, "" for none
    """

    __slots__ = ("rank", "node", "host", "broker_rank", "local_id", "gpus", "cores")

    def __init__(self, rank, node, host, broker_rank, local_id, gpus, cores):
        self.rank = rank
        self.node = node
        self.host = host
        self.broker_rank = broker_rank
        self.local_id = local_id
        self.gpus = gpus
        self.cores = cores


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
    options = jobspec["attributes"]["system"].get("shell", {}).get("options", {})
    per = options.get("per-resource")
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
    for index, (broker_rank, host, _) in enumerate(nodes):
        what = children[broker_rank]
        for local_id in range(shares[index]):
            tasks.append(
                Placed(
                    len(tasks),
                    index,
                    host,
                    broker_rank,
                    local_id,
                    what.get("gpu", ""),
                    what.get("core", ""),
                )
            )
    return tasks


def task_environment(base, job_id, tasks, task, uri):
    """The environment of one task, on top of the job's (`base`)."""
    environment = dict(base)
    environment["FLUX_JOB_ID"] = jobid.f58(job_id)
    environment["FLUX_JOB_SIZE"] = str(len(tasks))
    environment["FLUX_JOB_NNODES"] = str(tasks[-1].node + 1)
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
