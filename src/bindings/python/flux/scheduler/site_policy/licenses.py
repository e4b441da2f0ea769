# SPDX-License-Identifier: LGPL-3.0-or-later
"""Licences: countable resources that are on no node, used by running jobs: ``[licenses]``.

A job holds the licences that it requests (``system.licenses.NAME``) from its start until its last
resources are freed: until then its program may still run on some node.

A job whose licences are in use is deferred: no node is kept idle for it and no job waits behind it.
With ``plan = true`` a licence is also a dimension of the plan, if the policy promises starts: a job
that is due a promise gets one for the time at which both nodes and licences are free, and later jobs
respect it. For other policies it is like any other licence.

With ``elsewhere = FILE`` the number of licences used outside this instance is read from a file at
intervals: lines ``NAME COUNT``, whose age is the file's modification time. The scheduler runs no
program, since waiting for one would block it. An irregular file, such as a pipe, is closed again at
once; but a read from a hanging file system cannot be aborted, so the file must be on a local one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Hashable, Iterator
from functools import partial
from math import inf
from typing import Any, NamedTuple

from flux.resource.errors import InsufficientResources
from flux.resource.plan.tokens import Holders, TokenPlan
from flux.scheduler.admission import Deferral
from flux.scheduler.attributes import SystemAttributes
from flux.scheduler.disclosure import Reason
from flux.scheduler.host import ErrorReporter, Timer
from flux.scheduler.query.answering import JOBS_PER_STEP, Caller
from flux.scheduler.requests import PendingJob, RunningJob
from flux.scheduler.rule_host import RuleHost
from flux.scheduler.site_policy.counting import Bound, CountingRule, Denied, Use
from flux.scheduler.site_policy.holdings import Counted, Holding
from flux.scheduler.site_policy.tables import Fields
from flux.scheduler.times import duration_text

#: Maximum number of different licences that a job may request.
MAX_NAMES = 64

#: Default interval between readings of such a file, and its minimum, in seconds.
EVERY_S = 30.0
LEAST_EVERY_S = 1.0

#: Default age at which its numbers are stale, in seconds.
MAX_AGE_S = 300.0

#: Maximum size of a file, in bytes.
MAX_BYTES = 65536
#: Maximum number of digits: users' programs read 64 bits.
MAX_DIGITS = 15


class Reading(NamedTuple):
    """The contents of a file."""

    counts: dict[str, int]  # name of a licence -> number used elsewhere
    changed: float  # the file's modification time, seconds since the epoch


def read_file(path: str) -> Reading:
    """Read a file of numbers. Raises OSError if it is unreadable, ValueError if it is not a regular
    file, is too long, or a line is invalid."""
    # opening a pipe without a writer would block
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is not a regular file")
        data = os.read(descriptor, MAX_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(data) > MAX_BYTES:
        raise ValueError(f"it is longer than {MAX_BYTES} bytes")
    counts = {}
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or not (words[1].isascii() and words[1].isdigit()):
            raise ValueError(f"line {number}: expected NAME COUNT")
        if len(words[1]) > MAX_DIGITS:
            raise ValueError(f"line {number}: a number of {len(words[1])} digits")
        counts[words[0]] = int(words[1])
    return Reading(counts, found.st_mtime)


class License(NamedTuple):
    """A licence, as in the table."""

    name: str
    total: int  # number owned by the site
    reserved: int = 0  # number of these kept from the jobs of this instance
    plan: bool = False  # whether it is a dimension of the plan
    elsewhere: str | None = None  # path of a file with the number used elsewhere
    every: float = 0.0  # seconds between readings of it
    max_age: float = 0.0  # age in seconds at which its number is stale

    @property
    def usable(self) -> int:
        """The number that jobs may use together."""
        return self.total - self.reserved


def read_license(key: str, value: Any) -> License:
    """Parse an entry of ``[licenses]``: a number, or a table with ``total``. Raises ValueError if
    the entry is invalid; the text begins with the key."""
    if not isinstance(value, dict):
        if type(value) is not int or value < 0:
            raise ValueError(
                f"{value!r}: expected a whole number, 0 or more, or a table such as {{total=40}}"
            )
        return License(key, value)
    table = Fields(value)
    total = table.whole("total")
    if total is None:
        raise ValueError("total is missing: expected a whole number")
    reserved = table.whole("reserved", 0) or 0
    plan = table.flag("plan")
    elsewhere = table.text("elsewhere")
    every = max_age = 0.0
    if elsewhere is not None:
        if not elsewhere.startswith("/"):
            raise ValueError(f"elsewhere={elsewhere!r}: expected the path of a file, from /")
        if plan:
            raise ValueError(
                "plan=true: not together with elsewhere, as the returns of other users cannot be planned"
            )
        every = max(LEAST_EVERY_S, table.seconds("every", EVERY_S) or 0.0)
        max_age = table.seconds("max-age", MAX_AGE_S) or 0.0
    table.end()
    if reserved > total:
        raise ValueError(f"reserved={reserved}: expected at most the total, {total}")
    return License(key, total, reserved, plan, elsewhere, every, max_age)


def asked_for(attributes: SystemAttributes) -> dict[str, int]:
    """Return the licences that a job requests, {name: number}. They are user input, so they are
    checked. Raises ValueError if the value is not a table of positive numbers."""
    asked = attributes.get("licenses", {})
    if not isinstance(asked, dict):
        raise ValueError(f"licenses={asked!r}: expected licenses.NAME=NUMBER")
    if len(asked) > MAX_NAMES:
        raise ValueError(f"licenses: {len(asked)} names: expected {MAX_NAMES} at most")
    for name, count in asked.items():
        if type(count) is not int or count < 1:
            raise ValueError(f"licenses.{name}={count!r}: expected a number, 1 or more")
    return asked


class LicenseUse(Use):
    """The use of a licence, also elsewhere. A job needs the number that it requests.

    Attributes:
        elsewhere (int): the number used elsewhere, as last read; 0 before the first reading
        running (Holders): of a licence with ``plan``, the running jobs that use it, with their ends
            by their own limits; their nodes may be planned to be free earlier or later, for another
            job
    """

    rule: LicenseRule
    entry: License
    is_kept = True

    def __init__(self, rule: LicenseRule, license: License) -> None:
        super().__init__(rule, license, (), (license.usable,))
        self.elsewhere = 0
        self.running = Holders()

    def bounds_for(self, job: PendingJob, needs: int, least: tuple[int, int, int]) -> list[Bound]:
        # Of a planned one the plan decides.
        is_planned = self.entry.name in self.rule.planned
        return [(self.used, 0, -inf if is_planned else self.entry.usable - needs)]

    def adds(
        self, needs: int, job: PendingJob | None = None, held: Holding | None = None
    ) -> tuple[int]:
        # Of a planned one, a start may be promised when jobs with a known end have ended.
        return (needs - self.rule.returning(self),)

    def counts(self, needs: int, held: Holding) -> list[tuple[int, int]]:
        return [(0, needs)]  # until its final free: its program may still run

    def notes(self, needs: int, held: Holding) -> int | None:
        return needs if self.entry.plan else None

    def note_held(self, jobid: int, record: Counted, noted: int, sign: int, now: float) -> None:
        held = (noted, self.rule.host.running[jobid].end) if sign > 0 else None
        self.running.hold(jobid, held)

    def is_assured(self, needs: int, unlike: tuple[bool, bool]) -> bool:
        return self.entry.name in self.rule.planned

    @property
    def in_use(self) -> int:
        """The number in use by jobs."""
        in_use: int = self.used[0] - self.elsewhere
        return in_use

    @property
    def free(self) -> int:
        """The number that jobs may take."""
        free: int = self.entry.usable - self.used[0]
        return free


class LicenseRule(CountingRule):
    """Keeps a job waiting while its licences are in use."""

    name = "licenses"
    table = "licenses"
    lists = "licenses"
    attributes = ("licenses",)
    read = staticmethod(read_license)

    uses: dict[str, LicenseUse]

    def __init__(self, host: RuleHost, errors: ErrorReporter) -> None:
        super().__init__(host, errors)
        #: name -> number of each licence with ``plan``
        self.planned: dict[str, int] = {}
        #: path -> last reading, or None if there is none
        self.readings: dict[str, Reading | None] = {}
        #: path -> why its numbers are not up to date, or None
        self._failed: dict[str, str | None] = {}
        self._timers: dict[str, Timer] = {}  # path -> timer of the next reading

    # -- the table ---------------------------------------------------------------------------------

    def take(self, entries: dict[str, License]) -> None:
        """Set the licences, without jobs."""
        self.entries = entries
        self.uses.update({name: LicenseUse(self, one) for name, one in entries.items()})
        for name in entries:
            self._note_elsewhere(name)

    def configure(self, entries: dict[str, License]) -> None:
        super().configure(entries)
        self.take(entries)
        planning = self.host.planning
        before, self.planned, planning.tokens = self.planned, {}, None
        if self.host.decision.plans_tokens:
            self.planned = {name: one.usable for name, one in entries.items() if one.plan}
        if self.planned:
            running = {name: self.uses[name].running for name in self.planned}
            planning.tokens = TokenPlan(self.planned, running)
        if before or self.planned:  # the plan is made again, with the present tokens
            planning.renew()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        paths: dict[str, float] = {}
        for one in entries.values():
            if one.elsewhere is not None and self.host.reads_files:
                paths[one.elsewhere] = min(one.every, paths.get(one.elsewhere, inf))
        self.readings = {path: self.readings.get(path) for path in paths}
        self._failed = {path: self._failed.get(path) for path in paths}
        for path, every in sorted(paths.items()):
            self._read_periodically(path, every)

    # -- licences used elsewhere -------------------------------------------------------------------

    def _read_periodically(self, path: str, every: float) -> None:
        """Read a file now, and every `every` seconds."""
        when = self.host.now() + every
        self._timers[path] = self.host.call_at(when, lambda: self._read_periodically(path, every))
        text = None
        try:
            self.readings[path] = read_file(path)
        except (OSError, ValueError) as exc:
            text = getattr(exc, "strerror", None) or str(exc)
        else:
            for name, one in self.entries.items():
                if one.elsewhere == path:
                    self._note_elsewhere(name)
                    self.readmit_for(self.uses[name])
                    if self._age(name)[1]:
                        text = "older than max-age"
        if text == self._failed[path]:
            return
        self._failed[path] = text
        if text is None:
            self.host.log.info(f"licenses: elsewhere={path}: up to date again")
        else:
            self.host.log.warning(f"licenses: elsewhere={path}: {text}: the last numbers hold")

    def _note_elsewhere(self, name: str) -> None:
        """Take the number of a licence used elsewhere from the number for jobs."""
        use, found = self.uses[name], self.readings.get(self.entries[name].elsewhere or "")
        before, use.elsewhere = use.elsewhere, 0 if found is None else found.counts.get(name, 0)
        use.used[0] += use.elsewhere - before
        use.watch()

    def _age(self, name: str) -> tuple[float | None, bool]:
        """Return the age of that number in seconds, or None before the first reading; and whether
        it is stale."""
        found = self.readings.get(self.entries[name].elsewhere or "")
        age = None if found is None else max(0.0, self.host.now() - found.changed)
        return age, age is None or age > self.entries[name].max_age

    # -- pending jobs ------------------------------------------------------------------------------

    def uses_of(self, userid: int, attributes: SystemAttributes) -> tuple[LicenseUse, ...]:
        # A licence that has since left the table is not counted for a running job.
        return tuple([self.uses[name] for name in asked_for(attributes) if name in self.entries])

    def alloc(self, job: PendingJob, attributes: SystemAttributes) -> None:
        for name, count in asked_for(attributes).items():
            license = self.entries.get(name)
            if license is None:
                known = ", ".join(sorted(self.entries)) or "none"
                raise ValueError(f"licenses: there is no licence {name} (known: {known})")
            if count > license.usable:
                text = f"licenses: needs {count} of {name}, there are {license.usable}"
                raise Denied(text, name)
        super().alloc(job, attributes)

    def read_job(self, job: PendingJob, uses: Any, attributes: SystemAttributes) -> dict[Any, Any]:
        request = job.resource_request
        if hasattr(request, "with_tokens"):
            asked = asked_for(attributes).items()
            tokens = {name: number for name, number in asked if name in self.planned}
            if tokens or request.tokens:
                job.resource_request = request.with_tokens(tokens or None)
        return self.found(job, uses, attributes)

    def found(self, job: Any, uses: Any, attributes: SystemAttributes) -> dict[Any, Any]:
        asked = asked_for(attributes)
        return {use: asked[use.entry.name] for use in uses}

    def signature(self, job: PendingJob) -> Hashable:
        uses = self.uses_by_id(job.jobid).items()
        return tuple(sorted((use.entry.name, count) for use, count in uses)) or None

    def check(self, job: PendingJob) -> Deferral | None:
        deferral = super().check(job)
        short = self._short_of(job) if self.planned and deferral is None else None
        if short is not None:
            raise InsufficientResources(short)
        return deferral

    def defer(self, use: Any, at: int, job: PendingJob, uses: Any) -> Deferral:
        key = tuple(uses.items())
        if not self.host.admission.is_question:
            self.wait(uses, key, uses)
        return Deferral(partial(self.sentence, use, at, job), key=key)

    def returning(self, use: LicenseUse) -> int:
        """Return by how much the free number of a planned licence grows until all jobs with a known
        end have ended; 0 if it is not planned."""
        if use.entry.name not in self.planned:
            return 0
        return use.in_use - use.running.endless

    def _short_of(self, job: PendingJob) -> str | None:
        """Return why planned licences keep a job from starting now, although it waits for a
        promise, or None."""
        request = job.resource_request
        tokens = getattr(request, "tokens", None)
        if not tokens:
            return None
        for use, count in self.uses_by_id(job.jobid).items():
            if use.entry.name in tokens and use.free < count:
                return self.sentence(use, 0, job)
        plan = self.host.planning.current()
        if job.jobid in self.host.admission.kept_for or plan is None:
            return None  # it may end with its window: the plan is asked when it is placed
        if plan.has_tokens(job.jobid, request):
            return None
        names = ", ".join(sorted(tokens))
        return Reason(
            f"licenses: {names}: promised to another job",
            f"licenses: {names}: kept from it for now",
        )

    def sentence(self, use: LicenseUse, at: int, job: PendingJob | None) -> str:
        license, name = use.entry, use.entry.name
        if job is None:
            return f"licenses: {name} {use.in_use} of {license.total} in use"
        count = self.uses_by_id(job.jobid)[use]
        more = f", {license.reserved} reserved" if license.reserved else ""
        if license.elsewhere is not None:
            more += f", {use.elsewhere} elsewhere"
            age, is_stale = self._age(name)
            if is_stale:
                more += " (never read)" if age is None else f" ({duration_text(age, 1)} ago)"
        return Reason(
            f"licenses: {name} {use.in_use} of {license.total} in use{more}; needs {count}",
            f"licenses: {name}: too many of {license.total} are in use; needs {count}",
        )

    # -- running jobs ------------------------------------------------------------------------------

    def extended(self, jobid: int, expiration: float) -> None:
        for use in self.uses_by_id(jobid):
            if jobid in use.running:
                use.running.hold(jobid, (use.running[jobid][0], expiration or inf))
                self.readmit_for(use)

    def hello(self, job: RunningJob) -> None:
        try:
            super().hello(job)
        except ValueError:
            return  # it started while no job requested licences

    # -- answers -----------------------------------------------------------------------------------

    def why(self, job: PendingJob) -> str | None:
        return super().why(job) or (self._short_of(job) if self.planned else None)

    def report(self, caller: Caller) -> Iterator[dict[str, Any] | None]:
        waiting: dict[str, int] = {}
        for examined, (_, record, use, count) in enumerate(self.counts_in(), 1):
            if record.held is None and count > use.free:
                waiting[use.entry.name] = waiting.get(use.entry.name, 0) + 1
            if examined % JOBS_PER_STEP == 0:
                yield None
        for name in sorted(self.entries):
            yield {**self._line(name), "waiting": waiting.get(name, 0)}

    def _line(self, name: str) -> dict[str, Any]:
        """Return the figures of a licence; ``age`` in seconds (None: not read yet) and ``stale``
        are of a number used ``elsewhere``."""
        license: License = self.entries[name]
        line = {**license._asdict(), "used": self.uses[name].in_use}
        for key in ("elsewhere", "every", "max_age"):
            del line[key]
        if license.elsewhere is not None:
            age, is_stale = self._age(name)
            line.update(elsewhere=self.uses[name].elsewhere, age=age, stale=is_stale)
        return line

    def stats(self) -> dict[str, Any]:
        keys = ("name", "total", "used", "elsewhere", "age", "stale")
        return {
            "licenses": [
                {key: line[key] for key in keys if key in line}
                for line in map(self._line, sorted(self.entries))
            ]
        }

    def trial(self, entries: dict[str, License]) -> LicenseRule:
        rule = super().trial(entries)
        rule.readings = self.readings
        rule.take(entries)
        return rule
