# SPDX-License-Identifier: LGPL-3.0-or-later
"""Finding the file of a broker module: by name along a search path, or by path."""

import collections
import errno
import os

ModuleFile = collections.namedtuple("ModuleFile", "name path builtin")


def split_path(text):
    """Return the directories of a colon-separated search path, empty entries left out."""
    return [d for d in (text or "").split(":") if d]


def search_path(environ, builtin_dirs):
    """Return the module search path: FLUX_MODULE_PATH_PREPEND, built in, FLUX_MODULE_PATH.

    A caller's own FLUX_MODULE_PATH comes last, so that it adds modules but shadows none.
    A built-in directory that FLUX_MODULE_PATH repeats (a nested instance inherits the composed
    path) is listed once.
    """
    first = split_path(environ.get("FLUX_MODULE_PATH_PREPEND"))
    last = split_path(environ.get("FLUX_MODULE_PATH"))
    return list(dict.fromkeys([*first, *builtin_dirs, *last]))


def module_name(text):
    """Return the module name of a path or name: its last part without suffix."""
    base = os.path.basename(text)
    if base.endswith(".py"):
        return base[:-3]
    stem, dot, _ = base.partition(".so")
    return stem if dot else base


def find(text, dirs, builtins=()):
    """Find the module of a name, or of a path, which contains a slash; returns a ModuleFile. OSError: the load command's text.

    A file on the search path `dirs`, such as a site's own, precedes the builtin module of its name.
    """
    if "/" in text:
        if not os.path.exists(text):
            raise OSError(errno.ENOENT, "No such file or directory")
        if not text.endswith(".py"):
            if ".so" in os.path.basename(text):
                raise OSError(errno.ENOEXEC, f"compiled modules need a real Flux: {text}")
            raise OSError(errno.EINVAL, "could not determine loader from path suffix")
        return ModuleFile(module_name(text), os.path.realpath(text), False)
    for directory in dirs:
        path = os.path.join(directory, text + ".py")
        if os.path.isfile(path):
            return ModuleFile(text, path, False)
    if text in builtins:
        return ModuleFile(text, "builtin", True)
    raise OSError(errno.ENOENT, "module not found in search path")
