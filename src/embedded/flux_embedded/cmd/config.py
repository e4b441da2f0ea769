"""``flux config``: the instance's configuration."""

import sys

from flux_embedded.broker import paths
from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.cmd.lib.eventlog import compact
from flux_embedded.cmd.lib.optparse import Group, Opt, command
from flux_embedded.formats import fsd

#: --type: what a value must be, and how it is printed
TYPES = {
    "string": (str, str),
    "integer": (int, str),
    "real": (float, lambda v: f"{v:f}"),
    "boolean": (bool, compact),
    "object": (dict, compact),
    "array": (list, compact),
    "fsd": (str, str),
    "fsd-integer": (str, lambda v: str(int(fsd.parse(v)))),
    "fsd-real": (str, lambda v: f"{fsd.parse(v):f}"),
    "any": (object, None),
}


@command(
    "flux-config get",
    "[--default=VAL] [--type=TYPE] [NAME]",
    "Query broker configuration values",
    [
        Opt(
            "type",
            "t",
            "TYPE",
            "Set expected type (any, string, integer, real, boolean, object, array, fsd, fsd-integer, fsd-real)",
        ),
        Opt("default", "d", "VAL", "Set default value to use if config value is not set"),
        Opt("quiet", "q", usage="Suppress printing of errors and values"),
    ],
    args=(0, 1),
)
def get(opts):
    value = connect().rpc("config.get")
    name = opts.args[0] if opts.args else None
    for key in name.split(".") if name else ():
        if not isinstance(value, dict) or key not in value:
            if "default" in opts:
                print(opts.get("default"))
                return 0
            if opts.get("quiet"):
                return 1
            raise CommandError(f"{name} is not set")
        value = value[key]
    text = _text(value, opts.get("type", "any"), name or "config")
    if not opts.get("quiet"):
        print(text)
    return 0


def _text(value, kind, name):
    if kind not in TYPES:
        raise CommandError(f"Unknown type: {kind}")
    wanted, show = TYPES[kind]
    if not isinstance(value, wanted) or (kind == "integer" and isinstance(value, bool)):
        raise CommandError(f"{name} does not have the requested type")
    if show is None:
        return value if isinstance(value, str) else compact(value)
    try:
        if kind == "fsd":
            fsd.parse(value)
        return show(value)
    except ValueError:
        raise CommandError(f"{name} is not a valid Flux Standard Duration") from None


@command(
    "flux-config load", "[PATH]", "Load broker configuration from TOML files or stdin", args=(0, 1)
)
def load(opts):
    from flux_embedded.broker import config

    if opts.args:
        try:
            table = config.load_path(opts.args[0])
        except config.ConfigError as exc:
            raise CommandError(str(exc)) from None
    else:
        try:
            table = config.parse_toml(sys.stdin.read(), "stdin")
        except config.ConfigError:
            # the host's parser gives no more than this of what comes in on stdin
            raise CommandError("TOML parse error: syntax error") from None
    connect().rpc("config.load", table)
    return 0


@command("flux-config reload", "", "Reload broker configuration from files", args=0)
def reload(opts):
    connect().rpc("config.reload")
    return 0


@command("flux-config builtin", "NAME", "Print compiled-in Flux configuration values", args=1)
def builtin(opts):
    if opts.args[0] not in paths.BUILTIN:
        raise CommandError(f"{opts.args[0]} is invalid")
    print(paths.BUILTIN[opts.args[0]])


main = Group("flux-config", "Manage/query Flux configuration", [builtin, get, load, reload])
