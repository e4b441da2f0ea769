# SPDX-License-Identifier: LGPL-3.0-or-later
"""What is known of a job: info, id, last, list-ids, timeleft."""

import errno
import json
import math
import os
import sys

import flux
from flux.job import JobID, job_list_id
from flux_embedded.cmd.lib.select import state_mask
from flux_engine.command.errors import CommandError, error_text
from flux_engine.formats import jobid
from flux_engine.formats.states import PENDING, RUN

#: a flag of job-info.lookup: with the updates applied
CURRENT = 2

#: form of a job id -> function of its number
FORMS = {
    "dec": lambda id: str(int(id)),
    "hex": lambda id: f"{id:#x}",
    "dothex": jobid.dothex,
    "kvs": jobid.kvs_dir,
    "f58": jobid.f58,
    "f58plain": jobid.f58plain,
}
#: what ``flux job timeleft`` prints for no limit
NO_LIMIT = 4294967295


def info(args):
    handle = flux.Flux()
    key, flags = args.key, 0
    if key in ("R", "jobspec") and not args.base:
        flags = CURRENT
    if key == "jobspec" and args.original:
        key, flags = "J", 0
    payload = {"id": args.id, "keys": [key], "flags": flags}
    try:
        text = handle.rpc("job-info.lookup", payload).get()[key]
    except FileNotFoundError:
        try:
            handle.rpc("job-info.lookup", {**payload, "keys": ["eventlog"], "flags": 0}).get()
        except OSError:
            raise CommandError("invalid job id") from None
        raise CommandError(f"{args.key}: key not found") from None
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def convert(args):
    if args.to not in FORMS:
        raise CommandError(f"Unknown to={args.to}: expected one of {', '.join(FORMS)}")
    for word in args.ids or sys.stdin.read().split():
        print(FORMS[args.to](JobID(word)))


def last(args):
    word = args.slice
    if "[" not in word:
        if int(word) < 0:
            raise CommandError(f"{word}: expected a number or a slice")
        word = f"[:{int(word)}]"
    jobs = flux.Flux().rpc("job-manager.history.get", {"slice": word}).get()["jobs"]
    if not jobs:
        raise CommandError("job history is empty")
    for id in jobs:
        print(JobID(id))


def timeleft(args):
    handle = flux.Flux()
    # Inside a job of this instance it is that job's time that counts.
    word = args.id or os.environ.get("FLUX_JOB_ID")
    left = _job_left(handle, word) if word else _instance_left(handle)
    print(NO_LIMIT if left == math.inf else math.ceil(left) if left < 1 else int(left))


def _left(handle, expiration):
    if not expiration:
        return math.inf
    return max(0.0, expiration - handle.rpc("broker.now", {}).get()["now"])


def _job_left(handle, word):
    try:
        job = job_list_id(handle, JobID(word), ["state", "expiration"]).get()["job"]
    except OSError as exc:
        text = "no such jobid" if exc.errno == errno.ENOENT else error_text(exc)
        raise CommandError(f"{word}: {text}") from None
    if job["state"] & PENDING:
        raise CommandError(f"job {word} has not started")
    return _left(handle, job.get("expiration")) if job["state"] == RUN else 0.0


def _instance_left(handle):
    R = handle.rpc("resource.sched-status", {}).get()["all"]
    return _left(handle, R["execution"].get("expiration"))


#: what is shown of each job by ``flux job list-ids``
ATTRS = (
    "userid urgency priority t_submit t_depend t_priority t_sched t_run t_cleanup t_inactive state "
    "name cwd ntasks ncores duration nnodes ranks nodelist success exception_occurred "
    "exception_type exception_severity exception_note result expiration annotations waitstatus dependencies"
).split()


def _print_job(job):
    print(json.dumps(dict(sorted(job.items())), separators=(",", ":"), ensure_ascii=False))


def list_ids(args):
    handle = flux.Flux()
    extra = {"state": state_mask(args.wait_state)} if args.wait_state else {}
    payloads = [{"id": id, "attrs": ATTRS, **extra} for id in args.ids]
    for future in [handle.rpc("job-list.list-id", payload) for payload in payloads]:
        _print_job(future.get()["job"])


def add_commands(parser):
    one = parser.command(
        "info", info, "print a key of a job: jobspec, R, eventlog, J, guest.output"
    )
    one.flag("-o", "--original", text="the jobspec as it was submitted")
    one.flag("-b", "--base", text="jobspec or R without the updates since")
    one.add_argument("id", metavar="JOBID", type=JobID)
    one.add_argument("key", metavar="KEY")
    one = parser.command("id", convert, "print job ids in another form")
    one.add_argument("-t", "--to", metavar="FORM", default="dec", help=", ".join(FORMS))
    one.add_argument("ids", metavar="JOBID", nargs="*")
    one = parser.command("last", last, "print the ids of the jobs submitted last")
    one.add_argument("slice", metavar="N|SLICE", nargs="?", default="1")
    one = parser.command(
        "timeleft", timeleft, "print how many seconds a job, or the instance, has left"
    )
    one.add_argument("id", metavar="JOBID", nargs="?")
    one = parser.command("list-ids", list_ids, "print what is known of jobs, in JSON")
    one.add_argument("-W", "--wait-state", metavar="STATE", help="when they are in this state")
    one.add_argument("ids", metavar="JOBID", nargs="+", type=JobID)
