"""``flux dmesg``: the broker's log."""

import errno

from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.optparse import Opt, command
from flux_embedded.cmd.lib.times import Clock
from flux_embedded.formats.levels import LEVELS


@command(
    "flux-dmesg",
    "[OPTIONS...]",
    "manipulate broker log ring buffer",
    [
        Opt("clear", "C", usage="Clear the ring buffer contents"),
        Opt("read-clear", "c", usage="Clear the ring buffer contents after printing"),
        Opt("follow", "f", usage="Track new entries as are logged"),
        Opt("new", "n", usage="Show only new log messages"),
        Opt("human", "H", usage="Human readable output"),
        Opt("delta", "d", usage="With --human, show timestamp delta between messages"),
        Opt("stderr-level", None, "LEVEL", "accepted for compatibility", kind="int", hidden=True),
        Opt(
            "color",
            "L",
            "WHEN",
            "Colorize output when supported; WHEN can be 'always' (default if omitted), 'never', or 'auto' (default).",
            optional=True,
        ),
    ],
    args=0,
)
def main(opts):
    client = connect()
    if not opts.get("clear"):
        payload = {"follow": bool(opts.get("follow")), "nobacklog": bool(opts.get("new"))}
        clock = Clock("human" if opts.get("human") else "iso")
        follow = payload["follow"]
        call = client.stream("log.dmesg", payload)
        while True:
            try:
                entry = call.get()
            except OSError as exc:
                if exc.errno == errno.ENODATA:
                    break
                raise
            stamp = clock.stamp(entry["timestamp"])
            level = LEVELS[entry["level"]]
            text = f"{stamp} {entry['name']}.{level}[{entry['rank']}]: {entry['text']}"
            print(text, flush=follow)
    if opts.get("clear") or opts.get("read-clear"):
        client.rpc("log.clear")
    return 0
