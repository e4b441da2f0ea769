# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux update``: change an active job."""

import json

import flux
from flux.job import JobID, job_kvs_lookup
from flux.util import fsd, parse_fsd
from flux_engine.command.errors import CommandError, warn
from flux_engine.command.options import Parser


def _attribute(key):
    """Return the full path of a key, by default below attributes.system."""
    key = {"name": "job.name", "job-name": "job.name"}.get(key, key)
    return key if key.startswith("attributes.") else f"attributes.system.{key}"


def _duration(handle, jobid, text):
    """Return the new duration in seconds (0: unlimited); ``+`` and ``-`` are relative to the present one."""
    sign = text[:1] if text[:1] in "+-" else ""
    seconds = parse_fsd(text[len(sign) :])
    if seconds == float("inf"):
        seconds = 0.0
    if not sign:
        return seconds
    found = job_kvs_lookup(handle, jobid, ["jobspec"])
    if found is None:
        raise CommandError("unknown job id")
    system = found["jobspec"]["attributes"]["system"]
    present = float(system.get("duration", 0))
    if present == 0:
        raise CommandError(f"duration for {jobid} is unlimited, can't update by {text}")
    if sign == "-" and seconds >= present:
        text = f"current duration for {jobid} ({fsd(present)}) cannot be reduced by {text[1:]}"
        raise CommandError(text)
    return present + seconds if sign == "+" else present - seconds


def main(argv):
    parser = Parser("flux-update")
    parser.option("-n --dry-run", "print the updates as JSON, and change nothing")
    parser.option("-v --verbose", "print each update that was made")
    parser.option("jobid=JOBID", type=JobID)
    parser.option("updates=KEY=VALUE", nargs="+")
    args = parser.parse_args(argv)
    handle = flux.Flux()
    updates = {}
    for word in args.updates:
        key, equals, value = word.partition("=")
        if not equals:
            raise CommandError(f"invalid update '{word}': expected KEY=VALUE")
        path = _attribute(key)
        if path == "attributes.system.duration":
            updates[path] = _duration(handle, args.jobid, value)
            continue
        try:
            updates[path] = json.loads(value)
        except ValueError:
            updates[path] = value
    if args.dry_run:
        print(json.dumps(updates))
        return
    handle.rpc("job-manager.update", {"id": args.jobid, "updates": updates}).get()
    for path, value in updates.items() if args.verbose else ():
        warn(f"flux-update: INFO: updated {path} to {value}")
