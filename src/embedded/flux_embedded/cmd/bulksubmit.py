"""``flux bulksubmit``: one job for each combination of inputs."""

import json
import sys

from flux_embedded.cmd.lib import bulkargs, submission
from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.cmd.lib.submitter import Submitter, payloads


def main(argv):
    usage = "[OPTIONS...] COMMAND [ARGS...] ::: INPUT..."
    parser = submission.make_parser("bulksubmit", "enqueue jobs in bulk", usage)
    submission.add_bulk_options(parser)
    parser.add_argument(
        "--shuffle", action="store_true", help="Shuffle list of commands before submission"
    )
    parser.add_argument(
        "--sep",
        metavar="STRING",
        help="Set the input argument separator. By default, inputs are separated by newline",
    )
    parser.add_argument(
        "--define",
        action="append",
        metavar="NAME=EXPR",
        help="Define a replacement field that evaluates EXPR, with the input as x",
    )
    submission.add_command(parser)
    args = parser.parse_args(argv)
    command, inputs = bulkargs.split(args.command, args.sep)
    if not command:
        command = ["{}"]
    if inputs is None:
        inputs = [bulkargs.read(sys.stdin, args.sep)]
    rows = bulkargs.combine(inputs)
    if args.shuffle:
        import random

        random.shuffle(rows)
    if not rows:
        raise CommandError("job command and arguments are missing")
    defines = dict(text.partition("=")[::2] for text in args.define or ())
    jobs = []
    for number, row in enumerate(rows):
        fill = bulkargs.Filler(row, number, defines)
        one = type(args)(**vars(args))
        for name, value in vars(args).items():
            if isinstance(value, str):
                setattr(one, name, fill(value))
            elif isinstance(value, list) and name not in ("command", "define"):
                setattr(one, name, [fill(item) for item in value])
        words = [fill(word) for word in command]
        jobs.append((one, words))
    if args.dry_run:
        for one, words in jobs:
            if args.verbose:
                for payload in payloads(one, words):
                    print(json.dumps(payload["jobspec"], ensure_ascii=False))
            else:
                print("bulksubmit: submit", " ".join(words))
        return 0
    submitter = None
    for one, words in jobs:
        for payload in payloads(one, words):
            submitter = submitter or Submitter(args)
            submitter.submit(payload, one)
    return submitter.finish() if submitter else 0
