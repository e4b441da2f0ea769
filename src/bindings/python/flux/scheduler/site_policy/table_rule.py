# SPDX-License-Identifier: LGPL-3.0-or-later
"""The base of rules that a table of the configuration switches on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from flux.scheduler.admission import AdmissionRule

if TYPE_CHECKING:
    from flux.scheduler.host import ErrorReporter
    from flux.scheduler.query.answering import Caller
    from flux.scheduler.requests import PendingJob, RunningJob
    from flux.scheduler.rule_host import RuleHost


class Over(NamedTuple):
    """Jobs that would be over an entry of a table that is not in force.

    Attributes:
        entry (str): its key
        text (str): the sentence about it
        state (str): "running": together they use too much; or "pending"
        jobs (list): their names
    """

    entry: str
    text: str
    state: str
    jobs: list[str]


class TableRule(AdmissionRule):
    """An admission rule that its own table of the configuration switches on.

    It is among the scheduler's rules only while its table has an entry. When the table has changed,
    `configure` is called; then the rule is told of all jobs again, running ones (`hello`, with the
    data that it `needs`) and pending ones (`alloc`). So it counts all jobs again, and need not
    adjust its counts.

    A subclass sets `table`, parses an entry of it (`parse`), and takes the entries in `configure`.
    It is listed in `flux.scheduler.site_policy.RULES`.

    Args:
        host (RuleHost): the scheduler
        errors (ErrorReporter): logs errors
    """

    #: Name of the table, as ``"limits"``.
    table = ""

    #: The name under which `flux sched limits` lists the rule's use, or None.
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
        """Parse one entry of the table, the value of one of its keys (usually a table itself).

        Returns:
            the entry for `configure`; equal for entries with the same meaning

        Raises:
            ValueError: the entry is invalid; the text begins with the key inside it
        """
        raise NotImplementedError

    def elsewhere(self, config: dict[str, Any]) -> dict[str, Any]:
        """Further entries, as `parse` takes them, from elsewhere in the configuration than the
        table, by the name of that place in errors."""
        return {}

    def configure(self, entries: dict[str, Any]) -> None:
        """The entries of the table have changed, or exist for the first time: forget all jobs.

        Without entries the rule is about to be removed from the scheduler's rules.

        Args:
            entries (dict): by key, the results of `parse`
        """
        raise NotImplementedError

    def needs(self, entries: dict[str, Any]) -> tuple[str, ...]:
        """The data of running jobs to look up for `hello`: some of ``jobspec`` and ``eventlog``; by
        default, none.

        Args:
            entries (dict): those in force, or about to be
        """
        return ()

    def report(self, caller: Caller) -> Iterator[dict[str, Any] | None]:
        """The present use, an object for each line, of which `caller` sees the fields in
        `flux.scheduler.disclosure.FIELDS`; None where the answer may pause."""
        return iter(())

    def held_back(
        self,
        entries: dict[str, Any],
        names: list[str],
        running: list[RunningJob],
        pending: list[PendingJob],
    ) -> Iterator[Over | None]:
        """The jobs that would be over entries that are not in force; changes nothing.

        Args:
            entries (dict): the proposed entries of the table
            names (list): the keys of new or changed entries
            running: the running jobs, with the data in `needs`
            pending: the pending jobs

        Yields:
            Over: a line for the site; None where the answer may pause
        """
        return iter(())
