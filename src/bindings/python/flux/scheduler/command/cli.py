# SPDX-License-Identifier: LGPL-3.0-or-later
"""The subcommands of ``flux sched``: each queries one service of the scheduler and prints the
answer.

A new subcommand is a class derived from `Subcommand`, and a line in `COMMANDS`.
"""

from __future__ import annotations

import argparse
import errno
import json
import math
import os
import sys
from typing import Any

from flux.scheduler.attributes import printable
from flux.scheduler.command.explain import Explain, likely_text, warnings_of_queue
from flux.scheduler.command.plan_chart import Chart
from flux.scheduler.command.prometheus import exposition
from flux.scheduler.command.reserve import Reservations, Reserve, Unreserve
from flux.scheduler.command.subcommand import (
    CommandError,
    Context,
    Subcommand,
    add_job_options,
    format_duration,
    jobspec_from_options,
    read_jobid,
    terminal_width,
    write_file,
)
from flux.scheduler.command.topology import Topology
from flux.scheduler.host import counted
from flux.scheduler.times import parse_duration
from flux_scheduler_version import VERSION

#: Maximum number of jobs over a limit that are named.
MAX_JOBS_SHOWN = 8


class When(Subcommand):
    help = "say when a job would start if it were submitted now"
    topic = "when"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add_job_options(parser)
        parser.add_argument("--match", action="store_true", help="list the ranks it would get")
        text = "command of the job, ignored"
        parser.add_argument("job", nargs=argparse.REMAINDER, metavar="COMMAND", help=text)

    def payload(self, options: argparse.Namespace) -> dict[str, Any]:
        return {"jobspec": jobspec_from_options(options)}

    def ask(self, context: Context) -> dict[str, Any]:
        answer = super().ask(context)
        try:
            found = warnings_of_queue(context.handle, answer.get("queue"))
        except OSError:
            found = {}  # the answer is about resources
        return {**answer, "warnings": [*answer.get("warnings", ()), *found.values()]}

    def run(self, context: Context) -> Any:
        answer = super().run(context)
        if answer["verdict"] == "never":
            raise CommandError(f"never: {answer['reason']}")

    def show(self, answer: dict[str, Any], context: Context) -> None:
        now, start = answer["now"], answer["start"]
        if answer["verdict"] == "never":
            return
        if start is None:
            print(f"unknown: {printable(answer['reason'])}")
        elif answer["verdict"] == "now":
            print("now")
        else:
            print(f"{context.time(start, now)}, in {format_duration(start - now)}")
        if answer.get("t_likely") and answer["verdict"] != "now":
            print(likely_text(answer, now, context))
        for text in answer["warnings"]:
            print(f"warning: {printable(text)}")
        if start is None:
            return
        if answer.get("t_latest"):
            print(f"at the latest {context.time(answer['t_latest'], now)}")
        if answer.get("unplanned"):
            left_out = counted(answer["unplanned"], "pending job")
            print(f"({left_out} had not started when there was no time left)")
        if context.options.match:
            print(f"ranks: {answer['ranks'] or 'chosen when it starts'}")


class WithHorizon(Subcommand):
    """A query about the future."""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        text = "how far to look (default: 8h)"
        parser.add_argument("--horizon", default="8h", metavar="FSD", help=text)

    def payload(self, options: argparse.Namespace) -> dict[str, Any]:
        return {"horizon": parse_duration(options.horizon, "horizon")}


