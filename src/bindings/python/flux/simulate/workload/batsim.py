# SPDX-License-Identifier: LGPL-3.0-or-later
"""Batsim's workload JSON. Only delay profiles are read: other jobs have no known run time."""

import json
import math

from flux.simulate.job import Job
from flux.simulate.workload.text import read_text


def read(source):
    """Yield the jobs of a workload; ``nb_res`` sets the `procs` of the source. Raises TraceError if
    the file is not such a workload."""
    text = read_text(source)
    try:
        document = json.loads(text)
    except ValueError as exc:
        raise source.error(getattr(exc, "lineno", 0), f"not JSON: {exc}") from None
    jobs, profiles = document.get("jobs"), document.get("profiles")
    if not isinstance(jobs, list) or not isinstance(profiles, dict):
        raise source.error(0, "no Batsim workload: it has a list of jobs and a table of profiles")
    if isinstance(document.get("nb_res"), int):
        source.procs = source.nodes = document["nb_res"]
    for position, job in enumerate(jobs):
        where = f"jobs[{position}]"
        try:
            record = _record(source, job, profiles)
        except (KeyError, TypeError, ValueError) as exc:
            what = f"no {exc.args[0]!r}" if isinstance(exc, KeyError) else exc
            raise source.error(0, f"{where}: {what}") from None
        if record is not None:
            yield record


def _record(source, job, profiles):
    name = str(job["id"])
    profile = profiles.get(job["profile"])
    if profile is None:
        raise ValueError(f"profile {job['profile']!r} is not there")
    kind = str(profile.get("type", "")).lower()
    if kind not in ("delay", "delayprofile"):
        text = f"profile of type {profile.get('type')}, whose run time is not known"
        source.notes.count(f"jobs left out: {text}")
        return None
    submit, run, size = float(job["subtime"]), float(profile["delay"]), float(job["res"])
    limit = job.get("walltime")
    limit = None if limit is None or float(limit) < 0 else float(limit)
    if limit is not None and math.isnan(limit):
        raise ValueError(f"walltime {limit}: expected seconds")
    if not (math.isfinite(submit) and math.isfinite(run)) or submit < 0 or run < 0:
        raise ValueError(f"subtime {submit} and delay {run}: expected seconds, 0 or more")
    if not math.isfinite(size):
        raise ValueError(f"res {size}: expected a number of hosts")
    if size <= 0:
        source.notes.count("jobs left out: no size")
        return None
    if size != int(size):
        source.notes.count("jobs have a size that is not whole: rounded up")
    # A resource of Batsim is a host.
    return Job(name, submit, run, limit or None, request=(math.ceil(size), None, 0))
