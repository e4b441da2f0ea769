# SPDX-License-Identifier: LGPL-3.0-or-later
"""The subcommands of ``flux sched``: each asks one service of the scheduler and prints the answer.

A new subcommand is a class here with ``add_options`` and ``run``, and a line in `COMMANDS`.
"""

import argparse
import errno
import json
import os
import sys
import tempfile
import time
from typing import Any, Callable, Dict, List, Optional

import flux
from flux.job import JobID
from flux.scheduler.command import job_status, jobspec_options
from flux.scheduler.command.formatting import (
    format_duration,
    format_table,
    format_time,
    plural,
    printable,
    terminal_width,
)
from flux.scheduler.command.plan_chart import Chart
from flux.scheduler.command.prometheus import exposition
from flux.scheduler.reservations.times import (
    iso_time,
    local_zone_name,
    parse_duration,
)

Ask = Callable[..., Dict[str, Any]]

#: Jobs in the way of a reservation that the list of reservations names.
MAX_CONFLICTS_SHOWN = 3


class CommandError(Exception):
    """Something that the user is told in one line, with exit status 1.

    Attributes:
        errno (int): with which a service refused; 0 if none did
    """

    errno = 0

    @classmethod
    def of(cls, text: str, error: OSError) -> "CommandError":
        """A service refused."""
        failure = cls(text)
        failure.errno = error.errno or 0
        return failure


