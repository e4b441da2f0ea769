# SPDX-License-Identifier: LGPL-3.0-or-later
"""Directories of this installation: source tree and installed tree have the same layout."""

import glob
import os
import sys

#: The directory that holds ``embedded/``, ``modules/`` and ``bindings/``.
BASE = os.path.abspath(__file__)
for _ in ("flux_engine", "python", "bindings", "src"):
    BASE = os.path.dirname(BASE)

#: Commands that are programs of their own, as a real flux has them in FLUX_EXEC_PATH.
COMMANDS = os.path.join(BASE, "cmd")
BINDINGS = os.path.join(BASE, "bindings", "python")
EMBEDDED = os.path.join(BASE, "embedded")

#: Data files of the instance: a directory ``modprobe`` with the descriptions of its modules.
DATA = os.path.join(EMBEDDED, "flux_embedded")

#: Directories with ``modprobe.d/*.toml``.
MODPROBE = (os.path.join(DATA, "modprobe"), os.path.join(BASE, "modules"))

#: Builtin paths, by their names in flux-core.
BUILTIN = {
    "python_path": f"{BINDINGS}:{EMBEDDED}",
    "cli_pluginpath": os.path.join(DATA, "cli", "plugins"),
    "confdir": os.path.join(BASE, "etc"),
    "datadir": DATA,
    "libexecdir": DATA,
}


def module_dirs():
    """Return the directories of the modules that come with the project, one for each module."""
    return sorted(
        {os.path.dirname(path) for path in glob.glob(os.path.join(BASE, "modules", "*", "*.py"))}
    )


def command_dir():
    """Return the directory of the ``flux`` command that is running, or None if something else is."""
    program = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    if os.path.basename(program) == "flux":
        return os.path.dirname(os.path.abspath(program))
    beside = os.path.join(BASE, "cmd")
    return beside if os.path.exists(os.path.join(beside, "flux")) else None
