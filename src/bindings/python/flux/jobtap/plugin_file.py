# SPDX-License-Identifier: LGPL-3.0-or-later
"""Runs a plugin file, after a check that nobody else could have changed it."""

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

    Args:
        path (str): full path

    Raises:
        OSError: ENOENT: there is no such file. EPERM: it may not be run (see `check_owner`).
            EINVAL: it raises an exception, or has no ``plugin_init``. The text gives the reason
    """
    name = os.path.basename(path)
    # The name depends on the whole path, since two plugins may have files of the same name.
    module = types.ModuleType("flux_jobtap_" + hashlib.sha1(path.encode()).hexdigest()[:12])
    module.__file__ = path
    # dataclasses and others look a class's module up here. A file that is run again replaces its
    # former module.
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
        exec(compile(_read(path), path, "exec"), module.__dict__)  # noqa: S102  that is what it is for
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
    """The file may not be run, because somebody else could have written it."""


def _read(path: str) -> bytes:
    # The check and the reading use one open file, so that the path cannot be made to name another
    # file in between.
    with open(path, "rb") as file:
        check_owner(os.fstat(file.fileno()), os.geteuid())
        return file.read()


def check_owner(status: os.stat_result, user: int) -> None:
    """Check that a file belongs to the user or to root, and that nobody else can write it.

    Args:
        status (os.stat_result): of the file
        user (int): user id of the instance owner

    Raises:
        PermissionRefused: the text says what is wrong
    """
    if status.st_uid not in (0, user):
        raise PermissionRefused(
            f"it belongs to user {status.st_uid}; a plugin must belong to the instance owner ({user}) or root"
        )
    if status.st_mode & stat.S_IWOTH:
        raise PermissionRefused("others can write it: chmod o-w")
    if status.st_uid != user and status.st_mode & stat.S_IWGRP:
        raise PermissionRefused(
            "its group can write it, and it is not the instance owner's: chmod g-w"
        )
