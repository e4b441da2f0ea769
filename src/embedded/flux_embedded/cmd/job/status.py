"""How a job ends, and how long it has: status, attach, wait, timeleft."""

import errno
import os
import sys

from flux_embedded.cmd.lib import attach as attaching
from flux_embedded.cmd.lib import clock, follow, jobids, times
from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError, error_text, warn
from flux_embedded.cmd.lib.eventlog import compact
from flux_embedded.cmd.lib.follow import exit_code
from flux_embedded.cmd.lib.optparse import Opt, command
from flux_embedded.formats import states
from flux_embedded.formats.jobid import f58

#: The id that stands for any waitable job.
ANY = -1


@command(
    "flux-job status",
    "[OPTIONS] id [id ...]",
    "Wait for job(s) to complete and exit with largest exit code",
    [
        Opt("verbose", "v", usage="Increase verbosity"),
        Opt(
            "exception-exit-code",
            "e",
            "N",
            "Set the exit code for any jobs that terminate with an exception before they started",
            kind="int",
        ),
        Opt("json", "j", usage="Dump job result information gleaned from eventlog to stdout"),
    ],
    args=(1, None),
)
def status(opts):
    client = connect()
    numbers = jobids.parse_all(opts.args)
    left = [len(numbers)]

    def done(follower):
        left[0] -= 1
        if not left[0]:
            client.stop()

    followers = [
        follow.Follower(client, number, done, output=False, exceptions=False) for number in numbers
    ]
    client.run()
    code = 0
    for follower, word in zip(followers, opts.args):
        if follower.error is not None:
            raise CommandError(f"{word}: No such job")
        if "json" in opts:
            print(compact(states.outcome(follower.jobid, follower.events)))
        code = max(code, exit_code(follower.status or 0))
        fatal = follower.exception is not None
        if fatal:
            code = max(code, opts.get("exception-exit-code", 1))
        if opts.count("verbose"):
            _explain(follower, word, fatal, opts.count("verbose"))
    return code


def _explain(follower, word, fatal, verbose):
    status = follower.status or 0
    if status & 0x7F:
        warn(f"flux-job: {word}: job shell died by signal {status & 0x7F}")
    elif verbose > 1 or exit_code(status):
        if fatal:
            warn(f"flux-job: {word}: exception type={follower.exception.get('type')}")
        else:
            warn(f"flux-job: {word}: exited with exit code {exit_code(status)}")


@command(
    "flux-job attach",
    "[OPTIONS] id",
    "Interactively attach to job",
    [
        Opt("show-events", "E", usage="Show job events on stderr"),
        Opt("show-exec", "X", usage="Show exec events on stderr"),
        Opt("show-status", None, usage="Show job status line while pending"),
        Opt(
            "wait-event",
            "w",
            "EVENT",
            "Wait for event EVENT before detaching from eventlog (default=finish)",
        ),
        Opt("label-io", "l", usage="Label output by rank"),
        Opt("verbose", "v", usage="Increase verbosity"),
        Opt("quiet", "q", usage="Suppress warnings written to stderr from flux-job"),
        Opt("read-only", "r", usage="Disable reading stdin and capturing signals"),
        Opt("unbuffered", "u", usage="Disable buffering of stdin"),
        Opt("stdin-ranks", "i", "RANKS", "Send standard input to only RANKS (default: all)"),
        Opt(
            "tail",
            None,
            "NUM",
            "Output only the last NUM lines of job output (default 10)",
            optional=True,
            kind="int",
        ),
    ],
    args=1,
)
def attach(opts):
    word = opts.args[0]
    jobid = jobids.parse(word, "Failed to attach to {}: No such job")
    read_only = "read-only" in opts
    if read_only and "stdin-ranks" in opts:
        raise CommandError("Do not use --stdin-ranks with --read-only")
    tail = None
    if "tail" in opts:
        value = opts.all("tail")[-1]
        tail = 10 if value is None else value
        if tail < 0:
            raise CommandError("invalid tail argument")
    ranks = opts.get("stdin-ranks", "all")
    options = {
        "label": "label-io" in opts,
        "show_events": "show-events" in opts or opts.count("verbose") > 1,
        "show_exec": "show-exec" in opts or opts.count("verbose") > 2,
        "quiet": "quiet" in opts,
        "wait_event": opts.get("wait-event"),
        "tail": tail,
        "stdin": None if read_only or sys.stdin is None else sys.stdin.fileno(),
        "ranks": None if ranks == "all" else ranks,
    }
    try:
        return attaching.attach(connect(), jobid, **options)
    except OSError as exc:
        reason = "No such job" if exc.errno == errno.ENOENT else error_text(exc)
        raise CommandError(f"Failed to attach to {word}: {reason}") from None


@command(
    "flux-job wait",
    "[--all] [id]",
    "Wait for job(s) to complete.",
    [
        Opt("all", "a", usage="Wait for all (waitable) jobs"),
        Opt("verbose", "v", usage="Emit a line of output for all jobs, not just failing ones"),
    ],
)
def wait(opts):
    if len(opts.args) > 1 or (opts.args and opts.get("all")):
        raise opts.fail_usage()
    client = connect()
    if opts.get("all"):
        return _wait_all(client, bool(opts.get("verbose")))
    id = jobids.parse(opts.args[0]) if opts.args else ANY
    try:
        answer = client.rpc("job-manager.wait", {"id": id})
    except OSError as exc:
        if exc.errno == errno.ECHILD:
            raise CommandError(error_text(exc), code=2) from None
        raise
    if not opts.args:
        print(f58(answer["id"]))
    if not answer["success"]:
        raise CommandError(answer["errstr"])
    return 0


def _wait_all(client, verbose):
    code = 0
    while True:
        try:
            answer = client.rpc("job-manager.wait", {"id": ANY})
        except OSError as exc:
            if exc.errno == errno.ECHILD:
                return code
            raise
        name = f58(answer["id"])
        if not answer["success"]:
            warn(f"{name}: {answer['errstr']}")
            code = 1
        elif verbose:
            warn(f"{name}: job completed successfully")


NO_LIMIT = 4294967295


@command(
    "flux-job timeleft",
    "[OPTIONS] [id]",
    "Find remaining runtime for job or enclosing instance",
    [Opt("human", "H", usage="Output in Flux Standard Duration instead of seconds.")],
    args=(0, 1),
)
def timeleft(opts):
    client = connect()
    # inside a job of this instance it is that job's time that counts
    word = opts.args[0] if opts.args else os.environ.get("FLUX_JOB_ID")
    left = _job_left(client, word) if word else _instance_left(client)
    if opts.get("human"):
        print("infinity" if left is None else times.fsd_exact(left))
    else:
        print(NO_LIMIT if left is None else int(left + 0.999999) if left < 1 else int(left))
    return 0


def _left(client, expiration):
    if not expiration:
        return None
    return max(0.0, expiration - clock.now(client))


def _job_left(client, word):
    jobid = jobids.parse(word)
    payload = {"id": jobid, "attrs": ["state", "expiration"]}
    try:
        job = client.rpc("job-list.list-id", payload)["job"]
    except OSError as exc:
        text = "no such jobid" if exc.errno == errno.ENOENT else error_text(exc)
        raise CommandError(f"{word}: {text}") from None
    state = job.get("state", 0)
    if state & states.PENDING:
        raise CommandError(f"job {word} has not started")
    if state != states.RUN:
        return 0.0
    return _left(client, job.get("expiration"))


def _instance_left(client):
    answer = client.rpc("resource.sched-status", {})
    return _left(client, answer["all"]["execution"].get("expiration"))
