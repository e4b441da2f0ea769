"""``flux job list``, ``list-ids``, ``last`` and ``id``."""

import sys

from flux_embedded.cmd.lib import jobids
from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.cmd.lib.eventlog import compact
from flux_embedded.cmd.lib.optparse import Opt, Parser
from flux_embedded.formats import jobid as encodings

STATES = {
    "depend": 2,
    "priority": 4,
    "sched": 8,
    "run": 16,
    "cleanup": 32,
    "inactive": 64,
    "pending": 14,
    "running": 48,
    "active": 62,
}
ATTRS = (
    "userid urgency priority t_submit t_depend t_priority t_sched t_run t_cleanup t_inactive state "
    "name cwd ntasks ncores duration nnodes ranks nodelist success exception_occurred "
    "exception_type exception_severity exception_note result expiration annotations waitstatus"
).split()

ENCODERS = {
    "dec": str,
    "hex": lambda n: f"{n:#x}",
    "dothex": encodings.dothex,
    "kvs": encodings.kvs_dir,
    "f58": encodings.f58,
    "f58plain": encodings.f58plain,
}


def _state_mask(text):
    mask = 0
    for name in text.split(","):
        bit = STATES.get(name.lower())
        if bit is None:
            raise CommandError(f"error parsing --states: {name} is unknown")
        mask |= bit
    return mask


def _print_jobs(client, payload):
    for answer in client.stream("job-list.list", payload):
        for job in answer["jobs"]:
            print(compact({key: job[key] for key in sorted(job)}))


def list_jobs(argv):
    parser = Parser(
        "flux-job list",
        "[OPTIONS]",
        "List jobs",
        [
            Opt("all", "a", usage="List jobs in all states"),
            Opt("all-users", "A", usage="List jobs for all users"),
            Opt("count", "c", "N", "Limit output to N jobs(default 1000)", kind="int"),
            Opt(
                "states", "s", "STATE", "List jobs in specific states (default pending and running)"
            ),
            Opt("user", "u", "USER", 'Limit output to specific user. Specify "all" for all users.'),
        ],
    )
    opts = parser.parse(argv)
    if opts.args:
        raise parser.fail_usage()
    mask = 126 if opts.get("all") else STATES["active"]
    if "states" in opts:
        mask = _state_mask(opts.get("states"))
    constraint = {"states": [mask]}
    payload = {"max_entries": opts.get("count", 1000), "attrs": ATTRS, "constraint": constraint}
    _print_jobs(connect(), payload)
    return 0


def list_inactive(argv):
    parser = Parser(
        "flux-job list-inactive",
        "[OPTIONS]",
        "List jobs from most recently inactive to least",
        [
            Opt("count", "c", "N", "Limit output to N jobs(default 1000)", kind="int"),
            Opt(
                "since",
                "s",
                "T",
                "Limit output to jobs that entered the inactive state since timestamp T",
            ),
        ],
    )
    opts = parser.parse(argv)
    payload = {
        "max_entries": opts.get("count", 1000),
        "attrs": ATTRS,
        "constraint": {"states": [STATES["inactive"]]},
    }
    if "since" in opts:
        try:
            payload["since"] = float(opts.get("since"))
        except ValueError:
            raise CommandError("Invalid --since argument") from None
    _print_jobs(connect(), payload)
    return 0


def list_ids(argv):
    parser = Parser(
        "flux-job list-ids",
        "[OPTIONS] ID [ID ...]",
        "List job(s) by id",
        [Opt("wait-state", "W", "STATE", "Wait until state reached before returning")],
    )
    opts = parser.parse(argv)
    if not opts.args:
        raise parser.fail_usage()
    extra = {}
    if "wait-state" in opts:
        extra["state"] = _state_mask(opts.get("wait-state"))
    client = connect()
    numbers = jobids.parse_all(opts.args)
    calls = [
        client.send("job-list.list-id", {"id": number, "attrs": ATTRS, **extra})
        for number in numbers
    ]
    for call in calls:
        job = call.get()["job"]
        print(compact({key: job[key] for key in sorted(job)}))
    return 0


def convert(argv):
    parser = Parser(
        "flux-job id",
        "[OPTIONS] [id ...]",
        "Convert jobid(s) to another form",
        [
            Opt(
                "to",
                "t",
                "dec|kvs|hex|dothex|words|f58|f58plain",
                "Convert jobid to specified form",
            )
        ],
    )
    opts = parser.parse(argv)
    form = opts.get("to", "dec")
    encode = ENCODERS.get(form)
    if encode is None:
        if form in ("words", "emoji"):
            raise CommandError(
                f"the {form} encoding needs a table that is not part of this instance"
            )
        raise CommandError(f"Unknown to={form}")
    words = opts.args or sys.stdin.read().split()
    for word in words:
        print(encode(jobids.parse(word)))
    return 0


def last(argv):
    parser = Parser("flux-job last", "[N|SLICE]", "List my most recently submitted job id(s)")
    opts = parser.parse(argv)
    if len(opts.args) > 1:
        raise parser.fail_usage()
    jobs = connect().rpc("job-manager.history.get", {"userid": 0xFFFFFFFF})["jobs"]
    word = opts.args[0] if opts.args else "1"
    try:
        if word.startswith("["):
            parts = [int(p) if p else None for p in word.strip("[]").split(":")]
            jobs = jobs[slice(*parts)] if len(parts) > 1 else [jobs[parts[0]]]
        else:
            jobs = jobs[: int(word)]
    except (ValueError, IndexError, TypeError):
        raise CommandError("error parsing optional count or slice argument") from None
    if not jobs:
        raise CommandError("job history is empty")
    for jobid in jobs:
        print(encodings.f58(jobid))
    return 0
