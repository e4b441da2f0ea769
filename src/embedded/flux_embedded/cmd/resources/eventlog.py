"""``flux resource eventlog``."""

from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.cmd.lib.eventlog import EventFormatter


def eventlog(args):
    if args.format not in ("text", "json"):
        raise CommandError(f"invalid format type {args.format}")
    form = EventFormatter(args.format, "human" if args.human else args.time_format)
    for answer in connect().stream("resource.journal", {}):
        events = answer["events"]
        if not events and not (args.follow or args.wait):
            return 0
        for event in events:
            print(form.format(event), flush=True)
            if event["name"] == args.wait:
                return 0
    return 0
