# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux config``: the instance's configuration."""

import json
import sys

import flux
from flux_engine.command.errors import CommandError
from flux_engine.command.options import Parser
from flux_engine.formats import config
from flux_engine.formats.dotted import lookup_path
from flux_engine.formats.jsontext import encoder


def get(args):
    value = flux.Flux().rpc("config.get").get()
    if args.name:
        value = lookup_path(value, args.name)
    if value is None:
        raise CommandError(f"{args.name} is not set")
    print(value if isinstance(value, str) else encoder(ensure_ascii=False)(value))


def load(args):
    try:
        if args.path:
            table = config.load_path(args.path)
        else:
            text = sys.stdin.read()
            is_json = text.lstrip().startswith("{")  # as `flux config get` prints it
            table = (config.parse_json if is_json else config.parse_toml)(text, "stdin")
    except config.ConfigError as exc:
        raise CommandError(str(exc)) from None
    flux.Flux().rpc("config.load", json.dumps(table)).get()


def reload(args):
    flux.Flux().rpc("config.reload").get()


def main(argv):
    parser = Parser("flux-config", status=1)
    one = parser.command("get", get, "print a value of the configuration, or all of it")
    one.option("name=NAME", nargs="?")
    one = parser.command("load", load, "load a configuration from TOML files, or standard input")
    one.option("path=PATH", nargs="?")
    parser.command("reload", reload, "load the configuration from its files again")
    return parser.run(argv)
