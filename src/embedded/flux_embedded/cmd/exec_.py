# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux exec``: run a command once for each broker rank.

The ranks of the embedded instance are all on this host, so this runs the command here; what tells
the copies apart is FLUX_EMBEDDED_RANK, which ``flux getattr rank`` prints.
"""

import argparse
import os
import selectors
import subprocess
import sys
import time

import flux
from flux_engine.command.errors import CommandError, warn
from flux_engine.command.options import Parser
from flux_engine.formats import idset


def main(argv):
    parser = Parser("flux-exec", status=1)
    parser.add_argument("-r", "--rank", metavar="IDSET", default="all", help="on these ranks")
    parser.add_argument("-x", "--exclude", metavar="IDSET", default="", help="not on these ranks")
    parser.add_argument("-d", "--dir", metavar="PATH", help="in this directory")
    parser.flag("-l", "--label-io", text="put the rank before each line of output")
    parser.flag("-n", "--noinput", text="accepted, there is no input")
    parser.flag("-v", "--verbose", text="accepted")
    parser.flag("-q", "--quiet", text="say nothing of how it ended")
    parser.add_argument("command", metavar="COMMAND", nargs=argparse.REMAINDER)
    args = parser.parse_args(argv)
    if not args.command:
        parser.error("no command")
    size = int(flux.Flux().attr_get("size"))
    ranks = _ranks(args, size)
    environ = dict(os.environ)
    running = []
    code = 0
    for rank in ranks:
        environ["FLUX_EMBEDDED_RANK"] = str(rank)
        try:
            process = subprocess.Popen(
                args.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environ,
                cwd=args.dir,
            )
        except OSError as exc:
            warn(f"flux-exec: Error: rank {rank}: {args.command[0]}: {exc.strerror}")
            code = 127
            continue
        running.append((rank, process))
    _copy_output(running, args.label_io)
    for rank, process in running:
        status = process.wait()
        one = 128 - status if status < 0 else status
        if one and not args.quiet:
            warn(f"[{rank}]: Exit {one}" if status >= 0 else f"[{rank}]: Signal {-status}")
        code = max(code, one)
    return code


def _ranks(args, size):
    try:
        ranks = set(range(size)) if args.rank == "all" else set(idset.ids(args.rank))
        ranks -= set(idset.ids(args.exclude))
    except ValueError as exc:
        raise CommandError(str(exc)) from None
    if not ranks:
        raise CommandError("No targets specified")
    beyond = [rank for rank in ranks if rank >= size]
    if beyond:
        text = idset.text(beyond)
        raise CommandError(f"One or more invalid --ranks specified: {text}")
    return sorted(ranks)


#: seconds for which output is kept back, so that what ranks say at once comes in their order
GATHER = 0.3


def _copy_output(running, label):
    selector = selectors.DefaultSelector()
    rests, held = {}, []
    for rank, process in running:
        for source, target in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
            selector.register(source, selectors.EVENT_READ, (rank, target))
            rests[source] = b""
    end = time.monotonic() + GATHER
    while selector.get_map():
        left = end - time.monotonic()
        for key, _ in selector.select(left if left > 0 else None):
            rank, target = key.data
            data = os.read(key.fileobj.fileno(), 65536)
            if not data:
                selector.unregister(key.fileobj)
                data, rests[key.fileobj] = rests[key.fileobj], b""
            else:
                data = rests[key.fileobj] + data
                cut = data.rfind(b"\n") + 1
                data, rests[key.fileobj] = data[:cut], data[cut:]
            held.append((rank, target, data.decode("utf-8", "surrogateescape")))
        if time.monotonic() >= end:
            _write(held, label)
            held = []
    _write(held, label)


def _write(held, label):
    for rank, target, text in sorted(held, key=lambda item: item[0]):
        if label:
            text = "".join(f"{rank}: {line}" for line in text.splitlines(keepends=True))
        target.write(text)
    sys.stdout.flush()
    sys.stderr.flush()
