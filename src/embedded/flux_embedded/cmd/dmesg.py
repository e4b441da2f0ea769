# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux dmesg``: the broker's log."""

import datetime
import errno

import flux
from flux.constants import FLUX_RPC_STREAMING
from flux_embedded.broker.logring import LEVELS
from flux_engine.command.options import Parser


def _entries(handle, follow):
    future = handle.rpc("log.dmesg", {"follow": follow}, flags=FLUX_RPC_STREAMING)
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
    parser.option("-C --clear", "clear the log")
    parser.option("-c --read-clear", "clear the log after printing it")
    parser.option("-f --follow", "continue with new entries")
    args = parser.parse_args(argv)
    handle = flux.Flux()
    if not args.clear:
        for entry in _entries(handle, args.follow):
            source = f"{entry['name']}.{LEVELS[entry['level']]}[{entry['rank']}]"
            when = datetime.datetime.fromtimestamp(entry["timestamp"], datetime.timezone.utc)
            stamp = when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            print(f"{stamp} {source}: {entry['text']}", flush=args.follow)
    if args.clear or args.read_clear:
        handle.rpc("log.clear").get()
