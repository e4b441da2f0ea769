# SPDX-License-Identifier: LGPL-3.0-or-later
"""The subcommands of ``flux sched``: each asks one service of the scheduler and prints the answer.

A new subcommand is a class derived from `Subcommand`, and a line in `COMMANDS`.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import importlib.util
import json
import os
import sys
import time
from typing import Any

from flux.job import JobID
from flux.scheduler.attributes import printable
from flux.scheduler.command import job_status, jobspec_options
from flux.scheduler.command.context import CommandError, Context
from flux.scheduler.command.formatting import (
    format_duration,
    format_table,
    terminal_width,
)
from flux.scheduler.command.new_file import replace_file
from flux.scheduler.command.plan_chart import Chart
from flux.scheduler.command.prometheus import exposition
from flux.scheduler.host import counted
from flux.scheduler.reservations.times import (
    iso_time,
    local_zone_name,
    parse_duration,
)
from flux_scheduler_version import VERSION

#: How many of the jobs that are in the way of a reservation are named in the list of reservations.
MAX_CONFLICTS_SHOWN = 3


def read_jobid(text: str) -> int:
    """The job id that a user has written.

    Raises:
        CommandError: it is none
    """
    try:
        return int(JobID(text))
    except ValueError:
        raise CommandError(f"{text!r} is not a job id") from None


def write_file(path: str, text: str) -> None:
    """Write a file with `replace_file`, or print it.

    Args:
        path: the file; ``-``: standard output
        text: what it is to hold

    Raises:
        CommandError: it cannot be written
    """
    if path == "-":
        sys.stdout.write(text)
        return
    try:
        replace_file(path, text)
    except OSError as exc:
        raise CommandError(f"{path}: {exc.strerror}") from None


def until_text(end: float | None, now: float, context: Context) -> str:
    """``until 12:00:00``, for something that ends at `end` (seconds since the epoch; None:
    unknown)."""
    return "without a known end" if end is None else f"until {context.time(end, now)}"


class Subcommand:
    """A subcommand: it asks a service of the scheduler, and shows the answer or prints it as JSON.

    Attributes:
        help (str): what it does, for ``--help``
        topic (str): the request, without ``sched.``
        has_head (bool): it prints tables, whose heads ``--no-header`` leaves out
    """

    help = ""
    topic = ""
    has_head = False

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add its options, beside those that all subcommands have."""

    def payload(self, options: argparse.Namespace) -> dict[str, Any]:
        """The request. A CommandError or ValueError tells that an option has a bad value."""
        return {}

    def ask(self, context: Context) -> dict[str, Any]:
        """Return the answer. A CommandError tells that there is none."""
        return context.ask(self.topic, self.payload(context.options))

    def run(self, context: Context) -> Any:
        """Do it, and return the answer. A CommandError or ValueError tells that it cannot be done."""
        answer = self.ask(context)
        if context.options.json:
            json.dump(answer, sys.stdout, ensure_ascii=False)
            sys.stdout.write("\n")
        else:
            self.show(answer, context)
        return answer

    def show(self, answer: dict[str, Any], context: Context) -> None:
        """Print an answer for a reader."""

    def print_table(self, context: Context, *table: Any) -> None:
        """Print a table; arguments are those of `format_table`."""
        lines = format_table(*table)
        for line in lines[1:] if self.has_head and context.options.no_header else lines:
            print(line)


