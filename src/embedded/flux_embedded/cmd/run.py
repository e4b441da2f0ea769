"""``flux run``: submit a job, show its output, exit with its code."""

import json
import sys

from flux_embedded.cmd.lib import attach, submission
from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError, warn
from flux_embedded.formats.jobid import f58


def main(argv):
    parser = submission.make_parser("run", "run a job interactively")
    parser.add_argument(
        "--wait-event",
        metavar="NAME",
        help="Wait for event NAME before detaching from eventlog (default=finish)",
    )
    submission.add_command(parser)
    args = parser.parse_args(argv)
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise CommandError("job command and arguments are missing")
    spec = submission.build(args, command).spec
    if args.dry_run:
        print(json.dumps(spec, ensure_ascii=False))
        return 0
    payload = submission.request(args, spec)
    # A shell gives background commands /dev/null; then, or with a file for --input, there is nothing to send.
    ranks = submission.stdin_ranks(args.input)
    file = args.input is not None and ranks is None
    stdin = None if file or sys.stdin is None else sys.stdin.fileno()
    client = connect()
    jobid = client.rpc("job-ingest.submit", payload)["id"]
    if args.verbose:
        warn(f"jobid: {f58(jobid)}")
    sys.stdout.flush()
    return attach.attach(
        client,
        jobid,
        stdin,
        ranks,
        label=args.label_io,
        show_events=args.verbose > 1,
        show_exec=args.verbose > 2,
        wait_event=args.wait_event,
    )
