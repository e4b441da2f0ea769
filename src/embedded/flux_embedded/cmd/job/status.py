# SPDX-License-Identifier: LGPL-3.0-or-later
"""How jobs end: status and wait."""

import errno
import json

import flux
from flux.job import JobID
from flux_embedded.cmd.lib.watch import exit_code, watch_events
from flux_engine.command.errors import CommandError, error_text, warn
from flux_engine.formats.states import outcome

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
        found = outcome(int(id), events)
        if args.json:
            print(json.dumps(found, separators=(",", ":")))
        waited = found.get("waitstatus", 0)
        fatal = found["exception_occurred"] and found["exception_severity"] == 0
        code = max(code, exit_code(waited), args.exception_exit_code if fatal else 0)
        if waited & 0x7F and args.verbose:
            warn(f"flux-job: {id}: job shell died by signal {waited & 0x7F}")
        elif args.verbose > 1 or (args.verbose and exit_code(waited)):
            how = f"exited with exit code {exit_code(waited)}"
            how = f"exception type={found['exception_type']}" if fatal else how
            warn(f"flux-job: {id}: {how}")
    return code


def wait(args):
    handle = flux.Flux()
    if args.all:
        return _wait_all(handle, args.verbose)
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


def _wait_all(handle, verbose):
    code = 0
    while True:
        try:
            answer = handle.rpc("job-manager.wait", {"id": ANY}).get()
        except OSError as exc:
            if exc.errno == errno.ECHILD:
                return code
            raise
        if not answer["success"]:
            warn(f"{JobID(answer['id'])}: {answer['errstr']}")
            code = 1
        elif verbose:
            warn(f"{JobID(answer['id'])}: job completed successfully")


def add_commands(parser):
    one = parser.command("status", status, "wait for jobs, and end with their greatest exit status")
    one.add_argument("-v", "--verbose", action="count", default=0, help="say how they ended")
    one.add_argument(
        "-e", "--exception-exit-code", metavar="N", type=int, default=1, help="for an exception"
    )
    one.flag("-j", "--json", text="print what became of them")
    one.add_argument("ids", metavar="JOBID", nargs="+", type=JobID)
    one = parser.command("wait", wait, "wait for a waitable job, or any")
    one.flag("-a", "--all", text="for all of them")
    one.flag("-v", "--verbose", text="print those that succeeded too")
    one.add_argument("id", metavar="JOBID", nargs="?", type=JobID)
