"""``flux modprobe``: modules in the order they depend on one another."""

import json
import os
import sys

from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.cmd.lib.pyargs import Parser

# What rc1 loads; sched stands for whichever scheduler the configuration or the priorities choose.
RC1 = [
    "content",
    "content-sqlite",
    "heartbeat",
    "kvs",
    "kvs-watch",
    "resource",
    "job-manager",
    "job-info",
    "job-list",
    "job-ingest",
    "job-exec",
    "cron",
    "sched",
]


def show_tree(catalog, name, label=None, indent="", seen=None):
    """Yield the lines of the dependency tree; a module that was shown already is not shown again."""
    seen = set() if seen is None else seen
    entry = catalog.resolve(name)
    if not indent:
        yield entry["name"]
    seen.add(entry["name"])
    children = []
    for required in entry["requires"]:
        child = catalog.resolve(required)
        if child["name"] not in seen:
            seen.add(child["name"])
            children.append((required, child))
    for i, (required, child) in enumerate(children):
        last = i == len(children) - 1
        text = required if required == child["name"] else f"{required} ({child['name']})"
        yield indent + ("└── " if last else "├── ") + text
        yield from show_tree(
            catalog, child["name"], indent=indent + ("    " if last else "│   "), seen=seen
        )


def _context(offline=False):
    """The modules of the files and of the instance's configuration, with the handle that rc files get.

    offline: do without an instance if there is none.
    """
    import flux
    from flux.modprobe import Catalog, Context

    handle = flux.Flux() if not offline or "FLUX_URI" in os.environ else None
    config = handle.conf_get("modules", {}) if handle is not None else {}
    return Context(handle, Catalog(config=config))


def show(args):
    print(json.dumps(_context(True).catalog.resolve(args.module)))


def list_dependencies(args):
    for line in show_tree(_context(True).catalog, args.module):
        print(line)


def load(args):
    context = _context()
    loaded = context.loaded()
    for entry in context.catalog.closure(args.modules):
        if entry["name"] in loaded:
            continue
        if args.dry_run:
            print(f"load {entry['name']}")
        else:
            context.load(entry)


def remove(args):
    context = _context()
    resolve = context.catalog.resolve
    context.remove_modules(None if args.all else [resolve(name)["name"] for name in args.modules])
    if args.dry_run:
        sys.stdout.writelines(f"remove {task.name}\n" for task in context.tasks)
    else:
        context.run()


def run(args):
    from flux.modprobe import run_file

    run_file(_context(), args.file)


def rc1(args):
    context = _context()
    context.load_modules(RC1)
    context.run()


def rc3(args):
    context = _context()
    context.remove_modules()
    context.run()


def make_parser():
    parser = Parser(prog="flux-modprobe")

    def command(name, function, text, *arguments):
        one = parser.command(name, function, metavar="COMMAND", help=text)
        for argument in arguments:
            one.add_argument(argument)
        return one

    command("show", show, "print a module's entry", "module")
    text = "print what a module requires, as a tree"
    command("list-dependencies", list_dependencies, text, "module")
    loading = command("load", load, "load modules and what they require")
    removing = command("remove", remove, "remove modules")
    removing.add_argument("--all", action="store_true", help="all that modprobe files describe")
    for one in (loading, removing):
        one.add_argument("--dry-run", action="store_true", help="print what would be done")
        one.add_argument("modules", nargs="*", metavar="MODULE")
    command("run", run, "run an rc file", "file")
    command("rc1", rc1, "what an instance does at its start")
    command("rc3", rc3, "what an instance does at its end")
    return parser


def main(argv):
    """Run ``flux modprobe``; return the exit code."""
    from flux.modprobe import ModprobeError

    try:
        return make_parser().run(argv)
    except ModprobeError as exc:
        raise CommandError(str(exc)) from exc
