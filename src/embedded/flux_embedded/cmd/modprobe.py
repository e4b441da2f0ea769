# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux modprobe run``: modules in the order in which they depend on one another.

It uses `flux.modprobe` of flux-core's bindings, with the paths of this instance's files.
"""

import os

from flux_engine import paths
from flux_engine.command.options import Parser


def run(args):
    from flux.modprobe import Modprobe

    os.environ.setdefault("FLUX_MODPROBE_PATH", ":".join(paths.MODPROBE))
    modprobe = Modprobe(verbose=args.verbose).configure_modules()
    modprobe.read_rcfile(args.file)
    modprobe.run(modprobe.get_deps(modprobe.solve(modprobe.active_tasks)))
    return modprobe.exitcode


def main(argv):
    parser = Parser("flux-modprobe")
    one = parser.command("run", run, "run an rc file")
    one.option("-v --verbose", "print each step")
    one.option("file")
    return parser.run(argv) or 0
