# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux submit``, ``run``, ``alloc``, ``batch`` and ``bulksubmit``: they are those of flux-core's bindings, ``flux.cli``."""

import importlib
import logging
import os
import sys
from functools import partial

from flux_engine import paths

#: command -> its class in ``flux.cli``, and its arguments in the usage line
CLASSES = {
    "submit": ("SubmitCmd", "[OPTIONS...] COMMAND [ARGS...]"),
    "run": ("RunCmd", "[OPTIONS...] COMMAND [ARGS...]"),
    "alloc": ("AllocCmd", "[OPTIONS...] [COMMAND] [ARGS...]"),
    "batch": ("BatchCmd", "[OPTIONS...] [SCRIPT] [ARGS...]"),
    "bulksubmit": ("BulkSubmitCmd", "[OPTIONS...] COMMAND [ARGS...]"),
}


def _run(name, argv):
    from flux.util import CLIMain

    # They read sys.argv, and exec flux-job to attach to a job.
    sys.argv = [f"flux-{name}", *argv]
    os.environ.setdefault("FLUX_EXEC_PATH", paths.COMMANDS)
    directory = paths.command_dir()
    if directory and directory not in os.environ.get("PATH", "").split(":"):
        os.environ["PATH"] = f"{directory}:{os.environ.get('PATH', os.defpath)}"
    cls, arguments = CLASSES[name]
    module = importlib.import_module(f"flux.cli.{name}")
    command = getattr(module, cls)(f"flux {name}", usage=f"flux {name} {arguments}")
    CLIMain(logging.getLogger(f"flux-{name}"))(command.run_command)


submit, run, alloc, batch, bulksubmit = (partial(_run, name) for name in CLASSES)
