# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux sched reserve``, ``unreserve`` and ``reservations``."""

from __future__ import annotations

import argparse
from typing import Any

from flux.scheduler.attributes import printable
from flux.scheduler.command.subcommand import (
    Context,
    Subcommand,
    format_duration,
    jobspec_from_options,
    until_text,
)
from flux.scheduler.host import counted
from flux.scheduler.times import iso_time, local_zone_name

#: Maximum number of conflicting jobs shown per reservation.
MAX_CONFLICTS_SHOWN = 3


class Reserve(Subcommand):
    help = "reserve resources for a group of jobs, or for none, between two times"
    topic = "reserve"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("name", metavar="NAME", help="name of the reservation")
        text = "when it begins: +2h, 'tuesday 08:00', 2026-12-01T08:00"
        add("--start", required=True, metavar="TIME", help=text)
        add("--duration", required=True, metavar="FSD", help="how long it lasts: 90m, 4h, 1d")
        add("--nodes", type=int, metavar="N", help="number of nodes, chosen as late as possible")
        add("--hosts", metavar="HOSTLIST", help="exactly these nodes")
        text = "all nodes that meet a constraint or, with --nodes, only such nodes"
        add("--requires", metavar="CONSTRAINT", help=text)
        add("--users", metavar="LIST", help="users who may use it, separated by commas")
        add("--queues", metavar="LIST", help="queues whose jobs may use it, separated by commas")
        text = "bank whose jobs may use it; the option can be repeated"
        add("--bank", action="append", default=[], metavar="NAME", help=text)
        text = "repeat it: 1d and 1w keep the time of day when the clocks change; hours do not"
        add("--every", metavar="FSD", help=text)
        add("--zone", metavar="NAME", help="time zone of the times (default: this machine's)")
        text = "end jobs that still run inside at the end, or let them run on (default: cancel)"
        add("--at-end", choices=("cancel", "run"), default="cancel", help=text)
        add("--pin", action="store_true", help="choose the nodes now, not as late as possible")
        text = "reserve nothing; list the running jobs that are in the way"
        add("--dry-run", action="store_true", help=text)

    def payload(self, options: argparse.Namespace) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "name": options.name,
            "start": options.start,
            "duration": options.duration,
            "zone": options.zone or local_zone_name(),
            "at_end": options.at_end,
            "pin": options.pin,
        }
        for key in ("nodes", "hosts", "every"):
            if getattr(options, key) is not None:
                entry[key] = getattr(options, key)
        if options.requires:
            only = argparse.Namespace(requires=[options.requires])
            system = jobspec_from_options(only)["attributes"]["system"]
            entry["requires"] = system["constraints"]
        for key in ("users", "queues"):
            if getattr(options, key):
                entry[key] = getattr(options, key).split(",")
        if options.bank:
            entry["banks"] = options.bank
        return {"reservation": entry, "dry_run": options.dry_run}

    def show(self, answer: dict[str, Any], context: Context) -> None:
        options, now = context.options, answer["now"]
        zone = options.zone or local_zone_name()
        one = answer["reservation"]
        verb, nodes = "would be" if options.dry_run else "is", counted(one["nodes"], "node")
        when = f"{iso_time(one['start'], zone)} to {iso_time(one['end'], zone)}"
        when += f", every {one['every']}" if one.get("every") else ""
        print(f"{one['name']} {verb} reserved: {nodes}, {when}")
        if not one["group"]:
            print("  for no jobs: its nodes stay free")
        elif options.at_end == "cancel":
            print("  jobs of the group that still run at the end are ended then")
        else:
            print("  jobs of the group that still run at the end go on as ordinary jobs")
        for job in answer["conflicts"]:
            until = until_text(job["end"], now, context)
            print(f"  in the way: {job['name']} on {counted(job['nodes'], 'node')}, {until}")
        for text in answer.get("warnings") or ():
            print(f"  warning: {printable(text)}")


class Unreserve(Subcommand):
    help = "remove a reservation"
    topic = "unreserve"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name", metavar="NAME", help="name of the reservation")

    def payload(self, options: argparse.Namespace) -> dict[str, Any]:
        return {"name": options.name}


class Reservations(Subcommand):
    help = "list the reservations"
    topic = "reservations"
    has_head = True

    def show(self, answer: dict[str, Any], context: Context) -> None:
        now = answer["now"]
        rows = []
        for one in answer["reservations"]:
            times = context.time(one["start"], now), format_duration(one["end"] - one["start"])
            where = one["nodes"], one["ranks"], one.get("every"), one["group"] or "no jobs"
            rows.append((one["name"], one["state"], *times, *where, self.note(one, now, context)))
        head = ("NAME", "STATE", "START", "FOR", "NODES", "RANKS", "EVERY", "GROUP", "NOTE")
        self.print_table(context, head, rows, ("NODES",))

    def note(self, one: dict[str, Any], now: float, context: Context) -> str:
        """Return the problems of a reservation, and the running jobs in its way."""
        parts = [one["note"]] if one.get("note") else []
        jobs = one.get("in_the_way") or []
        shown, more = jobs[:MAX_CONFLICTS_SHOWN], jobs[MAX_CONFLICTS_SHOWN:]
        parts += [f"{job['name']} {until_text(job['end'], now, context)}" for job in shown]
        parts += [counted(len(more), "more job")] if more else []
        return "; ".join(parts)
