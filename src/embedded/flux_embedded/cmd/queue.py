# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux queue``: the queues, and submission and scheduling of jobs in each."""

import argparse
import errno
from types import SimpleNamespace

import flux
from flux.queue import QueueList
from flux.util import AltField, parse_fsd
from flux_embedded.cmd.lib import Formats, ask, color, mark, print_table, words
from flux_engine.command.errors import CommandError, error_text
from flux_engine.command.options import Parser

_UP = ("enabled", "started")
_COUNTS = ("nnodes", "ncores", "ngpus")
_STATES = ("all", "free", "allocated", "up", "down")
HEADINGS = {
    "queue": "QUEUE",
    "queuem": "QUEUE",
    "parent": "PARENT",
    "submission": "SUBMIT",
    "scheduling": "SCHED",
    **{f"{name}{form}": name[:2].upper() for name in _UP for form in ("", ".ascii")},
    **{f"color_{name}": "" for name in (*_UP, "off")},
    "defaults.timelimit": "TDEFAULT",
    "limits.timelimit": "TLIMIT",
    **{
        f"limits.range.{kind}{name}": name.upper()
        for name in _COUNTS
        for kind in ("", "effective.")
    },
    **{
        f"limits.{end}.{name}": f"{end}{name[1:]}".upper()
        for name in _COUNTS
        for end in ("min", "max")
    },
    **{
        f"resources.{state}.{name}": name[1:].upper()
        + (f":{state[:5].upper()}" if state != "all" else "")
        for name in _COUNTS
        for state in _STATES
    },
}
_QUEUE = (
    "?:{queuem:<8.8} ?:{parent:<8.8} {color_enabled}{enabled:>2}{color_off} "
    "{color_started}{started:>2}{color_off} "
)
_TIMES = _QUEUE + "{defaults.timelimit!F:>8} {limits.timelimit!F:>8}"
FORMATS = {
    "default": (
        "Default flux-queue list format string",
        _TIMES + "".join(f" {{limits.range.effective.{name}:>10}}" for name in _COUNTS),
    ),
    "policy": (
        "flux-queue list with policy limits only",
        _TIMES + "".join(f" {{limits.range.{name}:>10}}" for name in _COUNTS),
    ),
    "nodes": (
        "Show queue status plus all/up/allocated/free nodes",
        _QUEUE + "{resources.all.nnodes:>6} {resources.up.nnodes:>10} {resources.down.nnodes:>10} "
        "{resources.allocated.nnodes:>11} {resources.free.nnodes:>10}",
    ),
}


class Row:
    """A line of the table: a `flux.queue.QueueInfo`, with derived columns."""

    def __init__(self, info):
        self.queue = info.name
        self.queuem = f"{info.name}*" if info.name and info.is_default else info.name
        self.defaults, self.limits, self.resources = info.defaults, info.limits, info.resources
        least, most, there = info.limits.min, info.limits.max, info.resources.all
        ends = {name: (getattr(least, name), getattr(most, name)) for name in _COUNTS}
        self.limits.range = SimpleNamespace(
            effective=SimpleNamespace(
                **{
                    name: f"{low}-{min(high, getattr(there, name))}"
                    for name, (low, high) in ends.items()
                }
            ),
            **{name: f"{low}-{high}" for name, (low, high) in ends.items()},
        )
        self.parent = info.parent
        self.submission = "enabled" if info.enabled else "disabled"
        self.scheduling = "started" if info.started else "stopped"
        self.color_off = color()
        for name in _UP:
            is_up = getattr(info, name)
            setattr(self, name, mark(is_up))
            setattr(self, f"color_{name}", color(is_up))
        if info.blocked == "parent":
            # It resumes by itself when its parent is started.
            self.scheduling = "stopped (parent)"
            self.started = AltField("⏸", "p")


def list_command(args):
    layout = Formats("flux-queue", FORMATS, "list").layout(args.format, HEADINGS)
    rows = [Row(info) for info in QueueList(flux.Flux(), words(args.queue))]
    print_table(layout, rows, args)


def _status(name):
    return ask("job-manager.queue-status", {"name": name} if name else {}, "status")


def _names(wanted=None):
    """Return the names of the queues to act on: the given one, or all; None is the anonymous queue."""
    return [wanted] if wanted else ask("job-manager.queue-list", {}, "list")["queues"] or [None]


def submission_text(status):
    if status["enable"]:
        return "Job submission is enabled"
    return f"Job submission is disabled: {status['disable_reason']}"


def scheduling_text(status):
    if status["start"]:
        return "Scheduling is started"
    reason = status.get("stop_reason")
    return f"Scheduling is stopped: {reason}" if reason else "Scheduling is stopped"


def status_command(args, texts=(submission_text, scheduling_text)):
    for name in _names(None if args.verbose else args.queue):
        status = _status(name)
        for text in texts:
            print(f"{name}: {text(status)}" if name else text(status))
    if args.verbose and scheduling_text in texts:
        count = ask("job-manager.alloc-query", {})
        print(f"{count['queue_length']} alloc requests queued")
        print(f"{count['alloc_pending']} alloc requests pending to scheduler")
        print(f"{count['running']} running jobs")


def change_command(args):
    wanted = args.queue
    submission = args.subcommand in ("enable", "disable")
    key = "enable" if submission else "start"
    if not submission and not wanted and not args.all and _names() != [None]:
        raise CommandError("Named queues are defined. Specify queues or use --all.")
    payload = {key: args.subcommand in ("enable", "start"), "all": args.all}
    if wanted:
        payload["name"] = wanted
    reason = getattr(args, "message", None)
    if args.subcommand == "disable":
        reason = reason or "disabled by administrator"
    if reason:
        payload["reason"] = reason
    ask(f"job-manager.queue-{key}", payload, key)
    if not args.quiet:
        status_command(args, [submission_text if submission else scheduling_text])


def wait_command(args):
    future = flux.Flux().rpc(f"job-manager.{args.subcommand}")
    timeout = parse_fsd(args.timeout) if args.timeout else float("inf")
    try:
        future.wait_for(-1.0 if timeout == float("inf") else timeout)
        answer = future.get()
    except OSError as exc:
        text = "timeout" if exc.errno == errno.ETIMEDOUT else error_text(exc)
        raise CommandError(f"{args.subcommand}: {text}") from None
    if args.subcommand == "idle":
        print(f"{answer['pending']} jobs")


def main(argv):
    parser = Parser("flux-queue")
    one = parser.command("list", list_command, "list the queues, with their limits")
    one.add_queues()
    one.add_table()
    for name, text in (
        ("status", "print whether jobs may be submitted, and are scheduled"),
        ("enable", "enable submission of jobs"),
        ("disable", "disable submission of jobs"),
        ("start", "start scheduling of jobs"),
        ("stop", "stop scheduling of jobs"),
    ):
        function = status_command if name == "status" else change_command
        one = parser.command(name, function, text)
        one.option("-v --verbose", "also print the job manager's counts")
        if name != "status":
            one.option("-a --all", "all queues")
            one.option("--quiet", "print errors only")
        if name in ("stop", "disable"):
            one.option("-m --message=REASON", "reason, shown to users")
            one.option("--nocheckpoint", "accepted; nothing is kept across restarts here")
        one.option("queue=QUEUE", nargs="?", default=argparse.SUPPRESS)
        one.option("-q --queue=QUEUE", argparse.SUPPRESS)  # the older form
    for name, text in (("drain", "is active"), ("idle", "runs")):
        one = parser.command(name, wait_command, f"wait until no job {text}")
        one.option("-t --timeout=FSD", "maximum time to wait")
    return parser.run(argv)
