"""``flux job taskmap`` and ``hostpids``: where the tasks of a job are."""

import errno
import json

from flux_embedded.cmd.lib import jobids
from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.cmd.lib.optparse import Opt, command
from flux_embedded.formats import idset, rset, taskmap


def _lookup(jobid, key):
    """A key of a job; None if there is none."""
    try:
        answer = connect().rpc("job-info.lookup", {"id": jobid, "keys": [key], "flags": 0})
    except OSError as exc:
        if exc.errno == errno.ENOENT:
            return None
        raise
    return answer[key]


def _map_of_job(jobid):
    for line in (_lookup(jobid, "guest.exec.eventlog") or "").splitlines():
        event = json.loads(line)
        if event["name"] == "shell.start":
            return event["context"]["taskmap"]
    raise CommandError("No taskmap found for job")


@command(
    "flux-job taskmap",
    "[OPTION] JOBID|TASKMAP",
    "Utility function for working with job task maps",
    [
        Opt("taskids", None, "NODEID", "Print idset of tasks on node NODEID", kind="int"),
        Opt("ntasks", None, "NODEID", "Print number of tasks on node NODEID", kind="int"),
        Opt("nodeid", None, "TASKID", "Print the nodeid on which TASKID executed", kind="int"),
        Opt("hostname", None, "TASKID", "Print the hostname of a taskid", kind="int"),
        Opt("to", None, "FORMAT", "Convert a taskmap to raw, pmi, hosts, or multiline"),
    ],
    args=1,
)
def show(opts):
    word, job = opts.args[0], None
    try:
        job = jobids.parse(word)
    except CommandError:
        value = word
    else:
        value = _map_of_job(job)
    try:
        nodes = taskmap.decode(value)
    except ValueError as exc:
        raise CommandError(f"error decoding taskmap: {exc}") from None

    def hosts():
        if job is None:
            raise CommandError("hostnames are known of a job only")
        return rset.hosts(json.loads(_lookup(job, "R")))

    for name in ("taskids", "ntasks"):
        if name in opts:
            node = opts.get(name)
            if not 0 <= node < len(nodes):
                raise CommandError(f"failed to get {name} for node {node}: Invalid argument")
            print(idset.text(nodes[node]) if name == "taskids" else len(nodes[node]))
            return
    for name in ("nodeid", "hostname"):
        if name in opts:
            task = opts.get(name)
            found = [node for node, tasks in enumerate(nodes) if task in tasks]
            if not found:
                raise CommandError(
                    f"failed to get nodeid for task {task}: No such file or directory"
                )
            print(found[0] if name == "nodeid" else hosts()[found[0]])
            return
    form = opts.get("to")
    if form is None:
        print(json.dumps(taskmap.encode(nodes), separators=(",", ":")))
    elif form == "raw":
        print(";".join(idset.text(tasks) for tasks in nodes))
    elif form == "pmi":
        blocks = ["({},{},{})".format(*b) for b in taskmap.encode(nodes) for _ in range(b[3])]
        print(f"(vector,{','.join(blocks)})")
    elif form == "hosts":
        for host, tasks in zip(hosts(), nodes):
            print(f"{host}: {idset.text(tasks)}")
    elif form == "multiline":
        for task, node in sorted(
            (task, node) for node, tasks in enumerate(nodes) for task in tasks
        ):
            print(f"{task}: {node}")
    else:
        raise CommandError(f"invalid value --to={form}")


@command(
    "flux-job hostpids",
    "[OPTIONS] JOBID",
    "Print host:pid pairs for tasks in JOBID",
    [
        Opt("delimiter", "d", "STRING", 'Set output delimiter (default=",")'),
        Opt("ranks", "r", "IDSET", "Include only task ranks in IDSET"),
    ],
    args=1,
)
def hostpids(opts):
    ranks = None
    if "ranks" in opts:
        try:
            ranks = idset.ids(opts.get("ranks"))
        except ValueError as exc:
            raise CommandError(f"--ranks={opts.get('ranks')}: {exc}") from None
    jobid = jobids.parse(opts.args[0])
    try:
        table = connect().rpc("job-exec.proctable", {"id": jobid})["tasks"]
    except OSError as exc:
        if exc.errno != errno.ENOENT:
            raise
        raise CommandError(f"hostpids: job {opts.args[0]} is inactive") from None
    chosen = [pair for rank, *pair in table if ranks is None or rank in ranks]
    print(opts.get("delimiter", ",").join(f"{host}:{pid}" for host, pid in chosen))
