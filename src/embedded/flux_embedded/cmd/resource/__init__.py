# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux resource``: see and manage the instance's resources."""

import argparse
import errno
import importlib
import json
import os

import flux
from flux_engine.command.errors import CommandError, warn
from flux_engine.command.options import Parser


def _later(module, function):
    """A subcommand in a module of its own, imported when it is asked for."""

    def call(args):
        found = importlib.import_module(f"flux_embedded.cmd.resource.{module}")
        return getattr(found, function)(args)

    return call


def drain(args):
    if args.targets is None:
        return _later("status", "drain_table")(args)
    try:
        flux.Flux().rpc("resource.drain", _drain_payload(args)).get()
    except OSError as exc:
        warn(f"flux-resource: ERROR: [Errno {exc.errno}] {exc.strerror}")
        if exc.errno == errno.EEXIST:
            warn("flux-resource: INFO: Use --force to overwrite existing drain reason")
        return 1
    return 0


def undrain(args):
    flux.Flux().rpc("resource.undrain", _drain_payload(args)).get()


def _drain_payload(args):
    """The request of ``drain`` and ``undrain``."""
    if args.update and args.force:
        raise CommandError("Only one of --force and --update may be specified")
    payload = {"targets": args.targets}
    if args.update:
        payload["mode"] = "update"
    elif args.force:
        payload["mode"] = "overwrite" if args.force == 1 else "force-overwrite"
    if args.reason:
        payload["reason"] = " ".join(args.reason)
    return payload


def reload(args):
    if args.xml:
        raise CommandError("reload --xml is not there: make R with flux R encode --hwloc-xml")
    path = os.path.abspath(args.path)
    try:
        with open(path, encoding="utf-8") as file:
            R = json.load(file)
    except OSError as exc:
        raise CommandError(f"{path}:-1 unable to open {path}: {exc.strerror}") from None
    except ValueError as exc:
        raise CommandError(f"{path}:{getattr(exc, 'lineno', -1)} {exc}") from None
    flux.Flux().rpc("resource.reload", json.dumps({"R": R, "force": args.force})).get()


def change_property(args):
    payload = {"name": args.name, "targets": args.targets}
    flux.Flux().rpc(f"resource.property-{args.action}", payload).get()


def change_ranks(args):
    flux.Flux().rpc(f"resource.{args.subcommand}", {"targets": args.targets}).get()


def _add_selection(parser):
    parser.add_argument("-s", "--states", metavar="STATE,...", help="resources in these states")
    parser.add_argument("-i", "--include", metavar="RANKS|HOSTS", help="these only")
    parser.add_queues()
    parser.flag("--from-stdin", text=argparse.SUPPRESS)
    # With flux-core, the queues of this file count instead of the instance's, for its own tests.
    parser.add_argument("--config-file", help=argparse.SUPPRESS)


def _add_color(parser):
    parser.add_argument("-L", "--color", metavar="WHEN", nargs="?", help="accepted, there are none")


def make_parser():
    parser = Parser("flux-resource")
    for name, function, text in (
        ("drain", drain, "drain ranks, or list those that are drained"),
        ("undrain", undrain, "have drained ranks used again"),
    ):
        one = parser.command(name, function, text)
        one.add_argument("-f", "--force", action="count", default=0, help="overwrite a reason")
        one.flag("-u", "--update", text="leave those alone that are as asked for")
        if name == "drain":
            one.add_argument("-i", "--include", metavar="RANKS|HOSTS", help="list these only")
            one.add_queues()
            one.add_table()
            _add_color(one)
        one.add_argument("targets", metavar="RANKS|HOSTS", nargs="?" if name == "drain" else None)
        one.add_argument("reason", metavar="REASON", nargs=argparse.REMAINDER)
    one = parser.command(
        "status", _later("status", "status"), "list ranks by what is wrong with them"
    )
    _add_selection(one)
    one.add_table()
    _add_color(one)
    one.flag("--skip-empty", text="leave out states without ranks")
    one = parser.command(
        "list", _later("listing", "list_resources"), "list what is free and what is not"
    )
    _add_selection(one)
    one.add_table()
    one.add_argument(
        "--skip-empty", action="store_true", default=None, help="leave out empty lines"
    )
    one.add_argument("--no-skip-empty", action="store_false", dest="skip_empty", help="do not")
    for name, function, text in (
        ("info", "info", "print how many nodes, cores and GPUs there are"),
        ("R", "print_r", "print R"),
    ):
        one = parser.command(name, _later("listing", function), text)
        _add_selection(one)
    one = parser.command(
        "eventlog", _later("listing", "eventlog"), "print what has happened to resources"
    )
    one.add_argument("-f", "--format", choices=("text", "json"), default="text")
    forms = ("raw", "iso", "offset", "human")
    one.add_argument("-T", "--time-format", choices=forms, default="raw")
    one.flag("-H", "--human", text="times for people")
    one.flag("-F", "--follow", text="go on with what comes")
    one.add_argument("-w", "--wait", metavar="EVENT", help="until there is this event")
    one.add_argument(
        "-m", "--match-context", metavar="KEY=VAL", action="append", help="with this in its context"
    )
    one.add_argument("-t", "--timeout", metavar="FSD", help="no longer than this")
    one.add_argument(
        "-L",
        "--color",
        nargs="?",
        const="always",
        default="auto",
        choices=("never", "auto", "always"),
    )
    one = parser.command("reload", reload, "take another R")
    one.flag("-f", "--force", text="even if it has ranks that are not there")
    one.flag("-x", "--xml", text="not there")
    one.add_argument("path", metavar="FILE")
    one = parser.command(
        "property", change_property, "give ranks a property (embedded instance only)"
    )
    one.add_argument("action", choices=("add", "remove"))
    one.add_argument("name", metavar="NAME")
    one.add_argument("targets", metavar="RANKS|HOSTS")
    for name in ("online", "offline"):
        one = parser.command(name, change_ranks, f"{name} ranks (embedded instance only)")
        one.add_argument("targets", metavar="RANKS|HOSTS")
    one = parser.command(
        "topology", _later("topology", "topology"), "draw nodes and who holds what (ours)"
    )
    one.add_argument("-r", "--ranks", metavar="RANKS", help="these only")
    one.add_argument("--svg", metavar="FILE", help="a drawing, into a file (- for stdout)")
    one.flag("--ascii", text="no characters beyond ASCII")
    one.add_argument("file", metavar="RFILE", nargs="?", help="R of a file (- for stdin)")
    return parser


def main(argv):
    return make_parser().run(argv)
