# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux kvs get``, ``put`` and ``unlink``: keys of the key-value store."""

import sys

import flux
from flux_embedded.cmd.lib import ask
from flux_engine.command.errors import CommandError, error_text
from flux_engine.command.options import Parser


def get(args):
    for key in args.keys:
        value = ask("kvs.lookup", {"key": key}, key, plain=True)["value"]
        if args.raw:
            sys.stdout.write(value)
        elif value:
            print(value)


def put(args):
    ops = []
    for word in args.values:
        key, equals, value = word.partition("=")
        if not equals:
            raise CommandError("put: you must specify a value as key=value")
        if value == "-" and args.raw:
            value = sys.stdin.read()
        ops.append(["put", key, value])
    flux.Flux().rpc("kvs.commit", {"ops": ops}).get()


def unlink(args):
    handle = flux.Flux()
    for key in args.keys:
        try:
            handle.rpc("kvs.lookup", {"key": key}).get()
        except IsADirectoryError:
            if not args.recursive:
                why = "it is a directory: -R removes it with its entries"
                raise CommandError(f"cannot unlink '{key}': {why}") from None
        except FileNotFoundError as exc:
            if not args.force:
                raise CommandError(f"cannot unlink '{key}': {error_text(exc)}") from None
    ops = [["unlink", key] for key in args.keys]
    handle.rpc("kvs.commit", {"ops": ops}).get()


def main(argv):
    parser = Parser("flux-kvs", status=1)
    one = parser.command("get", get, "print the values of keys")
    one.option("-r --raw", "print values without a newline at the end")
    one.option("keys=KEY", nargs="+")
    one = parser.command("put", put, "store values under keys")
    one.option("-r --raw", "a value of - is read from standard input")
    one.option("values=KEY=VALUE", nargs="+")
    one = parser.command("unlink", unlink, "remove keys")
    one.option("-R --recursive", "remove directories with their contents")
    one.option("-f --force", "ignore missing keys")
    one.option("keys=KEY", nargs="+")
    return parser.run(argv)
