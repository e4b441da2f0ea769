# SPDX-License-Identifier: LGPL-3.0-or-later
"""Licences used elsewhere, read from a file written by a site's own program.

Each line is ``NAME COUNT``; empty lines, and text after ``#``, are ignored. The file must be
replaced atomically (written under another name, then renamed), and touched even if unchanged: its
modification time is the age of its numbers.

The scheduler reads the file at intervals, and runs no program: waiting for one would block it. An
irregular file, such as a pipe, is closed again at once. But a read from a hanging file system
cannot be aborted, so the file must be on a local one.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

#: Maximum size of a file, in bytes.
MAX_BYTES = 65536
#: Maximum number of digits: users' programs read 64 bits.
MAX_DIGITS = 15


class Reading(NamedTuple):
    """The contents of a file.

    Attributes:
        counts: name of a licence -> number used elsewhere
        changed: the file's modification time, seconds since the epoch
    """

    counts: dict[str, int]
    changed: float


def read_file(path: str) -> Reading:
    """Read a file of numbers.

    Raises:
        OSError: the file is unreadable
        ValueError: it is not a regular file, is too long, or a line is invalid
    """
    # opening a pipe without a writer would block
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is no regular file")
        data = os.read(descriptor, MAX_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(data) > MAX_BYTES:
        raise ValueError(f"it is longer than {MAX_BYTES} bytes")
    return Reading(counts_in(data.decode("utf-8", "replace")), found.st_mtime)


def counts_in(text: str) -> dict[str, int]:
    """Parse the numbers, by name.

    Raises:
        ValueError: a line is invalid; the text has its number
    """
    counts = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or not (words[1].isascii() and words[1].isdigit()):
            raise ValueError(f"line {number}: expected NAME COUNT")
        if len(words[1]) > MAX_DIGITS:
            raise ValueError(f"line {number}: a number of {len(words[1])} digits")
        counts[words[0]] = int(words[1])
    return counts
