# SPDX-License-Identifier: LGPL-3.0-or-later
"""Run a plugin file, if no other user can have changed it."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
import types
from collections.abc import Callable
from typing import Any, cast

from flux.jobtap.errors import FAILURES, describe
from flux.jobtap.owned_file import PermissionRefused, read_owned


def run_plugin_file(path: str) -> Callable[[Any], Any]:
    """Run a plugin file and return its function ``plugin_init``.

    Raises:
        OSError: ENOENT: the file does not exist. EPERM: it may not be run (see `owned_file`).
            EINVAL: it raises an exception, or has no ``plugin_init``. The text has the reason
    """
    name = os.path.basename(path)
    # The name depends on the whole path: plugins may share a file name.
    module = types.ModuleType("flux_jobtap_" + hashlib.sha1(path.encode()).hexdigest()[:12])
    module.__file__ = path
    # dataclasses and others look up a class's module here. Running a file again replaces its
    # module.
    former = sys.modules.get(module.__name__)
    sys.modules[module.__name__] = module
    try:
        return _run(name, path, module)
    except BaseException:
        if former is None:
            del sys.modules[module.__name__]
        else:
            sys.modules[module.__name__] = former
        raise


def _run(name: str, path: str, module: types.ModuleType) -> Callable[[Any], Any]:
    try:
        exec(compile(read_owned(path), path, "exec"), module.__dict__)  # noqa: S102  its purpose
    except OSError as exc:
        if exc.filename != path:
            raise OSError(errno.EINVAL, f"{name}: {describe(exc, path)}") from exc
        raise OSError(exc.errno, f"{path}: {exc.strerror}") from exc
    except PermissionRefused as exc:
        raise OSError(errno.EPERM, f"{path}: {exc}") from None
    except FAILURES as exc:
        raise OSError(errno.EINVAL, f"{name}: {describe(exc, path)}") from exc
    init = getattr(module, "plugin_init", None)
    if not callable(init):
        raise OSError(errno.EINVAL, f"{name}: no function plugin_init(p) in it")
    return cast("Callable[[Any], Any]", init)
