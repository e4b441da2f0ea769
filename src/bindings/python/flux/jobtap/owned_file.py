# SPDX-License-Identifier: LGPL-3.0-or-later
"""Files of Python code run by the instance owner: plugins, and a site's functions for a scheduler.

Write access to such a file grants all rights of the instance owner. So it is run only if it belongs
to the owner or root, and no other user can write it.
"""

from __future__ import annotations

import os
import stat


class PermissionRefused(Exception):
    """The file may not be run: another user could have written it."""


def read_owned(path: str) -> bytes:
    """Return the content of a file to be run by the instance owner.

    Raises:
        OSError: the file cannot be read
        PermissionRefused: see `check_owner`
    """
    # Both the check and the read use one open file, so the path cannot be redirected in between.
    with open(path, "rb") as file:
        check_owner(os.fstat(file.fileno()), os.geteuid())
        return file.read()


def check_owner(status: os.stat_result, user: int) -> None:
    """Check that a file belongs to `user` or root, and that no other user can write it. Raises
    PermissionRefused if the file fails the check; the text gives the reason.

    Args:
        status (os.stat_result): status of the file
        user (int): user id of the instance owner
    """
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
