# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux module``: load, unload and list broker modules."""

import argparse
import json
import os

from flux_embedded.cmd.lib import ask
from flux_engine.command.errors import CommandError
from flux_engine.command.options import Parser

#: letters of the states of a module
STATES = "IRFE"


def _path_of(word):
    """Return the broker's argument for a module: a name unchanged, a path made absolute."""
    if "/" not in word:
        return word
    if not os.path.exists(word):
        text = f"could not canonicalize module path '{word}': No such file or directory"
        raise CommandError(text)
    return os.path.realpath(word)


def _loaded_name(word):
    """Return the name of a loaded module, given by name or path."""
    if "/" not in word:
        return word
    path, name = os.path.realpath(word), os.path.basename(word).split(".", 1)[0]
    loaded = [mod["name"] for mod in ask("module.list")["mods"] if mod["path"] == path]
    return loaded[0] if loaded and name not in loaded else name


def _load(args, path):
    payload = {"path": path, "args": args.args}
    if args.name:
        payload["name"] = args.name
    ask("module.load", payload, f"load {args.module}")


def _remove(name, force):
    try:
        ask("module.remove", {"name": name}, f"remove {name}")
    except CommandError as exc:
        if not (force and isinstance(exc.__context__, FileNotFoundError)):
            raise


def load(args):
    _load(args, _path_of(args.module))


def remove(args):
    _remove(_loaded_name(args.module), args.force)


def reload(args):
    path = _path_of(args.module)
    _remove(args.name or _loaded_name(args.module), args.force)
    _load(args, path)


def list_modules(args):
    head = f"{'Module':<24} {'Idle':>5}  S {'Sendq':>5} {'Recvq':>5} "
    print(head + (f"{'Service':<8} Path" if args.long else "Service"))
    for mod in ask("module.list")["mods"]:
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
    print(json.dumps(ask(f"{args.name}.stats-get"), indent=1, ensure_ascii=False))


def debug(args):
    op, flags = "setbit", args.setbit
    if args.clearbit is not None:
        op, flags = "clrbit", args.clearbit
    answer = ask(f"{args.name}.debug", {"op": op, "flags": flags}, plain=True)
    print(f"{answer['flags']:#x}")


def _number(text):
    return int(text, 0)


def main(argv):
    parser = Parser("flux-module", status=1)
    one = parser.command("list", list_modules, "list loaded modules")
    one.option("-l --long", "also print the path of each")
    for name, function in (("load", load), ("reload", reload)):
        one = parser.command(name, function, f"{name} a module")
        one.option("-n --name=NAME", "under this name")
        if name == "reload":
            one.option("-f --force", "load the module even if it is not loaded yet")
        one.option("module=MODULE")
        one.option("args=ARG", nargs=argparse.REMAINDER)
    for name in ("remove", "unload"):
        one = parser.command(name, remove, "remove a module")
        one.option("-f --force", "ignore a module that is not loaded")
        one.option("module=MODULE")
    one = parser.command("stats", stats, "print the statistics of a module")
    one.option("name=NAME")
    one = parser.command("debug", debug, "print or change the debug word of a module")
    one.option("-s --setbit=MASK", "set these bits", type=_number, default=0)
    one.option("-c --clearbit=MASK", "clear these bits", type=_number)
    one.option("name=NAME")
    return parser.run(argv)
