# SPDX-License-Identifier: LGPL-3.0-or-later
"""The environment of the commands that an instance runs."""

import os

from flux_engine import paths

#: Variables of the job in which an instance runs, not for commands in the instance.
_OF_THE_JOB = (
    "FLUX_JOB_ID", "FLUX_JOB_ID_PATH", "FLUX_JOB_SIZE", "FLUX_JOB_NNODES", "FLUX_JOB_TMPDIR", "FLUX_JOB_CC", "FLUX_TASK_RANK",
    "FLUX_TASK_LOCAL_ID", "FLUX_KVS_NAMESPACE", "FLUX_HANDLE_USERID", "FLUX_HANDLE_ROLEMASK", "FLUX_EMBEDDED_RANK",
)  # fmt: skip


def command_environment(ctx):
    """Return the environment of the start scripts and of the user's command, a new dict."""
    environ = {name: value for name, value in ctx.environ.items() if name not in _OF_THE_JOB}
    environ["FLUX_URI"] = ctx.attrs.get("local-uri")
    own = ":".join(paths.module_dirs())
    extra = environ.get("FLUX_MODULE_PATH")
    if not extra or extra == own:
        environ["FLUX_MODULE_PATH"] = own
    elif not extra.startswith(own + ":"):
        environ["FLUX_MODULE_PATH"] = f"{own}:{extra}"
    environ["FLUX_EXEC_PATH"] = paths.COMMANDS
    directory = paths.command_dir()
    search = environ.get("PATH", os.defpath).split(":")
    if directory and search[:1] != [directory]:
        environ["PATH"] = ":".join([directory, *search])
    return environ
