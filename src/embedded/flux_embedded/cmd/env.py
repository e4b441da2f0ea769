# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux python``: Python with the instance's modules."""

import os
import sys

from flux_engine import paths


def environment():
    """This environment with the Flux modules first on Python's path."""
    environ = dict(os.environ)
    parts = environ.get("FLUX_PYTHONPATH_PREPEND", "").split(":")
    parts += [paths.BINDINGS, paths.EMBEDDED]
    parts += environ.get("PYTHONPATH", "").split(":")
    environ["PYTHONPATH"] = ":".join(dict.fromkeys(part for part in parts if part))
    environ.setdefault("FLUX_EXEC_PATH", paths.COMMANDS)
    return environ


def python(argv):
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *argv], environment())