class Explain(Subcommand):
    help = "say why a pending job waits, or list all pending jobs with the reasons"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("jobid", nargs="?", metavar="JOBID", help="a pending job")
        parser.add_argument("-a", "--all", action="store_true", help="all pending jobs")

    def ask(self, context: Context) -> dict[str, Any]:
        options = context.options
        if options.all == (options.jobid is not None):
            raise CommandError("give either a job id or --all")
        if options.all:
            return context.ask("explain", {"all": True})
        return self.explain_job(read_jobid(options.jobid), context)

    def show(self, answer: dict[str, Any], context: Context) -> None:
        if context.options.all:
            self._print_table(answer, context)
        else:
            for job in answer["jobs"]:
                print("\n".join(map(printable, self.lines(job, answer, context))))

    def _print_table(self, answer: dict[str, Any], context: Context) -> None:
        rows = []
        for job in answer["jobs"]:
            estimate = job["t_estimate"] and context.time(job["t_estimate"], answer["now"])
            rows.append((job["name"], job.get("queue"), estimate, job["reason"]))
        self.print_table(context, ("JOBID", "QUEUE", "ESTIMATE", "REASON"), rows)
        more = job_status.count_pending(context.handle) - len(rows) - answer.get("others", 0)
        if more > 0:
            print(
                f"{counted(more, 'pending job')} not sent to the scheduler yet: "
                "flux sched explain JOBID says why"
            )

    def explain_job(self, jobid: int, context: Context) -> dict[str, Any]:
        """Why one job waits: the scheduler's answer or, in the same form, why the job manager has
        not sent the job to the scheduler yet.

        Raises:
            CommandError: it is not pending, or nothing is known about it
        """
        handle = context.handle
        name = JobID(jobid).f58
        job = job_status.look_up_job(handle, jobid)
        if job is None:
            return context.ask("explain", {"id": jobid})
        state = job_status.state_or_result(job)
        if state not in ("DEPEND", "PRIORITY", "SCHED"):
            raise CommandError(f"{name} is not a pending job: its state is {state}")
        reason = job_status.reason_in_job_manager(job)
        if reason is None:
            try:
                return context.ask("explain", {"id": jobid})
            except CommandError as refusal:
                # The scheduler refuses what it has no request for.
                if refusal.errno != errno.EINVAL:
                    raise
            try:
                reason = job_status.reason_of_queue(handle, job)
            except OSError as exc:
                raise CommandError.from_refusal(
                    f"{name} has not been sent to the scheduler: {exc.strerror}", exc
                ) from None
        now = time.time()
        found = {
            "id": jobid,
            "name": name,
            "queue": job.get("queue"),
            "priority": job.get("priority"),
            "verdict": "waits",
            "reason": reason,
            "t_estimate": None,
            "t_estimate_kind": None,
        }
        return {"now": now, "made": now, "jobs": [found], "others": 0}

    def lines(self, job: dict[str, Any], answer: dict[str, Any], context: Context) -> list[str]:
        """Everything that the scheduler has said about one job, one sentence on each line."""
        now = answer["now"]
        verdict = {"waits": "waits", "never": "can never run as things are", "starts": "can start"}
        lines = [
            f"{job['name']} {verdict[job['verdict']]}: "
            f"{job['reason'] or 'nothing keeps it from starting'}"
        ]
        if job.get("total") is not None:
            unit = job["unit"]
            lines.append(
                f"  needs {counted(job['needed'], unit[:-1])}; of {counted(job['total'], 'node')} "
                f"{job['matching']} match, {job['up']} of them are up, {job['large_enough']} are "
                f"large enough; {counted(job['available'], unit[:-1])} free now"
                + (f" on {counted(job['free'], 'node')}" if unit == "slots" else "")
            )
        for one in job.get("excluded") or ():
            lines.append(
                f"  {one['constraint']} excludes {counted(one['nodes'], 'node')}: "
                f"rank {one['ranks']}"
            )
        for one in job.get("behind") or ():
            until = until_text(one["end"], now, context)
            lines.append(f"  behind {one['name']}, {one['state']}, {until}")
        if job.get("behind_more"):
            lines.append("  and other jobs that end earlier")
        if job.get("reservation"):
            one = job["reservation"]
            lines.append(
                f"  reservation {one['name']}: {context.time(one['start'], now)} to "
                f"{context.time(one['end'], now)}"
            )
        for one in (job.get("rules") or ())[1:]:
            lines.append(f"  and {one['reason']}")
        if (job.get("limit") or {}).get("t_again"):
            one = job["limit"]
            when = context.time(one["t_again"], now)
            after = f", when {one['job']} ends" if one.get("job") else ""
            lines.append(f"  limit {one['name']}: again about {when}{after}")
        if (job.get("budget") or {}).get("t_again"):
            one = job["budget"]
            lines.append(
                f"  budget {one['name']}: begins anew at {context.time(one['t_again'], now)}"
            )
        if job.get("preemption"):
            lines.append(f"  could start now by ending {job['preemption']['text']}")
        if job.get("borrowers"):
            one = job["borrowers"]
            lines.append(f"  {one['text']}; ended at {context.time(one['end'], now)}")
        fits = job.get("fits") or {}
        if fits.get("limit"):
            lines.append(
                f"  it could start now with a time limit of {format_duration(fits['limit'])} or less"
            )
        if fits.get("count"):
            unit = job["unit"]
            lines.append(f"  it could start now with {counted(fits['count'], unit[:-1])}")
        if job.get("rank") is not None:
            lines.append(
                f"  rank {job['rank']:.6g} among jobs of its priority; expected to run for "
                f"{format_duration(job['expected_run'])}"
            )
        if (job.get("fairshare") or {}).get("place"):
            one = job["fairshare"]
            whose = (
                f"{one['user']}{' in bank ' + one['bank'] if one['bank'] else ''}"
                if "user" in one
                else "its user"
            )
            lines.append(
                f"  fair share: {whose} is number {one['place']} of {one['of']} whose jobs wait"
            )
        if job.get("t_latest"):
            lines.append(f"  starts by {context.time(job['t_latest'], now)} at the latest")
        if job.get("latest_start"):
            lines.append(f"  given up at {context.time(job['latest_start'], now)} if it waits then")
        if job.get("t_estimate"):
            kind = job.get("t_estimate_kind") or "planned"
            lines.append(f"  starts about {context.time(job['t_estimate'], now)} ({kind})")
        if job.get("t_likely"):
            lines.append(f"  {likely_text(job, now, context)}")
        age = now - answer["made"]
        if age >= 1:
            lines.append(f"  (as of {format_duration(age)} ago)")
        return lines


