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
    parts = []
    for entry in R["execution"]["R_lite"]:
        have = entry["children"]
        cores, gpus = _count(have.get("core", "")), _count(have.get("gpu", ""))
        parts.append((popcount(parse_idset(entry["rank"])), cores, gpus))
    shape = job.shape
    if shape is None:
        asked = count_resources(job.extra["jobspec"]["resources"])
        nodes = sum(ranks for ranks, _, _ in parts)
        cores = sum(ranks * each for ranks, each, _ in parts)
        for what, found in (("node", nodes), ("core", cores)):
            if found < asked[what]:
                return f"{found} of {asked[what]} {what}s"
        return None
    nodes = slots = 0
    for ranks, cores, gpus in parts:
        fit = cores // shape.cores
        if shape.gpus:
            fit = min(fit, gpus // shape.gpus)
        slots += ranks * fit
        if fit >= shape.slots:
            nodes += ranks
    if shape.nodes:
        what = "nodes" if shape.slots == shape.cores == 1 else "nodes with enough on them"
        return f"{nodes} of {shape.nodes} {what}" if nodes < shape.nodes else None
    return f"{slots} of {shape.slots} slots" if slots < shape.slots else None
