# SPDX-License-Identifier: LGPL-3.0-or-later
"""Shared by the benchmarks that load schedulers into a broker of a real Flux."""

import shutil
import subprocess
import sys
from pathlib import Path

#: Where the modules of this tree are, and the environment in which they find their library.
MODULES = Path(__file__).resolve().parents[2] / "src" / "modules"
BINDINGS = {"FLUX_PYTHONPATH_PREPEND": str(MODULES.parent / "bindings" / "python")}


def require_flux():
    """Return the path of flux-core's flux on the PATH; exit if there is none."""
    flux = shutil.which("flux")
    if flux is None or "src/cmd" in str(Path(flux).resolve()):
        sys.exit(f"{sys.argv[0]}: needs a flux of flux-core on the PATH")
    return flux


def module_file(name):
    """Return the file of a scheduler of this tree: of sched-NAME."""
    return MODULES / f"sched-{name}" / f"sched-{name}.py"


def command(*args):
    """Run a flux command in the instance. Return its output."""
    return subprocess.run(("flux", *args), check=True, stdout=subprocess.PIPE, text=True).stdout


def load_resources(nodes, cores):
    """In the instance: unload the scheduler, and load resources that are not there."""

    def ids(count):
        return "0" if count == 1 else f"0-{count - 1}"

    command("module", "remove", "sched-simple")
    command("module", "remove", "resource")
    hosts = "n0" if nodes == 1 else f"n[{ids(nodes)}]"
    R = command("R", "encode", "-r" + ids(nodes), "-c" + ids(cores), "-H" + hosts)
    command("kvs", "put", f"resource.R={R.strip()}")
    command("module", "load", "resource", "noverify", "monitor-force-up")
