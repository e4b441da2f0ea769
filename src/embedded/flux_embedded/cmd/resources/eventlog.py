"""``flux resource eventlog``."""

import errno
import time

from flux_embedded.cmd.lib import values
from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.cmd.lib.eventlog import EventFormatter
from flux_embedded.formats import fsd


def eventlog(args):
    form = EventFormatter(args.format, "human" if args.human else args.time_format)
    wanted = dict(values.key_value(text) for text in args.match_context or ())
    end = None
    if args.timeout:
        try:
            end = time.monotonic() + fsd.parse(args.timeout)
        except ValueError as exc:
            raise CommandError(f"--timeout: {exc}") from None
    call = connect().stream("resource.journal", {})
    while True:
        try:
            answer = call.get(None if end is None else max(0.0, end - time.monotonic()))
        except TimeoutError as exc:
            raise CommandError(f"ETIMEDOUT: {exc.strerror}") from None
        except OSError as exc:
            if exc.errno == errno.ENODATA:
                return 0
            raise
        if not answer["events"] and not (args.follow or args.wait):
            # all there was
            return 0
        for event in answer["events"]:
            print(form.format(event), flush=True)
            context = event.get("context") or {}
            if event["name"] == args.wait and all(
                context.get(key) == value for key, value in wanted.items()
            ):
                return 0
