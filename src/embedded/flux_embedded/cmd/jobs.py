"""``flux jobs``."""

import errno
import json
import os
import sys

from flux_embedded.cmd.lib import clock, jobids, jobinfo, pyargs, values
from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError, NoInstance, error_text, warn
from flux_embedded.cmd.lib.outfmt import OutputFormat
from flux_embedded.formats import states

_WHO = "{id.f58:>12} ?:{queue:<8.8} +:{username:<8} {name:<10.10+} "
_WHAT = "{ntasks:>6} {nnodes:>6h} "
_WHERE = "{contextual_time!F:>8h} {contextual_info}"
FORMATS = {
    "default": (
        "Default flux-jobs format string",
        _WHO + "{status_abbrev:>2.2} " + _WHAT + _WHERE,
    ),
    "cute": (
        "Cute flux-jobs format string (default with emojis)",
        _WHO + "{status_emoji:>5.5} " + _WHAT + _WHERE,
    ),
    "long": (
        "Extended flux-jobs format string",
        _WHO
        + "{status:>9.9} "
        + _WHAT
        + "{t_submit!d:%b%d %R::>12} {t_remaining!F:>12h} "
        + _WHERE,
    ),
    "deps": (
        "Show job urgency, priority, and dependencies",
        "{id.f58:>12} ?:{queue:<8.8} {name:<10.10+} {urgency:<3} {priority:<12} {state:<8.8} "
        "{dependencies}",
    ),
    "endreason": (
        "Show why each job ended",
        _WHO + "{status_abbrev:>2.2} {t_inactive!d:%b%d %R::>12h} {inactive_reason}",
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
    add(
        "-n",
        "--no-header",
        "--suppress-header",
        action="store_true",
        help="Suppress printing of header line",
    )
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
    add("--json", action="store_true", help="Output jobs in JSON instead of formatted output")
    add("--sort", metavar="KEY,...", help="Specify sort order")
    add(
        "--color",
        nargs="?",
        const="always",
        default="auto",
        type=pyargs.color,
        metavar="WHEN",
        help="accepted, no colors are used",
    )
    add(
        "-w",
        "--width",
        type=int,
        nargs="?",
        const=0,
        default=-1,
        metavar="N",
        help="Truncate output at width N. If N=0 (default if N omitted) and stdout is connected to "
        "a terminal, use terminal width",
    )
    add("-R", "--recursive", action="store_true", help="List jobs recursively")
    add(
        "-L",
        "--level",
        type=int,
        metavar="N",
        default=9999,
        help="With --recursive, only descend N levels",
    )
    add(
        "--recurse-all",
        action="store_true",
        help="With --recursive, attempt to recurse all jobs, not just jobs of current user",
    )
    add("--threads", type=int, metavar="N", help="accepted, one instance is asked after the other")
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
    everybody = args.A or (args.include and args.user is None)
    userid = values.ANYONE if everybody else values.user_id(args.user)
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
    """The jobs to show (list of dict)."""
    if args.jobids:
        return _by_id(client, args.jobids)
    limit = args.count
    if limit < 0:
        raise CommandError("invalid payload: max_entries < 0 not allowed")
    payload = {"max_entries": limit + 1 if limit else 0, "attrs": jobinfo.ATTRS}
    payload["constraint"] = constraint(args)
    if args.since:
        payload["since"] = _since(args.since, now)
        if payload["since"] > now:
            raise CommandError(f"--since={args.since} appears to be in the future")
    jobs = client.rpc("job-list.list", payload)["jobs"]
    if limit and len(jobs) > limit:
        jobs = jobs[:limit]
        if not args.no_header:
            warn(f"warning: output truncated at {limit} jobs.")
            warn("Use --count to increase returned results or use filters to alter results.")
    return jobs


def _by_id(client, words):
    calls = [
        client.send("job-list.list-id", {"id": number, "attrs": jobinfo.ATTRS})
        for number in jobids.parse_all(words, jobids.INVALID)
    ]
    jobs = []
    for word, call in zip(words, calls):
        try:
            jobs.append(call.get()["job"])
        except OSError as exc:
            unknown = exc.errno == errno.ENOENT
            warn(f"JobID {word} unknown" if unknown else f"rpc: {error_text(exc)}")
    return jobs


def show_stats(client, queues=None):
    """Print ``1 running, 27 completed, ...``; returns how many jobs are active."""
    answer = client.rpc("job-list.job-stats", {})
    parts = [answer]
    if queues:
        wanted = {name for text in queues for name in text.split(",")}
        parts = [q for q in answer.get("queues", ()) if q.get("name") in wanted]
    running = pending = completed = failed = purged = 0
    for part in parts:
        count = part["job_states"]
        running += count["run"] + count["cleanup"]
        pending += count["depend"] + count["priority"] + count["sched"]
        completed += part["successful"]
        failed += count["inactive"] - part["successful"]
        purged += part.get("inactive_purged", 0)
    print(
        f"{running} running, {completed} completed, {failed} failed, {pending} pending, "
        f"{purged} inactive purged"
    )
    return running + pending


class Listing:
    """One run of the command: the jobs of an instance and, if asked for, of those that run in its jobs."""

    def __init__(self, args, layout):
        self.args = args
        self.layout = layout

    def show(self, client, path="", level=0):
        """Print the jobs of one instance; returns them as dicts for ``--json``, None if there is nothing."""
        args = self.args
        now = clock.now(client)
        items = [jobinfo.JobInfo(job, now) for job in fetch(client, args, now)]
        if args.jobids and not items:
            return None
        if not args.json:
            header = not args.no_header and not level
            lines = self.layout.lines(items, jobinfo.JobInfo.get, header=header)
            sys.stdout.write("".join(f"{self._cut(line)}\n" for line in lines))
        whole = [item.to_dict() for item in items]
        if args.recursive and level < args.level:
            args.jobids = []
            for item, one in zip(items, whole):
                if self._is_instance(item):
                    self._descend(item, one, path, level)
        return whole

    def _cut(self, line):
        width = self.args.width
        if width == 0 and sys.stdout.isatty():
            width = os.get_terminal_size(sys.stdout.fileno()).columns
        return line[:width] if width > 0 else line

    def _is_instance(self, item):
        mine = self.args.recurse_all or item.job.get("userid") == os.getuid()
        return item.get("uri") and item.state == states.RUN and mine

    def _descend(self, item, one, path, level):
        path = f"{path}/{item.get('id')}" if path else item.get("id")
        try:
            inner = connect(item.get("uri.local"))
            if not self.args.json:
                print(f"\n{path}:")
                if self.args.stats:
                    show_stats(inner)
            jobs = self.show(inner, path, level + 1)
        except (OSError, NoInstance):
            # it ended in the meantime, or is not up yet
            jobs = []
        if self.args.json:
            one["jobs"] = jobs


def main(argv):
    args = make_parser().parse_args(argv)
    if args.json and (args.stats or args.stats_only):
        raise CommandError("--json incompatible with --stats or --stats-only")
    args.recursive = args.recursive or args.recurse_all
    filters = (args.a, args.A, args.filter, args.since, args.user, args.name, args.queue)
    if args.jobids and any(filters) and not args.recursive:
        warn("flux-jobs: WARNING: Filtering options ignored with jobid list")
    layout = OutputFormat.named(
        args.format,
        FORMATS,
        jobinfo.HEADINGS,
        "jobs",
        known=jobinfo.is_annotation,
        error_prefix="Error in user format: ",
    )
    if layout is None:
        return 0
    if args.sort:
        layout.sort = args.sort.split(",")
    client = connect()
    if args.stats or args.stats_only:
        active = show_stats(client, args.queue)
        if args.stats_only:
            return 0 if active else 1
    single = len(args.jobids) == 1
    jobs = Listing(args, layout).show(client)
    if jobs is None:
        return 1
    if args.json:
        print(json.dumps(jobs[0] if single else {"jobs": jobs}, ensure_ascii=False))
    return 0
