# SPDX-License-Identifier: LGPL-3.0-or-later
"""The results of jobs: status and wait."""

import errno

import flux
from flux.job import JobID, result
from flux_engine.command.errors import CommandError, error_text, warn


def _exit_status(info):
    """The exit status of a shell for the result of a job (flux.job.JobInfo)."""
    code = info.returncode
    if code == "" or code == -128 or (code == 0 and info.result != "COMPLETED"):
        return 1  # it ended by an exception, without a status
    return code if code >= 0 else 128 - code


def status(args):
    handle = flux.Flux()
    codes = []
    for id in args.ids:
        codes.append(_exit_status(result(handle, id)))
        if args.verbose:
            warn(f"flux-job: {id}: exit status {codes[-1]}")
    return max(codes)


def wait(args):
    try:
        answer = flux.job.wait(flux.Flux(), *([] if args.id is None else [args.id]))
    except OSError as exc:
        raise CommandError(error_text(exc), code=2 if exc.errno == errno.ECHILD else 1) from None
    if args.id is None:
        print(JobID(answer.jobid))
    if not answer.success:
        raise CommandError(answer.errstr.decode())


def add_commands(parser):
    one = parser.command("status", status, "wait for jobs, and end with their greatest exit status")
    one.flag("-v", "--verbose", text="print the exit status of each")
    one.add_argument("ids", metavar="JOBID", nargs="+", type=JobID)
    one = parser.command("wait", wait, "wait for a waitable job, or any")
    one.add_argument("id", metavar="JOBID", nargs="?", type=JobID)
