# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux config``: the instance's configuration."""

import json
import sys

import flux
from flux_engine import paths
from flux_engine.command.errors import CommandError
from flux_engine.command.options import Parser
from flux_engine.formats import config, fsd
from flux_engine.formats.jsontext import encoder

_compact = encoder(ensure_ascii=False)

#: --type: what a value must be, and how it is printed
TYPES = {
    "string": (str, str),
    "integer": (int, str),
    "real": (float, lambda v: f"{v:f}"),
    "boolean": (bool, _compact),
    "object": (dict, _compact),
    "array": (list, _compact),
    "fsd": (str, lambda v: (fsd.parse(v), v)[1]),
    "fsd-integer": (str, lambda v: str(int(fsd.parse(v)))),
    "fsd-real": (str, lambda v: f"{fsd.parse(v):f}"),
    "any": (object, lambda v: v if isinstance(v, str) else _compact(v)),
}


def get(args):
    value = flux.Flux().rpc("config.get").get()
    for key in args.name.split(".") if args.name else ():
        if not isinstance(value, dict) or key not in value:
            if args.default is not None:
                print(args.default)
                return 0
            if args.quiet:
                return 1
            raise CommandError(f"{args.name} is not set")
        value = value[key]
    text = _text(value, args.type, args.name or "config")
    if not args.quiet:
        print(text)
    return 0


def _text(value, kind, name):
    if kind not in TYPES:
        raise CommandError(f"Unknown type: {kind}")
    wanted, show = TYPES[kind]
    if not isinstance(value, wanted) or (kind == "integer" and isinstance(value, bool)):
        raise CommandError(f"{name} does not have the requested type")
    try:
        return show(value)
    except ValueError:
        raise CommandError(f"{name} is not a valid Flux Standard Duration") from None


def load(args):
    try:
        if args.path:
            table = config.load_path(args.path)
        else:
            table = config.parse_toml(sys.stdin.read(), "stdin")
    except config.ConfigError as exc:
        raise CommandError(str(exc)) from None
    flux.Flux().rpc("config.load", json.dumps(table)).get()


def reload(args):
    flux.Flux().rpc("config.reload").get()


def builtin(args):
    if args.name not in paths.BUILTIN:
        raise CommandError(f"{args.name} is invalid")
    print(paths.BUILTIN[args.name])


def main(argv):
    parser = Parser("flux-config", status=1)
    one = parser.command("get", get, "print a value of the configuration, or all of it")
    one.add_argument("-t", "--type", metavar="TYPE", default="any", help=", ".join(TYPES))
    one.add_argument("-d", "--default", metavar="VALUE", help="what to print if it is not set")
    one.flag("-q", "--quiet", text="print nothing")
    one.add_argument("name", metavar="NAME", nargs="?")
    one = parser.command("load", load, "load a configuration from TOML files, or standard input")
    one.add_argument("path", metavar="PATH", nargs="?")
    parser.command("reload", reload, "load the configuration from its files again")
    one = parser.command("builtin", builtin, "print what is built in")
    one.add_argument("name", metavar="NAME")
    return parser.run(argv)
