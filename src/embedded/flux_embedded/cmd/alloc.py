"""``flux alloc``: a sub-instance with resources of its own, and a command in it."""

import json

from flux_embedded.cmd.lib import attach, subinstance, submission
from flux_embedded.cmd.lib.errors import CommandError


def main(argv):
    parser = submission.make_parser(
        "alloc", "allocate a Flux instance for interactive use", "[COMMAND...]", slots=True
    )
    subinstance.add_options(parser)
    submission.add_command(parser)
    args = parser.parse_args(argv)
    spec = subinstance.build(args, args.command)
    if args.dry_run:
        print(json.dumps(spec, ensure_ascii=False))
        return 0
    if not args.command:
        raise CommandError(
            "the embedded instance gives a job no terminal: name a command (flux alloc ... COMMAND)"
        )
    return attach.submit(args, submission.request(args, spec))
