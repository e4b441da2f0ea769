# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux cancel``."""

import os

import flux
from flux.job import JobID, cancel_async
from flux_engine.command.errors import CommandError, wait_each, warn
from flux_engine.command.options import Parser
from flux_engine.formats.states import MASKS


def _cancel_jobs(args):
    numbers = [JobID(word) for word in args.jobids]
    handle = flux.Flux()
    futures = [(number, cancel_async(handle, number, args.message)) for number in numbers]
    return wait_each("flux-cancel", futures)


def _cancel_matching(args):
    mask = 0
    for name in (args.states or "active").lower().split(","):
        if name not in MASKS:
            raise CommandError(f"Invalid state {name} specified")
        mask |= MASKS[name]
    payload = {
        "type": "cancel",
        "severity": 0,
        "states": mask,
        "userid": os.getuid(),
        "dry_run": False,
        "note": args.message or "",
    }
    answer = flux.Flux().rpc("job-manager.raiseall", payload).get()
    count, failed = answer["count"], answer.get("errors", 0)
    if not count:
        warn("flux-cancel: Matched 0 jobs")
    else:
        jobs, errors = "job" if count == 1 else "jobs", "error" if failed == 1 else "errors"
        warn(f"flux-cancel: Canceled {count} {jobs} ({failed} {errors})")
    return 1 if failed else 0


def main(argv):
    parser = Parser("flux-cancel")
    parser.add_argument("-m", "--message", metavar="NOTE", help="note of the exception")
    parser.flag("-a", "--all", text="all jobs")
    parser.add_argument("-s", "-S", "--states", metavar="STATES", help="those in these states")
    parser.add_argument("jobids", nargs="*", metavar="JOBID")
    args = parser.parse_args(argv)
    selecting = args.all or args.states is not None
    if args.jobids:
        if selecting:
            raise CommandError("Do not specify a list of jobids with --all,--states options")
        return _cancel_jobs(args)
    if not selecting:
        raise CommandError("No target jobs were provided")
    return _cancel_matching(args)
