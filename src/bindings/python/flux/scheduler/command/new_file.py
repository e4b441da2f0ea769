# SPDX-License-Identifier: LGPL-3.0-or-later
"""Files that a command writes: each is put in place of what was there, whole."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import TextIO


@contextlib.contextmanager
def new_file(path: str | os.PathLike[str], newline: str | None = None) -> Iterator[TextIO]:
    """A text file to write; it is put in place when the ``with`` ends, unless that raises.

    A reader finds either the old file or the new one, never a part. The name of the file that is
    written first cannot be guessed, and no link in its place or at `path` is followed: the directory
    may be one in which others can write. What is named in ``/dev``, such as ``/dev/stdout``, is
    written as it is.

    Args:
        path (str or os.PathLike): the file
        newline (str): as ``open`` takes it

    Raises:
        OSError: it cannot be written; its ``filename`` is `path`
    """
    path = os.fspath(path)
    try:
        if path.startswith("/dev/"):
            with open(path, "w", encoding="utf-8", newline=newline) as stream:
                yield stream
            return
        fd, name = tempfile.mkstemp(prefix=".flux-", dir=os.path.dirname(os.path.abspath(path)))
        try:
            with os.fdopen(fd, "w", encoding="utf-8", newline=newline) as stream:
                yield stream
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(name, 0o666 & ~mask)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as exc:
        raise OSError(exc.errno, exc.strerror, path) from None


def replace_file(path: str, text: str) -> None:
    """Write a file as `new_file` does.

    Args:
        path (str): the file
        text (str): what it is to hold

    Raises:
        OSError: it cannot be written; its ``filename`` is `path`
    """
    with new_file(path) as stream:
        stream.write(text)
