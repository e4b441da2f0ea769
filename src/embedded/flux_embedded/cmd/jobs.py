# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux jobs``."""

import json

import flux
from flux.hostlist import Hostlist
from flux.idset import IDset
from flux.job import JobID, JobInfoFormat, JobList, job_fields_to_attrs
from flux.job.stats import JobStats
from flux.util import parse_datetime
from flux_embedded.cmd.lib import Formats, print_table, words
from flux_engine.command.errors import CommandError, warn
from flux_engine.command.options import Parser

_QUEUE = "{id.f58:>12} ?:{queue:<8.8} "
_JOB = _QUEUE + "+:{username:<8} {name:<10.10+} "
_END = "{contextual_time!F:>8h} {contextual_info}"
FORMATS = {
    "default": (
        "Default flux-jobs format string",
        _JOB + "{status_abbrev:>2.2} {ntasks:>6} {nnodes:>6h} " + _END,
    ),
    "long": (
        "Extended flux-jobs format string",
        _JOB + "{status:>9.9} {ntasks:>6} {nnodes:>6h} {t_submit!d:%b%d %R::>12} "
        "{t_remaining!F:>12h} " + _END,
    ),
    "deps": (
        "Show job urgency, priority, and dependencies",
        _QUEUE + "{name:<10.10+} {urgency:<3} {priority:<12} {state:<8.8} {dependencies}",
    ),
    "endreason": (
        "Show why each job ended",
        _JOB + "{status_abbrev:>2.2} {t_inactive!d:%b%d %R::>12h} {inactive_reason}",
    ),
}


def _since(args):
    """Return the time of --since, in seconds since the epoch; 0 without it."""
    if not args.since:
        return 0.0
    try:
        since = parse_datetime(args.since).timestamp()
    except ValueError:
        since = float(args.since)
    if since > parse_datetime("now").timestamp():
        raise CommandError(f"--since={args.since} appears to be in the future")
    return since


def _constraint(include):
    """Return the constraint of --include, jobs on some ranks or hosts; None without it."""
    try:
        return {"ranks": [IDset(include).encode()]} if include else None
    except ValueError:
        return {"hostlist": [Hostlist(include).encode()]}


def _fetch(handle, args, fields):
    """Return the jobs selected by the options, and whether there are more."""
    every = args.a or args.since
    filters = words(args.filter) or ["pending", "running"] + (["inactive"] if every else [])
    count = 1000 if args.count is None else args.count
    found = JobList(
        handle,
        ids=args.jobids,
        attrs={"all"} if args.json else job_fields_to_attrs(fields),
        filters=filters,
        user="all" if args.A or (args.include and not args.user) else args.user,
        since=_since(args),
        constraint=_constraint(args.include),
        name=args.name,
        max_entries=count + 1 if count > 0 else count,
        queue=words(args.queue),
    )
    jobs = found.jobs()
    if any(field.startswith("instance.") for field in fields):
        for job in jobs:
            job.get_instance_info()
    for error in found.errors:
        warn(str(error))
    more = 0 < count < len(jobs)
    return jobs[:-1] if more else jobs, more


def _stats(handle, queues):
    """Print counts of jobs, in some queues. Return the exit status of ``--stats-only``: 1 if none is active."""
    stats = JobStats(handle, queues).update_sync()
    print(
        f"{stats.running} running, {stats.successful} completed, {stats.failed} failed, "
        f"{stats.pending} pending, {stats.inactive_purged} inactive purged"
    )
    return 0 if stats.active else 1


def main(argv):
    parser = Parser("flux-jobs")
    parser.option("-a", "jobs in all states")
    parser.option("-A", "jobs of all users")
    parser.option("-u --user=USER", "jobs of this user, or of 'all'")
    parser.option("--name=NAME", "jobs of this name")
    parser.option("-c --count=N", "maximum number of jobs listed (default: 1000)", type=int)
    parser.option("-f --filter=STATE|RESULT,...", "only such jobs", action="append")
    parser.option("--since=WHEN", "also jobs that have ended since then")
    parser.option("-i --include=RANKS|HOSTS", "only jobs on these")
    parser.option("--sort=KEY,...", "sort by these keys; -KEY: descending")
    parser.add_queues()
    parser.add_table()
    parser.option("--json", "print all attributes of the jobs, as JSON")
    parser.option("--stats", "print counts of jobs first")
    parser.option("--stats-only", "print only counts of jobs; fails if none is active")
    parser.option("jobids=JOBID", nargs="*", type=JobID)
    args = parser.parse_args(argv)
    text = Formats("flux-jobs", FORMATS).load().get_format_string(args.format)
    try:
        layout = JobInfoFormat(text)
    except ValueError as exc:
        raise CommandError(f"Error in user format: {exc}") from None
    if args.sort:
        layout.set_sort_keys(args.sort)
    filters = args.a, args.A, args.user, args.name, args.count, args.filter, args.since, args.queue
    if args.jobids and any(filters):
        warn("flux-jobs: WARNING: Filtering options ignored with jobid list")
    if args.a and args.filter:
        warn("flux-jobs: WARNING: Both -a and --filter specified, ignoring -a")
    if args.json and (args.stats or args.stats_only):
        raise CommandError("--json incompatible with --stats or --stats-only")
    handle = flux.Flux()
    if args.stats or args.stats_only:
        status = _stats(handle, words(args.queue))
        if args.stats_only:
            return status
    jobs, more = _fetch(handle, args, layout.fields)
    if args.jobids and not jobs:
        return 1
    if args.json:
        found = [job.to_dict() for job in jobs]
        print(json.dumps(found[0] if len(args.jobids) == 1 else {"jobs": found}))
        return 0
    print_table(layout, jobs, args)
    if more and not args.no_header:
        warn(f"warning: output truncated at {len(jobs)} jobs.")
        warn("Use --count to increase returned results or use filters to alter results.")
    return 0
