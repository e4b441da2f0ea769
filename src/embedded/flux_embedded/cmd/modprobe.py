# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux modprobe``: modules in the order in which they depend on one another.

It uses `flux.modprobe` of flux-core's bindings; here are its subcommands, and the paths of this instance's files.
"""

import json
import os

from flux_engine import paths
from flux_engine.command.options import Parser


def make_modprobe(verbose=False):
    """The modules that the modprobe files and the instance's configuration describe."""
    from flux.modprobe import Modprobe

    os.environ.setdefault("FLUX_MODPROBE_PATH", ":".join(paths.MODPROBE))
    return Modprobe(verbose=verbose).configure_modules()


def show(args):
    print(json.dumps(make_modprobe().resolve_service(args.module).to_dict(), default=str))


def run(args):
    modprobe = make_modprobe(args.verbose)
    modprobe.read_rcfile(args.file)
    modprobe.run(modprobe.get_deps(modprobe.solve(modprobe.active_tasks)))
    return modprobe.exitcode


def main(argv):
    parser = Parser("flux-modprobe")
    parser.command("show", show, "print a module's entry").add_argument("module")
    one = parser.command("run", run, "run an rc file")
    one.flag("-v", "--verbose", text="print what is done")
    one.add_argument("file")
    return parser.run(argv) or 0
