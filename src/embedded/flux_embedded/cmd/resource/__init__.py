# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux resource``: see and manage the instance's resources."""

import argparse
import json

import flux
from flux_embedded.cmd.resource import listing
from flux_engine.command.errors import CommandError
from flux_engine.command.options import Parser


def drain(args):
    if args.targets is None:
        return listing.drained(args)
    payload = {"targets": args.targets}
    if args.reason:
        payload["reason"] = " ".join(args.reason)
    flux.Flux().rpc("resource.drain", payload).get()
    return 0


def undrain(args):
    flux.Flux().rpc("resource.undrain", {"targets": args.targets}).get()


def reload(args):
    try:
        with open(args.path, encoding="utf-8") as file:
            R = json.load(file)
    except ValueError as exc:
        raise CommandError(f"{args.path}: {exc}") from None
    flux.Flux().rpc("resource.reload", {"R": R, "force": args.force}).get()


def change_property(args):
    payload = {"name": args.name, "targets": args.targets}
    flux.Flux().rpc(f"resource.property-{args.action}", payload).get()


def main(argv):
    parser = Parser("flux-resource")
    one = parser.command("drain", drain, "drain ranks, or list those that are drained")
    one.add_table()
    one.add_argument("targets", metavar="RANKS|HOSTS", nargs="?")
    one.add_argument("reason", metavar="REASON", nargs=argparse.REMAINDER)
    one = parser.command("undrain", undrain, "have drained ranks used again")
    one.add_argument("targets", metavar="RANKS|HOSTS")
    for name, function, text in (
        ("list", listing.list_resources, "list what is free and what is not"),
        ("info", listing.info, "print how many nodes, cores and GPUs there are"),
        ("R", listing.print_r, "print R"),
    ):
        one = parser.command(name, function, text)
        one.add_argument("-s", "--states", metavar="STATE,...", help="resources in these states")
        one.add_argument("-i", "--include", metavar="RANKS|HOSTS", help="these only")
        one.add_queues()
        if name == "list":
            one.add_table()
    one = parser.command("reload", reload, "take another R")
    one.flag("-f", "--force", text="even if it has ranks that are not there")
    one.add_argument("path", metavar="FILE")
    one = parser.command(
        "property", change_property, "give ranks a property (embedded instance only)"
    )
    one.add_argument("action", choices=("add", "remove"))
    one.add_argument("name", metavar="NAME")
    one.add_argument("targets", metavar="RANKS|HOSTS")
    return parser.run(argv)