def likely_text(said: dict[str, Any], now: float, context: Context) -> str:
    """Its ``t_likely`` and ``t_p90`` for a reader."""
    return (
        f"likely about {context.time(said['t_likely'], now)}, by {context.time(said['t_p90'], now)} "
        "in nine cases of ten"
    )


class When(Subcommand):
    help = "say when a job would start if it were submitted now"
    topic = "when"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        jobspec_options.add_options(parser)
        parser.add_argument("--match", action="store_true", help="list the ranks it would get")

    def payload(self, options: argparse.Namespace) -> dict[str, Any]:
        return {"jobspec": jobspec_options.jobspec_from_options(options)}

    def show(self, answer: dict[str, Any], context: Context) -> None:
        if answer["verdict"] == "never":
            raise CommandError(f"never: {answer['reason']}")
        elif answer["start"] is None:
            print(f"unknown: {printable(answer['reason'])}")
            self._print_odds(answer, context)
        else:
            now = answer["now"]
            wait = answer["start"] - now
            if wait <= 0:
                print("now")
            else:
                print(f"{context.time(answer['start'], now)}, in {format_duration(wait)}")
                self._print_odds(answer, context)
            if answer.get("t_latest"):
                print(f"at the latest {context.time(answer['t_latest'], now)}")
            if answer.get("unplanned"):
                left_out = counted(answer["unplanned"], "pending job")
                print(f"({left_out} had not started when there was no time left)")
            if context.options.match:
                print(f"ranks: {answer['ranks'] or 'chosen when it starts'}")

    @staticmethod
    def _print_odds(answer: dict[str, Any], context: Context) -> None:
        if answer.get("t_likely"):
            print(likely_text(answer, answer["now"], context))


class WithHorizon(Subcommand):
    """A question about the time to come."""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--horizon", default="8h", metavar="FSD", help="how far to look (default: 8h)"
        )

    def payload(self, options: argparse.Namespace) -> dict[str, Any]:
        return {"horizon": parse_duration(options.horizon, "horizon")}


