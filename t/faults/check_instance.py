#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""Hold a running instance's records against the rules: every eventlog, every R, no overlap.

Works on any Flux instance, the embedded one or a real one, through its commands:

    flux start ... check_instance.py
    check_instance.py                           (FLUX_URI set)

The records alone give each job's resources and span, from the ``alloc`` event to ``free`` (or to
now); two holders of one core or GPU at one time are reported. With housekeeping configured,
resources outlive ``free``; then `--housekeeping` skips that last check's end.
"""

import argparse
import json
import subprocess
import sys

from books import resources_of
from eventlog_rules import Violation, check


def flux(*args):
    return subprocess.run(["flux", *args], check=True, capture_output=True, text=True).stdout


def records():
    """Yield (job id, eventlog, R or None) of every job the instance knows."""
    for line in flux("jobs", "-a", "-n", "-o", "{id.dec}").split():
        log = [
            json.loads(entry)
            for entry in flux("job", "eventlog", "--format=json", line).splitlines()
        ]
        R = None
        if any(event["name"] == "alloc" for event in log):
            R = json.loads(flux("job", "info", line, "R"))
        yield int(line), log, R


def holdings(found):
    """Check each record; return [(start, end, resources, job id)].

    Raises:
        Violation: a log or an R is not legal
    """
    spans = []
    for jobid, log, R in found:
        try:
            state = check(log)
        except Violation as violation:
            raise Violation(f"eventlog of job {jobid}: {violation}") from None
        times = {event["name"]: event["timestamp"] for event in log}
        if R is not None:
            end = times.get("free", float("inf"))
            spans.append((times["alloc"], end, resources_of(R, f"R of job {jobid}"), jobid))
        elif state == "RUN":
            raise Violation(f"job {jobid} runs without an R")
    return spans


def overlaps(spans):
    """Raise `Violation` if two jobs held a resource at one time."""
    last = {}
    for start, end, resources, jobid in sorted(spans, key=lambda span: span[0]):
        for resource in resources:
            until, holder = last.get(resource, (0, None))
            if start < until:
                raise Violation(f"{resource} was held by jobs {holder} and {jobid} at {start}")
            last[resource] = (end, jobid)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--housekeeping", action="store_true", help="resources are held beyond the free event"
    )
    args = parser.parse_args()
    try:
        spans = holdings(records())
        inventory = resources_of(json.loads(flux("kvs", "get", "resource.R")), "resource.R")
        for _, _, resources, jobid in spans:
            if not resources <= inventory:
                raise Violation(
                    f"job {jobid} was given what the inventory lacks: {sorted(resources - inventory)[:5]}"
                )
        if not args.housekeeping:
            overlaps(spans)
    except Violation as violation:
        print(f"check_instance: {violation}", file=sys.stderr)
        return 1
    print(f"{len(spans)} allocations checked")
    return 0


if __name__ == "__main__":
    sys.exit(main())
