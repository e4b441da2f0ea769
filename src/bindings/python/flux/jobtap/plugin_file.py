# SPDX-License-Identifier: LGPL-3.0-or-later
"""Files of Python code run by the instance owner: plugins, and a site's functions for a scheduler.

Write access to such a file grants all rights of the instance owner. So it is run only if it belongs
to the owner or root, and no other user can write it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
import types
from collections.abc import Callable
from typing import Any, cast

from flux.jobtap.errors import FAILURES, describe


def run_plugin_file(path: str) -> Callable[[Any], Any]:
    """Run a plugin file and return its function ``plugin_init``.

    Raises:
        OSError: ENOENT: the file does not exist. EPERM: it may not be run (see `check_owner`).
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


class PermissionRefused(Exception):
    """The file may not be run: another user could have written it."""


def read_owned(path: str) -> bytes:
    """Return the content of a file to be run by the instance owner. Raises OSError if it cannot be
    read, PermissionRefused as `check_owner`."""
    # Both the check and the read use one open file, so the path cannot be redirected in between.
    with open(path, "rb") as file:
        check_owner(os.fstat(file.fileno()), os.geteuid())
        return file.read()


def check_owner(status: os.stat_result, user: int) -> None:
    """Check that a file belongs to `user`, the instance owner, or root, and that no other user can
    write it. Raises PermissionRefused, with the reason, if it fails the check."""
    if status.st_uid not in (0, user):
        raise PermissionRefused(
            f"it belongs to user {status.st_uid}; it must belong to the instance owner ({user}) or root"
        )
    if status.st_mode & stat.S_IWOTH:
        raise PermissionRefused("others can write it: chmod o-w")
    if status.st_uid != user and status.st_mode & stat.S_IWGRP:
        raise PermissionRefused(
            "its group can write it, and it is not the instance owner's: chmod g-w"
        )
