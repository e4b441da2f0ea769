# SPDX-License-Identifier: LGPL-3.0-or-later
"""Check that an allocation satisfies its request."""

from functools import lru_cache

from flux.resource.pool.masks import parse_idset, popcount
from flux.simulate.job import Shape
from flux_engine.formats.jobspec import count_resources


@lru_cache(maxsize=4096)
def _count(text):
    return popcount(parse_idset(text))


def shortage(job, R):
    """Return the part of a job's request missing from its allocation (RFC 20), in words, or None.
    Takes some microseconds per entry of R_lite."""
    needed, least, size, gpus, _ = job.shape or Shape(0, 0)
    nodes = slots = cores = 0
    for entry in R["execution"]["R_lite"]:
        have = entry["children"]
        ranks, each = popcount(parse_idset(entry["rank"])), _count(have.get("core", ""))
        fit = each // size
        if gpus:
            fit = min(fit, _count(have.get("gpu", "")) // gpus)
        cores += ranks * each
        slots += ranks * fit
        if fit >= least:
            nodes += ranks
    if job.shape is None:
        asked = count_resources(job.extra["jobspec"]["resources"])
        for what, found in (("node", nodes), ("core", cores)):
            if found < asked[what]:
                return f"{found} of {asked[what]} {what}s"
        return None
    if needed:
        what = "nodes" if least == size == 1 else "nodes with enough on them"
        return f"{nodes} of {needed} {what}" if nodes < needed else None
    return f"{slots} of {least} slots" if slots < least else None
