"""``flux queue``: submission and scheduling, queue by queue."""

import argparse
import errno

from flux_embedded.cmd.lib import pyargs
from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError, error_text
from flux_embedded.formats import fsd

NEED_QUEUES = "Named queues are defined. Specify queues or use --all."


def make_parser():
    parser = pyargs.Parser(prog="flux-queue")
    lister = parser.command("list", list_command)
    lister.add_queues()
    lister.add_format()
    lister.add_no_header()

    for name in ("status", "enable", "disable", "start", "stop"):
        one = parser.command(name, status_command if name == "status" else change_command)
        one.add_argument("-q", "--queue", dest="old_queue", metavar="NAME", help=argparse.SUPPRESS)
        if name != "status":
            one.add_argument(
                "-a",
                "--all",
                action="store_true",
                help="Force command to apply to all queues if none specified",
            )
            one.add_argument("--quiet", action="store_true", help="Display only errors")
        one.add_argument(
            "-v",
            "--verbose",
            action="store_true",
            help="Display more detail about internal job manager state",
        )
        if name in ("stop", "disable"):
            verb = {"stop": "stopped", "disable": "disabled"}[name]
            one.add_argument(
                "--nocheckpoint",
                action="store_true",
                help=f"Do not checkpoint that the queue has been {verb}",
            )
            one.add_argument(
                "-m", "--message", metavar="REASON", help=f"Add reason that a queue is {verb}"
            )
        one.add_argument("queue", metavar="QUEUE", nargs="?", help=f"Queue to {name}")

    for name in ("drain", "idle"):
        one = parser.command(name, wait_command)
        one.add_argument("-t", "--timeout", metavar="DURATION", help="timeout after DURATION")
        if name == "idle":
            one.add_argument(
                "--quiet",
                action="store_true",
                help="Only display pending job count if nonzero",
            )
    return parser


def _rpc(client, label, topic, payload):
    """A request whose failure is reported after the name of what was tried."""
    try:
        return client.rpc("job-manager." + topic, payload)
    except OSError as exc:
        raise CommandError(f"{label}: {error_text(exc)}") from None


def _names(client, wanted=None):
    """The queues to speak of; None is the anonymous one."""
    if wanted:
        return [wanted]
    return _rpc(client, "list", "queue-list", {})["queues"] or [None]


def _wanted(args):
    """The queue that was named, by either of the two ways to name it."""
    if args.queue and args.old_queue:
        raise CommandError(
            f"Conflicting queues specified as --queue={args.old_queue} and {args.queue}"
        )
    return args.queue or args.old_queue


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


def _show_counts(client):
    count = client.rpc("job-manager.alloc-query", {})
    print(f"{count['queue_length']} alloc requests queued")
    print(f"{count['alloc_pending']} alloc requests pending to scheduler")
    print(f"{count['running']} running jobs")


def status_command(args):
    wanted = _wanted(args)
    client = connect()
    _show(client, _names(client, wanted), (submission_text, scheduling_text))
    if args.verbose:
        _show_counts(client)


def change_command(args):
    wanted = _wanted(args)
    client = connect()
    submission = args.subcommand in ("enable", "disable")
    key, topic = ("enable", "queue-enable") if submission else ("start", "queue-start")
    if not submission and not wanted and not args.all and _names(client) != [None]:
        raise CommandError(NEED_QUEUES)
    payload = {key: args.subcommand in ("enable", "start"), "all": args.all}
    if wanted:
        payload["name"] = wanted
    reason = getattr(args, "message", None)
    if args.subcommand == "disable" and not reason:
        reason = "disabled by administrator"
    if reason:
        payload["reason"] = reason
    _rpc(client, key, topic, payload)
    if args.quiet:
        return
    shown = _names(client, None if args.verbose else wanted)
    _show(client, shown, (submission_text if submission else scheduling_text,))
    if args.verbose and not submission:
        _show_counts(client)


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
        answer = client.send(f"job-manager.{args.subcommand}", {}).get(timeout)
    except OSError as exc:
        text = "timeout" if exc.errno == errno.ETIMEDOUT else error_text(exc)
        raise CommandError(f"{args.subcommand}: {text}") from None
    if args.subcommand == "idle" and (answer["pending"] or not args.quiet):
        print(f"{answer['pending']} jobs")
    return 0


def list_command(args):
    from flux_embedded.cmd.lib import queuelist

    client = connect()
    wanted = [name for text in args.queue or () for name in text.split(",")]
    return queuelist.show(client, _names(client), wanted, args.format, not args.no_header)


def main(argv):
    return make_parser().run(argv)