class Windows(WithHorizon):
    help = "show how many nodes are free now, and for how long"
    topic = "windows"

    def show(self, answer: dict[str, Any], context: Context) -> None:
        horizon = parse_duration(context.options.horizon, "horizon")
        now = answer["now"]
        rows: list[tuple[object, ...]] = []
        for kind in answer["kinds"]:
            for count, until in kind["steps"] or [[0, None]]:
                if until is not None and until < answer["until"]:
                    lasts, ends = format_duration(until - now), context.time(until, now)
                else:
                    lasts, ends = f"{format_duration(horizon)} or more" if count else "", ""
                rows.append((kind["kind"], count, kind["total"], lasts, ends))
        self.print_table(context, ("KIND", "FREE", "OF", "FOR", "UNTIL"), rows, ("FREE", "OF"))
        if answer.get("levels"):
            print()
            columns = ("LEVEL", "FREE GROUPS", "OF", "FREE NODES IN ONE", "JOBS WAITING")
            keys = ("level", "idle_groups", "groups", "idle_nodes", "waiting")
            rows = [tuple(map(one.get, keys)) for one in answer["levels"]]
            self.print_table(context, columns, rows, columns[1:])
        width = max(10, terminal_width() - 12)
        for kind in answer["kinds"]:
            if kind["total"]:
                print(f"\n{printable(kind['kind'])}, free from now on:")
                print("\n".join(self.picture(kind, answer, width)))

    def picture(self, kind: dict[str, Any], answer: dict[str, Any], width: int) -> list[str]:
        """A bar for each number of free nodes, as long as they stay free; the smallest number on
        top."""
        whole = answer["until"] - answer["now"]
        lines = []
        for count, until in reversed(kind["steps"]):
            long = max(1, round((until - answer["now"]) / whole * width))
            lines.append(f"{count:>8} {'=' * long}{'>' if until >= answer['until'] else '|'}")
        return lines or ["       0"]


class Plan(WithHorizon):
    help = "draw what runs, is promised and is reserved, over time"
    topic = "plan"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "-o", "--output", metavar="FILE.svg", help="write an SVG picture to this file"
        )

    def show(self, answer: dict[str, Any], context: Context) -> None:
        chart = Chart(answer, context.zone)
        if context.options.output:
            write_file(context.options.output, chart.svg())
        else:
            sys.stdout.write(chart.text(terminal_width()))


class Stats(Subcommand):
    help = "print statistics of the scheduler"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--prometheus", action="store_true", help="use the text format of Prometheus"
        )
        parser.add_argument(
            "-o",
            "--output",
            default="-",
            metavar="FILE",
            help="write to this file, atomically (default: standard output)",
        )

    def run(self, context: Context) -> Any:
        answer = context.ask("stats")
        if context.options.prometheus:
            write_file(context.options.output, exposition(answer))
        else:
            write_file(context.options.output, json.dumps(answer, sort_keys=True) + "\n")


