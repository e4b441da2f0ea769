# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux kvs get``, ``put`` and ``unlink``: keys of the key-value store."""

import os
import sys

import flux
from flux_engine.command.errors import CommandError, error_text
from flux_engine.command.options import Parser


def _commit(ops):
    flux.Flux().rpc("kvs.commit", {"ops": ops}).get()


def get(args):
    handle = flux.Flux()
    for key in args.keys:
        try:
            value = handle.rpc("kvs.lookup", {"key": key}).get()["value"]
        except OSError as exc:
            raise CommandError(f"{key}: {os.strerror(exc.errno)}") from None
        label = f"{key}=" if args.label else ""
        if args.raw:
            sys.stdout.write(label + value)
        elif value or label:
            print(label + value)


def put(args):
    ops = []
    for word in args.values:
        key, equals, value = word.partition("=")
        if not equals:
            raise CommandError("put: you must specify a value as key=value")
        if value == "-" and args.raw:
            value = sys.stdin.read()
        ops.append(["append" if args.append else "put", key, value])
    _commit(ops)


def unlink(args):
    handle = flux.Flux()
    for key in args.keys:
        try:
            entries = handle.rpc("kvs.dir", {"key": key}).get()["entries"]
        except NotADirectoryError:
            entries = []
        except OSError as exc:
            if args.force:
                continue
            raise CommandError(f"unlink: {key}: {error_text(exc)}") from None
        if entries and not args.recursive:
            raise CommandError(f"unlink: {key}: Directory not empty")
        _commit([["unlink", key]])


def main(argv):
    parser = Parser("flux-kvs", status=1)
    one = parser.command("get", get, "print the values of keys")
    one.flag("-r", "--raw", text="without a newline at the end")
    one.flag("-l", "--label", text="print KEY= before each value")
    one.add_argument("keys", metavar="KEY", nargs="+")
    one = parser.command("put", put, "give keys their values")
    one.flag("-r", "--raw", text="a value of - is read from standard input")
    one.flag("-A", "--append", text="append to what is there")
    one.add_argument("values", metavar="KEY=VALUE", nargs="+")
    one = parser.command("unlink", unlink, "remove keys")
    one.flag("-R", "--recursive", text="directories with what is in them")
    one.flag("-f", "--force", text="say nothing of keys that are not there")
    one.add_argument("keys", metavar="KEY", nargs="+")
    return parser.run(argv)
