# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux queue``: submission and scheduling, queue by queue."""

import errno

import flux
from flux.queue import QueueConf, QueueInfo
from flux.resource import resource_list
from flux.util import AltField, parse_fsd
from flux_embedded.cmd.lib.tables import Formats, words
from flux_engine.command.errors import CommandError, error_text
from flux_engine.command.options import Parser

#: what is counted of resources, and in which states
COUNTED = ("nnodes", "ncores", "ngpus")
RESOURCE_STATES = ("all", "free", "allocated", "up", "down")

_UP = ("enabled", "started")
HEADINGS = {
    "queue": "QUEUE",
    "queuem": "QUEUE",
    "parent": "PARENT",
    "submission": "SUBMIT",
    "scheduling": "SCHED",
    **{f"{name}{form}": name[:2].upper() for name in _UP for form in ("", ".ascii")},
    **dict.fromkeys(("color_enabled", "color_started", "color_off"), ""),
    "defaults.timelimit": "TDEFAULT",
    "limits.timelimit": "TLIMIT",
}
for _what in COUNTED:
    _name = _what[1:].upper()
    HEADINGS.update(
        {
            f"limits.range.{_what}": f"N{_name}",
            f"limits.range.effective.{_what}": f"N{_name}",
            f"limits.min.{_what}": f"MIN{_name}",
            f"limits.max.{_what}": f"MAX{_name}",
            **{
                f"resources.{state}.{_what}": _name
                + ("" if state == "all" else f":{state[:5].upper()}")
                for state in RESOURCE_STATES
            },
        }
    )
_STATE = "?:{queuem:<8.8} ?:{parent:<8.8} {color_enabled}{enabled:>2}{color_off} {color_started}{started:>2}{color_off} "
_TIMES = "{defaults.timelimit!F:>8} {limits.timelimit!F:>8} "
FORMATS = {
    "default": (
        "Default flux-queue list format string",
        _STATE + _TIMES + "{limits.range.effective.nnodes:>10} "
        "{limits.range.effective.ncores:>10} {limits.range.effective.ngpus:>10}",
    ),
    "policy": (
        "flux-queue list with policy limits only",
        _STATE + _TIMES + "{limits.range.nnodes:>10} {limits.range.ncores:>10} "
        "{limits.range.ngpus:>10}",
    ),
    "nodes": (
        "Show queue status plus all/up/allocated/free nodes",
        _STATE + "{resources.all.nnodes:>6} {resources.up.nnodes:>10} {resources.down.nnodes:>10} "
        "{resources.allocated.nnodes:>11} {resources.free.nnodes:>10}",
    ),
}
GREEN, YELLOW, RED, OFF = "\033[01;32m", "\033[01;33m", "\033[01;31m", "\033[0;0m"


class Range:
    """The limits of what jobs may ask for, as ``least-most``; a maximum is cut by what there is if `ceiling` says so."""

    def __init__(self, limits, ceiling=None):
        for what in COUNTED:
            most = getattr(limits.max, what)
            if ceiling is not None:
                most = min(most, getattr(ceiling, what))
            setattr(self, what, f"{getattr(limits.min, what)}-{most}")


class Row:
    """A line of the table: a `flux.queue.QueueInfo`, and what is made of it."""

    def __init__(self, info):
        self.queue = info.name
        self.queuem = f"{info.name}*" if info.name and info.is_default else info.name
        self.defaults = info.defaults
        self.resources = info.resources
        self.limits = info.limits
        self.limits.range = Range(info.limits)
        self.limits.range.effective = Range(info.limits, info.resources.all)
        self.parent = info.parent
        self.submission = "enabled" if info.enabled else "disabled"
        self.scheduling = "started" if info.started else "stopped"
        self.color_off = OFF
        for name in _UP:
            is_up = getattr(info, name)
            setattr(self, name, AltField("✔", "y") if is_up else AltField("✗", "n"))
            setattr(self, f"color_{name}", GREEN if is_up else RED)
        if info.blocked == "parent":
            # It goes on by itself when its parent is started.
            self.scheduling = "stopped (parent)"
            self.started, self.color_started = AltField("⏸", "p"), YELLOW


def list_command(args):
    layout = Formats("flux-queue", FORMATS, "list").layout(args.format, HEADINGS)
    handle = flux.Flux()
    # Not QueueList: that of flux-python 0.88.0 wants of job-manager.queue-list what the job manager of flux-core 0.88.0
    # does not say.
    conf = QueueConf.from_config(handle.rpc("config.get").get())
    resources = resource_list(handle).get()
    rows = []
    for name in words(args.queue) or list(conf) or [None]:
        if name is not None and name not in conf:
            raise CommandError(f"No such queue: {name}")
        status = _status(handle, name)
        is_default = name == conf.default_queue
        state = (status["enable"], status["start"], is_default, status.get("blocked"))
        rows.append(Row(QueueInfo(name, conf, resources, *state)))
    layout.print_items(rows, no_header=args.no_header)


