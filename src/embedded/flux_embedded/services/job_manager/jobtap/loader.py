"""Finding and reading plugin files.

A plugin is a Python file with a function ``plugin_init(p)``. The examples that come with the instance
are found by name; ``NAME.so`` stands for ``NAME.py``, so that scripts written for compiled plugins of
that name work.
"""

import errno
import importlib.util
import os

from flux_embedded.services.job_manager.jobtap.errors import FAILURES

EXAMPLES = os.path.join(os.path.dirname(__file__), "examples")


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
    raise OSError(errno.ENOENT, f"{name} not found")


def _as_python(path):
    return path[:-3] + ".py" if path.endswith(".so") else path


def load(path):
    """Run a plugin file; returns its ``plugin_init``.

    Raises:
        OSError: EINVAL, it is no plugin or fails; the text says why
    """
    name = os.path.basename(path)
    # A name of its own for each: two plugins may have files of one name.
    module_name = "flux_jobtap_" + "".join(c if c.isalnum() else "_" for c in path)
    spec = importlib.util.spec_from_file_location(module_name, path)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except FAILURES as exc:
        raise OSError(errno.EINVAL, f"{name}: {type(exc).__name__}: {exc}") from exc
    init = getattr(module, "plugin_init", None)
    if not callable(init):
        raise OSError(errno.EINVAL, f"{name}: no function plugin_init(p) in it")
    return init
