# SPDX-License-Identifier: LGPL-3.0-or-later
"""A trace during its reading: errors, and notes on jobs left out."""

import math
import numbers

from flux.scheduler.attributes import printable
from flux_engine.formats import states

#: Result of a job (RFC 21) -> its status in SWF, where one that ended at its limit has failed.
SWF_STATUS = {states.COMPLETED: 1, states.FAILED: 0, states.CANCELED: 5, states.TIMEOUT: 0}


class OptionError(ValueError):
    """An option is invalid, or conflicts with another."""


def check_count(name, value, least=1, required=False):
    """Raise OptionError if a value is not an integer of at least `least`, nor None unless it is
    `required`."""
    if value is None and not required:
        return
    if not isinstance(value, numbers.Integral) or value < least:
        bound = "" if least == -math.inf else f", {least} or more"
        raise OptionError(f"{name}={value!r}: expected an integer{bound}")


class TraceError(ValueError):
    """A trace cannot be read; the text names the file, the line and the fault."""

    def __init__(self, path, line, reason):
        where = f"{path}:{line}" if line else str(path)
        super().__init__(f"{where}: {printable(reason)}")
        self.path, self.line, self.reason = path, line, reason


#: Beginnings of counted events, and those for one.
_SINGULAR = (
    ("jobs have", "job has"), ("jobs were", "job was"), ("jobs come", "job comes"), ("jobs ask", "job asks"),
    ("jobs follow", "job follows"),
    ("jobs", "job"), ("lines have", "line has"), ("lines", "line"), ("entries", "entry"),
)  # fmt: skip


class Notes:
    """Counts of jobs left out, altered or ignored, by kind, in order of first occurrence.

    Attributes:
        facts (list of str): other remarks, such as the origin of the machine's size
        warnings (list of str): reasons why the results may mislead
    """

    def __init__(self):
        self._counts = {}
        self.facts = []
        self.warnings = []

    def warn(self, text):
        """Add a warning, once."""
        if text not in self.warnings:
            self.warnings.append(text)

    def count(self, what, line=None, number=1):
        """Count an event of a job or line; `what`: its description, printed after the count."""
        self._counts.setdefault(what, [0, line])[0] += number

    def fact(self, text):
        """Add a fact, once."""
        if text not in self.facts:
            self.facts.append(text)

    @property
    def has_counted(self):
        """Whether a job was left out or altered."""
        return bool(self._counts)

    def get(self, what):
        """Return the count of an event."""
        return self._counts.get(what, (0,))[0]

    def lines(self, with_warnings=True):
        """Return all notes, as lines to print."""
        found = [f"WARNING: {text}" for text in self.warnings] if with_warnings else []
        found += self.facts
        for what, (number, line) in self._counts.items():
            where = f" (first: line {line})" if line else ""
            if number == 1:
                many, one = next((two for two in _SINGULAR if what.startswith(two[0])), ("", ""))
                what = one + what[len(many) :]
            found.append(f"{number:,} {what}{where}")
        return [printable(line) for line in found]


class Source:
    """A trace during its reading.

    Attributes:
        start (float): origin of the times in an SWF file, seconds since the epoch; 0: unknown
        procs, nodes (int or None): size of the machine, if given
        R (dict or None): resource set of the machine, if given
        queues (dict): number or name of a queue -> name
        statuses (tuple of int): SWF statuses of the jobs to read; empty: all
        has_statuses (bool): whether the trace says how its jobs ended
    """

    def __init__(self, path, notes=None, statuses=()):
        self.path = str(path)
        self.notes = notes or Notes()
        self.start = 0.0
        self.procs = None
        self.nodes = None
        self.R = None
        self.queues = {}
        self.statuses = statuses
        self.has_statuses = False
        #: column -> kind of its times, which must not change
        self.kinds = {}

    def leaves_out(self, status, line=None):
        """Whether a job is left out by its status, which is then counted."""
        if not self.statuses or status in self.statuses:
            return False
        self.notes.count(f"jobs left out: their status is {status} (--status)", line)
        return True

    def error(self, line, reason):
        """Return a `TraceError` at a line."""
        return TraceError(self.path, line, reason)
