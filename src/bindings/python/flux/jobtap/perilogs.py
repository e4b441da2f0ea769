# SPDX-License-Identifier: LGPL-3.0-or-later
"""The open prologs and epilogs of a plugin.

A job does not leave its state while one is open, so each must be finished: by the plugin, or on its
behalf if the plugin is removed or the callback that started it fails.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from flux.jobtap.process_guard import end_child
from flux_engine.formats.states import CLEANUP, RUN

#: Maximum number open per job. flux-core's job manager counts them in eight bits, and drops the
#: queued events of a job that has more.
MAX_OPEN = 255
#: Wait status of exit code 1.
FAILED = 1 << 8


class Perilog(NamedTuple):
    """An open prolog or epilog."""

    id: int
    kind: str  # ``prolog`` or ``epilog``
    description: str  # its description in the job's eventlog
    if_removed: int  # wait status to report if the plugin is removed


class Perilogs:
    """The open prologs and epilogs of one plugin."""

    def __init__(
        self, finish: Callable[[Perilog, int, str | None], object], log: Callable[[str], object]
    ) -> None:
        #: ``finish(perilog, status, note)`` finishes one in the plugin's place; `note` is the text
        #: of an accompanying job exception, or None
        self._finish = finish
        self._log = log  # ``log(text)`` writes a line to the log
        self._open: list[Perilog] = []
        # started by the running functions of the plugin, innermost last
        self._started: list[list[Perilog]] = []

    def __iter__(self) -> Iterator[Perilog]:
        return iter(list(self._open))

    def count(self, id: int) -> int:
        """Return the number open for a job."""
        return sum(perilog.id == id for perilog in self._open)

    def started(self, perilog: Perilog) -> None:
        """Register a started prolog or epilog."""
        self._open.append(perilog)
        if self._started:
            self._started[-1].append(perilog)

    def finished(self, id: int, kind: str, description: str) -> bool:
        """Unregister a finished one. Return False if this plugin has no such one."""
        for perilog in self._open:
            if perilog[:3] == (id, kind, description):
                self._open.remove(perilog)
                return True
        return False

    @contextmanager
    def call(self, what: str) -> Iterator[None]:
        """A context for a call of the plugin (`what`: plugin and topic, for the log). If it raises, the prologs and epilogs
        that it started are finished, since it may not have arranged for their end. A child process that it has forked ends
        here."""
        self._started.append([])
        try:
            try:
                yield
            finally:
                end_child()
        except BaseException:
            started = self._started.pop()
            left = [perilog for perilog in started if perilog in self._open]
            self._end(left, f"{what} failed", lambda perilog: FAILED)
            raise
        self._started.pop()

    def end(self, plugin: str) -> None:
        """Finish all that are open: the plugin is removed."""
        self._end(list(self._open), f"plugin {plugin} was removed", lambda each: each.if_removed)

    def _end(
        self, perilogs: Iterable[Perilog], why: str, status_of: Callable[[Perilog], int]
    ) -> None:
        known: set[tuple[int, str]] = set()
        failed: Counter[str] = Counter()
        for perilog in perilogs:
            if perilog not in self._open:
                continue  # finished as an effect of an earlier one
            self._open.remove(perilog)
            status = status_of(perilog)
            note = None
            # one exception per job is enough
            if status and (perilog.id, perilog.kind) not in known:
                known.add((perilog.id, perilog.kind))
                note = f"{why} during {perilog.kind} {perilog.description!r}"
            try:
                self._finish(perilog, status, note)
            except OSError:
                continue  # the job is gone
            failed[perilog.kind] += 1
        if failed:
            counts = " and ".join(f"{n} {kind}{'s' * (n > 1)}" for kind, n in failed.items())
            self._log(f"{why}: {counts} of its jobs finished in its place")


def check_start(loaded: Iterable[Perilogs], id: int, kind: str, state: int, begun: bool) -> None:
    """Check that a job in `state`, whose start has `begun` or not, may have one more prolog or epilog, besides those of
    the `loaded` plugins. Raises OSError: EINVAL: its state is wrong. EOVERFLOW: it has `MAX_OPEN` open."""
    if kind == "prolog" and (begun or state > RUN):
        raise OSError(errno.EINVAL, "it is too late for a prolog of this job")
    if kind == "epilog" and state != CLEANUP:
        raise OSError(errno.EINVAL, "an epilog needs a job in CLEANUP state")
    open_now = sum(perilogs.count(id) for perilogs in loaded)
    if open_now >= MAX_OPEN:
        raise OSError(
            errno.EOVERFLOW,
            f"{kind}_start: job {id} has {open_now} prologs and epilogs open, which is all that the"
            " job manager can count",
        )


def is_open(loaded: Iterable[Perilogs], id: int, kind: str, description: str) -> bool:
    """Whether one of the `loaded` plugins has this prolog or epilog of a job open. Raises OSError
    (EINVAL) if the job's open ones have other descriptions: finishing one of those in its place
    would let the job go on too early."""
    open_now = [
        each.description for perilogs in loaded for each in perilogs if each[:2] == (id, kind)
    ]
    if open_now and description not in open_now:
        names = ", ".join(map(repr, open_now))
        raise OSError(
            errno.EINVAL, f"{kind}_finish: {description!r} is not open, only {names} of job {id}"
        )
    return bool(open_now)
