# SPDX-License-Identifier: LGPL-3.0-or-later
"""The rules of a scheduler whose tables are configured, and the site's own.

A site's own rule, in ``[rules]`` or the argument ``rule=``, is given as ``FILE:CLASS``: a class
derived from `AdmissionRule` or, if enabled by its own table, from `TableRule`. The file must be
writable only by the instance owner and root. It is run when the rule comes into force; checking a
configuration does not run it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from copy import copy
from typing import Any, TypeVar

from flux.scheduler.admission import AdmissionRule, has_own
from flux.scheduler.host import ErrorReporter, ask_job_attributes
from flux.scheduler.misspelled import is_ours, tell_mistakes
from flux.scheduler.options import ending_in_value_error, name_in_file, path_and_name, read_code
from flux.scheduler.query.answering import Caller, Entries, Steps, read
from flux.scheduler.queue import JOBS_PER_TURN
from flux.scheduler.reservations.rule import ReservationRule
from flux.scheduler.rule_answers import check_answers
from flux.scheduler.rule_host import RuleHost
from flux.scheduler.site_policy.amounts import AmountRule
from flux.scheduler.site_policy.budgets import BudgetRule
from flux.scheduler.site_policy.fairshare import FairShareRule
from flux.scheduler.site_policy.licenses import LicenseRule
from flux.scheduler.site_policy.limits import LimitRule
from flux.scheduler.site_policy.placement import PlacementRule
from flux.scheduler.site_policy.preemption.rule import PreemptionRule
from flux.scheduler.site_policy.sharing import SharingRule
from flux.scheduler.site_policy.table_rule import TableRule
from flux.scheduler.site_policy.tables import Findings, PolicyTables

#: The rules of this package, in the order of checks, after the reservations. The first one that
#: keeps a job from starting gives the reason shown to its user.
RULES: tuple[type[TableRule], ...] = (
    LimitRule,
    BudgetRule,
    LicenseRule,
    SharingRule,
    PreemptionRule,
    PlacementRule,
    FairShareRule,
    AmountRule,
)

#: Seconds between checks for the arrival of jobs' attributes.
ANSWER_WAIT_S = 0.01

#: The table of a site's own rules.
OWN_TABLE = "rules"

Rule = TypeVar("Rule", bound=TableRule)


def read_rule(key: str, value: Any, check_owner: bool = True) -> str:
    """Parse an entry of ``[rules]``: ``NAME = "FILE:CLASS"``. The file is parsed, but not run. Raises
    ValueError if the entry is invalid, or the file has a syntax error or does not have the class;
    the text says why."""
    if not isinstance(value, str) or not value.startswith("/"):
        raise ValueError(f"{value!r}: expected '/PATH/FILE.py:CLASS'")
    source = read_code(key, value, check_owner, "CLASS")
    path, name = path_and_name(key, value, "CLASS")
    with ending_in_value_error(key, value):
        code = compile(source, path, "exec")
    # The class is defined, imported or assigned there, or all of another module is imported.
    if name not in code.co_names and ("*",) not in code.co_consts:
        raise ValueError(f"{key}={value!r}: no class {name} in {path}")
    return value


class RulesInForce:
    """Adds each rule to the scheduler while its table has an entry, behind that of reservations.
    `own`: name -> ``FILE:CLASS`` of site rules in addition to ``[rules]``."""

    def __init__(self, host: RuleHost, reservations: ReservationRule, own: dict[str, str]) -> None:
        self._host = host
        self._reservations, self._service = reservations, reservations.service
        self._errors = host.errors
        #: all rules, in force or not; the site's own are last
        self.rules: list[AdmissionRule] = [rule(host, host.errors) for rule in RULES]
        #: name -> site rule
        self._own: dict[str, AdmissionRule] = {}
        self._own_by_argument = own
        for name, text in own.items():
            self._add(name, self._make("rule", name, text))
        self.tables = self._reader(host.errors)  # reader of the tables
        #: rules with new entries not yet in force, and number of such changes: an answer that
        #: arrives after the tables were read again is dropped
        self._changing: list[AdmissionRule] = []
        self._changes = 0

    def _reader(self, errors: ErrorReporter | Findings) -> PolicyTables:
        tables, owned = PolicyTables(errors), self._host.reads_files
        tables.add(OWN_TABLE, lambda key, value: read_rule(key, value, owned))
        for rule in self.rules:
            if isinstance(rule, TableRule):
                tables.add(rule.table, rule.parse, rule.queues_set)
        tables.add(self._service.table, self._service.read_table)
        return tables

    # -- rules of the site's own -------------------------------------------------------------------

    def _make(self, option: str, name: str, text: str) -> AdmissionRule:
        """Make a site rule from ``FILE:CLASS``. `option`: the argument or key, for errors; `name`:
        the rule's, unless its class has one. Raises ValueError if there is no such class, it cannot
        be instantiated, or its table is another's."""
        kind = name_in_file(option, text, self._host.reads_files, "CLASS")
        if not isinstance(kind, type) or not issubclass(kind, AdmissionRule):
            raise ValueError(f"{option}={text!r}: it is not a class derived from AdmissionRule")
        host: Any = self._host
        with ending_in_value_error(option, text):
            rule = kind(host, self._errors) if issubclass(kind, TableRule) else kind(host)
            if kind.name == AdmissionRule.name:
                rule.name = name
            check_answers(rule, self._errors)
        rule.source = text
        tell_mistakes(kind, self._errors.log)
        for why in self._wrong_names(rule) if isinstance(rule, TableRule) else ():
            raise ValueError(f"{option}={text!r}: {why}")
        return rule

    def _wrong_names(self, rule: TableRule) -> Iterator[str]:
        """Yield what is wrong with the names of a site rule's table and list."""
        others = [one for one in self.rules if isinstance(one, TableRule)]
        if not rule.table:
            yield "it does not say which table is its own"
        for name in ("table", "lists"):
            value: Any = getattr(rule, name)
            if value is not None and (not isinstance(value, str) or "." in value):
                yield f"{name}={value!r}: expected a name without dots"
        if rule.table in (OWN_TABLE, *(one.table for one in others)):
            yield f"the table [{rule.table}] is read by another rule"
        if rule.lists in ("now", *(one.lists for one in others if one.lists)):
            yield f"lists={rule.lists!r} is another rule's"

    def _add(self, name: str, rule: AdmissionRule) -> None:
        self.rules.append(rule)
        self._own[name] = rule

    def _take_own(self, config: dict[str, Any]) -> list[AdmissionRule]:
        """Make the new rules in ``[rules]``. Return the rules no longer there, after their removal
        from `rules`. A rule that cannot be made is reported."""
        wanted = {**self.tables.entries(OWN_TABLE), **self._own_by_argument}
        gone = [name for name, rule in self._own.items() if wanted.get(name) != rule.source]
        left = []
        for name in gone:
            rule = self._own.pop(name)
            left.append(rule)
            self.rules.remove(rule)
            if isinstance(rule, TableRule):
                self.tables.drop(rule.table)
        for name, text in wanted.items():
            if name in self._own:
                continue
            try:
                rule = self._make(name, name, text)
            except ValueError as exc:
                self._errors.report(f"configuration: [rules.{name}] {exc}")
                continue
            self._add(name, rule)
            if isinstance(rule, TableRule):
                self.tables.add(rule.table, rule.parse, rule.queues_set)
                self.tables.read(config, rule.table)
        return left

    def _is_configured(self, rule: AdmissionRule) -> bool:
        """Whether a rule applies: its table has an entry, or it is a site rule without a table."""
        if isinstance(rule, TableRule):
            return rule in self.rules and bool(self.tables.entries(rule.table))
        return rule in self.rules

    # -- the tables --------------------------------------------------------------------------------

    def rule(self, kind: type[Rule]) -> Rule:
        """Return the rule of a class, in force or not."""
        return next(rule for rule in self.rules if isinstance(rule, kind))

    def load(self, config: dict[str, Any]) -> None:
        """Read the tables at the scheduler's start, before it knows of any job."""
        self._host.queue_names.read(config)
        self.tables.read(config)
        self._take_own(config)
        self._warn(config)
        for rule in self.rules:
            if self._is_configured(rule):
                self._errors.guard(f"rule {rule.name}", self._configure, rule)
            if isinstance(rule, TableRule):
                rule.loaded = True
        self._service.load()
        self._service.configure(self.tables.entries(self._service.table))

    def ready(self) -> None:
        """Tell the rules in force that all running jobs are known."""
        for rule in self._host.admission.rules:
            if isinstance(rule, TableRule):
                self._errors.guard(f"admission rule {rule.name}: ready", rule.ready)

    def reload(self, config: dict[str, Any]) -> None:
        """Read the tables after a reload of the configuration."""
        renamed = self._host.queue_names.read(config)
        known = list(self.rules)
        changed = self.tables.read(config)
        gone = [rule for rule in self._changing if rule not in self.rules]
        gone += self._take_own(config)
        self._warn(config)
        self._changing = gone + [
            rule
            for rule in self.rules
            if rule in self._changing
            or rule not in known
            or (isinstance(rule, TableRule) and (rule.table in changed or renamed))
        ]
        self._errors.guard("tables of the configuration", self._change)

    def _warn(self, config: dict[str, Any]) -> None:
        for text in self._doubts(self.tables, config):
            self._errors.log.warning(text)

    def _doubts(self, tables: PolicyTables, config: dict[str, Any]) -> Iterator[str]:
        """Yield probable mistakes in valid entries, except reservations."""
        yield from tables.doubts(config)
        for rule in self.rules:
            if isinstance(rule, TableRule) and tables.entries(rule.table):
                for key, text in rule.doubts(tables.entries(rule.table)):
                    yield f"configuration: [{rule.table}.{key}] {text}"

    def check(self, payload: Any, caller: Caller) -> Steps:
        """Check the configuration ``config`` of the payload, which is not in force; changes
        nothing. Returns ``faults`` and ``doubts``, lists of lines; ``changes``, see
        `PolicyTables.changes_to`; ``over``, the jobs over these, see `TableRule.jobs_over`."""
        config = read(payload, config=None)["config"]
        if not isinstance(config, dict):
            raise ValueError("config: expected an object")
        findings = Findings()
        tables = self._reader(findings)
        tables.begin_with(self.tables)
        tables.read(config)
        changes = self.tables.changes_to(tables)
        reserved = tables.entries(self._service.table)
        doubts = [*self._doubts(tables, config), *self._service.doubts(reserved)]
        over = yield from self._over(tables, changes, config)  # rules may come and go meanwhile
        return {"faults": findings.faults, "doubts": doubts, "changes": changes, "over": over}

    def _over(
        self,
        tables: PolicyTables,
        changes: dict[str, dict[str, list[str]]],
        config: dict[str, Any],
    ) -> Generator[Any, None, list[dict[str, Any]]]:
        """Return the jobs that would be over new or changed entries of `tables`; over all, if
        `config` changes a queue's parent."""
        host = copy(self._host)
        host.queue_names = copy(self._host.queue_names)
        renamed, asked = host.queue_names.read(config), []
        for rule in self.rules:
            if isinstance(rule, TableRule) and has_own(rule, TableRule.jobs_over):
                entries, kinds = tables.entries(rule.table), changes.get(rule.table, {})
                names = [*(entries if renamed else kinds.get("new", []) + kinds.get("changed", []))]
                if names:
                    asker = copy(rule)
                    asker.host = host
                    asked.append((asker, entries, names))
        running = [copy(job) for job in self._host.running.values()] if asked else []
        wanted = {what for rule, entries, _ in asked for what in rule.needs(entries)}
        if wanted and running:
            answers: list[dict[int, dict[str, Any] | None]] = []
            ids = [job.jobid for job in running]
            ask_job_attributes(
                self._host.handle, ids, tuple(sorted(wanted)), self._host.log, answers.append
            )
            while not answers:
                yield ANSWER_WAIT_S
            for job in running:
                job.know(answers[0].get(job.jobid))
            running = [job for job in running if job.jobid in self._host.running]
        over = []
        for rule, entries, names in asked:
            for one in rule.jobs_over(entries, names, running, list(self._host.pending_jobs())):
                if one is not None:
                    over.append({"table": rule.table, **one._asdict()})
                yield
        return over

    def in_use(self, payload: Any, caller: Caller) -> Steps:
        """Return the use of all limits, licences and others: lists of objects by rule."""
        read(payload)
        answer: dict[str, Any] = {"now": self._host.now()}
        for rule in self.rules:
            if isinstance(rule, TableRule) and rule.lists is not None:
                entries = answer[rule.lists] = Entries(caller, f"sched.limits.{rule.lists}")
                for entry in rule.report(caller) if rule.entries else ():
                    if entry is not None:
                        entries.append(entry)
                    yield
        yield
        return answer

    def _change(self) -> None:
        """Put the new entries of changing rules and the reservations in force, all at once, when the
        required data of running jobs have arrived. Until then the old entries stay in force: no job
        may start between a removed limit and a licence that is not counted yet."""
        self._changes += 1
        number = self._changes
        known: dict[int, dict[str, Any] | None] = {}

        def told(found: dict[int, dict[str, Any] | None]) -> None:
            if self._changes != number:
                return  # the tables were read again meanwhile
            known.update(found)
            self._errors.guard("tables of the configuration", proceed)

        def proceed() -> None:
            names = self.needed(filter(self._is_configured, self._changing))
            missing = [jobid for jobid in self._host.running if jobid not in known] if names else []
            if missing:
                ask_job_attributes(self._host.handle, missing, names, self._host.log, told)
                return
            changing, self._changing = self._changing, []
            self._host.go_ahead(self._put_in_force(changing, known))

        proceed()

    def needed(self, rules: Iterable[AdmissionRule]) -> tuple[str, ...]:
        """Return the data of running jobs that some rules need: ``jobspec``, ``eventlog``, or
        both."""
        names: set[str] = set()
        for rule in rules:
            if isinstance(rule, TableRule):
                names.update(rule.needs(self.tables.entries(rule.table)))
            elif has_own(rule, AdmissionRule.hello) and not (
                is_ours(type(rule)) and not rule.engaged
            ):
                names.add("jobspec")
        return tuple(sorted(names))

    def _put_in_force(
        self, rules: list[AdmissionRule], known: dict[int, dict[str, Any] | None]
    ) -> Iterator[None]:
        """Set new entries of some rules, and the reservations, and tell the rules of all jobs. A
        generator that yields at intervals. `known`: the data of running jobs, as looked up."""
        host, errors = self._host, self._errors
        running, pending = list(host.running.values()), host.all_pending()
        told = [
            rule
            for rule in rules
            if errors.guard(f"rule {rule.name}", self._configure, rule)
            and self._is_configured(rule)
        ]
        for number, job in enumerate(running if told else (), 1):
            if job.jobid in host.running:
                job = copy(job)  # its attributes are not kept
                if job.jobid in known:
                    job.know(known[job.jobid])
                for rule in told:
                    errors.guard(f"{rule.name}: hello", rule.hello, job)
            if number % JOBS_PER_TURN == 0:
                yield
        if rules:
            yield from host.tell_pending(rules, pending)
            yield from host.ask_promised()
            host.look_again()  # jobs may have been refused because of the rules
        for rule in rules:
            if isinstance(rule, TableRule) and rule in host.admission.rules:
                errors.guard(f"rule {rule.name}", rule.ready)
        entries = self.tables.entries(self._service.table)
        errors.guard("reservations", self._service.configure, entries)

    def _configure(self, rule: AdmissionRule) -> None:
        admission, configured = self._host.admission, self._is_configured(rule)
        if isinstance(rule, TableRule):
            rule.entries = self.tables.entries(rule.table) if configured else {}
            try:
                rule.configure(rule.entries)
            except Exception:
                rule.entries = {}  # it is not in force
                admission.remove(rule)
                raise
        if not configured:
            admission.remove(rule)
        elif rule not in admission.rules:
            ahead = self.rules[: self.rules.index(rule)]
            admission.add(rule, after=[self._reservations, *ahead])
        else:
            admission.update()
