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


def parse(argv):
    parser = Parser(prog="flux-modprobe")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in (
        ("show", "print a module's entry"),
        ("list-dependencies", "print what a module requires, as a tree"),
    ):
        sub = commands.add_parser(name, help=text)
        sub.add_argument("module")
    for name, text in (
        ("load", "load modules and what they require"),
        ("remove", "remove modules"),
    ):
        sub = commands.add_parser(name, help=text)
        sub.add_argument("--dry-run", action="store_true", help="print what would be done")
        if name == "remove":
            sub.add_argument("--all", action="store_true", help="all that modprobe files describe")
        sub.add_argument("modules", nargs="*", metavar="MODULE")
    sub = commands.add_parser("run", help="run an rc file")
    sub.add_argument("file")
    for name in ("rc1", "rc3"):
        commands.add_parser(
            name, help="what an instance does at its " + ("start" if name == "rc1" else "end")
        )
    return parser.parse_args(argv)


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


def main(argv):
    """Run ``flux modprobe``; return the exit code."""
    from flux.modprobe import ModprobeError

    options = parse(argv)
    try:
        return run(options)
    except ModprobeError as exc:
        raise CommandError(str(exc)) from exc


def run(options):
    from flux.modprobe import Catalog, Context, run_file

    # The first two read files only; inside an instance its configuration has a say.  rc files get this handle.
    offline = options.command in ("show", "list-dependencies")
    import flux

    handle = flux.Flux() if not offline or "FLUX_URI" in os.environ else None
    catalog = Catalog(config=handle.conf_get("modules", {}) if handle is not None else {})
    if options.command == "show":
        print(json.dumps(catalog.resolve(options.module)))
        return 0
    if options.command == "list-dependencies":
        for line in show_tree(catalog, options.module):
            print(line)
        return 0
    context = Context(handle, catalog)
    if options.command == "run":
        run_file(context, options.file)
    elif options.command == "load":
        loaded = context.loaded()
        entries = [e for e in catalog.closure(options.modules) if e["name"] not in loaded]
        if options.dry_run:
            sys.stdout.writelines(f"load {e['name']}\n" for e in entries)
        else:
            for entry in entries:
                context.load(entry)
    elif options.command == "remove":
        names = None if options.all else [catalog.resolve(n)["name"] for n in options.modules]
        context.remove_modules(names)
        if options.dry_run:
            sys.stdout.writelines(f"remove {t.name}\n" for t in context.tasks)
        else:
            context.run()
    elif options.command == "rc1":
        context.load_modules(RC1)
        context.run()
    else:
        context.remove_modules()
        context.run()
    return 0
