"""``flux resource``: see and manage the instance's resources."""

import argparse
import errno
import json
import os

from flux_embedded.cmd.lib import pyargs
from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError, errno_text, warn

#: what ``flux resource --help`` shows; the rest is the embedded instance's own
HOST_COMMANDS = "{acquire-mute,drain,undrain,status,list,info,reload,R,eventlog}"


def _color_option(parser):
    parser.add_argument(
        "-L",
        "--color",
        nargs="?",
        const="always",
        default="auto",
        choices=("never", "auto", "always"),
        metavar="WHEN",
        help="accepted, no colors are used",
    )


def _narrow_options(parser):
    parser.add_argument(
        "-i",
        "--include",
        metavar="TARGETS",
        help="Include only specified targets in output set. TARGETS may be provided as an idset or hostlist.",
    )
    parser.add_queues()


def _state_options(parser):
    parser.add_argument(
        "-s",
        "--states",
        metavar="STATE,...",
        help="Output resources in given states",
    )
    parser.add_argument("--from-stdin", action="store_true", help=argparse.SUPPRESS)


def _mode_options(parser, what):
    """How far ``drain`` and ``undrain`` go with ranks that are as asked for already."""
    parser.add_argument(
        "-f",
        "--force",
        action="count",
        default=0,
        help=f"Force overwrite of existing {what} reason. Specify twice to also update {what} timestamp.",
    )
    parser.add_argument(
        "-u",
        "--update",
        action="store_true",
        help=f"Update only. Do not return an error if one or more targets are as asked for already. "
        f"Do not overwrite any existing {what} reason.",
    )


def make_parser():
    parser = pyargs.Parser(prog="flux-resource")
    command = parser.command
    command("acquire-mute", acquire_mute, metavar=HOST_COMMANDS)

    drain = command("drain", drain_command)
    _mode_options(drain, "drain")
    _narrow_options(drain)
    drain.add_format()
    drain.add_no_header()
    _color_option(drain)
    drain.add_argument("targets", nargs="?", help="List of targets to drain (IDSET or HOSTLIST)")
    drain.add_argument("reason", nargs=argparse.REMAINDER, help="Reason")

    undrain = command("undrain", undrain_command)
    _mode_options(undrain, "undrain")
    undrain.add_argument("targets", help="List of targets to resume (IDSET or HOSTLIST)")
    undrain.add_argument("reason", nargs=argparse.REMAINDER, help="Reason")

    status = command("status", lazy("status", "status"))
    status.add_format()
    _color_option(status)
    _state_options(status)
    _narrow_options(status)
    status.add_no_header()
    status.add_argument(
        "--skip-empty",
        action="store_true",
        help="Skip empty lines of output even with --states",
    )

    lister = command("list", lazy("listing", "list_resources"))
    lister.add_argument("--config-file", help=argparse.SUPPRESS)
    lister.add_format()
    _state_options(lister)
    _narrow_options(lister)
    lister.add_argument(
        "--skip-empty",
        action="store_true",
        default=None,
        help="Skip empty lines. This is the default with -i, --include.",
    )
    lister.add_argument(
        "--no-skip-empty",
        action="store_false",
        dest="skip_empty",
        help="Do not skip empty lines, even with --include.",
    )
    lister.add_no_header()

    for name, function in (("info", "info"), ("R", "print_r")):
        one = command(name, lazy("listing", function))
        _state_options(one)
        _narrow_options(one)

    reload = command("reload", reload_command)
    reload.add_argument("path", help="path to R or hwloc <rank>.xml dir")
    reload.add_argument(
        "-x",
        "--xml",
        action="store_true",
        default=False,
        help="reload from a directory of hwloc xml files",
    )
    reload.add_argument(
        "-f",
        "--force",
        action="store_true",
        default=False,
        help="allow resources to contain invalid ranks",
    )

    events = command("eventlog", lazy("eventlog", "eventlog"))
    add = events.add_argument
    add(
        "-f",
        "--format",
        default="text",
        choices=("text", "json"),
        metavar="FORMAT",
        help="Specify output format: text or json",
    )
    add(
        "-T",
        "--time-format",
        default="raw",
        choices=("raw", "iso", "offset", "human"),
        metavar="FORMAT",
        help="Specify time format: raw, iso, offset, or human",
    )
    add("-t", "--timeout", metavar="DURATION", help="timeout after DURATION")
    add("-H", "--human", action="store_true", help="Display human-readable output")
    add("-F", "--follow", action="store_true", help="Display new events as they are posted")
    add("-w", "--wait", metavar="EVENT", help="Display events until EVENT is posted and exit")
    add(
        "-m",
        "--match-context",
        action="append",
        metavar="KEY=VAL",
        help="With --wait, also match KEY=VAL in the event's context",
    )
    _color_option(events)

    prop = command(
        "property",
        property_command,
        "Add a property to ranks, or take it from them (embedded instance only).",
    )
    prop.add_argument("action", choices=("add", "remove"))
    prop.add_argument("name")
    prop.add_argument("targets", help="IDSET or HOSTLIST")
    for name in ("online", "offline", "exclude", "include"):
        one = command(name, targets_command, f"Make ranks {name} (embedded instance only).")
        one.add_argument("targets", help="IDSET or HOSTLIST")
    topo = command(
        "topology",
        lazy("topology", "topology"),
        "Draw the topology of nodes and who holds what (embedded instance only).",
    )
    topo.add_argument("-r", "--ranks", metavar="IDSET", help="these ranks only")
    topo.add_argument("--svg", metavar="FILE", help="write a drawing to FILE (- for stdout)")
    topo.add_argument("--ascii", action="store_true", help="no characters beyond ASCII")
    topo.add_argument(
        "file",
        nargs="?",
        metavar="RFILE",
        help="draw R from a file (- for stdin), without an instance",
    )
    return parser


def lazy(module, function):
    """A subcommand that lives in a module of its own."""

    def call(args):
        import importlib

        found = importlib.import_module(f"flux_embedded.cmd.resources.{module}")
        return getattr(found, function)(args)

    return call


def acquire_mute(args):
    connect().rpc("resource.acquire-mute")
    return 0


def drain_command(args):
    if args.targets is None:
        return lazy("status", "drain_table")(args)
    try:
        connect().rpc("resource.drain", _drain_payload(args))
    except OSError as exc:
        warn(f"flux-resource: ERROR: {errno_text(exc)}")
        if exc.errno == errno.EEXIST:
            warn("flux-resource: INFO: Use --force to overwrite existing drain reason")
        return 1
    return 0


def undrain_command(args):
    connect().rpc("resource.undrain", _drain_payload(args))


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


def reload_command(args):
    path = os.path.abspath(args.path)
    if args.xml:
        raise CommandError(
            "reload --xml is not part of the embedded instance: make R with flux R encode --hwloc-xml"
        )
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as exc:
        raise CommandError(f"{path}:-1 unable to open {path}: {exc.strerror}") from None
    try:
        robj = json.loads(text)
    except ValueError as exc:
        line = getattr(exc, "lineno", -1)
        raise CommandError(f"{path}:{line} {exc}") from None
    connect().rpc("resource.reload", {"R": robj, "force": args.force})
    return 0


def property_command(args):
    payload = {"name": args.name, "targets": args.targets}
    connect().rpc(f"resource.property-{args.action}", payload)
    return 0


def targets_command(args):
    key = "ranks" if args.subcommand in ("online", "offline") else "targets"
    connect().rpc(f"resource.{args.subcommand}", {key: args.targets})
    return 0


def main(argv):
    return make_parser().run(argv)
