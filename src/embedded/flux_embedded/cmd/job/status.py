# SPDX-License-Identifier: LGPL-3.0-or-later
"""The results of jobs: status and wait."""

import errno

import flux
from flux.job import JobID
from flux_embedded.cmd.lib.watch import exit_code, watch_events
from flux_engine.command.errors import CommandError, error_text, warn

#: the id that stands for any waitable job
ANY = -1


def status(args):
    handle = flux.Flux()
    code = 0
    for id in args.ids:
        try:
            events = list(watch_events(handle, id))
        except FileNotFoundError:
            raise CommandError(f"{id}: No such job") from None
        waited = sum(event["context"]["status"] for event in events if event["name"] == "finish")
        fatal = [
            event["context"]
            for event in events
            if event["name"] == "exception" and event["context"]["severity"] == 0
        ]
        code = max(code, exit_code(waited), 1 if fatal else 0)
        if args.verbose and fatal:
            warn(f"flux-job: {id}: exception type={fatal[0]['type']}")
        elif args.verbose:
            warn(f"flux-job: {id}: exited with exit code {exit_code(waited)}")
    return code


def wait(args):
    handle = flux.Flux()
    try:
        answer = handle.rpc("job-manager.wait", {"id": ANY if args.id is None else args.id}).get()
    except OSError as exc:
        if exc.errno == errno.ECHILD:
            raise CommandError(error_text(exc), code=2) from None
        raise
    if args.id is None:
        print(JobID(answer["id"]))
    if not answer["success"]:
        raise CommandError(answer["errstr"])
    return 0


def add_commands(parser):
    one = parser.command("status", status, "wait for jobs, and end with their greatest exit status")
    one.flag("-v", "--verbose", text="say how they ended")
    one.add_argument("ids", metavar="JOBID", nargs="+", type=JobID)
    one = parser.command("wait", wait, "wait for a waitable job, or any")
    one.flag("-v", "--verbose", text="accepted")
    one.add_argument("id", metavar="JOBID", nargs="?", type=JobID)