class Context:
    """What every subcommand needs: the handle, and how times are shown."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.zone = "UTC" if options.utc else local_zone_name()
        self._handle: Any = None

    @property
    def handle(self) -> Any:
        """The Flux handle.

        Raises:
            CommandError: there is no instance
        """
        if self._handle is None:
            try:
                self._handle = flux.Flux()
            except OSError as exc:
                raise CommandError(
                    f"there is no Flux instance to ask: {exc.strerror or exc}"
                ) from None
        return self._handle

    def ask(self, method: str, payload: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        """The answer of a service of the scheduler.

        Raises:
            CommandError: it has none, or refuses
        """
        try:
            answer = self.handle.rpc(f"sched.{method}", payload or {}).get()
        except OSError as exc:
            raise CommandError.of(self._why(method, exc), exc) from None
        return answer if isinstance(answer, dict) else {}

    def _why(self, method: str, exc: OSError) -> str:
        text = exc.strerror or str(exc)
        if exc.errno == errno.ENOSYS:
            return (
                f"the scheduler cannot be asked ({method}): none is loaded, or it is not one of "
                "flux.scheduler (flux module list)"
            )
        if exc.errno == errno.EPERM:
            return f"{method}: only the owner of the instance may do this"
        return text

    def time(self, when: Optional[float], now: float) -> str:
        """A point in time for a person."""
        return format_time(when, now, self.zone)


def show_json(answer: Any) -> None:
    """Print an answer as one JSON object."""
    json.dump(answer, sys.stdout, ensure_ascii=False)
    sys.stdout.write("\n")


def write_file(path: str, text: str) -> None:
    """Have `text` in a file at once: whoever reads it finds the old text or the new one, whole.

    Raises:
        CommandError: it cannot be written
    """
    if path == "-":
        sys.stdout.write(text)
        return
    directory = os.path.dirname(os.path.abspath(path))
    try:
        fd, name = tempfile.mkstemp(prefix=".flux-sched-", dir=directory)
        try:
            with os.fdopen(fd, "w", encoding="utf-8") as stream:
                stream.write(text)
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(name, 0o666 & ~mask)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as exc:
        raise CommandError(f"{path}: {exc.strerror}") from None


class Explain:
    """why a job is pending, or all jobs"""

    @staticmethod
    def add_options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("jobid", nargs="?", metavar="JOBID", help="a pending job")
        parser.add_argument("-a", "--all", action="store_true", help="all pending jobs")

    def run(self, context: Context) -> None:
        options = context.options
        if options.all == (options.jobid is not None):
            raise CommandError("give a job id, or --all")
        if options.all:
            answer = context.ask("explain", {"all": True})
        else:
            try:
                jobid = int(JobID(options.jobid))
            except ValueError:
                raise CommandError(f"{options.jobid!r} is not a job id") from None
            answer = self.of_one(jobid, context)
        if options.json:
            show_json(answer)
        elif options.all:
            rows = [
                (job["name"], job.get("queue"), context.time(job["t_estimate"], answer["now"])
                 if job["t_estimate"] else None, job["reason"])
                for job in answer["jobs"]
            ]  # fmt: skip
            print("\n".join(format_table(("JOBID", "QUEUE", "ESTIMATE", "REASON"), rows)))
            more = job_status.count_pending(context.handle) - len(rows) - answer.get("others", 0)
            if more > 0:
                print(
                    f"{plural(more, 'pending job')} not with the scheduler yet: "
                    "flux sched explain JOBID says why"
                )
        else:
            for job in answer["jobs"]:
                print("\n".join(self.lines(job, answer, context)))

    def of_one(self, jobid: int, context: Context) -> Dict[str, Any]:
        """The scheduler's answer about a job, or what keeps it from the scheduler, in the same form.

        Raises:
            CommandError: it is not pending, or nothing is known of it
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
            except CommandError as failure:
                if failure.errno != errno.EINVAL:
                    raise
            try:
                reason = job_status.reason_of_queue(handle, job)
            except OSError as exc:
                raise CommandError.of(
                    f"{name} is not with the scheduler: {exc.strerror}", exc
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

    def lines(self, job: Dict[str, Any], answer: Dict[str, Any], context: Context) -> List[str]:
        """What there is to say of one job, a sentence a line."""
        now = answer["now"]
        words = {"waits": "waits", "never": "can never run as things are", "starts": "can start"}
        lines = [
            f"{job['name']} {words[job['verdict']]}: {job['reason'] or 'nothing is in its way'}"
        ]
        if job.get("total") is not None:
            unit = job["unit"]
            lines.append(
                f"  needs {plural(job['needed'], unit[:-1])}; of {plural(job['total'], 'node')} "
                f"{job['matching']} match, {job['up']} of them are up, {job['large_enough']} are "
                f"large enough; {plural(job['available'], unit[:-1])} free now"
                + (f" on {plural(job['free'], 'node')}" if unit == "slots" else "")
            )
        for one in job.get("excluded") or ():
            lines.append(
                f"  {one['constraint']} leaves out {plural(one['nodes'], 'node')}: "
                f"rank {one['ranks']}"
            )
        for one in job.get("behind") or ():
            until = "without a known end" if one["end"] is None else (
                "until " + context.time(one["end"], now)
            )  # fmt: skip
            lines.append(f"  behind {one['name']}, {one['state']}, {until}")
        if job.get("behind_more"):
            lines.append("  and others that end before these")
        if job.get("reservation"):
            one = job["reservation"]
            lines.append(
                f"  reservation {one['name']}: {context.time(one['start'], now)} to "
                f"{context.time(one['end'], now)}"
            )
        fits = job.get("fits") or {}
        if fits.get("limit"):
            lines.append(
                f"  it could start now with a time limit of {format_duration(fits['limit'])} or less"
            )
        if fits.get("count"):
            unit = job["unit"]
            lines.append(f"  it could start now with {plural(fits['count'], unit[:-1])}")
        if job.get("rank") is not None:
            lines.append(
                f"  rank {job['rank']:.6g} among jobs of its priority; expected to run for "
                f"{format_duration(job['expected_run'])}"
            )
        if job.get("t_latest"):
            lines.append(f"  starts by {context.time(job['t_latest'], now)} at the latest")
        if job.get("t_estimate"):
            kind = job.get("t_estimate_kind") or "planned"
            lines.append(f"  starts about {context.time(job['t_estimate'], now)} ({kind})")
        age = now - answer["made"]
        if age >= 1:
            lines.append(f"  (as of {format_duration(age)} ago)")
        return lines


class When:
    """when a job would start if it were submitted now"""

    @staticmethod
    def add_options(parser: argparse.ArgumentParser) -> None:
        jobspec_options.add_options(parser)
        parser.add_argument("--match", action="store_true", help="list the ranks it would get")

    def run(self, context: Context) -> None:
        answer = context.ask(
            "when", {"jobspec": jobspec_options.jobspec_from_options(context.options)}
        )
        if context.options.json:
            show_json(answer)
        elif answer["verdict"] == "never":
            raise CommandError(f"never: {answer['reason']}")
        elif answer["start"] is None:
            print(f"unknown: {answer['reason']}")
        else:
            now = answer["now"]
            late = answer["start"] - now
            wait = (
                "now"
                if late <= 0
                else f"{context.time(answer['start'], now)}, in {format_duration(late)}"
            )
            print(wait)
            if answer.get("t_latest"):
                print(f"at the latest {context.time(answer['t_latest'], now)}")
            if answer.get("unplanned"):
                print(f"({plural(answer['unplanned'], 'pending job')} not counted: too many wait)")
            if context.options.match:
                print(f"ranks: {answer['ranks'] or 'chosen when it starts'}")


class Windows:
    """what could start now, and for how long"""

    @staticmethod
    def add_options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--horizon", default="8h", metavar="FSD", help="how far to look (default: 8h)"
        )

    def run(self, context: Context) -> None:
        horizon = parse_duration(context.options.horizon, "horizon")
        answer = context.ask("windows", {"horizon": horizon})
        if context.options.json:
            show_json(answer)
            return
        now = answer["now"]
        rows: List[List[object]] = []
        for kind in answer["kinds"]:
            for count, until in kind["steps"] or [[0, None]]:
                ends = until is not None and until < answer["until"]
                rows.append(
                    [
                        kind["kind"],
                        count,
                        kind["total"],
                        format_duration(until - now)
                        if ends
                        else f"{format_duration(horizon)} or more"
                        if count
                        else "",
                        context.time(until, now) if ends else "",
                    ]
                )
        print("\n".join(format_table(("KIND", "FREE", "OF", "FOR", "UNTIL"), rows, ("FREE", "OF"))))
        width = max(10, terminal_width() - 12)
        for kind in answer["kinds"]:
            if kind["total"]:
                print(f"\n{printable(kind['kind'])}, free from now on:")
                print("\n".join(self.picture(kind, answer, width)))

    def picture(self, kind: Dict[str, Any], answer: Dict[str, Any], width: int) -> List[str]:
        """Bars, the most that is free for so long on top."""
        whole = answer["until"] - answer["now"]
        lines = []
        for count, until in reversed(kind["steps"]):
            long = max(1, round((until - answer["now"]) / whole * width))
            lines.append(f"{count:>8} {'=' * long}{'>' if until >= answer['until'] else '|'}")
        return lines or ["       0"]


