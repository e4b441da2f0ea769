# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux modprobe``: modules in the order in which they depend on one another.

What it does is `flux.modprobe` of flux-core's bindings; here are its subcommands, and where this instance's files are.
"""

import json
import os
import sys

from flux_engine import paths
from flux_engine.command.errors import CommandError
from flux_engine.command.options import Parser


def make_modprobe(dry_run=False, verbose=False):
    """The modules that the modprobe files and the instance's configuration describe."""
    from flux.modprobe import Modprobe

    os.environ.setdefault("FLUX_MODPROBE_PATH", ":".join(paths.MODPROBE))
    return Modprobe(dry_run=dry_run, verbose=verbose).configure_modules()


def show(args):
    print(json.dumps(make_modprobe().resolve_service(args.module).to_dict(), default=str))


def list_dependencies(args):
    from flux.util import Tree

    modprobe = make_modprobe()
    seen = set()
    root = Tree(args.module)
    waiting = [root]
    while waiting:
        tree = waiting.pop(0)
        task = modprobe.get_task(tree.label)
        seen.add(task.name)
        for name in task.requires:
            if name not in seen:
                seen.add(name)
                child = Tree(name)
                tree.append_tree(child)
                waiting.append(child)
        if task.name != tree.label:
            tree.label += f" ({task.name})"
    root.render()


def load(args):
    modprobe = make_modprobe(args.dry_run)
    try:
        modprobe.load(args.modules)
    except FileExistsError:
        print("flux-modprobe: All modules and dependencies are already loaded", file=sys.stderr)
    return modprobe.exitcode


def remove(args):
    modprobe = make_modprobe(args.dry_run)
    modprobe.remove(args.modules)
    return modprobe.exitcode


def _run_file(args, file):
    modprobe = make_modprobe(args.dry_run, args.verbose)
    modprobe.read_rcfile(file)
    modprobe.run(modprobe.get_deps(modprobe.solve(modprobe.active_tasks)))
    return modprobe.exitcode


def run(args):
    return _run_file(args, args.file)


def rc1(args):
    return _run_file(args, "rc1")


def rc3(args):
    modprobe = make_modprobe(args.dry_run, args.verbose)
    modprobe.set_remove()
    modprobe.read_rcfile("rc3")
    modprobe.run(modprobe.get_deps(modprobe.active_tasks))
    return modprobe.exitcode


def make_parser():
    parser = Parser("flux-modprobe")

    def command(name, function, text, *arguments):
        one = parser.command(name, function, text)
        for argument in arguments:
            one.add_argument(argument)
        return one

    command("show", show, "print a module's entry", "module")
    text = "print what a module requires, as a tree"
    command("list-dependencies", list_dependencies, text, "module")
    changing = [
        command("load", load, "load modules and what they require"),
        command("remove", remove, "remove modules"),
    ]
    for one in changing:
        one.add_argument("modules", nargs="+", metavar="MODULE")
    running = [
        command("run", run, "run an rc file", "file"),
        command("rc1", rc1, "what an instance does at its start"),
        command("rc3", rc3, "what an instance does at its end"),
    ]
    for one in running:
        one.add_argument("-v", "--verbose", action="store_true", help="print what is done")
    for one in changing + running:
        one.add_argument("--dry-run", action="store_true", help="print what would be done")
    return parser


def main(argv):
    """Run ``flux modprobe``; return the exit code."""
    try:
        return make_parser().run(argv) or 0
    except (ValueError, OSError) as exc:
        raise CommandError(str(exc)) from exc
