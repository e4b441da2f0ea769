# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux sched topology``: nodes with their domains, and the jobs that hold their cores and GPUs."""

from __future__ import annotations

import argparse
import errno
import json
import sys
from typing import Any

from flux.idset import IDset
from flux.job import JobID
from flux.kvs import get_key_direct
from flux.scheduler.command.subcommand import CommandError, Context, Subcommand, write_file
from flux.scheduler.hello import LOOKUP_CURRENT


class Topology(Subcommand):
    help = "draw the nodes, and the cores and GPUs of jobs on them"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("-r", "--ranks", metavar="RANKS", help="only these")
        add("-o", "--output", metavar="FILE.svg", help="write an SVG picture to this file")
        add("--ascii", action="store_true", help="use no characters beyond ASCII")
        add("file", metavar="RFILE", nargs="?", help="draw R of a file (-: standard input)")

    def ask(self, context: Context) -> dict[str, Any]:
        path = context.options.file
        if path is None:
            try:
                return _of_instance(context.handle)
            except OSError as exc:
                denied = exc.errno == errno.EPERM
                why = "only the owner of the instance may do this" if denied else exc.strerror
                raise CommandError(f"topology: {why}") from None
        try:
            with open(path if path != "-" else 0, encoding="utf-8") as file:
                return {"R": json.load(file), "jobs": {}, "down": ""}
        except OSError as exc:
            raise CommandError(f"{path}: {exc.strerror}") from None
        except (ValueError, RecursionError) as exc:
            raise CommandError(f"{path}: not R: {exc}") from None

    def show(self, answer: dict[str, Any], context: Context) -> None:
        from flux.resource.draw.svg import render_svg
        from flux.resource.draw.text import render_text

        options = context.options
        what = (answer["R"], answer["jobs"], answer["down"], options.ranks)
        if options.output:
            write_file(options.output, render_svg(*what))
        else:
            sys.stdout.write(render_text(*what, ascii_only=options.ascii))


def _of_instance(handle: Any) -> dict[str, Any]:
    """Return R of the instance, with its topology; by name of job, the R of each with resources; the
    ranks that are down."""
    # A job's environment names another namespace.
    R = get_key_direct(handle, "resource.R", namespace="primary")
    status = handle.rpc("resource.status").get()
    down = IDset()
    for ranks in (status.get("offline", ""), status.get("exclude", ""), *status.get("drain", {})):
        down.add(ranks)
    listing = {"max_entries": 0, "attrs": [], "constraint": {"states": ["running"]}}
    names = {job["id"]: "" for job in handle.rpc("job-list.list", listing).get()["jobs"]}
    housekeeping = handle.rpc("job-manager.stats-get").get()["housekeeping"]["running"]
    held = {int(JobID(name)): IDset(job["allocated"]) for name, job in housekeeping.items()}
    names.update(dict.fromkeys(held, " (housekeeping)"))
    lookups = [{"id": id, "keys": ["R"], "flags": LOOKUP_CURRENT} for id in sorted(names)]
    futures = [(one["id"], handle.rpc("job-info.lookup", one)) for one in lookups]
    jobs = {}
    for id, future in futures:
        try:
            job = json.loads(future.get()["R"])
        except OSError:
            continue  # it ended before it had any
        if id in held:  # a part of its nodes may be free
            lite = job["execution"]["R_lite"]
            for entry in lite:
                entry["rank"] = IDset(entry["rank"]).intersect(held[id]).encode()
            job["execution"]["R_lite"] = [entry for entry in lite if entry["rank"]]
        jobs[JobID(id).f58 + names[id]] = job
    return {"R": R, "jobs": jobs, "down": down.encode()}