class Windows(WithHorizon):
    help = "show how many nodes are free now, and for how long"
    topic = "windows"

    def show(self, answer: dict[str, Any], context: Context) -> None:
        horizon = parse_duration(context.options.horizon, "horizon")
        now = answer["now"]
        # unless the instance ends earlier, which is an end of free nodes as any
        beyond = answer["until"] if answer["until"] >= now + horizon else math.inf
        rows: list[tuple[object, ...]] = []
        for kind in answer["kinds"]:
            for count, until in kind["steps"] or [[0, None]]:
                lasts, ends = f"{format_duration(horizon)} or more" if count else "", ""
                if until is not None and until < beyond:
                    lasts, ends = format_duration(until - now), context.time(until, now)
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
            if kind["steps"]:
                print(f"\n{printable(kind['kind'])}, free from now on:")
                print("\n".join(self.picture(kind, answer, beyond, width)))

    def picture(
        self, kind: dict[str, Any], answer: dict[str, Any], beyond: float, width: int
    ) -> list[str]:
        """Return a bar per number of free nodes, as long as they stay free; the smallest number on
        top."""
        whole = answer["until"] - answer["now"]
        lines = []
        for count, until in reversed(kind["steps"]):
            long = max(1, round((until - answer["now"]) / whole * width))
            lines.append(f"{count:>8} {'=' * long}{'>' if until >= beyond else '|'}")
        return lines


class Plan(WithHorizon):
    help = "draw running jobs, promises and reservations over time"
    topic = "plan"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        text = "write an SVG picture to this file"
        parser.add_argument("-o", "--output", metavar="FILE.svg", help=text)

    def show(self, answer: dict[str, Any], context: Context) -> None:
        chart = Chart(answer, context.zone)
        if context.options.output:
            write_file(context.options.output, chart.svg())
        else:
            sys.stdout.write(chart.text(terminal_width()))


class Stats(Subcommand):
    help = "print statistics of the scheduler"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        text = "use the text format of Prometheus"
        parser.add_argument("--prometheus", action="store_true", help=text)
        text = "write to this file, atomically (default: standard output)"
        parser.add_argument("-o", "--output", default="-", metavar="FILE", help=text)

    def run(self, context: Context) -> Any:
        options, answer = context.options, context.ask("stats")
        text = (
            exposition(answer) if options.prometheus else json.dumps(answer, sort_keys=True) + "\n"
        )
        write_file(options.output, text)


class Preempt(Subcommand):
    help = "say which running jobs would end so that a pending job can start"
    topic = "preempt"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("jobid", metavar="JOBID", help="a pending job")
        text = "only list them (required): the scheduler itself ends jobs, by the configuration"
        parser.add_argument("--dry-run", action="store_true", required=True, help=text)

    def payload(self, options: argparse.Namespace) -> dict[str, Any]:
        return {"id": read_jobid(options.jobid), "dry_run": True}

    def show(self, answer: dict[str, Any], context: Context) -> None:
        if answer["reason"] is None:
            what = answer.get("text") or "jobs of others"
            print(f"{answer['name']} could start now by ending {what}")
        else:
            print(f"{answer['name']} preempts no job: {answer['reason']}")
        if answer.get("victims"):
            head = ("JOBID", "CLASS", "NODES", "NODE-HOURS")
            rows = [
                (one["name"], one["class"], one["nodes"], f"{one['node_hours']:.1f}")
                for one in answer["victims"]
            ]
            self.print_table(context, head, rows, head[2:])


class Preemptions(Subcommand):
    help = "list preemptions, and the losses by class so far"
    topic = "preemptions"

    def show(self, answer: dict[str, Any], context: Context) -> None:
        now = answer["now"]
        rows = []
        for one in answer["preemptions"]:
            jobs = ", ".join(victim["name"] for victim in one["victims"])
            end = context.time(one["deadline"], now)
            rows.append((one["name"], one.get("queue"), one["state"], end, jobs))
        self.print_table(context, ("FOR", "QUEUE", "STATE", "END", "JOBS"), rows)
        if answer["borrowers"]:
            rows = []
            for one in answer["borrowers"]:
                end = context.time(one["end"], now)
                rows.append((one["for"], one["state"], end, one["name"], one.get("class")))
            print()
            self.print_table(context, ("IN THE TIME OF", "STATE", "END", "JOB", "CLASS"), rows)
        if answer.get("counts"):
            head = ("CLASS", "ENDED", "NODE-HOURS", "USELESS", "LOGGED")
            rows = []
            for one in answer["counts"]:
                hours = f"{one['node_hours']:.1f}"
                rows.append((one["class"], one["victims"], hours, one["useless"], one["logged"]))
            print()
            self.print_table(context, head, rows, head[1:])


