"""``flux jobs``."""

import errno
import json
import sys

from flux_embedded.cmd.lib import clock, formats, jobids, jobinfo, pyargs, values
from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError, error_text, warn
from flux_embedded.cmd.lib.outfmt import OutputFormat
from flux_embedded.formats import states

FORMATS = {
    "default": (
        "Default flux-jobs format string",
        "{id.f58:>12} ?:{queue:<8.8} {username:<8.8} {name:<10.10+} {status_abbrev:>2.2} "
        "{ntasks:>6} {nnodes:>6h} {contextual_time!F:>8h} {contextual_info}",
    ),
    "long": (
        "Extended flux-jobs format string",
        "{id.f58:>12} ?:{queue:<8.8} {username:<8.8} {name:<10.10+} {status:>9.9} {ntasks:>6} "
        "{nnodes:>6h} {t_submit!d:%b%d %R::>12} {t_remaining!F:>12h} {contextual_time!F:>8h} "
        "{contextual_info}",
    ),
    "deps": (
        "Show job urgency, priority, and dependencies",
        "{id.f58:>12} ?:{queue:<8.8} {name:<10.10+} {urgency:<3} {priority:<12} {state:<8.8} "
        "{dependencies}",
    ),
    "endreason": (
        "Show why each job ended",
        "{id.f58:>12} ?:{queue:<8.8} {username:<8.8} {name:<10.10+} {status_abbrev:>2.2} "
        "{t_inactive!d:%b%d %R::>12h} {inactive_reason}",
    ),
}

RESULT_MASKS = {**states.RESULT_MASKS, "cancelled": states.CANCELED}


def make_parser():
    parser = pyargs.Parser(prog="flux-jobs")
    add = parser.add_argument
    add("-a", action="store_true", help="List jobs in all states for current user")
    add("-A", action="store_true", help="List jobs for all users")
    add(
        "-c",
        "--count",
        type=int,
        metavar="N",
        default=1000,
        help="Limit output to N jobs(default 1000)",
    )
    add(
        "-f",
        "--filter",
        action="append",
        metavar="STATE|RESULT",
        help="List jobs with specific job state or result",
    )
    add(
        "-i",
        "--include",
        metavar="HOSTS|RANKS",
        help="List only jobs where the assigned resources intersect with the supplied argument",
    )
    add("-n", "--no-header", action="store_true", help="Suppress printing of header line")
    add(
        "-u",
        "--user",
        metavar="USER",
        help='Limit output to specific username or userid (Specify "all" for all users)',
    )
    add("--name", metavar="JOB-NAME", help="Limit output to specific job name")
    add(
        "-q",
        "--queue",
        action="append",
        metavar="QUEUE",
        help="Limit output to specific queue or queues",
    )
    add(
        "-o",
        "--format",
        metavar="FORMAT",
        help="Specify output format using Python's string format syntax or a defined format by name (use 'help' to get a list of names)",
    )
    add(
        "--since",
        metavar="WHEN",
        help="Include jobs that have become inactive since WHEN (implies -a)",
    )
    add("--json", action="store_true", help="Emit output in JSON")
    add("--sort", metavar="KEY,...", help="Specify sort order")
    add(
        "--color",
        nargs="?",
        const="always",
        default="auto",
        metavar="WHEN",
        help="accepted, no colors are used",
    )
    add("--stats", action="store_true", help="Print job statistics before header")
    add("--stats-only", action="store_true", help="Print job statistics only and exit")
    add("jobids", metavar="JOBID", nargs="*", help="Limit output to specific Job IDs")
    return parser


def constraint(args):
    """The job-list constraint of the options."""
    terms = []
    mask = results = 0
    for text in args.filter or ():
        for name in text.lower().split(","):
            if name in states.MASKS:
                mask |= states.MASKS[name]
            elif name in RESULT_MASKS:
                results |= RESULT_MASKS[name]
            else:
                raise CommandError(f"Invalid filter specified: {name}")
    if not mask and not results:
        mask = states.ACTIVE | (states.INACTIVE if args.a or args.since else 0)
    either = []
    if mask:
        either.append({"states": [mask]})
    if results:
        either.append({"results": [results]})
    terms.append(either[0] if len(either) == 1 else {"or": either})
    userid = values.ANYONE if args.A else values.user_id(args.user)
    if userid != values.ANYONE:
        terms.append({"userid": [userid]})
    if args.name:
        terms.append({"name": [args.name]})
    if args.queue:
        terms.append({"queue": [name for text in args.queue for name in text.split(",")]})
    if args.include:
        from flux_embedded.formats import idset

        try:
            idset.decode(args.include)
            terms.append({"ranks": [args.include]})
        except ValueError:
            terms.append({"hostlist": [args.include]})
    return terms[0] if len(terms) == 1 else {"and": terms}


