# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux resource topology``: nodes, their free resources, and the jobs that hold the others."""

import json
import sys

import flux
from flux.idset import IDset
from flux.job import JobList
from flux_engine.command.errors import CommandError

#: a flag of job-info.lookup: with the updates applied
CURRENT = 2


def topology(args):
    try:
        picture = _picture(*_given(args.file) if args.file else _live(), args)
    except (ImportError, ValueError) as exc:
        raise CommandError(str(exc)) from None
    if args.svg in (None, "-"):
        sys.stdout.write(picture if picture.endswith("\n") else picture + "\n")
        return 0
    try:
        with open(args.svg, "w", encoding="utf-8") as file:
            file.write(picture)
    except OSError as exc:
        raise CommandError(f"{args.svg}: {exc.strerror}") from None
    return 0


def _picture(robj, jobs, down, args):
    if args.svg:
        from flux.resource.draw.svg import render_svg

        return render_svg(robj, jobs=jobs, down=down, ranks=args.ranks)
    from flux.resource.draw.text import render_text

    return render_text(robj, jobs=jobs, down=down, ranks=args.ranks, ascii_only=args.ascii)


def _given(path):
    """R of a file."""
    if path == "-":
        text = sys.stdin.read()
    else:
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except OSError as exc:
            raise CommandError(f"{path}: {exc.strerror}") from None
    try:
        return json.loads(text), [], ""
    except (ValueError, RecursionError) as exc:
        raise CommandError(f"{path}: not R: {exc}") from None


def _live():
    """R of the instance, with its topology; the R of each job with resources; the ranks that are down."""
    handle = flux.Flux()
    robj = json.loads(handle.rpc("kvs.lookup", {"key": "resource.R"}).get()["value"])
    status = handle.rpc("resource.status").get()
    down = IDset()
    for text in (status.get("offline", ""), status.get("exclude", ""), *status.get("drain", {})):
        down.add(IDset(text))
    listed = JobList(handle, attrs=["state"], filters=["running"], user="all", max_entries=0).jobs()
    futures = [
        (
            job.id,
            handle.rpc("job-info.lookup", {"id": int(job.id), "keys": ["R"], "flags": CURRENT}),
        )
        for job in listed
    ]
    jobs = []
    for id, future in futures:
        try:
            jobs.append((id.f58, json.loads(future.get()["R"])))
        except OSError:
            # it ended meanwhile, before any were allocated
            continue
    return robj, jobs, str(down)