class Reserve(Subcommand):
    help = "reserve resources for a group of jobs, or for nobody, during a period of time"
    topic = "reserve"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("name", metavar="NAME", help="name of the reservation")
        add(
            "--start",
            required=True,
            metavar="TIME",
            help="when it begins: +2h, 'tuesday 08:00', 2026-12-01T08:00",
        )
        add("--duration", required=True, metavar="FSD", help="how long it lasts: 90m, 4h, 1d")
        add("--nodes", type=int, metavar="N", help="number of nodes, chosen as late as possible")
        add("--hosts", metavar="HOSTLIST", help="exactly these nodes")
        add(
            "--requires",
            metavar="CONSTRAINT",
            help="all nodes that meet a constraint or, with --nodes, only such nodes",
        )
        add("--users", metavar="LIST", help="users who may use it, separated by commas")
        add("--queues", metavar="LIST", help="queues whose jobs may use it, separated by commas")
        add(
            "--bank",
            action="append",
            default=[],
            metavar="NAME",
            help="bank whose jobs may use it; the option can be repeated",
        )
        add(
            "--every",
            metavar="FSD",
            help="repeat it: 1d and 1w keep the time of day when the clocks change; hours do not",
        )
        add("--zone", metavar="NAME", help="time zone of the times (default: this machine's)")
        add(
            "--at-end",
            choices=("cancel", "run"),
            default="cancel",
            help="end jobs that still run inside at the end, or let them run on (default: cancel)",
        )
        add("--pin", action="store_true", help="choose the nodes now, not as late as possible")
        add(
            "--dry-run",
            action="store_true",
            help="reserve nothing; list the running jobs that are in the way",
        )

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
            entry["requires"] = jobspec_options.parse_constraint(options.requires)
        if options.users:
            entry["users"] = options.users.split(",")
        if options.queues:
            entry["queues"] = options.queues.split(",")
        if options.bank:
            entry["banks"] = options.bank
        return {"reservation": entry, "dry_run": options.dry_run}

    def show(self, answer: dict[str, Any], context: Context) -> None:
        options, now = context.options, answer["now"]
        zone = options.zone or local_zone_name()
        one = answer["reservation"]
        verb = "would be" if options.dry_run else "is"
        print(
            f"{one['name']} {verb} reserved: {counted(one['nodes'], 'node')}, "
            f"{iso_time(one['start'], zone)} to {iso_time(one['end'], zone)}"
            + (f", every {one['every']}" if one.get("every") else "")
        )
        if not one["group"]:
            print("  for nobody: no job runs on these nodes then")
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
            rows.append(
                (
                    one["name"],
                    one["state"],
                    context.time(one["start"], now),
                    format_duration(one["end"] - one["start"]),
                    one["nodes"],
                    one["ranks"] or "",
                    one.get("every") or "",
                    one["group"] or "nobody",
                    self.note(one, now, context),
                )
            )
        head = ("NAME", "STATE", "START", "FOR", "NODES", "RANKS", "EVERY", "GROUP", "NOTE")
        self.print_table(context, head, rows, ("NODES",))

    def note(self, one: dict[str, Any], now: float, context: Context) -> str:
        """What is wrong with a reservation, and which running jobs are in its way."""
        parts = [one["note"]] if one.get("note") else []
        jobs = one.get("in_the_way") or []
        parts += [
            f"{job['name']} {until_text(job['end'], now, context)}"
            for job in jobs[:MAX_CONFLICTS_SHOWN]
        ]
        if len(jobs) > MAX_CONFLICTS_SHOWN:
            parts.append(f"{counted(len(jobs) - MAX_CONFLICTS_SHOWN, 'more job')}")
        return "; ".join(parts)


class Preempt(Subcommand):
    help = "say which running jobs would end so that a pending job can start"
    topic = "preempt"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("jobid", metavar="JOBID", help="a pending job")
        parser.add_argument(
            "--dry-run",
            action="store_true",
            required=True,
            help="end nobody: by themselves jobs are ended as the configuration says",
        )

    def payload(self, options: argparse.Namespace) -> dict[str, Any]:
        return {"id": read_jobid(options.jobid), "dry_run": True}

    def show(self, answer: dict[str, Any], context: Context) -> None:
        if answer["reason"] is None:
            what = answer.get("text") or "jobs of others"
            print(f"{answer['name']} could start now by ending {what}")
        else:
            print(f"{answer['name']} takes from nobody: {answer['reason']}")
        if answer.get("victims"):
            rows = [
                (one["name"], one["class"], one["nodes"], f"{one['node_hours']:.1f}")
                for one in answer["victims"]
            ]
            head = ("JOBID", "CLASS", "NODES", "NODE-HOURS")
            self.print_table(context, head, rows, head[2:])


class Preemptions(Subcommand):
    help = "list the jobs for which others end, and count what was lost so far"
    topic = "preemptions"

    def show(self, answer: dict[str, Any], context: Context) -> None:
        now = answer["now"]
        rows = [
            (
                one["name"],
                one.get("queue") or "",
                one["state"],
                context.time(one["deadline"], now),
                ", ".join(victim["name"] for victim in one["victims"]),
            )
            for one in answer["preemptions"]
        ]
        self.print_table(context, ("FOR", "QUEUE", "STATE", "END", "JOBS"), rows)
        if answer["borrowers"]:
            borrowers = [
                (
                    one["for"],
                    one["state"],
                    context.time(one["end"], now),
                    one["name"],
                    one.get("class"),
                )
                for one in answer["borrowers"]
            ]
            head = ("IN THE TIME OF", "STATE", "END", "JOB", "CLASS")
            print()
            self.print_table(context, head, borrowers)
        if answer.get("counts"):
            head = ("CLASS", "ENDED", "NODE-HOURS", "USELESS", "LOGGED")
            counts = [
                (
                    one["class"],
                    one["victims"],
                    f"{one['node_hours']:.1f}",
                    one["useless"],
                    one["logged"],
                )
                for one in answer["counts"]
            ]
            print()
            self.print_table(context, head, counts, head[1:])