class Plan:
    """what runs, is promised and is reserved, over time"""

    @staticmethod
    def add_options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--horizon", default="8h", metavar="FSD", help="how far to look (default: 8h)"
        )
        parser.add_argument("-o", "--output", metavar="FILE.svg", help="write a picture (SVG)")

    def run(self, context: Context) -> None:
        horizon = parse_duration(context.options.horizon, "horizon")
        answer = context.ask("plan", {"horizon": horizon})
        if context.options.json:
            show_json(answer)
            return
        chart = Chart(answer, context.zone)
        if context.options.output:
            write_file(context.options.output, chart.svg())
        else:
            sys.stdout.write(chart.text(terminal_width()))


class Stats:
    """statistics of the scheduler"""

    @staticmethod
    def add_options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--prometheus", action="store_true", help="in the text format of Prometheus"
        )
        parser.add_argument(
            "-o", "--output", default="-", metavar="FILE", help="write a file, at one stroke"
        )

    def run(self, context: Context) -> None:
        answer = context.ask("stats")
        if context.options.prometheus:
            write_file(context.options.output, exposition(answer))
        else:
            write_file(context.options.output, json.dumps(answer, sort_keys=True) + "\n")


class Reserve:
    """keep resources for a group of jobs, from one time to another"""

    @staticmethod
    def add_options(parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("name", metavar="NAME")
        add("--start", required=True, metavar="TIME", help="+2h, 'tuesday 08:00', 2026-12-01T08:00")
        add("--duration", required=True, metavar="FSD", help="how long: 90m, 4h, 1d")
        add("--nodes", type=int, metavar="N", help="so many nodes, chosen as late as possible")
        add("--hosts", metavar="HOSTLIST", help="these nodes")
        add("--requires", metavar="CONSTRAINT", help="nodes that meet a constraint")
        add("--users", metavar="LIST", help="users it is for, by comma")
        add("--queues", metavar="LIST", help="queues it is for, by comma")
        add("--bank", action="append", default=[], metavar="NAME", help="bank it is for; repeat")
        add("--every", metavar="FSD", help="repeat: 1d, 1w by the clock on the wall, or hours")
        add("--zone", metavar="NAME", help="time zone (default: this machine's)")
        add(
            "--at-end",
            choices=("cancel", "run"),
            default="cancel",
            help="what becomes of the group's running jobs at the end (default: cancel)",
        )
        add("--pin", action="store_true", help="choose the nodes now, not as late as possible")
        add("--dry-run", action="store_true", help="only list the running jobs in the way")

    def run(self, context: Context) -> None:
        options = context.options
        zone = options.zone or local_zone_name()
        entry: Dict[str, Any] = {
            "name": options.name,
            "start": options.start,
            "duration": options.duration,
            "zone": zone,
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
        answer = context.ask("reserve", {"reservation": entry, "dry_run": options.dry_run})
        if options.json:
            show_json(answer)
            return
        now = answer["now"]
        one = answer["reservation"]
        word = "would be" if options.dry_run else "is"
        print(
            f"{one['name']} {word} reserved: {plural(one['nodes'], 'node')}, "
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
            until = "without a known end" if job["end"] is None else (
                "until " + context.time(job["end"], now)
            )  # fmt: skip
            print(f"  in the way: {job['name']} on {plural(job['nodes'], 'node')}, {until}")
        for text in answer.get("warnings") or ():
            print(f"  warning: {printable(text)}")


class Unreserve:
    """give up a reservation"""

    @staticmethod
    def add_options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name", metavar="NAME")

    def run(self, context: Context) -> None:
        answer = context.ask("unreserve", {"name": context.options.name})
        if context.options.json:
            show_json(answer)


class Reservations:
    """list the reservations"""

    @staticmethod
    def add_options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("-n", "--no-header", action="store_true", help="leave out the header")

    def run(self, context: Context) -> None:
        answer = context.ask("reservations")
        if context.options.json:
            show_json(answer)
            return
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
        lines = format_table(head, rows, ("NODES",))
        for line in lines[1:] if context.options.no_header else lines:
            print(line)

    def note(self, one: Dict[str, Any], now: float, context: Context) -> str:
        """What is wrong with a reservation, and which jobs are in its way."""
        parts = [one["note"]] if one.get("note") else []
        jobs = one.get("in_the_way") or []
        parts += [
            f"{job['name']} {'without a known end' if job['end'] is None else 'until '}"
            + (context.time(job["end"], now) if job["end"] is not None else "")
            for job in jobs[:MAX_CONFLICTS_SHOWN]
        ]
        if len(jobs) > MAX_CONFLICTS_SHOWN:
            parts.append(f"{plural(len(jobs) - MAX_CONFLICTS_SHOWN, 'more job')}")
        return "; ".join(parts)


class Top:
    """a live view of nodes, queue and plan"""

    @staticmethod
    def add_options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "-d", "--delay", default="2s", metavar="FSD", help="time between updates (default: 2s)"
        )
        parser.add_argument("--once", action="store_true", help="print one view and end")

    def run(self, context: Context) -> None:
        from flux.scheduler.command.top import watch

        watch(context, max(0.2, parse_duration(context.options.delay, "delay")))


COMMANDS = {
    "explain": Explain,
    "when": When,
    "windows": Windows,
    "plan": Plan,
    "top": Top,
    "stats": Stats,
    "reserve": Reserve,
    "unreserve": Unreserve,
    "reservations": Reservations,
}


def make_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="flux-sched",
        usage="flux sched [-h] COMMAND [OPTIONS]",
        description="Ask the scheduler, and reserve resources ahead of time.",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, kind in COMMANDS.items():
        text = (kind.__doc__ or "").strip()
        sub = commands.add_parser(
            name,
            help=text,
            description=text[:1].upper() + text[1:] + ".",
            prog=f"flux sched {name}",
        )
        sub.add_argument("--json", action="store_true", help="print the answer as JSON")
        sub.add_argument("--utc", action="store_true", help="show times in UTC")
        kind.add_options(sub)  # type: ignore[attr-defined]
    return parser


def main(argv: Optional[List[str]] = None) -> int:
    """Run ``flux sched``; returns its exit status: 1 for what failed, 2 for bad usage."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    options = make_parser().parse_args(argv)
    try:
        COMMANDS[options.command]().run(Context(options))  # type: ignore[attr-defined]
        sys.stdout.flush()
        return 0
    except (CommandError, ValueError) as exc:
        print(f"flux-sched: ERROR: {printable(exc)}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Whoever read our output is gone; keep the interpreter from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except KeyboardInterrupt:
        return 130
