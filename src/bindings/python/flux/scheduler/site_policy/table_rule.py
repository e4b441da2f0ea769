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
        state (str): "running", they use too much together, or "pending"
        jobs (list): their names
    """

    entry: str
    text: str
    state: str
    jobs: list[str]


class TableRule(AdmissionRule):
    """An admission rule that its own table of the configuration switches on.

    It is among the rules that are asked only while its table has an entry. When the table has
    changed, `configure` is called; then the rule is told of all jobs anew, those that run
    (`hello`, with what it `needs` of them) and those that wait
    (`alloc`). So it counts from the jobs there are, and need not be able to change its counts.

    A subclass says what `table` is its own, how an entry of it is read (`parse`), and takes the
    entries in `configure`. It is entered in `flux.scheduler.site_policy.RULES`.

    Args:
        host (RuleHost): the scheduler
        errors (ErrorReporter): where trouble is reported
    """

    #: Name of the table, as ``"limits"``.
    table = ""

    #: Under which name `flux sched limits` lists what is in use, or None if it does not.
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
        """Read one entry of the table, which is the value of a key in it (a table, in most).

        Returns:
            what `configure` is to get; equal for entries that mean the same

        Raises:
            ValueError: what is wrong; the text begins with the key inside the entry
        """
        raise NotImplementedError

    def elsewhere(self, config: dict[str, Any]) -> dict[str, Any]:
        """Further entries, as `parse` takes them, that a site has written at another place of the
        configuration than the table; by what errors call that place."""
        return {}

    def configure(self, entries: dict[str, Any]) -> None:
        """The entries of the table have changed, or are there for the first time: forget all jobs.

        With no entries the rule is about to leave the rules that are asked.

        Args:
            entries (dict): by key, what `parse` returned
        """
        raise NotImplementedError

    def needs(self, entries: dict[str, Any]) -> tuple[str, ...]:
        """What has to be looked up of each running job for `hello`: of ``jobspec`` and
        ``eventlog``; nothing, unless it is overridden.

        Args:
            entries (dict): those in force, or about to be
        """
        return ()

    def report(self, caller: Caller) -> Iterator[dict[str, Any] | None]:
        """What is in use, an object for each line, of which `caller` is shown what
        `flux.scheduler.disclosure.FIELDS` has; None where the answer may pause."""
        return iter(())

    def held_back(
        self,
        entries: dict[str, Any],
        names: list[str],
        running: list[RunningJob],
        pending: list[PendingJob],
    ) -> Iterator[Over | None]:
        """Which jobs would be over entries that are not in force; nothing changes.

        Args:
            entries (dict): the entries of the table as they would be
            names (list): the keys of those that are new or changed
            running: the jobs that run, with what `needs` says
            pending: the jobs that wait

        Yields:
            Over: what a site would be told; None now and then, where the answer may pause
        """
        return iter(())
