# SPDX-License-Identifier: LGPL-3.0-or-later
"""The base class of rules enabled by a configuration table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from flux.scheduler.admission import AdmissionRule, has_own
from flux.scheduler.host import ErrorReporter
from flux.scheduler.query.answering import Caller
from flux.scheduler.requests import PendingJob, RunningJob
from flux.scheduler.rule_host import RuleHost


class JobsOver(NamedTuple):
    """Jobs that would be over an entry of a table that is not in force."""

    entry: str  # key of the entry
    text: str  # description, in a sentence
    state: str  # "running": together they use too much; or "pending"
    jobs: list[str]  # names of the jobs


class TableRule(AdmissionRule):
    """An admission rule enabled by its own configuration table.

    It is among the scheduler's rules only while its table has an entry. When the table has changed,
    `configure` is called; then the rule is told of all jobs again, running ones (`hello`, with the
    data that it `needs`) and pending ones (`alloc`). So it counts from scratch, and need not adjust
    its counts.

    A subclass sets `table`, and parses its entries (`parse`).
    """

    #: Name of the table, such as ``"limits"``.
    table = ""

    #: The key of an entry that ``queues.NAME.policy.scheduler.TABLE`` sets for the jobs of a queue, or
    #: None.
    queues_set: str | None = None

    #: Name of the rule's list in `flux sched limits`, or None.
    lists: str | None = None

    host: RuleHost

    #: Whether the scheduler has started, so that there may be jobs.
    loaded = False

    #: The entries in force, by key.
    entries: dict[str, Any] = {}

    def __init__(self, host: RuleHost, errors: ErrorReporter) -> None:
        super().__init__(host)
        self.errors = errors

    def parse(self, key: str, value: Any) -> Any:
        """Parse an entry of the table: the value of a key (usually a table itself). Return the
        entry, equal for entries with the same meaning; by default the value. Raises ValueError if
        it is invalid; the text begins with the key inside it."""
        return value

    def doubts(self, entries: dict[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield probable mistakes in valid entries that are not in force, with their keys."""
        return iter(())

    def configure(self, entries: dict[str, Any]) -> None:
        """Set the entries of the table, which have changed or are new, and forget all jobs.

        Without entries the rule is about to be removed. `entries`: key -> result of `parse`, also
        in `self.entries`.
        """

    def ready(self) -> None:
        """Called when the rule has been told of all jobs: after the table has changed, and before
        the first request."""

    def needs(self, entries: dict[str, Any]) -> tuple[str, ...]:
        """Return the data of running jobs to look up for `hello`, among ``jobspec`` and
        ``eventlog``; by default the jobspec, if there is a `hello`. `entries`: the entries in
        force, or about to be."""
        return ("jobspec",) if has_own(self, AdmissionRule.hello) else ()

    def report(self, caller: Caller) -> Iterator[dict[str, Any] | None]:
        """Yield the present use, an object per line, of which `caller` sees the fields in
        `flux.scheduler.disclosure.FIELDS`; None where the answer may pause."""
        return iter(())

    def jobs_over(
        self,
        entries: dict[str, Any],
        names: list[str],
        running: list[RunningJob],
        pending: list[PendingJob],
    ) -> Iterator[JobsOver | None]:
        """Yield the jobs that would be over entries of the table that are not in force, with some
        new or changed keys (`names`), among running ones, with the data in `needs`, and pending
        ones: lines for administrators, and None where the answer may pause. Changes nothing."""
        return iter(())
