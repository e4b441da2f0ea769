"""``flux resource``: see and manage the instance's resources."""

import json
import os
import sys

from flux_embedded.cmd.lib import pyargs
from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError, errno_text, warn

#: what ``flux resource --help`` shows; the rest is the embedded instance's own
HOST_COMMANDS = "{acquire-mute,drain,undrain,status,list,info,reload,R,eventlog}"


def _format_option(parser, *letters):
    parser.add_argument(
        "-o",
        "--format",
        metavar="FORMAT",
        help="Specify output format using Python's string format syntax or a defined format by "
        "name (use 'help' to get a list of names)",
    )


def _list_options(parser):
    add = parser.add_argument
    _format_option(parser)
    add("-s", "--states", metavar="STATE,...", help="Output resources in given states")
    add(
        "-i",
        "--include",
        metavar="TARGETS",
        help="Include only specified targets in output set. TARGETS may be provided as an idset or hostlist.",
    )


def make_parser():
    parser = pyargs.Parser(prog="flux-resource")
    sub = parser.add_subparsers(metavar=HOST_COMMANDS, dest="command", parser_class=pyargs.Parser)

    def command(name, function, description=None):
        one = sub.add_parser(name, description=description)
        one.set_defaults(function=function)
        return one

    command("acquire-mute", acquire_mute)

    drain = command("drain", drain_command)
    drain.add_argument("-n", "--no-header", action="store_true", help="Suppress header output")
    group = drain.add_mutually_exclusive_group()
    group.add_argument(
        "-f",
        "--force",
        action="store_true",
        help="Force overwrite of existing drain reason (only for drain)",
    )
    group.add_argument(
        "-u",
        "--update",
        action="store_true",
        help="Update only. Do not return an error if one or more targets are already drained. Do not overwrite any existing drain reason.",
    )
    _format_option(drain)
    drain.add_argument(
        "-i", "--include", metavar="TARGETS", help="Include only specified targets in output set."
    )
    drain.add_argument("targets", nargs="?", help="List of targets to drain (IDSET or HOSTLIST)")
    drain.add_argument("reason", nargs="*", help="Reason")

    undrain = command("undrain", undrain_command)
    undrain.add_argument(
        "-f", "--force", action="store_true", help="Do not fail if any targets are not drained"
    )
    undrain.add_argument("targets", help="List of targets to undrain (IDSET or HOSTLIST)")
    undrain.add_argument("reason", nargs="*", help="Reason")

    status = command("status", lazy("status", "status"))
    _list_options(status)
    status.add_argument(
        "-q", "--queue", metavar="QUEUE,...", help="Include only specified queues in output"
    )
    status.add_argument("-n", "--no-header", action="store_true", help="Suppress header output")
    status.add_argument(
        "--skip-empty",
        action="store_true",
        default=None,
        help="Skip empty lines of output even with --states.",
    )

    lister = command("list", lazy("listing", "list_resources"))
    _list_options(lister)
    lister.add_argument(
        "-q", "--queue", metavar="QUEUE,...", help="Include only specified queues in output"
    )
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
    lister.add_argument("-n", "--no-header", action="store_true", help="Suppress header output")

    for name, function in (("info", "info"), ("R", "print_r")):
        one = command(name, lazy("listing", function))
        one.add_argument(
            "-s",
            "--states",
            metavar="STATE,...",
            help="Limit output to resources in given states (default: all)",
        )
        one.add_argument(
            "-i",
            "--include",
            metavar="TARGETS",
            help="Include only specified targets in output set.",
        )
        one.add_argument(
            "-q", "--queue", metavar="QUEUE,...", help="Include only specified queues in output"
        )

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
    events.add_argument(
        "-f",
        "--format",
        default="text",
        metavar="FORMAT",
        help="Specify output format: text or json",
    )
    events.add_argument(
        "-T",
        "--time-format",
        default="raw",
        metavar="FORMAT",
        help="Specify time format: raw, iso, offset, or human",
    )
    events.add_argument("-H", "--human", action="store_true", help="Display human-readable output")
    events.add_argument(
        "-F", "--follow", action="store_true", help="Display new events as they are posted"
    )
    events.add_argument(
        "-w", "--wait", metavar="EVENT", help="Display events until EVENT is posted and exit"
    )

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
    mode = "overwrite" if args.force else "update" if args.update else "none"
    payload = {"targets": args.targets, "mode": mode}
    if args.reason:
        payload["reason"] = " ".join(args.reason)
    try:
        connect().rpc("resource.drain", payload)
    except OSError as exc:
        import errno

        warn(f"flux-resource: ERROR: {errno_text(exc)}")
        if exc.errno == errno.EEXIST:
            warn("flux-resource: INFO: Use --force to overwrite existing drain reason")
        return 1
    return 0


def undrain_command(args):
    payload = {"targets": args.targets, "mode": "force" if args.force else ""}
    if args.reason:
        payload["reason"] = " ".join(args.reason)
    connect().rpc("resource.undrain", payload)
    return 0


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
    key = "ranks" if args.command in ("online", "offline") else "targets"
    connect().rpc(f"resource.{args.command}", {key: args.targets})
    return 0


def main(argv):
    parser = make_parser()
    args = parser.parse_args(argv)
    if args.command is None:
        sys.stderr.write(parser.format_usage())
        return 1
    return args.function(args)
