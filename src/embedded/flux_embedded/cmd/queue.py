"""``flux queue``: submission and scheduling, queue by queue."""

import errno
import sys

from flux_embedded.cmd.lib import pyargs
from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError, UsageError, error_text
from flux_embedded.formats import fsd

NEED_QUEUES = "Named queues are defined. Specify queues or use --all."


def make_parser():
    parser = pyargs.Parser(prog="flux-queue")
    sub = parser.add_subparsers(dest="command", parser_class=pyargs.Parser)

    def command(name, function, description):
        one = sub.add_parser(name, description=description)
        one.set_defaults(function=function)
        return one

    status = command("status", status_command, "Get queue status")
    status.add_argument(
        "-v",
        "--verbose",
        action="count",
        default=0,
        help="Display more detail about internal job manager state",
    )
    status.add_argument("queue", nargs="*", metavar="QUEUE", help="queue to show (default: all)")

    lister = command("list", list_command, "List queue info")
    lister.add_argument(
        "-q",
        "--queue",
        action="append",
        metavar="QUEUE,...",
        help="Include only specified queues in output",
    )
    lister.add_argument("-n", "--no-header", action="store_true", help="Suppress header output")
    lister.add_argument("-o", "--format", metavar="FORMAT", help="Specify output format")

    for name, text in (
        ("enable", "Enable job submission"),
        ("disable", "Disable job submission"),
        ("start", "Start scheduling"),
        ("stop", "Stop scheduling"),
    ):
        one = command(name, change_command, text)
        one.add_argument("-a", "--all", action="store_true", help="Apply to all queues")
        one.add_argument("-q", "--quiet", action="store_true", help="Display only errors")
        one.add_argument("-v", "--verbose", action="store_true", help="Display more detail")
        if name in ("disable", "stop"):
            one.add_argument("-m", "--message", metavar="REASON", help="Set reason")
            one.add_argument(
                "--nocheckpoint", action="store_true", help="accepted for compatibility"
            )
        if name == "stop":
            one.add_argument(
                "-f", "--force", action="store_true", help="accepted for compatibility"
            )
        one.add_argument("queue", nargs="*", metavar="QUEUE", help="queues to change")

    for name in ("drain", "idle"):
        one = command(
            name,
            wait_command,
            f"Wait for the queue to become {'empty' if name == 'drain' else 'idle'}",
        )
        one.add_argument("-t", "--timeout", metavar="DURATION", help="timeout in FSD")
        if name == "idle":
            one.add_argument(
                "-q",
                "--quiet",
                action="store_true",
                help="Only display pending job count on failure",
            )
    return parser


def _rpc(client, label, topic, payload):
    """A request whose failure is reported after the name of what was tried."""
    try:
        return client.rpc("job-manager." + topic, payload)
    except OSError as exc:
        raise CommandError(f"{label}: {error_text(exc)}") from None


def _names(client, wanted=()):
    """The queues to speak of; None is the anonymous one."""
    every = _rpc(client, "list", "queue-list", {})["queues"]
    return list(wanted) or every or [None]


def submission_text(status):
    if status["enable"]:
        return "Job submission is enabled"
    reason = status.get("disable_reason")
    return f"Job submission is disabled: {reason}" if reason else "Job submission is disabled"


def scheduling_text(status):
    if status["start"]:
        return "Scheduling is started"
    if "blocked" in status and not status.get("stop_reason"):
        blocked = status["blocked"]
        reason = {"scheduler": "Scheduler is offline", "parent": "Parent queue is stopped"}.get(
            blocked, blocked
        )
    else:
        reason = status.get("stop_reason")
    return f"Scheduling is stopped: {reason}" if reason else "Scheduling is stopped"


def _show(client, names, texts):
    for name in names:
        status = _rpc(client, "status", "queue-status", {"name": name} if name else {})
        for text in texts:
            print(f"{name}: {text(status)}" if name else text(status))


def status_command(args):
    client = connect()
    _show(client, _names(client, args.queue), (submission_text, scheduling_text))
    if args.verbose:
        count = client.rpc("job-manager.alloc-query", {})
        print(f"{count['queue_length']} alloc requests queued")
        print(f"{count['alloc_pending']} alloc requests pending to scheduler")
        print(f"{count['running']} running jobs")
    return 0


def change_command(args):
    client = connect()
    submission = args.command in ("enable", "disable")
    key, topic = ("enable", "queue-enable") if submission else ("start", "queue-start")
    payload = {key: args.command in ("enable", "start")}
    if getattr(args, "message", None) is not None:
        payload["reason"] = args.message
    every = _rpc(client, "list", "queue-list", {})["queues"]
    if every and not args.queue and not args.all:
        raise CommandError(NEED_QUEUES)
    if args.queue:
        for name in args.queue:
            _rpc(client, key, topic, {**payload, "name": name})
    else:
        _rpc(client, key, topic, {**payload, "all": True})
    if not args.quiet:
        text = submission_text if submission else scheduling_text
        _show(client, args.queue or every or [None], (text,))
    return 0


def wait_command(args):
    timeout = None
    if args.timeout is not None:
        try:
            timeout = fsd.parse(args.timeout)
        except ValueError as exc:
            raise CommandError(str(exc)) from None
        timeout = None if timeout == float("inf") else timeout
    client = connect()
    try:
        answer = client.send(f"job-manager.{args.command}", {}).get(timeout)
    except OSError as exc:
        text = "timeout" if exc.errno == errno.ETIMEDOUT else error_text(exc)
        raise CommandError(f"{args.command}: {text}") from None
    if args.command == "idle" and (answer["pending"] or not args.quiet):
        print(f"{answer['pending']} jobs")
    return 0


def list_command(args):
    from flux_embedded.cmd.lib import queuelist

    client = connect()
    wanted = [name for text in args.queue or () for name in text.split(",")]
    text = queuelist.lines(client, _names(client), wanted, args.format, not args.no_header)
    if text is None:
        return 0
    if text:
        sys.stdout.write("\n".join(text) + "\n")
    return 0


def main(argv):
    parser = make_parser()
    args = parser.parse_args(argv)
    if args.command is None:
        raise UsageError(parser.format_usage())
    return args.function(args)
