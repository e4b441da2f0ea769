"""``flux cancel``."""

from flux_embedded.cmd.lib import jobids, pyargs, values
from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError, error_text, warn


def main(argv):
    parser = pyargs.Parser(prog="flux-cancel")
    add = parser.add_argument
    add(
        "-n",
        "--dry-run",
        action="store_true",
        help="Do not cancel any jobs, but print a message indicating how many jobs would have been canceled",
    )
    add("-m", "--message", metavar="NOTE", help="Set optional cancel exception note")
    add("-q", "--quiet", action="store_true", help="Do not print jobids or messages")
    add("-a", "--all", action="store_true", help="Target all jobs")
    add("-u", "--user", metavar="USER", help="Set target user or 'all' (instance owner only)")
    add(
        "-s",
        "-S",
        "--states",
        metavar="STATES",
        help="Filter targeted jobs by state (default=ACTIVE)",
    )
    add("jobids", nargs="*", metavar="JOBID", help="jobids to cancel")
    args = parser.parse_args(argv)
    selecting = args.all or args.user is not None or args.states is not None
    if args.jobids:
        if selecting:
            raise CommandError("Do not specify a list of jobids with --all,--user,--states options")
        return _cancel_jobs(args)
    if not selecting:
        raise CommandError("No target jobs were provided")
    return _cancel_matching(args)


def _cancel_jobs(args):
    numbers = jobids.parse_all(args.jobids, jobids.INVALID)
    if args.dry_run:
        if not args.quiet:
            warn(f"flux-cancel: Would have canceled {len(numbers)} jobs")
        return 0
    client = connect()
    payload = {"type": "cancel", "severity": 0}
    if args.message is not None:
        payload["note"] = args.message
    calls = [client.send("job-manager.raise", {"id": number, **payload}) for number in numbers]
    code = 0
    for number, call in zip(numbers, calls):
        try:
            call.get()
        except OSError as exc:
            text = error_text(exc)
            warn(f"flux-cancel: ERROR: {jobids.f58(number)}: {text}")
            code = 1
    return code


def _user(text):
    try:
        return values.user_id(text)
    except CommandError:
        raise CommandError(f"Invalid user {text} specified") from None


def _cancel_matching(args):
    payload = {
        "type": "cancel",
        "severity": 0,
        "states": values.state_mask(args.states or "active", "Invalid state {} specified"),
        "userid": _user(args.user),
        "dry_run": args.dry_run,
        "note": args.message or "",
    }
    answer = connect().rpc("job-manager.raiseall", payload)
    count, failed = answer["count"], answer.get("errors", 0)
    if not args.quiet:
        jobs = "job" if count == 1 else "jobs"
        if not count:
            warn("flux-cancel: Matched 0 jobs")
        elif args.dry_run:
            warn(f"flux-cancel: Would cancel {count} {jobs}")
        else:
            errors_ = "error" if failed == 1 else "errors"
            warn(f"flux-cancel: Canceled {count} {jobs} ({failed} {errors_})")
    return 1 if failed else 0
