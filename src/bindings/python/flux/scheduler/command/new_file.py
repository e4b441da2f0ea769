# SPDX-License-Identifier: LGPL-3.0-or-later
"""Files written by a command, replaced atomically."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import TextIO


@contextlib.contextmanager
def new_file(path: str | os.PathLike[str], newline: str | None = None) -> Iterator[TextIO]:
    """Open a text file to write; it replaces `path` at the end of the ``with`` block, unless that
    raises.

    A reader sees either the old file or the new one. The temporary name is unpredictable, and no
    link at it or at `path` is followed: other users may have write access to the directory. Paths
    in ``/dev``, such as ``/dev/stdout``, are written directly. Raises OSError if the file cannot be
    written; ``filename`` is `path`.
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
    """Write a file with `new_file`. Raises OSError; ``filename`` is `path`."""
    with new_file(path) as stream:
        stream.write(text)
