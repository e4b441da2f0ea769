# SPDX-License-Identifier: LGPL-3.0-or-later
"""flux-scheduler as a Python package: the simulator, for those who compare policies and have no Flux.

    import flux_scheduler                    # first: it puts the package `flux` on the path
    from flux.simulate import Trace, simulate

The command ``flux-simulate`` is `main`. Below this package lie the directories of the source tree, as an installation with
``make install`` has them. The package ``flux`` consists of two parts: this project's, and that of the distribution
flux-python, which a dependency has installed. Were ours installed into site-packages itself, the two would overwrite each
other, so ours comes before it on the path.
"""

import os
import sys
from importlib import metadata

HERE = os.path.dirname(os.path.abspath(__file__))
PATHS = [os.path.join(HERE, "bindings", "python"), os.path.join(HERE, "embedded")]


def _find_bindings():
    """Say in FLUX_SCHEDULER_BINDINGS where flux-python is, unless the user has."""
    if "FLUX_SCHEDULER_BINDINGS" in os.environ:
        return
    try:
        where = str(metadata.distribution("flux-python").locate_file(""))
    except metadata.PackageNotFoundError:
        raise ImportError(
            "the distribution flux-python is missing, which flux-scheduler depends on. If it has no wheel for this Python:"
            " run scripts/flux-python DIRECTORY of the source tree, and name that in FLUX_SCHEDULER_BINDINGS"
        ) from None
    os.environ["FLUX_SCHEDULER_BINDINGS"] = where


if "flux" in sys.modules and not hasattr(sys.modules["flux"], "Flux"):
    raise ImportError("import flux_scheduler before flux")
_find_bindings()
sys.path[:0] = [path for path in PATHS if path not in sys.path]

import flux_scheduler_version  # noqa: E402  (the path comes first)

__version__ = flux_scheduler_version.VERSION


def main():
    """The command ``flux-simulate``; returns the exit status."""
    from flux.simulate.main import run

    return run(sys.argv[1:])
