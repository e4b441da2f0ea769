# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux jobs``."""

import json
import os
import sys

import flux
from flux.hostlist import Hostlist
from flux.idset import IDset
from flux.job import JobID, JobInfoFormat, JobList, job_fields_to_attrs
from flux.job.stats import JobStats
from flux.util import parse_datetime
from flux_embedded.cmd.lib.tables import Formats, words
from flux_engine.command.errors import CommandError, warn
from flux_engine.command.options import Parser

_WHO = "{id.f58:>12} ?:{queue:<8.8} +:{username:<8} {name:<10.10+} "
_SIZE = "{ntasks:>6} {nnodes:>6h} "
_INFO = "{contextual_time!F:>8h} {contextual_info}"
FORMATS = {
    "default": ("Default flux-jobs format string", _WHO + "{status_abbrev:>2.2} " + _SIZE + _INFO),
    "cute": (
        "Cute flux-jobs format string (default with emojis)",
        _WHO + "{status_emoji:>5.5} " + _SIZE + _INFO,
    ),
    "long": (
        "Extended flux-jobs format string",
        f"{_WHO}{{status:>9.9}} {_SIZE}{{t_submit!d:%b%d %R::>12}} {{t_remaining!F:>12h}} {_INFO}",
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
#: colors of a terminal: by result, of a job that is an instance, and the end of them
COLORS = {
    "COMPLETED": "\033[01;32m",
    "FAILED": "\033[01;31m",
    "CANCELED": "\033[37m",
    "TIMEOUT": "\033[01;31m",
}
INSTANCE, OFF = "\033[01;34m", "\033[0;0m"


def make_parser():
    parser = Parser("flux-jobs")
    add = parser.add_argument
    parser.flag("-a", text="jobs in all states")
    parser.flag("-A", text="jobs of all users")
    add("-c", "--count", metavar="N", type=int, help="at most so many (default: 1000)")
    add("-f", "--filter", metavar="STATE|RESULT,...", action="append", help="these only")
    add("-i", "--include", metavar="HOSTS|RANKS", help="jobs on these")
    add("-u", "--user", metavar="USER", help="the jobs of this user, or of 'all'")
    add("--name", metavar="NAME", help="jobs of this name")
    add("--since", metavar="WHEN", help="jobs that became inactive since then (implies -a)")
    parser.add_queues()
    parser.add_table()
    parser.flag("--suppress-header", text="the same as --no-header")
    add("--sort", metavar="KEY,...", help="order of the lines")
    add("-w", "--width", metavar="N", type=int, nargs="?", const=0, default=-1, help="cut lines")
    parser.flag("--json", text="all that is known of the jobs, in JSON")
    add("--color", metavar="WHEN", nargs="?", const="always", default="auto", type=_color)
    parser.flag("-R", "--recursive", text="go on into jobs that are instances")
    add("-L", "--level", metavar="N", type=int, default=9999, help="no deeper than this")
    parser.flag("--recurse-all", text="into those of other users too")
    add("--threads", metavar="N", type=int, help="accepted, one instance is asked after the other")
    parser.flag("--stats", text="print how many jobs there are first")
    parser.flag("--stats-only", text="print nothing else; fails if no job is active")
    add("jobids", metavar="JOBID", nargs="*", type=JobID)
    return parser


def _color(text):
    if text not in ("never", "always", "auto"):
        raise ValueError(text)
    return text == "always" or (text == "auto" and sys.stdout.isatty())


def _since(text):
    """``--since`` in seconds since the epoch.

    Raises:
        CommandError: that is in the future
    """
    try:
        since = parse_datetime(text).timestamp()
    except ValueError:
        since = float(text)
    if since > parse_datetime("now").timestamp():
        raise CommandError(f"--since={text} appears to be in the future")
    return since


def _where(text):
    """The constraint of ``--include``."""
    try:
        return {"ranks": [IDset(text).encode()]}
    except ValueError:
        pass
    try:
        return {"hostlist": [Hostlist(text).encode()]}
    except ValueError:
        raise CommandError(f"-i/--include: invalid targets: {text}") from None


def _filters(args):
    filters = words(args.filter)
    if args.a or (args.since and not filters):
        if filters:
            warn("flux-jobs: WARNING: Both -a and --filter specified, ignoring -a")
        else:
            filters = ["pending", "running", "inactive"]
    return filters or ["pending", "running"]


def fetch(handle, args, fields):
    """The jobs that the options ask for, and whether there are more of them."""
    attrs = job_fields_to_attrs(fields)
    if args.color:
        attrs.update(job_fields_to_attrs(["result", "annotations"]))
    if args.recursive:
        attrs.update(job_fields_to_attrs(["annotations", "status", "userid"]))
    if args.json:
        attrs.add("all")
    count = 1000 if args.count is None else args.count
    everybody = args.A or (args.include and args.user is None)
    found = JobList(
        handle,
        ids=args.jobids,
        attrs=attrs,
        filters=_filters(args),
        user="all" if everybody else args.user,
        max_entries=count + 1 if count > 0 else count,
        since=_since(args.since) if args.since else 0.0,
        name=args.name,
        queue=words(args.queue),
        constraint=_where(args.include) if args.include else None,
    )
    jobs = found.jobs()
    if any(field.startswith("instance.") for field in fields):
        for job in jobs:
            job.get_instance_info()
    for error in found.errors:
        warn(str(error))
    more = 0 < count < len(jobs)
    return jobs[:-1] if more else jobs, more


def stats_text(handle, queues=None):
    """The line of ``--stats``, and how many jobs are active."""
    stats = JobStats(handle, queue=queues).update_sync()
    text = (
        f"{stats.running} running, {stats.successful} completed, {stats.failed} failed, "
        f"{stats.pending} pending"
    )
    return text, stats


class Listing:
    """The jobs of an instance and, if asked for, of those that run in its jobs."""

    def __init__(self, args, layout):
        self.args = args
        self.layout = layout

    def show(self, jobs, path="", level=0):
        """Print jobs; returns what ``--json`` prints of them."""
        args = self.args
        found = [job.to_dict() for job in jobs] if args.json else []
        if not args.json:
            self.layout.print_items(
                jobs, no_header=True, width=args.width, pre=self._paint, post=self._unpaint
            )
        if args.recursive and level < args.level:
            # What was named is in the outermost instance.
            args.jobids = []
            for number, job in enumerate(jobs):
                if self._is_instance(job):
                    inner = self._descend(job, path, level)
                    if args.json:
                        found[number]["jobs"] = inner
        return found

    def _paint(self, job):
        if self.args.color:
            sys.stdout.write(COLORS.get(job.result) or (INSTANCE if job.uri else ""))

    def _unpaint(self, job):
        if self.args.color and (job.result or job.uri):
            sys.stdout.write(OFF)

    def _is_instance(self, job):
        mine = self.args.recurse_all or job.userid == os.getuid()
        return job.uri and job.status_abbrev == "R" and mine

    def _descend(self, job, path, level):
        path = f"{path}/{job.id.f58}" if path else job.id.f58
        text = None
        try:
            handle = flux.Flux(str(job.uri))
            jobs, _ = fetch(handle, self.args, self.layout.fields)
            text = stats_text(handle)[0] if self.args.stats else None
        except OSError:
            jobs = []  # it ended in the meantime, or is not up yet
        if not self.args.json:
            print(f"\n{path}:")
            if text:
                print(text)
        return self.show(jobs, path, level + 1)


def main(argv):
    args = make_parser().parse_args(argv)
    args.no_header = args.no_header or args.suppress_header
    if args.json and (args.stats or args.stats_only):
        raise CommandError("--json incompatible with --stats or --stats-only")
    args.recursive = args.recursive or args.recurse_all
    selecting = (args.a, args.A, args.count, args.filter, args.since, args.user, args.name)
    if args.jobids and any((*selecting, args.queue)) and not args.recursive:
        warn("flux-jobs: WARNING: Filtering options ignored with jobid list")
    text = Formats("flux-jobs", FORMATS).load().get_format_string(args.format)
    try:
        layout = JobInfoFormat(text)
    except ValueError as exc:
        raise CommandError(f"Error in user format: {exc}") from None
    handle = flux.Flux()
    if args.stats or args.stats_only:
        text, stats = stats_text(handle, words(args.queue))
        print(f"{text}, {stats.inactive_purged} inactive purged")
        if args.stats_only:
            return 0 if stats.active else 1
    if args.sort:
        layout.set_sort_keys(args.sort)
    jobs, more = fetch(handle, args, layout.fields)
    single = len(args.jobids) == 1
    if args.jobids and not jobs:
        return 1
    no_header = args.no_header or args.json
    shown = JobInfoFormat(layout.filter(jobs, no_header=no_header))
    if not no_header:
        print(shown.header(width=args.width))
    found = Listing(args, shown).show(jobs)
    if args.json:
        print(json.dumps(found[0] if single else {"jobs": found}))
    if more and not no_header:
        warn(f"warning: output truncated at {len(jobs)} jobs.")
        warn("Use --count to increase returned results or use filters to alter results.")
    return 0
