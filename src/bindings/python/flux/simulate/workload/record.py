# SPDX-License-Identifier: LGPL-3.0-or-later
"""Records of jobs, as all readers of traces make them, and notes about jobs that were left out."""

from typing import NamedTuple, Optional

from flux.scheduler.attributes import printable


class OptionError(ValueError):
    """An option with a value that it cannot have, or beside one that rules it out."""


class TraceError(ValueError):
    """A trace that cannot be read: the text names the file, the line and the fault."""

    def __init__(self, path, line, reason):
        where = f"{path}:{line}" if line else str(path)
        super().__init__(f"{where}: {printable(reason)}")


class Record(NamedTuple):
    """A job as a trace has it. None: the trace does not say.

    ``nodes``, ``cores``, ``gpus`` are totals of the job; ``submit`` is in seconds since the epoch, or
    since the trace's start; ``run`` and ``limit`` are in seconds. ``after`` is (id of the job that it follows, seconds after its end
    or None).
    """

    id: str
    submit: float
    run: Optional[float]
    limit: Optional[float] = None
    nodes: Optional[int] = None
    cores: Optional[int] = None
    gpus: int = 0
    user: Optional[str] = None
    queue: Optional[str] = None
    urgency: int = 16
    extra: Optional[dict] = None
    group: Optional[str] = None
    after: Optional[tuple] = None


class Notes:
    """Notes about jobs that were left out, altered or ignored, with counts, in the order in which they first came.

    Attributes:
        facts (list of str): other remarks: where the size of the machine is from, ...
        warnings (list of str): reasons for which the results may mislead
    """

    def __init__(self):
        self._counts = {}
        self.facts = []
        self.warnings = []

    def warn(self, text):
        """Note a warning, once."""
        if text not in self.warnings:
            self.warnings.append(text)

    def count(self, what, line=None, number=1):
        """`what` happened to a job or line.

        Args:
            what (str): a text that reads well after a count
            line (int): where
            number (int): how many times
        """
        entry = self._counts.get(what)
        if entry is None:
            self._counts[what] = [number, line]
        else:
            entry[0] += number

    def fact(self, text):
        """Note a fact, once."""
        if text not in self.facts:
            self.facts.append(text)

    @property
    def has_counted(self):
        """Whether anything was left out or altered."""
        return bool(self._counts)

    def get(self, what):
        """How often `what` happened."""
        return self._counts.get(what, (0,))[0]

    def lines(self, with_warnings=True):
        """Everything, as lines for a person."""
        found = [f"WARNING: {text}" for text in self.warnings] if with_warnings else []
        found += self.facts
        for what, (number, line) in self._counts.items():
            where = f" (first: line {line})" if line else ""
            found.append(f"{number:,} {what}{where}")
        return [printable(line) for line in found]


class Source:
    """A reader's view of the trace as a whole.

    Attributes:
        path (str): the file
        notes (Notes): about its jobs
        start (float): origin of its times, seconds since the epoch; 0: they are such seconds
        procs, nodes (int or None): size of the machine, if it says
        queues (dict): number or name of a queue -> its name
        statuses (tuple of int): of SWF, those of the jobs that are wanted; empty: all
        has_statuses (bool): whether its format has them
        unsuccessful (int): jobs taken although they failed or were cancelled
    """

    def __init__(self, path, notes=None, statuses=()):
        self.path = str(path)
        self.notes = notes or Notes()
        self.start = 0.0
        self.procs = None
        self.nodes = None
        self.queues = {}
        self.statuses = statuses
        self.has_statuses = False
        self.unsuccessful = 0
        #: column -> kind of its times, where all must be of one kind
        self.kinds = {}

    def error(self, line, reason):
        """A `TraceError` at a line."""
        return TraceError(self.path, line, reason)
