"""``flux batch``: a script that runs in a sub-instance with resources of its own."""

import json
import os
import sys

from flux_embedded.cmd.lib import directives, subinstance, submission
from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError, errno_text, warn
from flux_embedded.formats.jobid import f58


def _script(args):
    """(text, words): what to run, and its arguments."""
    if args.wrap:
        body = " ".join(args.command) if args.command else sys.stdin.read()
        return f"#!/bin/sh\n{body}\n", []
    if not args.command or args.command[0] == "-":
        text, words = sys.stdin.read(), args.command[1:]
        name = "stdin"
    else:
        name, words = args.command[0], args.command[1:]
        try:
            with open(name, encoding="utf-8", errors="surrogateescape") as file:
                text = file.read()
        except OSError as exc:
            raise CommandError(f"Failed to open {name}: {exc.strerror}") from None
    if not text.startswith("#!"):
        raise CommandError(f"{name} does not appear to start with '#!'")
    return text, words


def main(argv):
    parser = submission.make_parser(
        "batch", "enqueue a batch script", "[OPTIONS...] SCRIPT [ARGS...]", slots=True
    )
    subinstance.add_options(parser)
    parser.add_argument(
        "--wrap", action="store_true", help="Wrap arguments or stdin in a /bin/sh script"
    )
    parser.add_argument("--quiet", action="store_true", help="Do not print jobid to stdout")
    submission.add_command(parser)
    args = parser.parse_args(argv)
    text, words = _script(args)
    try:
        given = [] if args.wrap else directives.parse(text)
    except ValueError as exc:
        raise CommandError(f"{args.command[0] if args.command else 'stdin'}: {exc}") from None
    if given:
        # the command line comes after the script's own options, and so overrides them
        args = parser.parse_args(argv, parser.parse_args(given))
    if args.output is None:
        args.output = "flux-{{id}}.out"
    if not args.job_name:
        named = args.command and args.command[0] != "-"
        args.job_name = os.path.basename(args.command[0]) if named else "batch"
    spec = subinstance.build(args, words, script=text)
    if args.dry_run:
        print(json.dumps(spec, ensure_ascii=False))
        return 0
    try:
        jobid = connect().rpc("job-ingest.submit", submission.request(args, spec))["id"]
    except OSError as exc:
        warn(errno_text(exc))
        return 1
    if not args.quiet:
        print(f58(jobid))
    return 0
