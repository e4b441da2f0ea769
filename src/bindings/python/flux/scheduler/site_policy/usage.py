# SPDX-License-Identifier: LGPL-3.0-or-later
"""The past use of resources by jobs, kept across reloads of the scheduler and restarts of the
instance.

An entry grows by the use per second of its key's running jobs, and decays by half in each
half-life. It is updated when it is read, so a job costs time only when it starts and when it frees
resources.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, isfinite, log
from typing import TYPE_CHECKING, Any, Callable

from flux.scheduler.checkpoint import check_version, in_parts
from flux.scheduler.history import ask_for_ended_jobs

if TYPE_CHECKING:
    from flux.scheduler.checkpoint import Checkpoint
    from flux.scheduler.host import ErrorReporter
    from flux.scheduler.rule_host import RuleHost

#: Version of the stored format, and seconds between writes.
VERSION = 1
SAVE_INTERVAL_S = 600.0

#: Attributes to query of jobs that ended while no scheduler was loaded.
ATTRIBUTES = ["userid", "bank", "queue", "ncores", "nnodes", "t_run", "t_inactive"]

#: Entries without running jobs and below this, in units times seconds, are dropped.
NEGLIGIBLE = 1.0


class Usage:
    """Amounts by key: a tuple of str, int or None, so that it can be stored. They are kept in the
    KVS, and completed from ``job-list`` with jobs that ended while no scheduler was loaded.

    Args:
        learn: ``learn(job, since, until)`` is called for such a job, with its `ATTRIBUTES` from
            ``job-list``, and the uncounted time span in seconds since the epoch
        is_key: whether a tuple is a valid key
        settle: called before amounts are stored: sets those that are counted elsewhere

    Attributes:
        half_life (float): seconds in which an amount decays by half; infinite: no decay
        through (float): time up to which the use of running jobs was counted when the amounts were
            stored or counting stopped, seconds since the epoch; 0: never
        has_changed (bool): whether amounts have changed since they were stored
    """

    def __init__(
        self,
        host: RuleHost,
        errors: ErrorReporter,
        key: str,
        learn: Callable[[dict[str, Any], float, float], None],
        is_key: Callable[[tuple[Any, ...]], bool],
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        self._host, self._errors = host, errors
        self._learn_job, self._is_key, self._settle = learn, is_key, settle
        self._key = key
        self.half_life, self.through, self.has_changed = inf, 0.0, False
        #: key -> (amount, growth per second, time of that amount)
        self._entries: dict[tuple[Any, ...], tuple[float, float, float]] = {}
        #: None: jobs are not counted yet, or only for a query
        self._checkpoint: Checkpoint | None = None
        #: time at which ``job-list`` was queried, and the jobs running then
        self._asked_at = inf
        self._found: set[int] = set()

    def charge(self, key: tuple[Any, ...], rate: float, since: float, now: float) -> None:
        """Add the use by `rate` from a time to `now`."""
        self.add(key, self._grown((0.0, rate, since), now)[0], now)

    def change(self, key: tuple[Any, ...], rate: float, now: float) -> None:
        """Change the use per second by a key's jobs by `rate` from `now` on.  O(1)."""
        amount, before, then = self._entries[key] if key in self._entries else (0.0, 0.0, now)
        if then < now:
            amount, before, _ = self._grown((amount, before, then), now)
        self._entries[key] = (amount, before + rate, now)
        if not self.has_changed:
            self.touch()

    def touch(self) -> None:
        """Note that amounts have changed since they were stored."""
        self.has_changed = True
        if self._checkpoint is not None:
            self._checkpoint.changed()

    def set(self, key: tuple[Any, ...], amount: float, now: float) -> None:
        """Set the amount of a key, as counted elsewhere; none if it is 0."""
        if amount:
            self._entries[key] = (amount, 0.0, now)
        else:
            self._entries.pop(key, None)

    def amount(self, key: tuple[Any, ...], now: float) -> float:
        """Return the amount of a key, in units times seconds.  O(1)."""
        return self._at(key, now)[0]

    def amounts(self, now: float) -> Iterator[tuple[tuple[Any, ...], float]]:
        """Return the keys with an entry, each with its amount.  O(keys)."""
        return ((key, self._grown(entry, now)[0]) for key, entry in self._entries.items())

    def add(self, key: tuple[Any, ...], amount: float, now: float) -> None:
        """Add an amount used in the past."""
        before, rate, _ = self._at(key, now)
        self._entries[key] = (before + amount, rate, now)

    def take(self, other: Usage, now: float) -> None:
        """Add the amounts of another `Usage`, whose running jobs are not counted here yet."""
        for key, amount in other.amounts(now):
            self.add(key, amount, now)
            self.through = now

    def keys(self) -> list[tuple[Any, ...]]:
        """Return the keys with an entry."""
        return list(self._entries)

    def cease(self, now: float) -> None:
        """Stop counting jobs."""
        self.through = now
        for key in self._entries:
            self._entries[key] = (self._at(key, now)[0], 0.0, now)

    def set_half_life(self, half_life: float, now: float) -> None:
        """Set the half-life from now on."""
        for key in self._entries:
            self._entries[key] = self._at(key, now)
        self.half_life = half_life

    def forget(self, key: tuple[Any, ...]) -> None:
        """Remove a key."""
        self._entries.pop(key, None)

    def forget_negligible(self, now: float) -> None:
        """Remove keys with negligible amounts.  O(keys)."""
        for key in self.keys():
            amount, rate, _ = self._at(key, now)
            if rate < 1e-9 and amount < NEGLIGIBLE:
                del self._entries[key]

    def _at(self, key: tuple[Any, ...], now: float) -> tuple[float, float, float]:
        entry = self._entries.get(key)
        return (0.0, 0.0, now) if entry is None else self._grown(entry, now)

    def _grown(self, entry: tuple[float, float, float], now: float) -> tuple[float, float, float]:
        """Return an entry with its amount at a time; in the past, as it is."""
        amount, rate, then = entry
        passed = now - then
        if passed <= 0:
            return entry
        if self.half_life == inf:
            return amount + rate * passed, rate, now
        left = 0.5 ** (passed / self.half_life)
        return amount * left + rate * self.half_life / log(2) * (1.0 - left), rate, now

    # -- the checkpoint ----------------------------------------------------------------------------

    def text(self) -> Iterator[str]:
        """Return the amounts as JSON text, in parts."""
        self._settle()
        self.has_changed = False
        now = self._host.now()
        used = ([key, self._at(key, now)[0]] for key in self.keys())
        return in_parts({"version": VERSION, "through": now}, "used", used)

    def restore(self, stored: Any) -> None:
        """Load the parsed output of `text`. Raises ValueError if it has another form; other
        exceptions in `flux.scheduler.checkpoint.DAMAGES` mean the same."""
        check_version(stored, VERSION)
        through = float(stored["through"])
        used = {tuple(key): (float(amount), 0.0, through) for key, amount in stored["used"]}
        if not isfinite(through) or not all(isfinite(one[0]) for one in used.values()):
            raise ValueError("expected finite numbers")
        if not all(map(self._is_key, used)):
            raise ValueError("expected other keys")
        self.through = through
        self._entries.update(used)

    def begin(self) -> None:
        """Start counting jobs: load the amounts stored by an earlier scheduler."""
        if self._checkpoint is not None:
            return
        self._checkpoint = self._host.checkpoint(self._key, SAVE_INTERVAL_S, self.text)
        self.has_changed = False
        self._checkpoint.read(self.restore)
        if self.through and self._host.reads_files:
            self._asked_at = self._host.now()
            ask_for_ended_jobs(self._host, self._errors, self.through, ATTRIBUTES, self._learn)

    def found(self, jobid: int) -> float:
        """Add a job found running. Return the time from which to count it, seconds since the
        epoch."""
        self._found.add(jobid)
        return max(self._host.running[jobid].start, self.through)

    def _learn(self, jobs: list[dict[str, Any]]) -> None:
        for job in jobs:
            begin, end = job.get("t_run"), job.get("t_inactive")
            if not begin or not end or begin > self._asked_at or job["id"] in self._found:
                continue  # it did not run, or is already counted
            since = max(begin, self.through)
            if end > since:
                self._learn_job(job, since, end)
        self._found.clear()
        self.touch()
