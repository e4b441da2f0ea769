# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux env`` and ``flux python``: commands with the instance's paths."""

import os
import sys

import flux
from flux_embedded import paths
from flux_embedded.cmd.lib.errors import CommandError


def environment():
    """This environment with the Flux modules first on Python's path."""
    environ = dict(os.environ)
    parts = environ.get("FLUX_PYTHONPATH_PREPEND", "").split(":")
    parts += [paths.BINDINGS, paths.EMBEDDED]
    parts += environ.get("PYTHONPATH", "").split(":")
    environ["PYTHONPATH"] = ":".join(dict.fromkeys(part for part in parts if part))
    environ.setdefault("FLUX_EXEC_PATH", paths.COMMANDS)
    return environ


def enter_parent(root=False):
    """``flux --parent`` and ``--root``: speak to the instance that this one runs in, or to the outermost."""
    while True:
        try:
            os.environ["FLUX_URI"] = flux.Flux().attr_get("parent-uri")
        except OSError:
            return
        if not root:
            return


def execute(argv, environ):
    """Become another program."""
    sys.stdout.flush()
    if not argv[0]:
        raise CommandError(": No such file or directory", code=127)
    try:
        os.execvpe(argv[0], argv, environ)
    except OSError as exc:
        code = 127 if isinstance(exc, FileNotFoundError) else 126
        raise CommandError(f"{argv[0]}: {exc.strerror}", code=code) from None


def python(argv):
    execute([sys.executable, *argv], environment())


def main(argv):
    environ = environment()
    if argv:
        execute(argv, environ)
    for key in sorted(environ):
        print(f"{key}={environ[key]}")
