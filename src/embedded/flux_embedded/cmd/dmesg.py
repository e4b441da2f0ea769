# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux dmesg``: the broker's log."""

import errno

import flux
from flux.constants import FLUX_RPC_STREAMING
from flux_embedded.cmd.lib.eventlog import Clock
from flux_engine.command.options import Parser
from flux_engine.formats.levels import LEVELS


def _entries(handle, follow, new):
    request = {"follow": follow, "nobacklog": new}
    future = handle.rpc("log.dmesg", request, flags=FLUX_RPC_STREAMING)
    while True:
        try:
            yield future.get()
        except OSError as exc:
            if exc.errno == errno.ENODATA:
                return
            raise
        future.reset()


def main(argv):
    parser = Parser("flux-dmesg", status=1)
    parser.flag("-C", "--clear", text="clear the log")
    parser.flag("-c", "--read-clear", text="clear the log after printing it")
    parser.flag("-f", "--follow", text="go on with what is logged")
    parser.flag("-n", "--new", text="only what is logged from now on")
    parser.flag("-H", "--human", text="times for people")
    parser.flag("-d", "--delta", text="accepted")
    parser.add_argument("--color", metavar="WHEN", nargs="?", help="accepted, there are no colors")
    args = parser.parse_args(argv)
    handle = flux.Flux()
    if not args.clear:
        clock = Clock("human" if args.human else "iso")
        for entry in _entries(handle, args.follow, args.new):
            source = f"{entry['name']}.{LEVELS[entry['level']]}[{entry['rank']}]"
            text = f"{clock.stamp(entry['timestamp'])} {source}: {entry['text']}"
            print(text, flush=args.follow)
    if args.clear or args.read_clear:
        handle.rpc("log.clear").get()
