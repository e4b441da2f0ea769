# SPDX-License-Identifier: LGPL-3.0-or-later
"""Runs the command of a ``flux`` command line, and reports its failure; ``flux python``."""

import importlib
import os
import sys

from _flux import bindings
from flux_embedded.cmd import commands
from flux_engine import paths
from flux_engine.command.errors import call, prepare_streams, warn

#: Options of ``flux`` itself -> the command in their place.
OPTIONS = {"-h": "help", "--help": "help", "-V": "version", "--version": "version"}


def _run_script(script, argv):
    """Run a Python script in this process: starting another Python would double the time."""
    import runpy
    import site

    os.environ.update(environment())
    site.main()
    sys.path.insert(0, os.path.dirname(script))
    sys.argv = [script, *argv]
    runpy.run_path(script, run_name="__main__")


def _external(name, argv):
    """Run a ``flux-NAME.py`` or ``flux-NAME``, searched in the directories and order of flux-core."""
    path = []
    for value in (
        os.environ.get("FLUX_EXEC_PATH_PREPEND", ""),
        paths.COMMANDS,
        os.environ.get("FLUX_EXEC_PATH", ""),
        os.environ.get("PATH", ""),
    ):
        path += [directory for directory in value.split(":") if directory]
    for directory in path:
        script = f"{directory}/flux-{name}.py"
        if os.path.isfile(script) and os.access(script, os.X_OK):
            _run_script(script, argv)
            sys.exit()
        command = f"{directory}/flux-{name}"
        if os.path.isfile(command) and os.access(command, os.X_OK):
            os.execv(command, [command, *argv])


def _function(name):
    """Return the function of a command, which imports its module when called."""
    module, _, function = commands.COMMANDS[name][0].partition(":")
    return lambda argv: getattr(importlib.import_module(module), function)(argv)


def run(argv=None):
    """Run one command line; returns the exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    prepare_streams()
    try:
        bindings()
    except ImportError as exc:
        warn(f"flux: ERROR: {exc}")
        return 1
    if argv and argv[0].startswith("-"):
        if argv[0] not in OPTIONS:
            warn(f"flux: ERROR: unrecognized option '{argv[0]}'. See 'flux --help'")
            return 1
        argv = [OPTIONS[argv[0]]]
    if not argv:
        sys.stderr.write(commands.usage())
        return 1
    name = argv.pop(0)
    if name == "help":
        if not argv or argv[0] in ("help", "-h", "--help"):
            sys.stdout.write(commands.usage())
            return 0
        name, argv = argv[0], ["--help"]
    if name not in commands.COMMANDS:
        _external(name, argv)
        warn(f"flux: `{name}' is not a flux command.  See 'flux --help'")
        return 1
    try:
        return call(name, _function(name), argv)
    except ModuleNotFoundError as exc:
        if exc.name != "greenlet":
            raise
        # An installation whose Python is gone runs on another.
        warn(
            f"flux: ERROR: {sys.executable}: {exc}: install it, or name another Python in FLUX_SCHEDULER_PYTHON"
        )
        return 1


def environment():
    """Return this process's environment with the Flux modules first on Python's path."""
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
