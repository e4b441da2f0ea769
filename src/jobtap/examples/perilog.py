# SPDX-License-Identifier: LGPL-3.0-or-later
"""Run a prolog before each job and an epilog after it, on each of the job's ranks.

    [job-manager.prolog]
    command = ["/etc/flux/prolog"]
    [job-manager.epilog]
    command = ["/etc/flux/epilog"]

FLUX_JOB_ID and FLUX_JOB_USERID are in the environment of the commands. If a prolog fails, the job
ends with an exception of type ``prolog``; the status of an epilog is only recorded. If a job is
canceled during its prolog, the prolog is sent SIGTERM.
"""

import errno
import os
import signal
import subprocess

from flux.constants import FLUX_POLLIN, FLUX_RPC_NORESPONSE, FLUX_RPC_STREAMING
from flux.idset import IDset
from flux.jobtap import CURRENT_JOB, JobtapError

KINDS = ("prolog", "epilog")


def plugin_init(p):
    p.commands = {}
    p.running = {}  # (job, kind) -> the process that runs it, or None if a service does
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
        process = p.running[id, "prolog"]
        if process is not None:
            os.killpg(process.pid, signal.SIGTERM)
        else:
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
    p.running[args["id"], kind] = None
    worst = [0]
    # The embedded instance has a service that runs a command on ranks. A real Flux has none, and
    # runs flux exec.
    future = p.handle.rpc("job-exec.script", request, flags=FLUX_RPC_STREAMING)
    future.then(report, p, args["id"], kind, worst, request)


def report(future, p, id, kind, worst, request):
    try:
        worst[0] = max(worst[0], future.get()["status"])
    except OSError as exc:
        if exc.errno == errno.ENOSYS:
            start_process(p, id, kind, request)
            return
        if exc.errno != errno.ENODATA:
            worst[0] = worst[0] or 1 << 8
        ended(p, id, kind, worst[0])
        return
    future.reset()


def start_process(p, id, kind, request):
    environ = {
        **os.environ,
        "FLUX_URI": p.handle.attr_get("local-uri"),
        "FLUX_JOB_ID": str(id),
        "FLUX_JOB_USERID": str(request["userid"]),
    }
    # The command's exit status comes through the pipe, which ends when the command ends.
    read, write = os.pipe()
    command = ["flux", "exec", "--rank", request["ranks"], "--", *request["command"]]
    process = subprocess.Popen(
        ["sh", "-c", f'trap : TERM; "$@"; echo $? >/dev/fd/{write}', "sh", *command],
        env=environ,
        stdin=subprocess.DEVNULL,
        pass_fds=[write],
        start_new_session=True,
    )
    os.close(write)
    p.running[id, kind] = process

    def closed(handle, watcher, fd, revents, args):
        watcher.destroy()
        text = os.read(read, 16)
        os.close(read)
        process.poll()
        ended(p, id, kind, int(text or 255) << 8)

    p.handle.fd_watcher_create(read, closed, events=FLUX_POLLIN).start()


def ended(p, id, kind, status):
    p.running.pop((id, kind), None)
    if kind == "prolog":
        if status:
            p.raise_exception(id, "prolog", 0, f"prolog ended with status {status}")
        p.prolog_finish(id, "prolog", status)
    else:
        p.epilog_finish(id, "epilog", status)