def _status(handle, name):
    return _ask(handle, "status", "queue-status", {"name": name} if name else {})


def _ask(handle, label, topic, payload):
    """A request whose failure is reported after what was tried."""
    try:
        return handle.rpc(f"job-manager.{topic}", payload).get()
    except OSError as exc:
        raise CommandError(f"{label}: {error_text(exc)}") from None


def _names(handle, wanted=None):
    """The queues to speak of; None is the anonymous one."""
    return [wanted] if wanted else _ask(handle, "list", "queue-list", {})["queues"] or [None]


def _wanted(args):
    """The queue that was named, in one of the two ways to name it."""
    if args.queue and args.old_queue:
        text = f"Conflicting queues specified as --queue={args.old_queue} and {args.queue}"
        raise CommandError(text)
    return args.queue or args.old_queue


def submission_text(status):
    if status["enable"]:
        return "Job submission is enabled"
    return f"Job submission is disabled: {status['disable_reason']}"


def scheduling_text(status):
    if status["start"]:
        return "Scheduling is started"
    reason = status.get("stop_reason")
    return f"Scheduling is stopped: {reason}" if reason else "Scheduling is stopped"


def _show(handle, names, texts):
    for name in names:
        status = _status(handle, name)
        for text in texts:
            print(f"{name}: {text(status)}" if name else text(status))


def _show_counts(handle):
    count = handle.rpc("job-manager.alloc-query", {}).get()
    print(f"{count['queue_length']} alloc requests queued")
    print(f"{count['alloc_pending']} alloc requests pending to scheduler")
    print(f"{count['running']} running jobs")


def status_command(args):
    handle = flux.Flux()
    _show(handle, _names(handle, _wanted(args)), (submission_text, scheduling_text))
    if args.verbose:
        _show_counts(handle)


def change_command(args):
    wanted = _wanted(args)
    handle = flux.Flux()
    submission = args.subcommand in ("enable", "disable")
    key = "enable" if submission else "start"
    if not submission and not wanted and not args.all and _names(handle) != [None]:
        raise CommandError("Named queues are defined. Specify queues or use --all.")
    payload = {key: args.subcommand in ("enable", "start"), "all": args.all}
    if wanted:
        payload["name"] = wanted
    reason = getattr(args, "message", None)
    if args.subcommand == "disable":
        reason = reason or "disabled by administrator"
    if reason:
        payload["reason"] = reason
    _ask(handle, key, f"queue-{key}", payload)
    if args.quiet:
        return
    shown = _names(handle, None if args.verbose else wanted)
    _show(handle, shown, (submission_text if submission else scheduling_text,))
    if args.verbose and not submission:
        _show_counts(handle)


def wait_command(args):
    future = flux.Flux().rpc(f"job-manager.{args.subcommand}")
    timeout = parse_fsd(args.timeout) if args.timeout else float("inf")
    try:
        future.wait_for(-1.0 if timeout == float("inf") else timeout)
        answer = future.get()
    except OSError as exc:
        text = "timeout" if exc.errno == errno.ETIMEDOUT else error_text(exc)
        raise CommandError(f"{args.subcommand}: {text}") from None
    if args.subcommand == "idle" and (answer["pending"] or not args.quiet):
        print(f"{answer['pending']} jobs")


def main(argv):
    parser = Parser("flux-queue")
    one = parser.command("list", list_command, "list the queues, with their limits")
    one.add_queues()
    one.add_table()
    for name in ("status", "enable", "disable", "start", "stop"):
        function = status_command if name == "status" else change_command
        one = parser.command(name, function, f"{name} of submission, or of scheduling")
        one.add_argument("-q", "--queue", dest="old_queue", metavar="NAME", help="this queue")
        one.flag("-v", "--verbose", text="with the counts of the job manager")
        if name != "status":
            one.flag("-a", "--all", text="all queues")
            one.flag("--quiet", text="print errors only")
        if name in ("stop", "disable"):
            one.flag("--nocheckpoint", text="accepted")
            one.add_argument("-m", "--message", metavar="REASON", help="why")
        one.add_argument("queue", metavar="QUEUE", nargs="?")
    for name, text in (("drain", "is active"), ("idle", "runs")):
        one = parser.command(name, wait_command, f"wait until no job {text}")
        one.add_argument("-t", "--timeout", metavar="FSD", help="no longer than this")
        if name == "idle":
            one.flag("--quiet", text="print how many are pending only if there are any")
    return parser.run(argv)
