# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux resource``: list and manage the instance's resources."""

import argparse
import errno
import json

import flux
from flux_embedded.cmd.resource import listing
from flux_engine.command.errors import CommandError
from flux_engine.command.options import Parser


def drain(args):
    if args.targets is None:
        return listing.drained(args)
    if args.update and args.force:
        raise CommandError("Only one of --force and --update may be specified")
    payload = {"targets": args.targets}
    if args.update or args.force:
        force = ("update", "overwrite", "force-overwrite")
        payload["mode"] = force[min(args.force, 2)]
    if args.reason:
        payload["reason"] = " ".join(args.reason)
    try:
        flux.Flux().rpc(f"resource.{args.subcommand}", payload).get()
    except OSError as exc:
        if args.subcommand == "undrain":
            raise
        hint = "\nflux-resource: INFO: Use --force to overwrite existing drain reason"
        raise CommandError(f"{exc}{hint if exc.errno == errno.EEXIST else ''}") from None


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
    for name, text in (
        ("drain", "drain ranks, or list the drained ones"),
        ("undrain", "undrain ranks, which jobs may use again"),
    ):
        one = parser.command(name, drain, text)
        one.option("-u --update", "ignore ranks in that state already; their reasons stay")
        one.option("-f --force", "replace reasons; twice: also times", action="count", default=0)
        if name == "drain":
            one.option("-i --include=RANKS|HOSTS", "list only these")
            one.add_queues()
            one.add_table()
        one.option("targets=RANKS|HOSTS", nargs="?" if name == "drain" else None)
        one.option("reason=REASON", nargs=argparse.REMAINDER)
    for name, function, text in (
        ("list", listing.list_resources, "list resources by state: free, allocated, down"),
        ("status", listing.list_status, "list ranks by state: available, excluded, drained, ..."),
        ("info", listing.info, "print the numbers of nodes, cores and GPUs"),
        ("R", listing.print_r, "print R"),
    ):
        one = parser.command(name, function, text)
        one.option("-s --states=STATE,...", "resources in these states")
        one.option("-i --include=RANKS|HOSTS", "only these")
        one.add_queues()
        if name in ("list", "status"):
            one.option("--skip-empty", "leave out states without resources (implied by -i)")
            one.add_table()
        if name == "list":
            one.option("--no-skip-empty", "list all states")
    one = parser.command("reload", reload, "replace R by that of a file")
    one.option("-f --force", "accept ranks beyond the instance's size")
    one.option("path=FILE")
    one = parser.command(
        "property", change_property, "give ranks a property (embedded instance only)"
    )
    one.option("action", choices=("add", "remove"))
    one.option("name=NAME")
    one.option("targets=RANKS|HOSTS")
    return parser.run(argv)
