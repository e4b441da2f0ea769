# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux jobtap``: plugins of the job manager."""

import contextlib
import json
import os

import flux
from flux.util import set_treedict
from flux_engine.command.errors import CommandError
from flux_engine.command.options import Parser
from flux_engine.formats.jsontext import encoder


def _ask(payload, plugin=None):
    try:
        return flux.Flux().rpc("job-manager.jobtap", payload).get()
    except FileNotFoundError:
        raise CommandError(f"{plugin} not found") from None


def _config(words):
    conf = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise CommandError(f"{word}: plugin configuration must be KEY=VAL")
        with contextlib.suppress(ValueError):
            value = json.loads(value)
        set_treedict(conf, key, value)
    return conf


def load_plugin(args):
    path = args.plugin
    # A name is a file in the working directory, if there is one; a real instance only searches its path.
    if "/" in path or (os.path.isfile(path) and path.endswith(".py")):
        path = os.path.abspath(path)
    payload = {"load": path}
    if args.config:
        payload["conf"] = _config(args.config)
    if args.remove:
        payload["remove"] = args.remove
    _ask(payload, args.plugin)


def remove_plugin(args):
    _ask({"remove": args.plugin}, args.plugin)


def list_plugins(args):
    for name in _ask({"query_only": True})["plugins"]:
        if args.all or not name.startswith("."):
            print(name)


def query_plugin(args):
    answer = flux.Flux().rpc("job-manager.jobtap-query", {"name": args.plugin}).get()
    print(encoder(ensure_ascii=False)(answer))


def main(argv):
    parser = Parser("flux-jobtap")
    one = parser.command("load", load_plugin, "load a plugin")
    one.option("-r --remove=NAME", "remove this plugin, or 'all', first")
    one.option("plugin=PLUGIN", "a Python file, or the name of one")
    one.option("config=KEY=VAL", "its configuration, in JSON", nargs="*")
    one = parser.command("remove", remove_plugin, "remove plugins")
    one.option("plugin=PLUGIN", "a name, a pattern, or 'all'")
    one = parser.command("list", list_plugins, "list the loaded plugins")
    one.option("-a --all", "also list builtin plugins")
    one = parser.command("query", query_plugin, "print a plugin's own data, as JSON")
    one.option("plugin=PLUGIN")
    return parser.run(argv)
