# SPDX-License-Identifier: LGPL-3.0-or-later
"""Print the jobs and resources of the instance as one JSON object. Runs under ``flux python``, in a
real Flux or the embedded instance.

It sends ordinary queries only, changes nothing, and imports only the bindings.
"""

import json
import sys
import time
from contextlib import suppress

import flux
from flux.kvs import get_key_direct

LOOKUPS_AT_ONCE = 256
INACTIVE = 64


def lookup(h, ids, keys):
    """Return {id: {key: text}} of jobs, without keys that a job lacks."""
    found = {}
    for start in range(0, len(ids), LOOKUPS_AT_ONCE):
        some = [(id, key) for id in ids[start : start + LOOKUPS_AT_ONCE] for key in keys]
        futures = [
            h.rpc("job-info.lookup", {"id": id, "keys": [key], "flags": 0}) for id, key in some
        ]
        for (id, key), future in zip(some, futures):
            try:
                found.setdefault(id, {})[key] = future.get()[key]
            except OSError:
                found.setdefault(id, {})
    return found


def main():
    everything = "all" in sys.argv[1:]
    h = flux.Flux()
    states = ["pending", "running"] + (["inactive"] if everything else [])
    query = {"max_entries": 0, "attrs": ["all"], "constraint": {"states": states}}
    jobs = h.rpc("job-list.list", query).get()["jobs"]
    ids = [job["id"] for job in jobs]
    keys = ["eventlog", "R"] if everything else ["jobspec", "R"]
    try:
        now = h.rpc("broker.now", {}).get()["now"]  # the clock may be virtual
    except OSError:
        now = time.time()
    resources = h.rpc("resource.status").get()
    # The scheduler's key (topology, the pool's class) is only in the stored R, which guests may not read.
    with suppress(OSError):
        resources["R"] = get_key_direct(h, "resource.R", namespace="primary")
    answer = {
        "now": now,
        "jobs": jobs,
        "files": {str(id): texts for id, texts in lookup(h, ids, keys).items()},
        "resources": resources,
    }
    try:
        answer["config"] = h.rpc("config.get", {}).get()
    except OSError:
        answer["config"] = {}
    json.dump(answer, sys.stdout)


main()