def elsewhere_text(license: dict[str, Any]) -> tuple[Any, str]:
    """How many of a licence are used elsewhere, and how old that is."""
    if "age" not in license:
        return "-", ""
    age = license["age"]
    text = "never read" if age is None else format_duration(age)
    return license.get("elsewhere"), text + (
        " (stale)" if license["stale"] and age is not None else ""
    )


class Limits(Subcommand):
    help = "list limits and licences, and what is in use of them"
    topic = "limits"
    has_head = True

    def show(self, answer: dict[str, Any], context: Context) -> None:
        tables = []
        rows: list[tuple[Any, ...]] = []
        for one in answer.get("limits", ()):
            used = [
                "-" if most is None else f"{one.get('used', {}).get(what, '?')}/{most}"
                for what, most in one["max"].items()
            ]
            whose = one.get("whose") or "all"
            rows.append((one["limit"], whose, *used, one.get("waiting")))
        if rows:
            head: tuple[str, ...] = ("LIMIT", "WHOSE", "NODES", "CORES", "GPUS", "JOBS", "WAITING")
            tables.append((head, rows, head[2:]))
        rows = []
        for one in answer.get("budgets", ()):
            taken = [
                "-"
                if most is None
                else f"{one['used'][what] + one['running'][what]:.1f}/{most:g}"
                if "used" in one
                else f"?/{most:g}"
                for what, most in one["max"].items()
            ]
            whose = one.get("whose") or "all"
            until = context.time(one["end"], answer["now"])
            rows.append((one["budget"], whose, *taken, until, one.get("waiting")))
        if rows:
            head = ("BUDGET", "WHOSE", "NODE-HOURS", "CORE-HOURS", "GPU-HOURS", "UNTIL", "WAITING")
            tables.append((head, rows, head[2:]))
        licenses = answer.get("licenses", ())
        rows = [
            (one["name"], one.get("used"), one["total"], one["reserved"], one.get("waiting"))
            for one in licenses
        ]
        if any("age" in one for one in licenses):
            rows = [(*row, *elsewhere_text(one)) for row, one in zip(rows, licenses)]
            head = ("LICENCE", "USED", "TOTAL", "RESERVED", "WAITING", "ELSEWHERE", "AGE")
            tables.append((head, rows, head[1:]))
        elif rows:
            head = ("LICENCE", "USED", "TOTAL", "RESERVED", "WAITING")
            tables.append((head, rows, head[1:]))
        for name, entries in answer.items():  # those of a site's own rules
            if name not in ("now", "limits", "budgets", "licenses") and entries:
                keys = tuple(entries[0])
                rows = [tuple(one.get(key) for key in keys) for one in entries]
                tables.append((tuple(key.upper() for key in keys), rows, keys[1:]))
        for number, (head, rows, right) in enumerate(tables):
            if number:
                print()
            self.print_table(context, head, rows, right)


class Shares(Subcommand):
    help = "list what banks and users have used, and their shares"
    topic = "shares"
    has_head = True

    def show(self, answer: dict[str, Any], context: Context) -> None:
        if answer["half_life"] is None:
            print("fair share is off: there is no [fairshare] in the configuration")
            return
        rows = [
            (
                one["bank"] or "-",
                one["user"] or "",
                f"{one['shares']:g}",
                f"{one['part']:.1%}",
                f"{one['used']:.1f}" if "used" in one else None,
                f"{one['used_part']:.1%}" if "used_part" in one else None,
                one.get("pending"),
                one.get("running"),
            )
            for one in answer["shares"]
        ]
        head = ("BANK", "USER", "SHARES", "PART", "USED", "USED-PART", "PENDING", "RUNNING")
        self.print_table(context, head, rows, head[2:])


