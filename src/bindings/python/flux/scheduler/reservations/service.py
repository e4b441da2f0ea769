# SPDX-License-Identifier: LGPL-3.0-or-later
"""Requests to make, list and give up reservations; the KVS, the configuration, the clock.

Reservations made by request are stored in the KVS under `KEY` before the request is answered: they
survive reloads of the scheduler and restarts of the instance. Those in the configuration,
``[reservations.NAME]``, are read when it is loaded or reloaded.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from flux.scheduler.checkpoint import read_stored
from flux.scheduler.host import name_of
from flux.scheduler.query.answering import Caller, Entries, Steps, payload_of, read
from flux.scheduler.reservations.reservation import Reservation
from flux.scheduler.reservations.times import iso_time

if TYPE_CHECKING:
    from flux.scheduler.host import Committer, ErrorReporter, Timer
    from flux.scheduler.reservations.rule import ReservationRule
    from flux.scheduler.rule_host import RuleHost

#: KVS key of the stored reservations, and version of their format.
KEY = "checkpoint.sched-reservations"
VERSION = 1

#: Seconds between readings of the clock when no window begins or ends: an administrator may have
#: set the clock.
CLOCK_CHECK_S = 60.0

#: Maximum number of reservations: each release of resources iterates over all of them.
MAX_RESERVATIONS = 1000


class ReservationService:
    """Answers requests about reservations, and stores reservations across reloads.

    Args:
        host (RuleHost): the scheduler
        rule (ReservationRule): enforces them
        commits (Committer): writes to the KVS
        errors (ErrorReporter): logs errors
    """

    def __init__(
        self,
        host: RuleHost,
        rule: ReservationRule,
        commits: Committer,
        errors: ErrorReporter,
    ) -> None:
        self._host = host
        self._rule = rule
        self._commits = commits
        self._errors = errors
        self._timer: Timer | None = None

    # -- the start ---------------------------------------------------------------------------------

    def load(self) -> None:
        """Read the reservations from the KVS, then from the configuration.

        Raises:
            ValueError: the stored text is unreadable; to ignore it would let jobs start on reserved
                nodes
        """
        for reservation in read_stored(self._host.handle, KEY, self._parse) or ():
            if reservation.window_at(self._host.now()) is None:
                self._host.log.info(f"reservation {reservation.name} is over")
                continue
            self._add_anyway(reservation, configured=False)
        self._configure(self._tables())
        self.arm()

    def _parse(self, stored: Any) -> list[Reservation]:
        if stored["version"] != VERSION:
            raise ValueError(
                f"it is not of version {VERSION}: reservations made with a newer scheduler cannot be "
                "kept; go back to it"
            )
        now = self._host.now()
        return [Reservation.from_dict(entry, now) for entry in stored.get("reservations", ())]

    def _add_anyway(self, reservation: Reservation, configured: bool) -> None:
        """Add a reservation even if some of its nodes are not in the instance at present."""
        try:
            self._rule.add(reservation, configured, anyway=True)
        except ValueError as exc:
            where = "configuration: " if configured else ""
            self._host.log.warning(f"{where}{exc}")

    def _tables(self) -> Any:
        try:
            return self._host.handle.conf_get("reservations", {}, update=True)
        except OSError:
            return {}

    def _configure(self, tables: Any) -> None:
        """Replace the configured reservations by those in the tables.

        A reservation with an unchanged or unreadable table is left alone.
        """
        rule = self._rule
        if not isinstance(tables, dict):
            self._errors.report("configuration: reservations: expected tables [reservations.NAME]")
            return
        wanted = {}
        for name, table in tables.items():
            try:
                wanted[name] = self._read_table(name, table)
            except ValueError as exc:
                text = str(exc).replace(f"reservation {name}: ", "", 1)
                self._errors.report(f"configuration: [reservations.{name}]: {text}")
        for name, entry in list(rule.entries.items()):
            if not entry.configured:
                continue
            if name not in tables or (name in wanted and wanted[name] != entry.reservation):
                rule.remove(name)
            else:
                wanted.pop(name, None)
        for reservation in wanted.values():
            self._add_anyway(reservation, configured=True)

    def _read_table(self, name: str, table: Any) -> Reservation:
        if not isinstance(table, dict):
            raise ValueError(f"expected a table, got {table!r}")
        now = self._host.now()
        reservation = Reservation.from_dict({**table, "name": name}, now)
        later = Reservation.from_dict({**table, "name": name}, now + 40 * 86400)
        if later != reservation:
            # each reload would move it
            raise ValueError(f"start={table['start']!r} depends on when it is read: give a date")
        return reservation

    # -- requests ----------------------------------------------------------------------------------

    def reserve(self, msg: Any) -> None:
        """Make a reservation, or with ``dry_run`` only report conflicts.

        Raises:
            ValueError: it cannot be made; the text says why
        """
        asked = read(payload_of(msg), reservation=None, dry_run=False)
        if not isinstance(asked["dry_run"], bool):
            raise ValueError(f"dry_run={asked['dry_run']!r} is invalid: expected true or false")
        scheduler, rule = self._host, self._rule
        if not scheduler.planning.pool_can("plan"):
            raise ValueError("the pool of this scheduler cannot plan, so nothing can be reserved")
        if len(rule.entries) >= MAX_RESERVATIONS:
            raise ValueError(f"there are {MAX_RESERVATIONS} reservations already")
        reservation = Reservation.from_dict(asked["reservation"], scheduler.now())
        rule.check_new(reservation)
        conflicts = _named(rule.answers.conflicts(reservation))
        warnings = []
        others = rule.answers.overlapping(reservation)
        if others:
            warnings.append(f"not enough nodes for it beside reservation {', '.join(others)}")
        if reservation.for_nobody and reservation.at_end != "cancel":
            warnings.append("nobody can be in it, so nothing runs on at its end")
        if asked["dry_run"]:
            shown = rule.answers.preview(reservation)
        else:
            shown = rule.answers.describe(rule.add(reservation))
        answer = {
            "now": scheduler.now(),
            "reservation": shown,
            "conflicts": conflicts,
            "warnings": warnings,
        }
        if asked["dry_run"]:
            scheduler.handle.respond(msg, answer)
            return
        start = iso_time(reservation.recurrence.start, reservation.recurrence.zone)
        scheduler.log.info(
            f"reservation {reservation.name} made: {shown['nodes']} nodes, {start}, for "
            f"{reservation.duration:g} s"
        )
        self.arm()
        self._store(lambda: scheduler.handle.respond(msg, answer))

    def unreserve(self, msg: Any) -> None:
        """Give up a reservation.

        Raises:
            ValueError: there is no such reservation, or it is configured
        """
        asked = read(payload_of(msg), name=None)
        name = asked["name"]
        if not isinstance(name, str):
            raise ValueError("name is missing")
        entry = self._rule.entries.get(name)
        if entry is not None and entry.configured:
            raise ValueError(
                f"reservation {name} comes from the configuration: take out [reservations.{name}] "
                "and use flux config reload"
            )
        self._rule.remove(name)
        self._host.log.info(f"reservation {name} removed")
        self.arm()
        self._store(lambda: self._host.handle.respond(msg, {"now": self._host.now()}))

    def list(self, payload: Any, caller: Caller) -> Steps:
        """List all reservations by start; for a guest without groups and the jobs in their way."""
        read(payload)
        shown = []
        for entry in list(self._rule.entries.values()):
            one = self._rule.answers.describe(entry)
            if caller.sees_all:
                yield
                one["in_the_way"] = _named(self._rule.answers.in_the_way(entry))
            else:
                one["group"] = "some" if one["group"] else ""
            shown.append(one)
            yield
        shown.sort(key=lambda one: (one["start"], one["name"]))
        entries = Entries(caller, "sched.reservations.reservations")
        answer: dict[str, Any] = {"now": self._host.now(), "reservations": entries}
        for one in shown:
            answer["reservations"].append(one)
            yield
        return answer

    def reconfigure(self, config: dict[str, Any]) -> None:
        """Update the reservations after a reload of the configuration."""
        self._configure(config.get("reservations", {}))
        self.arm()

    def _store(self, stored: Any) -> None:
        entries = [
            entry.reservation.to_dict()
            for entry in self._rule.entries.values()
            if not entry.configured
        ]
        text = json.dumps({"version": VERSION, "reservations": entries})
        self._commits.put(KEY, text, stored)

    # -- the clock ---------------------------------------------------------------------------------

    def arm(self) -> None:
        """Schedule `ReservationRule.tick` for when it is due, within `CLOCK_CHECK_S`: the clock
        may be set."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._rule.next_change()
        if due is not None:
            due = min(due, self._host.now() + CLOCK_CHECK_S)
            self._timer = self._host.call_at(due, self._fired)

    def _fired(self) -> None:
        self._errors.guard("reservations", self._rule.tick)
        self.arm()


def _named(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return copies of the entries, with job ids as users write them."""
    return [{**job, "name": name_of(job["id"])} for job in jobs]
