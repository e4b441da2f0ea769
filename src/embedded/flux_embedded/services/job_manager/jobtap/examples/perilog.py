"""Run a prolog before each job and an epilog after it, once on each of its ranks.

    [job-manager.prolog]
    command = ["/etc/flux/prolog"]
    [job-manager.epilog]
    command = ["/etc/flux/epilog"]

FLUX_JOB_ID, FLUX_JOB_USERID and FLUX_EMBEDDED_RANK are in the environment of the commands. A prolog that
fails ends the job with an exception of type ``prolog``; what an epilog returns is only recorded. When the
job is canceled during its prolog, the prolog is sent SIGTERM.
"""

import errno

from flux.constants import FLUX_RPC_NORESPONSE, FLUX_RPC_STREAMING
from flux.idset import IDset
from flux.jobtap import CURRENT_JOB, JobtapError

KINDS = ("prolog", "epilog")


def plugin_init(p):
    p.commands = {}
    p.running = set()  # (job, kind)
    p.add_handler("conf.update", conf)
    p.add_handler("job.state.run", run)
    p.add_handler("job.state.cleanup", cleanup)


def conf(p, topic, args):
    commands = {}
    for kind in KINDS:
        command = args["conf"].get("job-manager", {}).get(kind, {}).get("command")
        if command is not None and not (isinstance(command, list) and command):
            raise JobtapError(f"job-manager.{kind}.command: expected an array of strings")
        commands[kind] = command
    p.commands = commands


def run(p, topic, args):
    if p.commands["prolog"]:
        p.prolog_start("prolog")
        start(p, "prolog", args)


def cleanup(p, topic, args):
    id = args["id"]
    if (id, "prolog") in p.running:
        request = {"id": id, "signum": 15, "label": "prolog"}
        p.handle.rpc("job-exec.script-kill", request, flags=FLUX_RPC_NORESPONSE)
    if p.commands["epilog"] and "R" in args and p.job_event_posted(CURRENT_JOB, "start"):
        p.epilog_start("epilog")
        start(p, "epilog", args)


def start(p, kind, args):
    """Run the command on every rank of the job; `ended` is called when all have finished."""
    ranks = IDset()
    for entry in args["R"]["execution"]["R_lite"]:
        ranks.add(IDset(entry["rank"]))
    request = {
        "id": args["id"],
        "userid": args["userid"],
        "ranks": str(ranks),
        "command": p.commands[kind],
        "label": kind,
    }
    p.running.add((args["id"], kind))
    worst = [0]
    future = p.handle.rpc("job-exec.script", request, flags=FLUX_RPC_STREAMING)
    future.then(report, p, args["id"], kind, worst)


def report(future, p, id, kind, worst):
    try:
        worst[0] = max(worst[0], future.get()["status"])
    except OSError as exc:
        if exc.errno != errno.ENODATA:
            worst[0] = worst[0] or 1 << 8
        ended(p, id, kind, worst[0])
        return
    future.reset()


def ended(p, id, kind, status):
    p.running.discard((id, kind))
    if kind == "prolog":
        if status:
            p.raise_exception(id, "prolog", 0, f"prolog ended with status {status}")
        p.prolog_finish(id, "prolog", status)
    else:
        p.epilog_finish(id, "epilog", status)
