"""``flux submit``."""

import json

from flux_embedded.cmd.lib import submission
from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.cmd.lib.submitter import Submitter, payloads


def main(argv):
    parser = submission.make_parser("submit", "enqueue a job")
    submission.add_bulk_options(parser)
    submission.add_command(parser)
    args = parser.parse_args(argv)
    command = submission.command_of(args)
    if submission.stdin_ranks(args.input) is not None:
        raise CommandError("per-task input not supported for submit")
    requests = payloads(args, command)
    if args.dry_run:
        # of many copies the first is shown
        print(json.dumps(next(requests)["jobspec"], ensure_ascii=False))
        return 0
    first = next(requests, None)
    if first is None:
        return 0
    submitter = Submitter(args)
    submitter.submit(first)
    for payload in requests:
        submitter.submit(payload)
    return submitter.finish()
