"""``flux kvs eventlog``."""

import errno
import json

from flux_embedded.cmd.job.events import FORMAT_OPTIONS, formatter
from flux_embedded.cmd.kvs.commands import NAMESPACE, Store
from flux_embedded.cmd.lib import clock
from flux_embedded.cmd.lib.errors import CommandError, strerror
from flux_embedded.cmd.lib.eventlog import compact, parse
from flux_embedded.cmd.lib.optparse import Group, Opt, command
from flux_embedded.formats import fsd


@command(
    "flux-kvs eventlog get",
    "[-N ns] [-u] [-W] [-w] [-c COUNT] key",
    "Display eventlog",
    [
        NAMESPACE,
        Opt("unformatted", "u", usage="Show event in RFC 18 form"),
        Opt("waitcreate", "W", usage="Wait for creation"),
        Opt("watch", "w", usage="Monitor eventlog"),
        Opt("count", "c", "N", "Display at most N events", kind="int"),
        *FORMAT_OPTIONS,
    ],
    args=1,
)
def get(opts):
    form = formatter(opts)
    if opts.get("unformatted"):
        form.form = "json"
    left = opts.get("count", 0)
    for event in _events(Store(opts), opts.args[0], opts.get("watch"), opts.get("waitcreate")):
        print(form.format(event), flush=bool(opts.get("watch")))
        left -= 1
        if left == 0:
            break
    return 0


def _events(store, key, watch, waitcreate=False):
    if not watch:
        yield from parse(store.lookup(key))
        return
    payload = {"key": key, "append": True, "waitcreate": bool(waitcreate), **store.extra}
    call = store.client.stream("kvs.watch", payload)
    while True:
        try:
            value = call.get()["value"]
        except OSError as exc:
            if exc.errno == errno.ENODATA:
                return
            raise CommandError(f"{key}: {strerror(exc)}") from None
        yield from parse(value)


@command(
    "flux-kvs eventlog append",
    "[-N ns] [-t SECONDS] key name [context ...]",
    "Append to eventlog",
    [NAMESPACE, Opt("timestamp", "t", "SECONDS", "Specify timestamp in seconds since epoch")],
    args=(2, None),
)
def append(opts):
    key, name, *words = opts.args
    store = Store(opts)
    event = {"timestamp": float(opts.get("timestamp", 0) or clock.now(store.client)), "name": name}
    if words:
        try:
            event["context"] = json.loads(" ".join(words))
        except ValueError:
            event["context"] = None
        if not isinstance(event["context"], dict):
            raise CommandError("eventlog_entry_create: Invalid argument")
    store.commit([["append", key, compact(event) + "\n"]])
    return 0


@command(
    "flux-kvs eventlog wait-event",
    "[-N ns] [-t seconds] [-W] [-q] [-v] key event",
    "Wait for an event",
    [
        NAMESPACE,
        Opt("timeout", "t", "FSD", "timeout after FSD"),
        Opt("waitcreate", "W", usage="Wait for creation"),
        Opt("quiet", "q", usage="Do not output matched event"),
        Opt("verbose", "v", usage="Output all events before matched event"),
        Opt("unformatted", "u", usage="Show event in RFC 18 form"),
        *FORMAT_OPTIONS,
    ],
    args=2,
)
def wait_event(opts):
    key, name = opts.args
    form = formatter(opts)
    if opts.get("unformatted"):
        form.form = "json"
    store = Store(opts)
    if "timeout" in opts:
        import signal

        def expired(signum, frame):
            raise CommandError(f"wait-event timeout on event '{name}'")

        signal.signal(signal.SIGALRM, expired)
        signal.setitimer(signal.ITIMER_REAL, fsd.parse(opts.get("timeout")) or 1e-6)
    for event in _events(store, key, True, opts.get("waitcreate")):
        if event["name"] == name:
            if not opts.get("quiet"):
                print(form.format(event))
            return 0
        if opts.get("verbose"):
            print(form.format(event))
        else:
            form.start(event)
    raise CommandError(f"event '{name}' never received")


main = Group(
    "flux-kvs eventlog",
    "",
    [append],
    {"get": (get, "Get eventlog"), "wait-event": (wait_event, "Wait for event")},
)
