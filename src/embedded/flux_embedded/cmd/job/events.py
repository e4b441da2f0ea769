# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux job eventlog`` and ``flux job wait-event``."""

import json
import time

import flux
from flux.eventlog import EventLogFormatter
from flux.job import JobID, event_watch_async
from flux.util import parse_fsd
from flux_engine.command.errors import CommandError
from flux_engine.formats.jsontext import encoder

TIME_FORMS = ("raw", "iso", "offset", "human")

compact = encoder(ensure_ascii=False)


def _formatter(args):
    return EventLogFormatter(args.format, "human" if args.human else args.time_format, "never")


def _missing(args):
    what = f"job {args.id.orig}" if args.path == "eventlog" else f"eventlog path {args.path}"
    return CommandError(f"{what} not found")


def _path(args):
    """Return the path of the log named by --path, perhaps by a short name."""
    shorts = {"exec": "guest.exec.eventlog", "output": "guest.output", "input": "guest.input"}
    return shorts.get(args.path, args.path)


def eventlog(args):
    form = _formatter(args)
    path = _path(args)
    try:
        payload = {"id": args.id, "keys": [path], "flags": 0}
        text = flux.Flux().rpc("job-info.lookup", payload).get()[path]
    except FileNotFoundError:
        raise _missing(args) from None
    for line in text.splitlines():
        print(form.format(json.loads(line)).lstrip())  # offsets are padded


def _matcher(text):
    """Return a predicate: whether an event's context has KEY=VAL; true for all events if None."""
    if text is None:
        return lambda event: True
    key, equals, want = text.partition("=")
    if not equals:
        raise CommandError("must specify a context test as key=value")
    return lambda event: (
        key in event.context and want in (event.context[key], compact(event.context[key]))
    )


def _events(id, path, timeout):
    """Yield the events of one of a job's logs up to the last; FileNotFoundError without one, TimeoutError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    future = event_watch_async(flux.Flux(), id, path)
    while True:
        if timeout < float("inf"):
            future.wait_for(max(0, deadline - time.monotonic()))
        event = future.get_event()
        if event is None:
            return
        yield event


def wait_event(args):
    form = _formatter(args)
    match, left = _matcher(args.match_context), args.count
    timeout = parse_fsd(args.timeout) if args.timeout else float("inf")
    try:
        for event in _events(args.id, _path(args), timeout):
            if event.name == args.event and match(event):
                left -= 1
                if left == 0:
                    if not args.quiet:
                        print(form.format(event).lstrip())
                    return 0
            text = form.format(event)  # of each: offsets count from the first event
            if args.verbose and not args.quiet:
                print(text.lstrip(), flush=True)
    except TimeoutError:
        raise CommandError(f"wait-event timeout on event '{args.event}'") from None
    except FileNotFoundError:
        raise _missing(args) from None
    raise CommandError(f"event '{args.event}' never received")


def add_commands(parser):
    for name, function, text in (
        ("eventlog", eventlog, "print the events of a job"),
        ("wait-event", wait_event, "wait for an event of a job, and print it"),
    ):
        one = parser.command(name, function, text)
        one.option("-f --format=", choices=("text", "json"), default="text")
        one.option("-T --time-format=", choices=TIME_FORMS, default="raw")
        one.option("-H --human", "print times for humans")
        one.option("-p --path=PATH", "log: exec, output or a full name", default="eventlog")
        one.option("id=JOBID", type=JobID)
    one.option("-t --timeout=FSD", "maximum time to wait")
    one.option("-m --match-context=KEY=VAL", "only an event with this in its context")
    one.option("-c --count=N", "wait for the Nth such event", type=int, default=1)
    one.option("-q --quiet", "do not print the event")
    one.option("-v --verbose", "also print the events before it")
    one.option("event=EVENT")
