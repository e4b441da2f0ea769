"""``flux job eventlog`` and ``flux job wait-event``."""

import errno

from flux_embedded.cmd.lib import follow, jobids
from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.cmd.lib.eventlog import EventFormatter, compact, parse
from flux_embedded.cmd.lib.optparse import Opt, command
from flux_embedded.formats import fsd

FORMAT_OPTIONS = [
    Opt("format", "f", "FORMAT", "Specify output format: text, json"),
    Opt("time-format", "T", "FORMAT", "Specify time format: raw, iso, offset"),
    Opt(
        "human",
        "H",
        usage="Display human-readable output. See also --color, --format, and --time-format.",
    ),
]
COLOR = Opt(
    "color",
    "L",
    "WHEN",
    "Colorize output when supported; WHEN can be 'always' (default if omitted), 'never', or "
    "'auto' (default).",
    optional=True,
)
PATH_USAGE = (
    'Specify alternate eventlog name or path suffix (e.g. "exec", "output", or '
    '"guest.exec.eventlog")'
)


def formatter(opts):
    """An :class:`EventFormatter` as the options ask for."""
    form = opts.get("format", "text")
    if form not in ("text", "json"):
        raise CommandError(f"invalid format type '{form}'")
    time_form = opts.get("time-format", "human" if opts.get("human") else "raw")
    time_form = {"delta": "offset", "reltime": "human"}.get(time_form, time_form)
    if time_form not in ("raw", "iso", "offset", "human"):
        raise CommandError(f"invalid time-format type '{time_form}'")
    return EventFormatter(form, time_form)


def log_path(name):
    """The key of an eventlog named in short: ``exec`` is ``guest.exec.eventlog``."""
    if name in (None, "eventlog"):
        return "eventlog"
    if name == "exec":
        return "guest.exec.eventlog"
    if name in ("input", "output"):
        return "guest." + name
    return name


@command(
    "flux-job eventlog",
    "[OPTIONS] id",
    "Display eventlog for a job",
    [
        *FORMAT_OPTIONS,
        Opt("follow", "F", usage="Follow the eventlog"),
        COLOR,
        Opt("path", "p", "PATH", PATH_USAGE),
    ],
    args=1,
)
def eventlog(result):
    word = result.args[0]
    jobid = jobids.parse(word, "job {} not found")
    path = log_path(result.get("path"))
    form = formatter(result)
    client = connect()
    if result.get("follow"):
        try:
            for payload in follow.watch_events(client, jobid, path):
                for event in follow.events(payload):
                    print(form.format(event), flush=True)
        except OSError as exc:
            raise _lookup_error(exc, word, path) from None
        return 0
    try:
        answer = client.rpc("job-info.lookup", {"id": jobid, "keys": [path], "flags": 0})
    except OSError as exc:
        raise _lookup_error(exc, word, path) from None
    for event in parse(answer[path]):
        print(form.format(event))
    return 0


def _lookup_error(exc, word, path):
    if exc.errno == errno.ENOENT:
        if path == "eventlog":
            return CommandError(f"job {word} not found")
        return CommandError(f"eventlog path {path} not found")
    return exc


def _context_match(text):
    """A function that tells whether an event's context has KEY=VAL."""
    key, equals, want = text.partition("=")
    if not equals:
        raise CommandError("must specify a context test as key=value")

    def match(event):
        context = event.get("context", {})
        if key not in context:
            return False
        value = context[key]
        return want in (value if isinstance(value, str) else compact(value), compact(value))

    return match


@command(
    "flux-job wait-event",
    "[OPTIONS] id event",
    "Wait for an event ",
    [
        *FORMAT_OPTIONS,
        Opt("timeout", "t", "DURATION", "timeout after DURATION"),
        Opt("match-context", "m", "KEY=VAL", "match key=val in context"),
        Opt("count", "c", "COUNT", "required number of matches (default 1)", kind="int"),
        Opt("quiet", "q", usage="Do not output matched event"),
        Opt("verbose", "v", usage="Output all events before matched event"),
        COLOR,
        Opt("path", "p", "PATH", PATH_USAGE),
        Opt("waitcreate", "W", usage="If path does not exist, wait for its creation"),
    ],
    args=2,
)
def wait_event(opts):
    word, name = opts.args
    jobid = jobids.parse(word, "job {} not found")
    path = log_path(opts.get("path"))
    form = formatter(opts)
    match = _context_match(opts.get("match-context")) if "match-context" in opts else None
    left = opts.get("count", 1)
    if left < 1:
        raise CommandError("count must be >= 1")
    timeout = None
    if "timeout" in opts:
        try:
            timeout = fsd.parse(opts.get("timeout"))
        except ValueError as exc:
            raise CommandError(str(exc)) from None
    import time

    deadline = None if timeout in (None, float("inf")) else time.monotonic() + timeout
    # the log of a job that has not started yet is waited for; one nobody ever makes is an error
    waitcreate = bool(opts.get("waitcreate")) or path in ("guest.exec.eventlog", "guest.output")
    call = follow.watch_events(connect(), jobid, path, waitcreate)
    while True:
        try:
            payload = call.get(None if deadline is None else max(0, deadline - time.monotonic()))
        except TimeoutError:
            raise CommandError(f"wait-event timeout on event '{name}'") from None
        except OSError as exc:
            if exc.errno == errno.ENODATA:
                raise CommandError(f"event '{name}' never received") from None
            raise _lookup_error(exc, word, path) from None
        for event in follow.events(payload):
            if event["name"] == name and (match is None or match(event)):
                left -= 1
                if left == 0:
                    if not opts.get("quiet"):
                        print(form.format(event))
                    return 0
            if opts.get("verbose") and not opts.get("quiet"):
                print(form.format(event), flush=True)
            else:
                form.start(event)
