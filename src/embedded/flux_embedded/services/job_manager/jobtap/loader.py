# SPDX-License-Identifier: LGPL-3.0-or-later
"""Finding plugin files.

A plugin is a Python file. The examples that come with the instance
are found by name; ``NAME.so`` stands for ``NAME.py``, so that scripts written for compiled plugins of
that name work.
"""

import errno
import os

from flux_embedded import paths

EXAMPLES = os.path.join(paths.BASE, "jobtap", "examples")


def find(path, search_path=()):
    """Locate a plugin.

    Args:
        path (str): a path, or a name to be looked for
        search_path (list of str): directories to look in before the examples

    Returns:
        (name as it is listed, full path)

    Raises:
        OSError: ENOENT
    """
    name = os.path.basename(path)
    if os.sep in path:
        candidates = [path]
    else:
        candidates = [
            os.path.join(directory, path) for directory in [*search_path, os.getcwd(), EXAMPLES]
        ]
    for candidate in candidates:
        for full in (candidate, _as_python(candidate)):
            if full.endswith(".py") and os.path.isfile(full):
                return name, os.path.abspath(full)
    raise OSError(errno.ENOENT, f"{name}: No such plugin found")


def _as_python(path):
    return path[:-3] + ".py" if path.endswith(".so") else path
