# SPDX-License-Identifier: LGPL-3.0-or-later
"""Plugin files: whether they may be run, and running them."""

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
    """Run a plugin file; returns its ``plugin_init``.

    Args:
        path (str): full path

    Raises:
        OSError: it is not there (ENOENT), may not be run (EPERM, see `check_owner`), is no plugin or fails
            (EINVAL); the text says why
    """
    name = os.path.basename(path)
    # A name of its own for each: two plugins may have files of one name.
    module = types.ModuleType("flux_jobtap_" + hashlib.sha1(path.encode()).hexdigest()[:12])
    module.__file__ = path
    # Where dataclasses and others look for it; a file that is run again takes the place of its former self.
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
    """A file that somebody else could have written."""


def _read(path: str) -> bytes:
    # What is checked is what is run, even if the path names another file by then.
    with open(path, "rb") as file:
        check_owner(os.fstat(file.fileno()), os.geteuid())
        return file.read()


def check_owner(status: os.stat_result, user: int) -> None:
    """Whether `user` may run the file of this os.stat_result: its own or root's, and nobody else can write it.

    Raises:
        PermissionRefused: what is wrong
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