def _since(text, now):
    """``--since``: epoch seconds, a date, or a duration into the past."""
    from flux_embedded.formats import fsd

    try:
        return float(text) if float(text) > 0 else now + float(text)
    except ValueError:
        pass
    if text.startswith("-"):
        try:
            return now - fsd.parse(text[1:])
        except ValueError:
            raise CommandError(f"--since: invalid duration '{text}'") from None
    return values.begin_time(text)


def fetch(client, args, now):
    """The jobs to show, and the exit code."""
    if args.jobids:
        return _by_id(client, args.jobids)
    limit = args.count
    payload = {"max_entries": limit + 1 if limit else 0, "attrs": jobinfo.ATTRS}
    payload["constraint"] = constraint(args)
    if args.since:
        payload["since"] = _since(args.since, now)
    jobs = client.rpc("job-list.list", payload)["jobs"]
    if limit and len(jobs) > limit:
        jobs = jobs[:limit]
        if not args.no_header:
            warn(f"warning: output truncated at {limit} jobs.")
            warn("Use --count to increase returned results or use filters to alter results.")
    return jobs, 0


def _by_id(client, words):
    numbers = jobids.parse_all(words, jobids.INVALID)
    calls = [
        client.send("job-list.list-id", {"id": number, "attrs": jobinfo.ATTRS})
        for number in numbers
    ]
    jobs, code = [], 0
    for word, call in zip(words, calls):
        try:
            jobs.append(call.get()["job"])
        except OSError as exc:
            code = 1
            if exc.errno == errno.ENOENT:
                warn(f"JobID {word} unknown")
            else:
                warn(f"Error retrieving job {word}: {error_text(exc)}")
    return jobs, code


def stats_line(client, queues=None):
    """``1 running, 27 completed, …``."""
    answer = client.rpc("job-list.job-stats", {})
    parts = [answer]
    if queues:
        wanted = {name for text in queues for name in text.split(",")}
        parts = [q for q in answer.get("queues", ()) if q.get("name") in wanted]
    count = {"running": 0, "completed": 0, "failed": 0, "pending": 0, "purged": 0}
    for part in parts:
        states = part["job_states"]
        count["running"] += states["run"] + states["cleanup"]
        count["pending"] += states["depend"] + states["priority"] + states["sched"]
        count["completed"] += part["successful"]
        count["failed"] += states["inactive"] - part["successful"]
        count["purged"] += part.get("inactive_purged", 0)
    return (
        f"{count['running']} running, {count['completed']} completed, {count['failed']} failed, "
        f"{count['pending']} pending, {count['purged']} inactive purged"
    )


def main(argv):
    args = make_parser().parse_args(argv)
    chosen = formats.choose(args.format, FORMATS, "FLUX_JOBS_FORMAT_DEFAULT")
    if chosen is None:
        return 0
    layout = OutputFormat(
        chosen[0], jobinfo.HEADINGS, jobinfo.is_annotation, error_prefix="Error in user format: "
    )
    if args.sort:
        layout.sort = args.sort.split(",")
    client = connect()
    if args.stats or args.stats_only:
        print(stats_line(client, args.queue))
        if args.stats_only:
            return 0
    now = clock.now(client)
    jobs, code = fetch(client, args, now)
    items = [jobinfo.JobInfo(job, now) for job in jobs]
    if args.json:
        whole = [item.to_dict() for item in items]
        if len(args.jobids) == 1 and len(whole) == 1:
            print(json.dumps(whole[0], ensure_ascii=False))
        elif not args.jobids or whole:
            print(json.dumps({"jobs": whole}, ensure_ascii=False))
        return code
    if args.jobids and not items:
        return code
    lines = layout.lines(items, jobinfo.JobInfo.get, header=not args.no_header)
    if lines:
        sys.stdout.write("\n".join(lines) + "\n")
    return code
