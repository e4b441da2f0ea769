"""``flux job list``, ``list-ids``, ``last`` and ``id``."""

import sys

from flux_embedded.cmd.lib import jobids, values
from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError, error_text, strerror
from flux_embedded.cmd.lib.eventlog import compact
from flux_embedded.cmd.lib.optparse import Opt, command
from flux_embedded.formats import jobid as encodings
from flux_embedded.formats import states

ATTRS = (
    "userid urgency priority t_submit t_depend t_priority t_sched t_run t_cleanup t_inactive state "
    "name cwd ntasks ncores duration nnodes ranks nodelist success exception_occurred "
    "exception_type exception_severity exception_note result expiration annotations waitstatus dependencies"
).split()


def _print_jobs(client, payload):
    for answer in client.stream("job-list.list", payload):
        for job in answer["jobs"]:
            print(compact({key: job[key] for key in sorted(job)}))


@command(
    "flux-job list",
    "[OPTIONS]",
    "List jobs",
    [
        Opt("count", "c", "N", "Limit output to N jobs", kind="int"),
        Opt("states", "s", "STATES", "List jobs in specific states"),
        Opt("user", "u", "USER", 'Limit output to specific user. Specify "all" for all users.'),
        Opt("all-user", "a", usage="List my jobs, regardless of state"),
        Opt("all", "A", usage="List jobs for all users, regardless of state"),
    ],
    args=0,
)
def list_jobs(opts):
    mask = states.ACTIVE
    if "all-user" in opts or "all" in opts:
        mask |= states.INACTIVE
    elif "states" in opts:
        mask = values.state_mask(",".join(opts.all("states")))
    terms = [{"states": [mask]}]
    userid = values.ANYONE if "all" in opts else values.user_id(opts.get("user"))
    if userid != values.ANYONE:
        terms.append({"userid": [userid]})
    payload = {
        "max_entries": opts.get("count", 0),
        "attrs": ATTRS,
        "constraint": {"and": terms},
    }
    _print_jobs(connect(), payload)
    return 0


@command(
    "flux-job list-inactive",
    "[OPTIONS]",
    "List jobs from most recently inactive to least",
    [
        Opt("count", "c", "N", "Limit output to N jobs", kind="int"),
        Opt(
            "since",
            "s",
            "T",
            "Limit output to jobs that entered the inactive state since timestamp T",
        ),
    ],
)
def list_inactive(opts):
    payload = {
        "max_entries": opts.get("count", 0),
        "attrs": ATTRS,
        "constraint": {"states": [states.INACTIVE]},
    }
    if "since" in opts:
        try:
            payload["since"] = float(opts.get("since"))
        except ValueError:
            raise CommandError("Invalid --since argument") from None
    _print_jobs(connect(), payload)
    return 0


@command(
    "flux-job list-ids",
    "[OPTIONS] ID [ID ...]",
    "List job(s) by id",
    [Opt("wait-state", "W", "STATE", "Wait until state reached before returning")],
    args=(1, None),
)
def list_ids(opts):
    extra = {}
    if "wait-state" in opts:
        extra["state"] = values.state_mask(opts.get("wait-state"))
    client = connect()
    calls = [
        client.send("job-list.list-id", {"id": number, "attrs": ATTRS, **extra})
        for number in jobids.parse_all(opts.args)
    ]
    for call in calls:
        try:
            job = call.get()["job"]
        except OSError as exc:
            raise CommandError(f"flux job-list.list-id: {strerror(exc)}") from None
        print(compact({key: job[key] for key in sorted(job)}))
    return 0


@command(
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
def convert(opts):
    form = opts.get("to", "dec")
    encode = jobids.ENCODERS.get(form)
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


@command("flux-job last", "SLICE", "List my most recently submitted job id(s)", args=(0, 1))
def last(opts):
    word = opts.args[0] if opts.args else "1"
    if "[" not in word:
        try:
            word = f"[:{int(word)}]"
        except ValueError:
            raise opts.fail_usage() from None
    for jobid in _history(word):
        print(encodings.f58(jobid))


@command("flux-job namespace", "[id ...]", "Convert job ids to job guest kvs namespace names")
def namespace(opts):
    for word in opts.args or sys.stdin.read().split():
        print(f"job-{jobids.parse(word)}")


def _history(word):
    """The jobs that a slice in brackets picks from the latest submitted, latest first."""
    try:
        jobs = connect().rpc("job-manager.history.get", {"slice": word})["jobs"]
    except OSError as exc:
        raise CommandError(error_text(exc)) from None
    if not jobs:
        raise CommandError("job history is empty")
    return jobs
