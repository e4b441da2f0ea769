# SPDX-License-Identifier: LGPL-3.0-or-later
"""How many licences are used elsewhere, by a file that a site's own program writes.

Each line is ``NAME COUNT``; empty lines, and what follows a ``#``, are passed over. The file is to be
replaced as a whole (written under another name, then renamed), and touched also when nothing has changed:
the time of its last change says how old its numbers are.

The scheduler reads the file itself, from time to time, and runs no program: waiting for one would stop
it. A file that is no regular one, such as a pipe, is not opened for longer than to see that. But no
read from a file system that hangs can be given up, so the file belongs on a local one.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

#: The most of a file that is read, in bytes.
MAX_BYTES = 65536
#: The most digits of a number: what is in use is told to users, whose programs read 64 bits.
MAX_DIGITS = 15


class Reading(NamedTuple):
    """What a file says.

    Attributes:
        counts: by the name of a licence, how many are used elsewhere
        changed: when the file was changed last, seconds since the epoch
    """

    counts: dict[str, int]
    changed: float


def read_file(path: str) -> Reading:
    """Read a file of numbers.

    Raises:
        OSError: it cannot be read
        ValueError: it is no regular file, it is too long, or a line is wrong
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
        ValueError: which line is wrong
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