def elsewhere_text(license: dict[str, Any]) -> tuple[Any, str]:
    """Return the number of licences used elsewhere, and the age of that number."""
    if "age" not in license:
        return "-", ""
    if license["age"] is None:
        return license.get("elsewhere"), "never read"
    stale = " (stale)" if license["stale"] else ""
    return license.get("elsewhere"), format_duration(license["age"]) + stale


class Limits(Subcommand):
    help = "list limits and licences, and their use"
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
            taken = []
            for what, most in one["max"].items():
                spent = f"{one['used'][what] + one['running'][what]:.1f}" if "used" in one else "?"
                taken.append("-" if most is None else f"{spent}/{most:g}")
            whose = one.get("whose") or "all"
            until = context.time(one["end"], answer["now"])
            rows.append((one["budget"], whose, *taken, until, one.get("waiting")))
        if rows:
            head = ("BUDGET", "WHOSE", "NODE-HOURS", "CORE-HOURS", "GPU-HOURS", "UNTIL", "WAITING")
            tables.append((head, rows, head[2:]))
        licenses = answer.get("licenses", ())
        head = ("LICENCE", "USED", "TOTAL", "RESERVED", "WAITING")
        keys: tuple[str, ...] = ("name", "used", "total", "reserved", "waiting")
        rows = [tuple(map(one.get, keys)) for one in licenses]
        if any("age" in one for one in licenses):
            head += ("ELSEWHERE", "AGE")
            rows = [(*row, *elsewhere_text(one)) for row, one in zip(rows, licenses)]
        if rows:
            tables.append((head, rows, head[1:]))
        for name, entries in answer.items():  # entries of a site's own rules
            if name not in ("now", "limits", "budgets", "licenses") and entries:
                keys = tuple(entries[0])
                rows = [tuple(map(one.get, keys)) for one in entries]
                tables.append((tuple(key.upper() for key in keys), rows, keys[1:]))
        for number, (head, rows, right) in enumerate(tables):
            if number:
                print()
            self.print_table(context, head, rows, right)
        if not tables and not context.options.no_header:
            print("no limit, budget, amount or licence to list")


class Shares(Subcommand):
    help = "list the use and the shares of banks and users"
    topic = "shares"
    has_head = True

    def show(self, answer: dict[str, Any], context: Context) -> None:
        if answer["half_life"] is None:
            print("fair share is off: there is no [fairshare] in the configuration")
            return
        rows = []
        for one in answer["shares"]:
            row = [one["bank"] or "-", one["user"], f"{one['shares']:g}", f"{one['part']:.1%}"]
            row.append(f"{one['used']:.1f}" if "used" in one else None)
            row.append(f"{one['used_part']:.1%}" if "used_part" in one else None)
            rows.append([*row, one.get("pending"), one.get("running")])
        head = ("BANK", "USER", "SHARES", "PART", "USED", "USED-PART", "PENDING", "RUNNING")
        self.print_table(context, head, rows, head[2:])


