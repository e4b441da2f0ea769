# SPDX-License-Identifier: LGPL-3.0-or-later
"""Acting on jobs: submit, raise, kill, urgency, purge."""

import json
import signal
import sys

import flux
from flux.job import JobID
from flux.util import parse_fsd
from flux_engine.command.errors import CommandError, error_text, wait_each, warn
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
    try:
        jobspec = json.loads(text)
    except ValueError as exc:
        raise CommandError(f"jobspec: invalid JSON: {exc}") from None
    payload = {"jobspec": jobspec, "urgency": args.urgency, "flags": flags}
    print(JobID(flux.Flux().rpc("job-ingest.submit", payload).get()["id"]))


def _each(words, topic, payload, verb):
    """Send one request a job, report those that fail; returns the exit status."""
    handle = flux.Flux()
    futures = []
    code = 0
    for word in words:
        try:
            future = handle.rpc(topic, {"id": int(JobID(word)), **payload})
        except ValueError as exc:
            warn(f"flux-job: ERROR: {exc}")
            code = 1
        else:
            futures.append((f"{verb} {word}", future))
    return wait_each("flux-job", futures) or code


def _is_id(word):
    try:
        return JobID(word) >= 0
    except ValueError:
        return False


def raise_exception(args):
    # What follows the ids, from the first word on that is none, is the note.
    count = next((n for n, word in enumerate(args.ids) if n and not _is_id(word)), len(args.ids))
    payload = {"type": args.type, "severity": args.severity}
    note = " ".join(args.ids[count:]) if args.message is None else args.message
    if note:
        payload["note"] = note
    return _each(args.ids[:count], "job-manager.raise", payload, "raise")


def _signal_number(text):
    if text.isdigit() and 0 < int(text) < signal.NSIG:
        return int(text)
    name = text.upper()
    try:
        return int(signal.Signals[name if name.startswith("SIG") else f"SIG{name}"])
    except KeyError:
        raise CommandError(f"kill: Invalid signal {text}") from None


def kill(args):
    return _each(args.ids, "job-manager.kill", {"signum": _signal_number(args.signal)}, "kill")


def urgency(args):
    names = {"hold": 0, "default": 16, "expedite": 31}
    text = args.urgency.lower()
    try:
        number = names[text] if text in names else int(text)
    except ValueError:
        raise CommandError(f'error parsing urgency: "{args.urgency}"') from None
    request = {"id": args.id, "urgency": number}
    try:
        answer = flux.Flux().rpc("job-manager.urgency", request).get()
    except OSError as exc:
        raise CommandError(f"{args.id.orig}: {error_text(exc)}") from None
    if args.verbose:
        warn(f"old urgency: {answer['old_urgency']}")


def purge(args):
    handle = flux.Flux()
    if args.ids:
        futures = [
            handle.rpc("job-manager.purge-id", {"id": id, "force": int(args.force)})
            for id in args.ids
        ]
        count = sum(future.get()["count"] for future in futures)
    else:
        count = _purge_range(handle, args)
    inactive = handle.rpc("job-manager.stats-get").get()["inactive_jobs"]
    if args.force:
        print(f"purged {count} inactive jobs, {inactive} remaining")
    else:
        print(f"use --force to purge {count} of {inactive} inactive jobs")


def _purge_range(handle, args):
    """Purge what is beyond the limits, a batch a request; returns how many."""
    limits = {
        "age_limit": parse_fsd(args.age_limit) if args.age_limit else -1.0,
        "num_limit": args.num_limit,
        "batch": args.batch,
        "force": args.force,
    }
    count = 0
    while True:
        some = handle.rpc("job-manager.purge", limits).get()["count"]
        count += some
        if not args.force or some < args.batch:
            return count


def add_commands(parser):
    one = parser.command("submit", submit, "submit a jobspec")
    one.add_argument("-u", "--urgency", metavar="N", type=int, default=16, help="0 to 31")
    one.add_argument("-f", "--flags", metavar="FLAGS", help=",".join(FLAGS))
    one.add_argument("jobspec", metavar="FILE", nargs="?", default="-", help="JSON; - is stdin")
    one = parser.command("raise", raise_exception, "raise an exception on jobs")
    one.add_argument("-s", "--severity", metavar="N", type=int, default=0, help="0 to 7")
    one.add_argument("-t", "--type", metavar="TYPE", default="cancel", help="default: cancel")
    one.add_argument("-m", "--message", metavar="NOTE", help="its note")
    one.add_argument("ids", metavar="JOBID... [NOTE...]", nargs="+")
    one = parser.command("kill", kill, "send the tasks of jobs a signal")
    one.add_argument("-s", "--signal", metavar="SIGNAL", default="SIGTERM", help="default: SIGTERM")
    one.add_argument("ids", metavar="JOBID", nargs="+")
    one = parser.command("urgency", urgency, "set the urgency of a job")
    one.flag("-v", "--verbose", text="print the urgency it had")
    one.add_argument("id", metavar="JOBID", type=JobID)
    one.add_argument("urgency", help="0 to 31, HOLD, EXPEDITE or DEFAULT")
    one = parser.command("purge", purge, "remove the oldest inactive jobs, or those named")
    one.add_argument("--age-limit", metavar="FSD", help="those inactive for longer")
    one.add_argument(
        "--num-limit", metavar="N", type=int, default=-1, help="until so many are left"
    )
    one.add_argument("--batch", metavar="N", type=int, default=50, help="at most so many a request")
    one.flag("-f", "--force", text="do it, do not only count")
    one.add_argument("ids", metavar="JOBID", nargs="*", type=JobID)
