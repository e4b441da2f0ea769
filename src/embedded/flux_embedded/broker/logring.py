# SPDX-License-Identifier: LGPL-3.0-or-later
"""The instance's log: a ring of the latest entries, and the copies to stderr and a file.

An entry is kept if its level is at most ``log-level``; it is written to stderr up to
``log-stderr-level``, and in any case to the file ``log-filename``.
"""

import collections
import sys
import time
from syslog import LOG_DEBUG, LOG_EMERG, LOG_ERR

#: Names of the levels, as syslog counts them.
LEVELS = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")

LogEntry = collections.namedtuple("LogEntry", "timestamp name rank level text")


def format_entry(entry):
    """Return the line that stderr and the log file show, without a newline."""
    seconds, micro = divmod(int(round(entry.timestamp * 1e6)), 1000000)
    tm = time.gmtime(seconds)
    clock = time.strftime("%H:%M:%S", tm)
    stamp = f"{time.strftime('%b', tm)} {tm.tm_mday} {clock}.{micro:06d} UTC {tm.tm_year}"
    return f"{stamp} {entry.name}.{LEVELS[entry.level]}[{entry.rank}]: {entry.text}"


class LogRing:
    """Log of one instance; `attrs` is its AttrTable, `clock` a callable that gives seconds since the epoch."""

    def __init__(self, attrs, clock):
        self._clock = clock
        self._entries = collections.deque(maxlen=max(1, attrs.get_int("log-ring-size", 1024)))
        self._followers = []
        self._file = None
        self._level = attrs.get_int("log-level", LOG_DEBUG)
        self._stderr_level = attrs.get_int("log-stderr-level", LOG_ERR)
        attrs.watch("log-stderr-level", lambda value: setattr(self, "_stderr_level", int(value)))
        attrs.watch("log-filename", self.open_file)
        if attrs.get("log-filename"):
            self.open_file(attrs.get("log-filename"))

    def open_file(self, path):
        """Write entries to the file `path` from now on; an empty path closes the log file."""
        self.close()
        if path:
            self._file = open(path, "a", encoding="utf-8", errors="replace", buffering=1)

    def close(self):
        """Close the log file, if there is one."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def append(self, level, name, text, rank=0):
        """Add an entry; each line of a text becomes an entry."""
        level = min(max(int(level), LOG_EMERG), LOG_DEBUG)
        for line in text.splitlines() or [""]:
            self._append(LogEntry(self._clock(), name, rank, level, line))

    def _append(self, entry):
        if entry.level <= self._level:
            self._entries.append(entry)
            for follower in self._followers:
                follower(entry)
        if self._file is not None:
            self._file.write(format_entry(entry) + "\n")
        if entry.level <= self._stderr_level:
            sys.stderr.write(format_entry(entry) + "\n")
            sys.stderr.flush()

    def entries(self):
        return list(self._entries)

    def clear(self):
        self._entries.clear()

    def follow(self, callback):
        """Call ``callback(entry)`` for each entry kept from now on."""
        self._followers.append(callback)
