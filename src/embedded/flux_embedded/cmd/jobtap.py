"""``flux jobtap``: plugins of the job manager."""

import json
import os

from flux_embedded.cmd.lib import pyargs
from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.cmd.lib.eventlog import compact


def make_parser():
    parser = pyargs.Parser(prog="flux-jobtap")
    load = parser.command(
        "load", load_plugin, "Load a jobtap plugin, optionally removing existing plugins first."
    )
    load.add_argument(
        "-r",
        "--remove",
        metavar="NAME",
        help="Remove plugin NAME before loading. NAME may be a pattern, 'all' or the name of a plugin.",
    )
    load.add_argument(
        "plugin",
        metavar="PLUGIN",
        help="Plugin to load, a Python file or the name of one on the search path",
    )
    load.add_argument(
        "config",
        metavar="[KEY=VAL ...]",
        nargs="*",
        help="Set plugin configuration. VAL is JSON, or else a string",
    )
    remove = parser.command("remove", remove_plugin, "Remove jobtap plugin.")
    remove.add_argument(
        "plugin", metavar="PLUGIN", help="Plugin name or glob pattern of plugins to remove"
    )
    lister = parser.command("list", list_plugins, "List currently loaded jobtap plugins")
    lister.add_argument(
        "-a", "--all", action="store_true", help="Do not exclude hidden (builtin) plugins"
    )
    query = parser.command("query", query_plugin, "Query extended plugin info")
    query.add_argument("plugin", metavar="PLUGIN", help="Plugin name to query")
    return parser


def _config(words):
    conf = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise CommandError(f"{word}: plugin configuration must be KEY=VAL")
        try:
            value = json.loads(value)
        except ValueError:
            pass
        where = conf
        *path, last = key.split(".")
        for step in path:
            where = where.setdefault(step, {})
        where[last] = value
    return conf


def load_plugin(args):
    path = args.plugin
    if "/" in path:
        path = os.path.abspath(path)
    elif os.path.isfile(path) and path.endswith(".py"):
        # a file at hand; a real instance looks along its search path only
        path = os.path.abspath(path)
    payload = {"load": path}
    if args.config:
        payload["conf"] = _config(args.config)
    if args.remove:
        payload["remove"] = args.remove
    try:
        connect().rpc("job-manager.jobtap", payload)
    except FileNotFoundError:
        raise CommandError(f"{args.plugin} not found") from None
    return 0


def remove_plugin(args):
    try:
        connect().rpc("job-manager.jobtap", {"remove": args.plugin})
    except FileNotFoundError:
        raise CommandError(f"{args.plugin} not found") from None
    return 0


def list_plugins(args):
    for name in connect().rpc("job-manager.jobtap", {"query_only": True})["plugins"]:
        if args.all or not name.startswith("."):
            print(name)
    return 0


def query_plugin(args):
    print(compact(connect().rpc("job-manager.jobtap-query", {"name": args.plugin})))
    return 0


def main(argv):
    return make_parser().run(argv)
