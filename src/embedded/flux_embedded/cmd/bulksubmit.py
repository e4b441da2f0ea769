"""``flux bulksubmit``: one job for each combination of inputs."""

import sys

from flux_embedded.cmd.lib import bulkargs, submission
from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.cmd.lib.submitter import Submitter, payloads

#: option -> how a dry run shows it: those in which inputs are filled in
FILLED = {
    "queue": "-q",
    "bank": "-B",
    "ntasks": "-n",
    "nodes": "-N",
    "cores_per_task": "-c",
    "gpus_per_task": "-g",
    "cores": "--cores=",
    "tasks_per_node": "--tasks-per-node=",
    "tasks_per_core": "--tasks-per-core=",
    "gpus_per_node": "--gpus-per-node=",
    "time_limit": "-t",
    "env": "--env=",
    "urgency": "--urgency=",
    "setopt": "-o ",
    "setattr": "--setattr=",
    "job_name": "--job-name=",
    "input": "--input=",
    "output": "--output=",
    "error": "--error=",
    "cc": "--cc=",
    "bcc": "--bcc=",
    "log": "--log=",
    "log_stderr": "--log-stderr=",
    "dependency": "--dependency=",
    "taskmap": "--taskmap=",
    "requires": "--requires=",
    "wait_event": "--wait-event=",
    "cwd": "--cwd=",
    "flags": "--flags=",
    "begin_time": "--begin-time=",
    "signal": "--signal=",
}


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
    if not rows:
        raise CommandError("no jobs provided for bulk submission")
    defines = dict(text.partition("=")[::2] for text in args.define or ())
    jobs = [_fill(args, command, bulkargs.Filler(row, n, defines)) for n, row in enumerate(rows)]
    if args.shuffle:
        import random

        random.shuffle(jobs)
    submitter = None
    for one, words, changed in jobs:
        if args.dry_run or args.verbose:
            print("bulksubmit: submit", " ".join([*changed, *words]))
        if args.dry_run:
            continue
        for payload in payloads(one, words):
            submitter = submitter or Submitter(args)
            submitter.submit(payload, one)
    return submitter.finish() if submitter else 0


def _fill(args, command, fill):
    """(options, command, changed options as text) of one job."""
    one = type(args)(**vars(args))
    changed = []
    for name, option in FILLED.items():
        given = getattr(args, name)
        if given is None:
            continue
        value = fill.option(option, given)
        setattr(one, name, value)
        if value != given or name == "cc":
            changed.append(f"{option}{value}")
    return one, fill.words(command), changed
