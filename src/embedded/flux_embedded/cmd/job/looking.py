# SPDX-License-Identifier: LGPL-3.0-or-later
"""Information about jobs: info, id, last, list-ids."""

import json
import sys

import flux
from flux.job import JobID
from flux_engine.command.errors import CommandError
from flux_engine.formats import jobid

#: a flag of job-info.lookup: with the updates applied
CURRENT = 2


def info(args):
    key, flags = args.key, 0
    if key in ("R", "jobspec") and not args.base:
        flags = CURRENT
    if key == "jobspec" and args.original:
        key, flags = "J", 0
    payload = {"id": args.id, "keys": [key], "flags": flags}
    text = flux.Flux().rpc("job-info.lookup", payload).get()[key]
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def convert(args):
    for word in args.ids or sys.stdin.read().split():
        print(JobID(word).encode(args.to))


def _slice(text):
    """The part that ``flux job last`` prints of all ids, the newest first: N of them, or a slice in Python's form."""
    try:
        if text.startswith("[") and text.endswith("]"):
            return slice(*(int(part) if part else None for part in text[1:-1].split(":")))
        if not text.startswith("-"):
            return slice(int(text))
    except (ValueError, TypeError):
        pass
    raise CommandError(f"last: expected N or [FROM:TO], not '{text}'")


def last(args):
    jobs = flux.job.job_list(flux.Flux(), 0, []).get_jobs()
    ids = sorted((job["id"] for job in jobs), reverse=True)[_slice(args.part)]
    if not ids:
        raise CommandError("job history is empty")
    print("\n".join(str(JobID(id)) for id in ids))


def list_ids(args):
    handle = flux.Flux()
    payloads = [{"id": id, "attrs": ["all"]} for id in args.ids]
    for future in [handle.rpc("job-list.list-id", payload) for payload in payloads]:
        job = future.get()["job"]
        print(json.dumps(job, sort_keys=True, separators=(",", ":"), ensure_ascii=False))


def add_commands(parser):
    one = parser.command(
        "info", info, "print a key of a job: jobspec, R, eventlog, J, guest.output"
    )
    one.flag("-o", "--original", text="the jobspec as it was submitted")
    one.flag("-b", "--base", text="jobspec or R without the updates since")
    one.add_argument("id", metavar="JOBID", type=JobID)
    one.add_argument("key", metavar="KEY")
    one = parser.command("id", convert, "print job ids in another form")
    one.add_argument("-t", "--to", choices=jobid.FORMS, default="dec")
    one.add_argument("ids", metavar="JOBID", nargs="*")
    one = parser.command("last", last, "print the ids of the jobs submitted last")
    one.add_argument("part", metavar="N|[FROM:TO]", nargs="?", default="1")
    one = parser.command("list-ids", list_ids, "print what is known of jobs, in JSON")
    one.add_argument("ids", metavar="JOBID", nargs="+", type=JobID)
