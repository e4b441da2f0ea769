"""``flux resource topology``: nodes, what is free on them and who holds what."""

import json
import sys

from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.formats import idset
from flux_embedded.formats.jobid import f58

RUN_OR_CLEANUP = 48
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
    """R of the instance, with its topology; the R of every job that holds resources; who is down."""
    client = connect()
    robj = json.loads(client.rpc("kvs.lookup", {"key": "resource.R"})["value"])
    status = client.rpc("resource.status")
    down = set()
    for text in (status.get("offline", ""), status.get("exclude", ""), *status.get("drain", {})):
        down.update(idset.members(idset.decode(text)))
    constraint = {"states": [RUN_OR_CLEANUP]}
    listed = client.rpc(
        "job-list.list", {"max_entries": 0, "attrs": ["state"], "constraint": constraint}
    )["jobs"]
    calls = [
        (
            job["id"],
            client.send("job-info.lookup", {"id": job["id"], "keys": ["R"], "flags": CURRENT}),
        )
        for job in listed
    ]
    jobs = []
    for jobid, call in calls:
        try:
            jobs.append((f58(jobid), json.loads(call.get()["R"])))
        except OSError:
            # it ended in the meantime, before it was given any
            continue
    return robj, jobs, idset.text(down)
