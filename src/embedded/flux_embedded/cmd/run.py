"""``flux run``: submit a job, show its output, exit with its code."""

import json
import sys

from flux_embedded.cmd.lib import attach, submission


def main(argv):
    parser = submission.make_parser("run", "run a job interactively")
    parser.add_argument(
        "--wait-event",
        metavar="NAME",
        help="Wait for event NAME before detaching from eventlog (default=finish)",
    )
    submission.add_command(parser)
    args = parser.parse_args(argv)
    spec = submission.build(args, submission.command_of(args)).spec
    if args.dry_run:
        print(json.dumps(spec, ensure_ascii=False))
        return 0
    payload = submission.request(args, spec)
    # A shell gives background commands /dev/null; then, or with a file for --input, there is nothing to send.
    ranks = submission.stdin_ranks(args.input)
    file = args.input is not None and ranks is None
    stdin = None if file or sys.stdin is None else sys.stdin.fileno()
    return attach.submit(args, payload, stdin=stdin, ranks=ranks, wait_event=args.wait_event)
