# SPDX-License-Identifier: LGPL-3.0-or-later
"""The results of jobs: status and wait."""

import errno
import os

import flux
from flux.job import JobID, result
from flux_engine.command.errors import CommandError, error_text, warn


def _exit_status(info):
    """The exit status of a shell for the result of a job (flux.job.JobInfo)."""
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
    """Wait for all waitable jobs, and print those that have failed, or all; returns the status."""
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
    one = parser.command("status", status, "wait for jobs, and end with their greatest exit status")
    one.flag("-v", "--verbose", text="print how those ended that failed")
    one.add_argument("ids", metavar="JOBID", nargs="+", type=JobID)
    one = parser.command("wait", wait, "wait for a waitable job, or any")
    one.flag("-a", "--all", text="for all of them; print those that have failed")
    one.flag("-v", "--verbose", text="with --all: print the others too")
    one.add_argument("id", metavar="JOBID", nargs="?", type=JobID)
