# SPDX-License-Identifier: LGPL-3.0-or-later
"""Actions on jobs: submit, raise, urgency, purge."""

import sys

import flux
from flux.job import JobID, job_raise_async
from flux_embedded.cmd.lib import ask
from flux_engine.command.errors import CommandError, wait_each, warn
from flux_engine.formats.states import FLAG_NAMES

#: the flags that a user can set
FLAGS = ("debug", "waitable", "novalidate")


def submit(args):
    flags = 0
    for name in args.flags.split(",") if args.flags else ():
        if name not in FLAGS:
            raise CommandError(f"unknown flag: {name}")
        flags |= FLAG_NAMES[name]
    if args.jobspec == "-":
        text = sys.stdin.read()
    else:
        try:
            with open(args.jobspec, encoding="utf-8") as file:
                text = file.read()
        except OSError as exc:
            raise CommandError(f"{args.jobspec}: {exc.strerror}") from None
    payload = {"jobspec": text, "urgency": args.urgency, "flags": flags}
    print(JobID(flux.Flux().rpc("job-ingest.submit", payload).get()["id"]))


def raise_exception(args):
    ids, words = [], args.words
    while words:
        try:
            ids.append(JobID(words[0]))
        except ValueError:
            break  # the note begins
        words = words[1:]
    if not ids:
        raise CommandError(f'error parsing jobid: "{words[0]}"')
    if words and args.message:
        raise CommandError("Do not set note on command line and with --message")
    handle, how = flux.Flux(), (args.type, args.severity, args.message or " ".join(words) or None)
    asked = [(f"raise {id.orig}", job_raise_async(handle, id, *how)) for id in ids]
    return wait_each("flux-job", asked)


def urgency(args):
    names = {"hold": 0, "default": 16, "expedite": 31}
    text = args.urgency.lower()
    try:
        number = names[text] if text in names else int(text)
    except ValueError:
        raise CommandError(f'error parsing urgency: "{args.urgency}"') from None
    answer = ask("job-manager.urgency", {"id": args.id, "urgency": number}, args.id.orig)
    if args.verbose:
        old = answer["old_urgency"]
        warn(f"old urgency: {'job held' if old == 0 else old}")


def purge(args):
    handle = flux.Flux()
    limits = {"num_limit": args.num_limit, "force": args.force}
    count = handle.rpc("job-manager.purge", limits).get()["count"]
    inactive = handle.rpc("job-manager.stats-get").get()["inactive_jobs"]
    if args.force:
        print(f"purged {count} inactive jobs, {inactive} remaining")
    else:
        print(f"use --force to purge {count} of {inactive} inactive jobs")


def add_commands(parser):
    one = parser.command("submit", submit, "submit a jobspec")
    one.option("-u --urgency=N", "0 to 31", type=int, default=16)
    one.option("-f --flags=FLAGS", ",".join(FLAGS))
    one.option("jobspec=FILE", "JSON; - is stdin", nargs="?", default="-")
    one = parser.command("raise", raise_exception, "raise an exception on jobs")
    one.option("-s --severity=N", "0 to 7", type=int, default=0)
    one.option("-t --type=TYPE", "default: cancel", default="cancel")
    one.option("-m --message=NOTE", "note of the exception")
    one.option("words=JOBID... [NOTE]", "the jobs, and the words of the note", nargs="+")
    one = parser.command("urgency", urgency, "set the urgency of a job")
    one.option("-v --verbose", "print the former urgency")
    one.option("id=JOBID", type=JobID)
    one.option("urgency", "0 to 31, HOLD, EXPEDITE or DEFAULT")
    one = parser.command("purge", purge, "remove the oldest inactive jobs")
    one.option("--num-limit=N", "until N are left", type=int, required=True)
    one.option("-f --force", "purge the jobs instead of counting them")
