# SPDX-License-Identifier: LGPL-3.0-or-later
"""Check that an allocation satisfies its request."""

from functools import lru_cache

from flux.resource.pool.masks import parse_idset, popcount
from flux_engine.formats.jobspec import count_resources


@lru_cache(maxsize=4096)
def _count(text):
    return popcount(parse_idset(text))


def shortage(job, R):
    """Return the part of a job's request missing from its allocation (RFC 20), in words, or None.
    Takes some microseconds per entry of R_lite."""
    shape = job.shape
    nodes = slots = cores = 0
    for entry in R["execution"]["R_lite"]:
        have = entry["children"]
        ranks, each = popcount(parse_idset(entry["rank"])), _count(have.get("core", ""))
        if shape is None:
            nodes += ranks
            cores += ranks * each
            continue
        fit = each // shape.cores
        if shape.gpus:
            fit = min(fit, _count(have.get("gpu", "")) // shape.gpus)
        slots += ranks * fit
        if fit >= shape.slots:
            nodes += ranks
    if shape is None:
        asked = count_resources(job.extra["jobspec"]["resources"])
        for what, found in (("node", nodes), ("core", cores)):
            if found < asked[what]:
                return f"{found} of {asked[what]} {what}s"
        return None
    if shape.nodes:
        what = "nodes" if shape.slots == shape.cores == 1 else "nodes with enough on them"
        return f"{nodes} of {shape.nodes} {what}" if nodes < shape.nodes else None
    return f"{slots} of {shape.slots} slots" if slots < shape.slots else None
