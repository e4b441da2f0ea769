# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux job eventlog`` and ``flux job wait-event``."""

import json
import time

import flux
from flux.eventlog import EventLogFormatter
from flux.job import JobID
from flux.util import parse_fsd
from flux_embedded.cmd.lib.watch import watch_events
from flux_engine.command.errors import CommandError
from flux_engine.formats.jsontext import encoder

TIME_FORMS = ("raw", "iso", "offset", "human")
#: short names of eventlogs
LOGS = {
    None: "eventlog",
    "exec": "guest.exec.eventlog",
    "input": "guest.input",
    "output": "guest.output",
}


compact = encoder(ensure_ascii=False)


def _formatter(args):
    form = "human" if args.human else args.time_format
    return EventLogFormatter(args.format, form, "never")


def _missing(args, path):
    if path == "eventlog":
        return CommandError(f"job {args.id.orig} not found")
    return CommandError(f"eventlog path {path} not found")


def eventlog(args):
    path = LOGS.get(args.path, args.path)
    form = _formatter(args)
    handle = flux.Flux()
    try:
        payload = {"id": args.id, "keys": [path], "flags": 0}
        for line in handle.rpc("job-info.lookup", payload).get()[path].splitlines():
            print(form.format(json.loads(line)))
    except FileNotFoundError:
        raise _missing(args, path) from None


def _matcher(text):
    """A predicate: whether an event's context has KEY=VAL; always true for None."""
    if text is None:
        return lambda event: True
    key, equals, want = text.partition("=")
    if not equals:
        raise CommandError("must specify a context test as key=value")

    def match(event):
        context = event.get("context", {})
        if key not in context:
            return False
        value = context[key]
        return want in (value, compact(value))

    return match


def wait_event(args):
    path = LOGS.get(args.path, args.path)
    form = _formatter(args)
    match, left = _matcher(args.match_context), args.count
    if left < 1:
        raise CommandError("count must be >= 1")
    timeout = parse_fsd(args.timeout) if args.timeout else float("inf")
    deadline = None if timeout == float("inf") else time.monotonic() + timeout
    # Wait for the log of a job that has not started yet; other logs must exist.
    waitcreate = path in ("guest.exec.eventlog", "guest.output")
    try:
        for event in watch_events(flux.Flux(), args.id, path, waitcreate, deadline):
            if event["name"] == args.event and match(event):
                left -= 1
                if left == 0:
                    if not args.quiet:
                        print(form.format(event))
                    return 0
            if args.verbose and not args.quiet:
                print(form.format(event), flush=True)
            else:
                form.format(event)  # offsets count from the first event
    except TimeoutError:
        raise CommandError(f"wait-event timeout on event '{args.event}'") from None
    except FileNotFoundError:
        raise _missing(args, path) from None
    raise CommandError(f"event '{args.event}' never received")


def add_commands(parser):
    for name, function, text in (
        ("eventlog", eventlog, "print the events of a job"),
        ("wait-event", wait_event, "wait for an event of a job, and print it"),
    ):
        one = parser.command(name, function, text)
        one.add_argument("-f", "--format", choices=("text", "json"), default="text")
        one.add_argument("-T", "--time-format", choices=TIME_FORMS, default="raw")
        one.flag("-H", "--human", text="times for people")
        one.add_argument(
            "-p", "--path", metavar="PATH", help="another log: exec, output, or its whole name"
        )
        one.add_argument("id", metavar="JOBID", type=JobID)
        if name == "eventlog":
            continue
        one.add_argument("-t", "--timeout", metavar="FSD", help="wait no longer")
        one.add_argument(
            "-m", "--match-context", metavar="KEY=VAL", help="with this in its context"
        )
        one.add_argument("-c", "--count", metavar="N", type=int, default=1, help="the Nth of them")
        one.flag("-q", "--quiet", text="do not print it")
        one.flag("-v", "--verbose", text="print all events before it too")
        one.add_argument("event", metavar="EVENT")
