"""How a job ends, and how long it has: status, attach, wait, timeleft."""

from flux_embedded.cmd.lib import attach as attaching
from flux_embedded.cmd.lib import clock, follow, jobids, times
from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError, error_text, warn
from flux_embedded.cmd.lib.optparse import Opt, Parser
from flux_embedded.formats.jobid import f58


def status(argv):
    parser = Parser(
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
            Opt("json", None, usage="Dump job result information in JSON and exit"),
        ],
    )
    opts = parser.parse(argv)
    if not opts.args:
        raise parser.fail_usage()
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
            raise CommandError(f"job {word}: {error_text(follower.error)}")
        one = follower.code
        if follower.status is None and follower.exception is not None:
            one = opts.get("exception-exit-code", one)
        code = max(code, one)
        if opts.count("verbose") > 1:
            _explain(follower)
    return code


def _explain(follower):
    name = f58(follower.jobid)
    if follower.status is None:
        kind = (follower.exception or {}).get("type")
        warn(f"flux-job: {name}: exception type={kind}")
    else:
        text = follow.end_text(follower.status) or "exited with exit code 0"
        warn(f"flux-job: {name}: {text}")


def attach(argv):
    parser = Parser(
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
            Opt("debug", None, usage="Enable parallel debugger to attach to a running job"),
        ],
    )
    opts = parser.parse(argv)
    if len(opts.args) != 1:
        raise parser.fail_usage()
    word = opts.args[0]
    jobid = jobids.parse(word)
    verbose = (
        3 if opts.get("show-exec") else 2 if opts.get("show-events") else opts.count("verbose")
    )
    try:
        return attaching.attach(connect(), jobid, label=bool(opts.get("label-io")), verbose=verbose)
    except OSError as exc:
        import errno

        reason = "No such job" if exc.errno == errno.ENOENT else error_text(exc)
        raise CommandError(f"Failed to attach to {word}: {reason}") from None


def wait(argv):
    parser = Parser(
        "flux-job wait",
        "[--all] [id]",
        "Wait for job(s) to complete.",
        [
            Opt("all", "a", usage="Wait for all (waitable) jobs"),
            Opt("verbose", "v", usage="Emit a line of output for all jobs, not just failing ones"),
        ],
    )
    opts = parser.parse(argv)
    if len(opts.args) > 1 or (opts.args and opts.get("all")):
        raise parser.fail_usage()
    client = connect()
    if opts.get("all"):
        return _wait_all(client, bool(opts.get("verbose")))
    payload = {}
    if opts.args:
        payload["id"] = jobids.parse(opts.args[0])
    try:
        answer = client.rpc("job-manager.wait", payload)
    except OSError as exc:
        import errno

        if exc.errno == errno.ECHILD:
            raise CommandError(error_text(exc), code=2) from None
        raise
    if not opts.args:
        print(f58(answer["id"]))
    if not answer["success"]:
        raise CommandError(answer["errstr"])
    return 0


def _wait_all(client, verbose):
    import errno

    code = 0
    while True:
        try:
            answer = client.rpc("job-manager.wait", {})
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


def timeleft(argv):
    parser = Parser(
        "flux-job timeleft",
        "[OPTIONS] [id]",
        "Find remaining runtime for job or enclosing instance",
        [Opt("human", "H", usage="Output in Flux Standard Duration instead of seconds.")],
    )
    opts = parser.parse(argv)
    if len(opts.args) > 1:
        raise parser.fail_usage()
    client = connect()
    left = _job_left(client, opts.args[0]) if opts.args else _instance_left(client)
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
        raise CommandError(f"{word}: {error_text(exc)}") from None
    state = job.get("state", 0)
    if state == 64:
        return 0.0
    if state < 16:
        raise CommandError("job has not started")
    return _left(client, job.get("expiration"))


def _instance_left(client):
    answer = client.rpc("resource.sched-status", {})
    return _left(client, answer["all"]["execution"].get("expiration"))