class CheckConfig(Subcommand):
    help = "check the tables of a configuration before it is loaded"
    topic = "check-config"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", help="a TOML file, or a directory of them")

    def payload(self, options: argparse.Namespace) -> dict[str, Any]:
        try:
            from flux_engine.formats.config import load_path
        except ImportError:
            raise CommandError("reading TOML needs Python 3.11, or the package tomli") from None
        try:
            return {"config": load_path(options.file)}
        except ValueError as exc:
            raise CommandError(str(exc)) from None

    def ask(self, context: Context) -> dict[str, Any]:
        # Imported here: it takes the harness of tests.
        from flux.scheduler.command.unloaded import answer_without_instance, faults

        request = self.payload(context.options)
        try:
            answer = context.ask(self.topic, request)
        except CommandError as exc:
            if exc.errno not in (None, errno.ENOSYS):
                raise
            try:
                found = answer_without_instance(request)
            except ValueError as fault:
                raise CommandError(str(fault)) from None
            if found is None:
                need = "[resource] in the configuration would name the nodes to check it for"
                raise CommandError(f"{exc}; {need}") from None
            answer = found
        answer["faults"] = [*faults(request["config"], os.environ), *answer["faults"]]
        return answer

    def show(self, answer: dict[str, Any], context: Context) -> None:
        for text in (*answer["faults"], *answer["doubts"]):
            print(printable(text))
        for table, kinds in answer["changes"].items():
            for kind, keys in kinds.items():
                if keys:
                    print(printable(f"[{table}] {kind}: {', '.join(keys)}"))
        over: dict[tuple[str, str], list[str]] = {}
        for one in answer.get("over", ()):
            verb = "run on" if one["state"] == "running" else "would wait"
            over.setdefault((one["text"], verb), []).extend(one["jobs"])
        for (text, verb), jobs in over.items():
            shown, more = ", ".join(jobs[:MAX_JOBS_SHOWN]), jobs[MAX_JOBS_SHOWN:]
            print(printable(f"{text}: {shown}{f' and {len(more)} more' if more else ''} {verb}"))
        if not any(answer.values()):
            print("nothing would change")

    def run(self, context: Context) -> Any:
        answer = super().run(context)
        if answer["faults"]:
            raise CommandError(counted(len(answer["faults"]), "fault"))


class Top(Subcommand):
    help = "show nodes, queue and plan, updated all the time"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        text = "time between updates (default: 2s)"
        parser.add_argument("-d", "--delay", default="2s", metavar="FSD", help=text)
        parser.add_argument("--once", action="store_true", help="print one view and exit")

    def run(self, context: Context) -> Any:
        from flux.scheduler.command.top import watch

        watch(context, max(0.2, parse_duration(context.options.delay, "delay")))


COMMANDS: dict[str, Subcommand] = {
    "explain": Explain(),
    "when": When(),
    "windows": Windows(),
    "plan": Plan(),
    "topology": Topology(),
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
    parser = argparse.ArgumentParser(
        prog="flux-sched",
        usage="flux sched [-h] COMMAND [OPTIONS]",
        description="Ask the scheduler questions, and reserve resources ahead of time.",
    )
    parser.add_argument("--version", action="version", version=f"flux-scheduler {VERSION}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        text = command.help[:1].upper() + command.help[1:] + "."
        sub = commands.add_parser(
            name, help=command.help, description=text, prog=f"flux sched {name}"
        )
        sub.add_argument("--json", action="store_true", help="print the answer as JSON")
        sub.add_argument("--utc", action="store_true", help="show times in UTC")
        if command.has_head:
            sub.add_argument("-n", "--no-header", action="store_true", help="print no header")
        command.add_options(sub)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run ``flux sched`` on the words after it (None: sys.argv). Return the exit status: 0; 1 if the
    command failed; 2 for incorrect usage, which subcommands raise as ValueError."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  (it was closed)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    options = make_parser().parse_args(argv)
    try:
        COMMANDS[options.command].run(Context(options))
        sys.stdout.flush()
        return 0
    except (CommandError, ValueError) as exc:
        print(f"flux-sched: ERROR: {printable(exc)}", file=sys.stderr)
        return 1 if isinstance(exc, CommandError) else 2
    except OSError as exc:
        # Output cannot be written. Python would report that again on flushing it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if isinstance(exc, BrokenPipeError):
            return 141
        print(f"flux-sched: ERROR: {exc.strerror or exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
