"""``flux post-job-event``: an event of one's own in a job's eventlog."""

import argparse
import errno

from flux_embedded.cmd.lib import jobids, pyargs, values
from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.formats.dotted import update_path


def main(argv):
    parser = pyargs.Parser(prog="flux-job-post-event")
    parser.add_argument("id", help="jobid to which event shall be posted")
    parser.add_argument("name", help="name of event to post")
    parser.add_argument(
        "context",
        nargs=argparse.REMAINDER,
        help="List of key=value pairs to set as event context",
    )
    args = parser.parse_args(argv)
    payload = {"id": jobids.parse(args.id, jobids.INVALID), "name": args.name}
    context = {}
    for word in args.context:
        context = update_path(context, *values.key_value(word))
    if context:
        payload["context"] = context
    try:
        connect().rpc("job-manager.post-event.post", payload)
    except OSError as exc:
        if exc.errno != errno.ENOENT:
            raise
        raise CommandError(f"No such job {args.id}") from None
