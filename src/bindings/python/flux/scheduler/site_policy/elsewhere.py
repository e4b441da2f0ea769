# SPDX-License-Identifier: LGPL-3.0-or-later
"""Licences used elsewhere, read from a file that a site's own program writes.

Each line is ``NAME COUNT``; empty lines, and text after a ``#``, are ignored. The file must be
replaced atomically (written under another name, then renamed), and touched even if nothing has
changed: its modification time gives the age of its numbers.

The scheduler reads the file itself, at intervals, and runs no program: waiting for one would block
it. A file that is not regular, such as a pipe, is closed again at once. But a read from a file
system that hangs cannot be aborted, so the file belongs on a local one.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

#: Maximum size of a file, in bytes.
MAX_BYTES = 65536
#: Maximum number of digits: users see the numbers, and their programs read 64 bits.
MAX_DIGITS = 15


class Reading(NamedTuple):
    """The contents of a file.

    Attributes:
        counts: by the name of a licence, the number used elsewhere
        changed: the file's modification time, seconds since the epoch
    """

    counts: dict[str, int]
    changed: float


def read_file(path: str) -> Reading:
    """Read a file of numbers.

    Raises:
        OSError: it cannot be read
        ValueError: it is not a regular file, it is too long, or a line is invalid
    """
    # Opening a pipe without a writer would wait for one.
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
    """The numbers by name.

    Raises:
        ValueError: a line is invalid; the text names it
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
