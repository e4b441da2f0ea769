# SPDX-License-Identifier: LGPL-3.0-or-later
"""The rules of a scheduler whose tables are in its configuration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Callable, TypeVar

from flux.scheduler.host import ask_job_attributes
from flux.scheduler.query.answering import Caller, Entries, Steps, read
from flux.scheduler.site_policy.table_rule import TableRule
from flux.scheduler.site_policy.tables import Findings, PolicyTables

if TYPE_CHECKING:
    from flux.scheduler.admission import AdmissionRule
    from flux.scheduler.host import ErrorReporter
    from flux.scheduler.requests import RunningJob
    from flux.scheduler.rule_host import RuleHost


Rule = TypeVar("Rule", bound=TableRule)


class RulesInForce:
    """Has a rule asked as long as its table has an entry.

    Args:
        host (RuleHost): the scheduler
        errors (ErrorReporter): where faults are reported
        rules: classes of rules, in the order in which they are to be asked
        after (AdmissionRule): the rule behind which they are asked

    Attributes:
        rules (list): all rules, in force or not
        tables (PolicyTables): the reader
    """

    def __init__(
        self,
        host: RuleHost,
        errors: ErrorReporter,
        rules: Iterable[Callable[[RuleHost, ErrorReporter], TableRule]],
        after: AdmissionRule,
    ) -> None:
        self._host = host
        self._after = after
        self._errors = errors
        self.rules = [rule(host, errors) for rule in rules]
        self.tables = self._reader(errors)
        #: rules whose new entries are not in force yet, and how often there were any: an answer that
        #: comes after the tables were read again is dropped
        self._changing: list[TableRule] = []
        self._changes = 0

    def _reader(self, errors: ErrorReporter | Findings) -> PolicyTables:
        tables = PolicyTables(errors)
        for rule in self.rules:
            tables.add(rule.table, rule.parse, rule.elsewhere)
        return tables

    def rule(self, kind: type[Rule]) -> Rule:
        """The rule of a class, in force or not."""
        return next(rule for rule in self.rules if isinstance(rule, kind))

    def load(self, config: dict[str, Any]) -> None:
        """Read the tables when the scheduler starts, before it knows of any job."""
        self._host.queue_names.read(config)
        changed = self.tables.read(config)
        self._warn(config)
        for rule in self.rules:
            if rule.table in changed:
                self._errors.guard(f"[{rule.table}]", self._configure, rule)

    def reload(self, config: dict[str, Any]) -> None:
        """The configuration was loaded anew."""
        renamed = self._host.queue_names.read(config)
        changed = self.tables.read(config)
        self._warn(config)
        self._changing = [
            rule
            for rule in self.rules
            if rule in self._changing
            or rule.table in changed
            or (renamed and self.tables.entries(rule.table))
        ]
        if self._changing:
            self._errors.guard("tables of the configuration", self._change)

    def _warn(self, config: dict[str, Any]) -> None:
        for text in self.tables.doubts(config):
            self._errors.log.warning(text)

    def check(self, payload: Any, caller: Caller) -> Steps:
        """Look at a configuration that is not in force; nothing changes.

        Args:
            payload: ``config``, the configuration of the instance as it would be

        Returns:
            dict: ``faults`` and ``doubts``, lists of lines; ``changes``, see
            `PolicyTables.changes_to`
        """
        config = read(payload, config=None)["config"]
        if not isinstance(config, dict):
            raise ValueError("config: expected an object")
        findings = Findings()
        tables = self._reader(findings)
        tables.read(config)
        yield
        return {
            "faults": findings.faults,
            "doubts": list(tables.doubts(config)),
            "changes": self.tables.changes_to(tables),
        }

    def in_use(self, payload: Any, caller: Caller) -> Steps:
        """What is in use of all limits, licences and the like.

        Returns:
            dict: by the table of a rule, a list of objects
        """
        read(payload)
        answer: dict[str, Any] = {"now": self._host.now()}
        for rule in self.rules:
            if rule.lists is not None:
                entries = answer[rule.lists] = Entries(caller, f"sched.limits.{rule.lists}")
                for entry in rule.report(caller) if rule.entries else ():
                    if entry is not None:
                        entries.append(entry)
                    yield
        yield
        return answer

    def _change(self) -> None:
        """Put the new entries of the rules that change in force, all at once, as soon as it is known
        what they have to know of the jobs that run. Until then those that were in force stay so: a
        job must not start between a limit that is gone and a licence that is not counted yet."""
        self._changes += 1
        number = self._changes
        known: dict[int, dict[str, Any] | None] = {}

        def told(found: dict[int, dict[str, Any] | None]) -> None:
            if self._changes != number:
                return  # the tables were read again since
            known.update(found)
            self._errors.guard("tables of the configuration", proceed)

        def proceed() -> None:
            names = tuple(sorted({name for rule in self._changing for name in self._needs(rule)}))
            jobs = self._host.jobs_running()
            missing = [job.jobid for job in jobs if job.jobid not in known] if names else []
            if missing:
                ask_job_attributes(self._host.handle, missing, names, self._host.log, told)
                return
            if names:
                for job in jobs:
                    job.know(known[job.jobid])
            changing, self._changing = self._changing, []
            for rule in changing:
                self._errors.guard(f"[{rule.table}]", self._put_in_force, rule, jobs)

        proceed()

    def _needs(self, rule: TableRule) -> tuple[str, ...]:
        entries = self.tables.entries(rule.table)
        return rule.needs(entries) if entries else ()

    def _put_in_force(self, rule: TableRule, jobs: list[RunningJob]) -> None:
        self._host.readmit(rule)
        self._configure(rule)
        if not self.tables.entries(rule.table):
            self._host.tell_pending(rule)  # their signatures have no part of this rule any more
        else:
            for job in jobs:
                self._errors.guard(f"{rule.name}: found_running", rule.found_running, job)
            self._host.tell_pending(rule)
            rule.configured()
        self._host.look_again()  # what was refused may have been so on account of the rule

    def _configure(self, rule: TableRule) -> None:
        entries = rule.entries = self.tables.entries(rule.table)
        rule.configure(entries)
        admission = self._host.admission
        if not entries:
            admission.remove(rule)
        elif rule not in admission.rules:
            ahead = self.rules[: self.rules.index(rule)]
            admission.insert(rule, after=[self._after, *ahead])
        else:
            admission.update()
