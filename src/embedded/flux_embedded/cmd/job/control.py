"""Acting on jobs: raise, kill, urgency, memo, and their bulk forms."""

import json
import signal
import sys

from flux_embedded.cmd.lib import jobids, values
from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError, error_text, warn
from flux_embedded.cmd.lib.optparse import Opt, command
from flux_embedded.formats.dotted import update_path


def _each(words, topic, payload, verb):
    """Send one request a job, report those that fail, return the exit code."""
    client = connect()
    code = 0
    calls = []
    for word in words:
        try:
            jobid = jobids.parse(word)
        except CommandError as exc:
            warn(f"flux-job: {exc}")
            code = 1
            continue
        calls.append((word, client.send(topic, {"id": jobid, **payload})))
    for word, call in calls:
        try:
            call.get()
        except OSError as exc:
            warn(f"flux-job: {verb}{word}: {error_text(exc)}")
            code = 1
    return code


@command(
    "flux-job raise",
    "[OPTIONS] ids... [--] [message ...]",
    "Raise exception on one or more jobs",
    [
        Opt("severity", "s", "N", "Set exception severity [0-7] (default=0)", kind="int"),
        Opt("type", "t", "TYPE", "Set exception type (default=cancel)"),
        Opt("message", "m", "NOTE", "Set optional exception note"),
    ],
    args=(1, None),
)
def raise_exception(opts):
    words, note = _split_note(opts.args)
    note = opts.get("message", note)
    payload = {"type": opts.get("type", "cancel"), "severity": opts.get("severity", 0)}
    if note is not None:
        payload["note"] = note
    return _each(words, "job-manager.raise", payload, "raise ")


def _split_note(args):
    """The leading job ids and what follows them as one text."""
    words = args[:1]
    rest = args[1:]
    while rest:
        try:
            jobids.decode(rest[0])
        except ValueError:
            break
        words.append(rest.pop(0))
    return words, " ".join(rest) if rest else None


def _signal(text):
    number = values.signal_number(text or "SIGTERM")
    if number is None:
        raise CommandError(f"kill: Invalid signal {text}")
    return number


@command(
    "flux-job kill",
    "[OPTIONS] ids...",
    "Send signal to running job",
    [Opt("signal", "s", "SIG", "Send signal SIG (default SIGTERM)")],
    args=(1, None),
)
def kill(opts):
    return _each(opts.args, "job-manager.kill", {"signum": _signal(opts.get("signal"))}, "kill ")


BULK_OPTIONS = [
    Opt("user", "u", "USER", "Set target user or 'all' (instance owner only)"),
    Opt("states", "S", "STATES", "Set target job states (default=ACTIVE)"),
    Opt("force", "f", usage="Confirm the command"),
    Opt("quiet", "q", usage="Suppress output if no jobs match"),
]


def _bulk(topic, payload, opts, done):
    payload["dry_run"] = not opts.get("force")
    answer = connect().rpc(topic, payload)
    count, failed = answer["count"], answer.get("errors", 0)
    if opts.get("quiet"):
        pass
    elif not count:
        warn("flux-job: Command matched 0 jobs")
    elif payload["dry_run"]:
        warn(f"flux-job: Command matched {count} jobs (-f to confirm)")
    else:
        warn(f"flux-job: {done} {count} jobs ({failed} errors)")
    return 1 if failed else 0


@command(
    "flux-job raiseall",
    "OPTIONS type [--] [message ...]",
    "Raise an exception on multiple jobs based on search criteria.",
    [
        *BULK_OPTIONS,
        Opt("severity", "s", "N", "Set exception severity [0-7] (default=7)", kind="int"),
    ],
    args=(1, None),
)
def raiseall(opts):
    payload = {
        "type": opts.args[0],
        "severity": opts.get("severity", 7),
        "note": " ".join(opts.args[1:]),
        "userid": values.user_id(opts.get("user")),
        "states": values.state_mask(opts.get("states", "active")),
    }
    return _bulk("job-manager.raiseall", payload, opts, "Raised exception on")


@command(
    "flux-job killall",
    "[OPTIONS]",
    "Send signal to multiple running jobs",
    [
        Opt("signal", "s", "SIG", "Send signal SIG (default SIGTERM)"),
        Opt("user", "u", "USER", "Set target user or 'all' (instance owner only)"),
        Opt("force", "f", usage="Confirm the command"),
    ],
)
def killall(opts):
    signum = _signal(opts.get("signal"))
    payload = {"signum": signum, "userid": values.user_id(opts.get("user"))}
    return _bulk("job-manager.killall", payload, opts, signal.strsignal(signum))


@command(
    "flux-job urgency",
    "[OPTIONS] id urgency",
    "Set job urgency (0-31, HOLD, EXPEDITE, DEFAULT)",
    [Opt("verbose", "v", usage="Output old urgency value on success")],
    args=2,
)
def urgency(opts):
    word, text = opts.args
    jobid = jobids.parse(word)
    names = {"hold": 0, "default": 16, "expedite": 31}
    try:
        number = names[text.lower()] if text.lower() in names else int(text)
    except ValueError:
        raise CommandError(f'error parsing urgency: "{text}"') from None
    try:
        answer = connect().rpc("job-manager.urgency", {"id": jobid, "urgency": number})
    except OSError as exc:
        raise CommandError(f"{word}: {error_text(exc)}") from None
    if opts.get("verbose"):
        warn(f"old urgency: {answer['old_urgency']}")
    return 0


@command(
    "flux-job memo",
    "[--volatile] id key=value [key=value...]",
    "Post an RFC 21 memo to a job",
    [Opt("volatile", None, usage="Memo will not appear in eventlog (will be lost on restart)")],
    args=(2, None),
)
def memo(opts):
    jobid = jobids.parse(opts.args[0])
    notes = {}
    for text in opts.args[1:]:
        key, equals, value = text.partition("=")
        if not equals:
            raise CommandError(f"memo: no value for key={key}")
        notes = update_path(notes, key, _memo_value(value))
    client = connect()
    try:
        request = {"id": jobid, "memo": notes, "volatile": "volatile" in opts}
        client.rpc("job-manager.memo", request)
    except OSError as exc:
        raise CommandError(f"memo: {error_text(exc)}") from None
    return 0


def _memo_value(text):
    """JSON if it is some, else text; ``-`` reads standard input."""
    if text == "-":
        text = sys.stdin.read()
    try:
        return json.loads(text)
    except ValueError:
        return text
