# SPDX-License-Identifier: LGPL-3.0-or-later
"""What jobs have used over time, kept over reloads of the scheduler and restarts of the instance.

An entry grows by what the running jobs of its key use a second, and loses half of itself each half-life.
It is brought up to date when it is looked at, so a job costs something when it starts and when it
gives resources back, and none between.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator
from math import inf, isfinite, log
from typing import TYPE_CHECKING, Any, Callable

from flux.scheduler.run_time_service import ask_for_ended_jobs

if TYPE_CHECKING:
    from flux.scheduler.checkpoint import Checkpoint
    from flux.scheduler.host import ErrorReporter
    from flux.scheduler.rule_host import RuleHost

#: The version of what is stored, and how often it is written, seconds.
VERSION = 1
SAVE_INTERVAL_S = 600.0

#: Entries that are written as one part of the checkpoint.
ENTRIES_PER_PART = 256

#: What is asked of a job that ended while no scheduler was there.
ATTRIBUTES = ["userid", "bank", "queue", "ncores", "nnodes", "t_run", "t_inactive"]

#: An entry of a key without running jobs that is less than this, in units times seconds, is forgotten.
NEGLIGIBLE = 1.0


class Usage:
    """Amounts by key: tuples of str, int or None, so that they can be stored.

    Args:
        half_life (float): seconds in which half of an amount is forgotten; infinite: nothing is

    Attributes:
        through (float): up to when the use of running jobs was counted when the amounts were stored or
            the counting has ceased, seconds since the epoch; 0: it never was
    """

    def __init__(self, half_life: float = inf) -> None:
        self.half_life = half_life
        self.through = 0.0
        #: by key: the amount, what is added to it in a second, and as of when it is the amount
        self._entries: dict[tuple[Any, ...], tuple[float, float, float]] = {}

    def change(self, key: tuple[Any, ...], rate: float, now: float, since: float = inf) -> None:
        """The jobs of a key use `rate` more (or less) a second from `now` on, and have done so since
        `since`.  O(1)."""
        amount, before, _ = self._at(key, now)
        if since < now:
            amount += self._used_by(rate, now - since)
        self._entries[key] = (amount, before + rate, now)

    def of(self, key: tuple[Any, ...], now: float) -> float:
        """The amount of a key, in units times seconds.  O(1)."""
        return self._at(key, now)[0]

    def add(self, key: tuple[Any, ...], amount: float, now: float) -> None:
        """Something was used of which nothing was known when it was."""
        before, rate, _ = self._at(key, now)
        self._entries[key] = (before + amount, rate, now)

    def take(self, other: Usage, now: float) -> None:
        """Know by now what another knows, whose running jobs are not counted here yet."""
        for key in other.keys():
            self.add(key, other.of(key, now), now)
            self.through = now

    def keys(self) -> list[tuple[Any, ...]]:
        """The keys of which something is known."""
        return list(self._entries)

    def cease(self, now: float) -> None:
        """No job is counted from now on."""
        self.through = now
        for key in self._entries:
            self._entries[key] = (self._at(key, now)[0], 0.0, now)

    def set_half_life(self, half_life: float, now: float) -> None:
        """Amounts decay by another half-life from now on."""
        for key in self._entries:
            self._entries[key] = self._at(key, now)
        self.half_life = half_life

    def forget(self, key: tuple[Any, ...]) -> None:
        """Nothing is to be known of a key any more."""
        self._entries.pop(key, None)

    def forget_negligible(self, now: float) -> None:
        """Forget the keys of which next to nothing is left.  O(keys)."""
        for key in self.keys():
            amount, rate, _ = self._at(key, now)
            if rate < 1e-9 and amount < NEGLIGIBLE:
                del self._entries[key]

    def _at(self, key: Hashable, now: float) -> tuple[float, float, float]:
        entry = self._entries.get(key)  # type: ignore[call-overload]
        if entry is None:
            return 0.0, 0.0, now
        amount, rate, then = entry
        passed = now - then
        if passed <= 0:
            return amount, rate, then
        return amount * self._left(passed) + self._used_by(rate, passed), rate, now

    def _left(self, seconds: float) -> float:
        """Which part of an amount is left after some time."""
        return 1.0 if self.half_life == inf else float(0.5 ** (seconds / self.half_life))

    def _used_by(self, rate: float, seconds: float) -> float:
        """What is left at the end of a time of what was used in it."""
        if self.half_life == inf:
            return rate * seconds
        return rate * self.half_life / log(2) * (1.0 - self._left(seconds))

    # -- the checkpoint ----------------------------------------------------------------------------

    def text(self, now: float) -> Iterator[str]:
        """The amounts as JSON, in parts."""
        yield json.dumps({"version": VERSION, "through": now})[:-1] + ', "used": ['
        keys = self.keys()
        for at in range(0, len(keys), ENTRIES_PER_PART):
            part = [[list(key), self._at(key, now)[0]] for key in keys[at : at + ENTRIES_PER_PART]]
            yield (", " if at else "") + json.dumps(part)[1:-1]
        yield "]}"

    def is_key(self, key: tuple[Any, ...]) -> bool:
        """Whether what was read can be a key."""
        return True

    def restore(self, stored: Any) -> None:
        """Take the amounts that `text` gave, parsed.

        Raises:
            ValueError: it is not what `text` gives; as by `flux.scheduler.checkpoint.DAMAGES`, other
                exceptions may say the same
        """
        if stored["version"] != VERSION:
            return
        through = float(stored["through"])
        used = {tuple(key): (float(amount), 0.0, through) for key, amount in stored["used"]}
        if not isfinite(through) or not all(isfinite(one[0]) for one in used.values()):
            raise ValueError("expected finite numbers")
        if not all(map(self.is_key, used)):
            raise ValueError("expected other keys")
        self.through = through
        self._entries.update(used)


class KeptUsage(Usage):
    """Usage that is kept in the KVS, and told of jobs that ended while no scheduler was there, which
    ``job-list`` knows.

    Args:
        host (RuleHost): the scheduler
        errors (ErrorReporter): where trouble is reported
        key (str): where it is stored
        learn: ``learn(job, since, until)``, called for such a job, with what ``job-list`` has of it
            (`ATTRIBUTES`), and between which times it is not counted yet, seconds since the epoch
        is_key: whether a tuple can be a key
    """

    def __init__(
        self,
        host: RuleHost,
        errors: ErrorReporter,
        key: str,
        learn: Callable[[dict[str, Any], float, float], None],
        is_key: Callable[[tuple[Any, ...]], bool],
    ) -> None:
        super().__init__()
        self._host = host
        self._errors = errors
        self._learn_job = learn
        self._is_key = is_key
        self._key = key
        #: None: jobs are not counted yet, or only for a question
        self._checkpoint: Checkpoint | None = None
        #: when ``job-list`` was asked, and the jobs that ran then
        self._asked_at = inf
        self._found: set[int] = set()

    def is_key(self, key: tuple[Any, ...]) -> bool:
        return self._is_key(key)

    def begin(self) -> None:
        """Jobs are counted from now on: take what an earlier scheduler has stored."""
        if self._checkpoint is not None:
            return
        host = self._host
        self._checkpoint = host.checkpoint(
            self._key, SAVE_INTERVAL_S, lambda: self.text(host.now())
        )
        self._checkpoint.read(self.restore)
        if self.through and self._host.reads_files:
            self._asked_at = self._host.now()
            ask_for_ended_jobs(
                self._host.handle,
                self.through,
                ATTRIBUTES,
                self._learn,
                self._host.call_at,
                self._host.now,
                self._errors,
            )

    def found(self, jobid: int) -> float:
        """A job was found running; returns from when on it is to be counted, seconds since the epoch."""
        self._found.add(jobid)
        return max(self._host.running[jobid].start, self.through)

    def changed(self) -> None:
        """Jobs have come or gone: it is stored, soon or later."""
        if self._checkpoint is not None:
            self._checkpoint.changed()

    def _learn(self, jobs: list[dict[str, Any]]) -> None:
        for job in jobs:
            begin, end = job.get("t_run"), job.get("t_inactive")
            if not begin or not end or begin > self._asked_at or job["id"] in self._found:
                continue  # it did not run, or was seen
            since = max(begin, self.through)
            if end > since:
                self._learn_job(job, since, end)
        self._found.clear()
        self.changed()