class CheckConfig(Subcommand):
    help = "check the tables of a configuration before it is loaded"
    topic = "check-config"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", help="a TOML file, or a directory of them")

    def payload(self, options: argparse.Namespace) -> dict[str, Any]:
        return {"config": read_toml(options.file)}

    def show(self, answer: dict[str, Any], context: Context) -> None:
        for text in (*answer["faults"], *answer["doubts"]):
            print(printable(text))
        for table, kinds in answer["changes"].items():
            for kind, keys in kinds.items():
                if keys:
                    print(printable(f"[{table}] {kind}: {', '.join(keys)}"))
        for one in answer.get("over", ()):
            jobs = ", ".join(one["jobs"])
            verb = "run on" if one["state"] == "running" else "would wait"
            print(printable(f"{one['text']}: {jobs} {verb}"))
        if not any(answer.values()):
            print("nothing would change")

    def run(self, context: Context) -> Any:
        answer = super().run(context)
        if answer["faults"]:
            raise CommandError(counted(len(answer["faults"]), "fault"))


def read_toml(path: str) -> dict[str, Any]:
    """The configuration in a TOML file, or in all of a directory.

    Raises:
        CommandError: it cannot be read
    """
    for name in ("tomllib", "tomli"):  # the first is there since Python 3.11
        if importlib.util.find_spec(name) is not None:
            toml = importlib.import_module(name)
            break
    else:
        raise CommandError("reading TOML needs Python 3.11, or the package tomli")
    paths = [path]
    if os.path.isdir(path):
        paths = sorted(os.path.join(path, name) for name in os.listdir(path))
        paths = [one for one in paths if one.endswith(".toml")]
    config: dict[str, Any] = {}
    for one in paths:
        try:
            with open(one, "rb") as stream:
                read = toml.load(stream)
            json.dumps(read, allow_nan=False)
        except (OSError, ValueError, TypeError, RecursionError) as exc:
            raise CommandError(f"{one}: {exc}") from None
        for key, value in read.items():
            if isinstance(value, dict) and isinstance(config.get(key), dict):
                value = {**config[key], **value}
            config[key] = value
    return config


class Top(Subcommand):
    help = "show nodes, queue and plan, updated all the time"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "-d", "--delay", default="2s", metavar="FSD", help="time between updates (default: 2s)"
        )
        parser.add_argument("--once", action="store_true", help="print one view and exit")

    def run(self, context: Context) -> Any:
        from flux.scheduler.command.top import watch

        watch(context, max(0.2, parse_duration(context.options.delay, "delay")))


COMMANDS: dict[str, Subcommand] = {
    "explain": Explain(),
    "when": When(),
    "windows": Windows(),
    "plan": Plan(),
    "top": Top(),
    "stats": Stats(),
    "reserve": Reserve(),
    "unreserve": Unreserve(),
    "reservations": Reservations(),
    "preempt": Preempt(),
    "preemptions": Preemptions(),
    "limits": Limits(),
    "shares": Shares(),
    "check-config": CheckConfig(),
}


def make_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="flux-sched",
        usage="flux sched [-h] COMMAND [OPTIONS]",
        description="Ask the scheduler questions, and reserve resources ahead of time.",
    )
    parser.add_argument("--version", action="version", version=f"flux-scheduler {VERSION}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        sub = commands.add_parser(
            name,
            help=command.help,
            description=command.help[:1].upper() + command.help[1:] + ".",
            prog=f"flux sched {name}",
        )
        sub.add_argument("--json", action="store_true", help="print the answer as JSON")
        sub.add_argument("--utc", action="store_true", help="show times in UTC")
        if command.has_head:
            sub.add_argument("-n", "--no-header", action="store_true", help="print no header")
        command.add_options(sub)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run ``flux sched``.

    Args:
        argv: the command line without the command itself; None: that of the process

    Returns:
        int: the exit status: 0; 1 if the command failed; 2 for bad usage
    """
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    options = make_parser().parse_args(argv)
    try:
        COMMANDS[options.command].run(Context(options))
        sys.stdout.flush()
        return 0
    except (CommandError, ValueError) as exc:
        print(f"flux-sched: ERROR: {printable(exc)}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Nobody reads our output any more. Python would report that again when it flushes standard
        # output at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except KeyboardInterrupt:
        return 130
