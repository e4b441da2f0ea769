# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux module``: load, unload and look at broker modules."""

import argparse
import json
import os

import flux
from flux_engine.command.errors import CommandError, error_text
from flux_engine.command.options import Parser
from flux_engine.formats.jsontext import encoder

#: whose use of resources ``flux module stats --rusage`` shows
WHO = ("self", "children", "thread")
#: letters of the states of a module
STATES = "IRFE"


def _path_of(word):
    """A module as the broker must be given it: a name stays, a path is made whole."""
    if "/" not in word:
        return word
    if not os.path.exists(word):
        text = f"could not canonicalize module path '{word}': No such file or directory"
        raise CommandError(text)
    return os.path.realpath(word)


def _ask(topic, payload=None, what=None):
    """A request whose failure is reported after what was tried."""
    try:
        return flux.Flux().rpc(topic, payload).get()
    except OSError as exc:
        raise CommandError(f"{what or topic}: {error_text(exc)}") from None


def _loaded_name(word):
    """The name under which a module is loaded: one given by path is looked for by its path."""
    if "/" not in word:
        return word
    path, name = os.path.realpath(word), os.path.basename(word).split(".", 1)[0]
    loaded = [mod["name"] for mod in _ask("module.list")["mods"] if mod["path"] == path]
    return loaded[0] if loaded and name not in loaded else name


def _load(args, path):
    payload = {"path": path, "args": args.args}
    if args.name:
        payload["name"] = args.name
    if args.exec:
        payload["exec"] = True
    _ask("module.load", payload, f"load {args.module}")


def _remove(name, force):
    try:
        _ask("module.remove", {"name": name}, f"remove {name}")
    except CommandError as exc:
        if not (force and isinstance(exc.__context__, FileNotFoundError)):
            raise


def _is_elsewhere():
    """Whether this is another rank than 0, as ``flux exec`` plays it.

    A real broker rank has modules of its own; here all ranks share those of rank 0, so that there is nothing to do.
    """
    return os.environ.get("FLUX_EMBEDDED_RANK", "0") != "0"


def load(args):
    if not _is_elsewhere():
        _load(args, _path_of(args.module))


def remove(args):
    if not _is_elsewhere():
        _remove(_loaded_name(args.module), args.force)


def reload(args):
    if not _is_elsewhere():
        path = _path_of(args.module)
        _remove(args.name or _loaded_name(args.module), args.force)
        _load(args, path)


def list_modules(args):
    head = f"{'Module':<24} {'Idle':>5}  S {'Sendq':>5} {'Recvq':>5} "
    print(head + (f"{'Service':<8} Path" if args.long else "Service"))
    for mod in _ask("module.list")["mods"]:
        name = mod["name"] if len(mod["name"]) <= 24 else mod["name"][:23] + "+"
        services = ",".join(sorted(word for word in mod["services"] if word != mod["name"]))
        if args.long:
            services = services if len(services) <= 8 else services[:7] + "+"
            services = f"{services:<8} {mod['path']}"
        state = STATES[mod["status"]] if mod["status"] < len(STATES) else "?"
        idle = mod["idle"] if mod["idle"] < 100000 else "idle"
        queues = f"{mod['sendqueue']:>5} {mod['recvqueue']:>5}"
        print(f"{name:<24} {idle:>5}  {state} {queues} {services}")


def stats(args):
    if args.name is None and args.rusage not in (None, *WHO):
        # A value of -R has to be part of its word, as with getopt; argparse also takes the next one.
        args.rusage, args.name = "self", args.rusage
    if args.name is None:
        raise CommandError("stats: which module?")
    if args.clear or args.clear_all:
        _ask(f"{args.name}.stats-clear")
        return
    if args.rusage:
        who = {"who": args.rusage} if args.rusage != "self" else None
        value = _ask(f"{args.name}.rusage", who)
    else:
        value = _ask(f"{args.name}.stats-get")
    for key in args.parse.split(".") if args.parse else ():
        if not isinstance(value, dict) or key not in value:
            raise CommandError(f"`{args.parse}' not found in response")
        value = value[key]
    print(_stat_text(value, args.type, args.scale))


def _stat_text(value, kind, scale):
    if kind is not None or scale is not None:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise CommandError("stats: value is not a number")
        value = value if scale is None else value * scale
        return f"{value:f}" if kind == "double" else str(int(value) if kind == "int" else value)
    if isinstance(value, dict):
        return json.dumps(value, indent=1, ensure_ascii=False)
    return value if isinstance(value, str) else encoder(ensure_ascii=False)(value)


def debug(args):
    op, flags = "setbit", args.setbit or 0
    if args.clear:
        op, flags = "clr", 0
    elif args.set is not None:
        op, flags = "set", args.set
    elif args.clearbit is not None:
        op, flags = "clrbit", args.clearbit
    topic = f"{args.name}.debug"
    try:
        answer = flux.Flux().rpc(topic, {"op": op, "flags": flags}).get()
    except OSError as exc:
        raise CommandError(f"{topic}: {os.strerror(exc.errno)}") from None
    print(f"{answer['flags']:#x}")


def _number(text):
    return int(text, 0)


def main(argv):
    parser = Parser("flux-module", status=1)
    one = parser.command("list", list_modules, "list loaded modules")
    one.flag("-l", "--long", text="with the path of each")
    for name, function in (("load", load), ("reload", reload)):
        one = parser.command(name, function, f"{name} a module")
        one.add_argument("-n", "--name", metavar="NAME", help="under this name")
        one.flag("--exec", text="in a process of its own")
        if name == "reload":
            one.flag("-f", "--force", text="load it if it was not loaded")
        one.add_argument("module", metavar="MODULE")
        one.add_argument("args", metavar="ARG", nargs=argparse.REMAINDER)
    for name in ("remove", "unload"):
        one = parser.command(name, remove, "remove a module")
        one.flag("-f", "--force", text="say nothing if it is not loaded")
        one.flag("--cancel", text="accepted")
        one.add_argument("module", metavar="MODULE")
    one = parser.command("stats", stats, "print the statistics of a module")
    one.add_argument("-p", "--parse", metavar="KEY.KEY", help="print this value")
    one.add_argument("-s", "--scale", metavar="N", type=float, help="multiply it")
    one.add_argument("-t", "--type", choices=("int", "double"), help="print it as")
    one.add_argument("-R", "--rusage", nargs="?", const="self", help="what it has used instead")
    one.flag("-c", "--clear", text="clear them")
    one.flag("-C", "--clear-all", text="clear them on all ranks")
    one.add_argument("name", metavar="NAME", nargs="?")
    one = parser.command("debug", debug, "print or change the debug word of a module")
    one.add_argument("-s", "--setbit", metavar="MASK", type=_number, help="set these bits")
    one.add_argument("-c", "--clearbit", metavar="MASK", type=_number, help="clear these bits")
    one.add_argument("-S", "--set", metavar="MASK", type=_number, help="set the word")
    one.flag("-C", "--clear", text="set the word to 0")
    one.add_argument("name", metavar="NAME")
    return parser.run(argv)
