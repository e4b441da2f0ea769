# SPDX-License-Identifier: LGPL-3.0-or-later
"""Files that a command writes: each is put in place of what was there, whole."""

from __future__ import annotations

import os
import tempfile


def replace_file(path: str, text: str) -> None:
    """Write a file atomically: a reader finds either the old text or the new one, never a part.

    The name of the file that is written first cannot be guessed, and no link in its place is
    followed: the directory may be one in which others can write.

    Args:
        path (str): the file
        text (str): what it is to hold

    Raises:
        OSError: it cannot be written; its ``filename`` is `path`
    """
    directory = os.path.dirname(os.path.abspath(path))
    try:
        fd, name = tempfile.mkstemp(prefix=".flux-", dir=directory)
        try:
            with os.fdopen(fd, "w", encoding="utf-8") as stream:
                stream.write(text)
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(name, 0o666 & ~mask)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as exc:
        raise OSError(exc.errno, exc.strerror, path) from None
