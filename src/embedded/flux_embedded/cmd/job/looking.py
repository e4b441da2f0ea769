# SPDX-License-Identifier: LGPL-3.0-or-later
"""Information about jobs (info, id, last, list-ids), and their results (status, wait)."""

import errno
import json
import os
import sys

import flux
from flux.job import JobID, result
from flux_engine.command.errors import CommandError, error_text, warn
from flux_engine.formats import jobid

#: Flag of job-info.lookup: apply the updates of the eventlog.
CURRENT = 2


def info(args):
    key, flags = args.key, 0
    if key in ("R", "jobspec") and not args.base:
        flags = CURRENT
    if key == "jobspec" and args.original:
        key, flags = "J", 0
    payload = {"id": args.id, "keys": [key], "flags": flags}
    print(flux.Flux().rpc("job-info.lookup", payload).get()[key])


def convert(args):
    for word in args.ids or sys.stdin.read().split():
        print(JobID(word).encode(args.to))


def _slice(text):
    """Parse the argument of ``flux job last``: N, or [FROM:TO], a slice of all ids, the newest first."""
    try:
        if text.startswith("[") and text.endswith("]"):
            return slice(*(int(part) if part else None for part in text[1:-1].split(":")))
        if not text.startswith("-"):
            return slice(int(text))
    except (ValueError, TypeError):
        pass
    raise CommandError(f"last: expected N or [FROM:TO], not '{text}'")


def last(args):
    jobs = flux.job.job_list(flux.Flux(), 0, []).get_jobs()
    ids = sorted((job["id"] for job in jobs), reverse=True)[_slice(args.part)]
    if not ids:
        raise CommandError("job history is empty")
    print("\n".join(str(JobID(id)) for id in ids))


def list_ids(args):
    handle = flux.Flux()
    payloads = [{"id": id, "attrs": ["all"]} for id in args.ids]
    for future in [handle.rpc("job-list.list-id", payload) for payload in payloads]:
        job = future.get()["job"]
        print(json.dumps(job, sort_keys=True, separators=(",", ":"), ensure_ascii=False))


def _exit_status(info):
    """Return the exit status, as in a shell, for the result of a job (flux.job.JobInfo)."""
    code = info.returncode
    if code == "" or code == -128 or (code == 0 and info.result != "COMPLETED"):
        return 1  # it ended by an exception, without a status
    return code if code >= 0 else 128 - code


def _report(id, info):
    """Print how a job's shell ended, unless it never ran or ended with status 0."""
    if not info.waitstatus:
        return
    if os.WIFSIGNALED(info.waitstatus):
        text = f"job shell died by signal {os.WTERMSIG(info.waitstatus)}"
    elif info.exception.occurred and info.exception.severity == 0:
        text = f"exception type={info.exception.type}"
    else:
        text = f"exited with exit code {info.returncode}"
    warn(f"flux-job: {id}: {text}")


def status(args):
    handle = flux.Flux()
    codes = []
    for id in args.ids:
        try:
            info = result(handle, id)
        except FileNotFoundError:
            raise CommandError(f"{id.orig}: No such job") from None
        codes.append(_exit_status(info))
        if args.verbose:
            _report(id, info)
    return max(codes)


def _wait_all(args):
    """Wait for all waitable jobs, and print the failed ones, or all. Return the exit status."""
    handle, code = flux.Flux(), 0
    while True:
        try:
            answer = flux.job.wait(handle)
        except ChildProcessError:
            return code
        if not answer.success:
            code = 1
        if args.verbose or not answer.success:
            text = answer.errstr.decode() or "job completed successfully"
            warn(f"{JobID(answer.jobid)}: {text}")


def wait(args):
    if args.all:
        return _wait_all(args)
    try:
        answer = flux.job.wait(flux.Flux(), *([] if args.id is None else [args.id]))
    except OSError as exc:
        raise CommandError(error_text(exc), code=2 if exc.errno == errno.ECHILD else 1) from None
    if args.id is None:
        print(JobID(answer.jobid))
    if not answer.success:
        raise CommandError(answer.errstr.decode())
    return 0


def add_commands(parser):
    one = parser.command("info", info, "print a job's jobspec, R, J, eventlog or guest.output")
    one.option("-o --original", "the jobspec as it was submitted")
    one.option("-b --base", "jobspec or R without the updates since")
    one.option("id=JOBID", type=JobID)
    one.option("key=KEY")
    one = parser.command("id", convert, "print job ids in another form")
    one.option("-t --to=", choices=jobid.FORMS, default="dec")
    one.option("ids=JOBID", nargs="*")
    one = parser.command("last", last, "print the ids of the jobs submitted last")
    one.option("part=N|[FROM:TO]", nargs="?", default="1")
    one = parser.command("list-ids", list_ids, "print all attributes of jobs, as JSON")
    one.option("ids=JOBID", nargs="+", type=JobID)
    one = parser.command("status", status, "wait for jobs, and exit with their highest exit status")
    one.option("-v --verbose", "print how failed jobs ended")
    one.option("ids=JOBID", nargs="+", type=JobID)
    one = parser.command("wait", wait, "wait for a waitable job, or any")
    one.option("-a --all", "wait for all waitable jobs, and print the failed ones")
    one.option("-v --verbose", "with --all: also print the others")
    one.option("id=JOBID", nargs="?", type=JobID)
