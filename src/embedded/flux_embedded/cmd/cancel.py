# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux cancel``."""

import flux
from flux.job import JobID, JobList, cancel_async
from flux_engine.command.errors import CommandError, wait_each, warn
from flux_engine.command.options import Parser
from flux_engine.formats.states import MASKS


def _counted(number, noun):
    return f"{number} {noun}{'s' if number != 1 else ''}"


def _cancel_jobs(args):
    if args.dry_run:
        warn(f"flux-cancel: Would cancel {_counted(len(args.jobids), 'job')}")
        return 0
    handle = flux.Flux()
    futures = [(id, cancel_async(handle, id, args.message)) for id in args.jobids]
    return wait_each("flux-cancel", futures)


def _cancel_matching(args):
    mask = 0
    for name in ",".join(args.states or ["active"]).lower().split(","):
        if name not in MASKS:
            raise CommandError(f"Invalid state {name} specified")
        mask |= MASKS[name]
    payload = {
        "type": "cancel",
        "severity": 0,
        "states": mask,
        "userid": JobList(None, user=args.user).userid,
        "dry_run": args.dry_run,
        "note": args.message or "",
    }
    answer = flux.Flux().rpc("job-manager.raiseall", payload).get()
    count, failed = answer["count"], answer["errors"]
    if count and args.dry_run:
        warn(f"flux-cancel: Would cancel {_counted(count, 'job')}")
    elif count:
        warn(f"flux-cancel: Canceled {_counted(count, 'job')} ({_counted(failed, 'error')})")
    elif not args.quiet:
        warn("flux-cancel: Matched 0 jobs")
    return 0


def main(argv):
    parser = Parser("flux-cancel")
    parser.option("--all", "all jobs of the user")
    parser.option("-n --dry-run", "only count the jobs")
    parser.option("-q --quiet", "print nothing if no jobs match")
    parser.option("-u --user=USER", "all jobs of this user, or of 'all'")
    parser.option("-S --states=STATES", "jobs in these", action="append")
    parser.option("-m --message=NOTE", "note of the exception")
    parser.option("jobids=JOBID", nargs="*", type=JobID)
    args = parser.parse_args(argv)
    selecting = args.all or args.user or args.states
    if args.jobids and selecting:
        raise CommandError("Do not specify a list of jobids with --all,--user,--states options")
    if args.jobids:
        return _cancel_jobs(args)
    if selecting:
        return _cancel_matching(args)
    raise CommandError("No target jobs were provided")
