# SPDX-License-Identifier: LGPL-3.0-or-later
"""Jobs as the KVS has them: a directory each, with jobspec, eventlog and R."""

import json

from flux_embedded.formats import eventlog, rset
from flux_embedded.formats.jobspec import without_environment

#: Asks for all of them.
REQUEST = {"key": "job", "recursive": True, "values": True}


def directories(entries):
    """{job id: {file name: text}} of a recursive listing of the directory ``job``."""
    found = {}
    for path, kind, value in entries:
        parts = path.split(".", 4)
        if kind == "val" and len(parts) == 5 and parts[4] in ("eventlog", "jobspec", "R"):
            found.setdefault(int("".join(parts[:4]), 16), {})[parts[4]] = value
    return {id: files for id, files in found.items() if "eventlog" in files}


def read_history(service, jobs, function, *args):
    """Have ``function(entries, *args)`` called with the journal entries of all jobs so far."""

    def received(future):
        try:
            entries = future.body["entries"]
        except OSError:
            entries = []
        history = []
        for id, files in sorted(directories(entries).items()):
            if "jobspec" in files:
                history.extend(_entries(id, files))
        for job in jobs.active.values():
            if job.annotations:
                event = {"timestamp": service.now(), "name": "annotations"}
                event["context"] = {"annotations": job.annotations}
                history.append({"id": job.id, "seq": job.seq, "event": event})
        function(history, *args)

    service.rpc("kvs.dir", REQUEST).then(received)


def _entries(id, files):
    for seq, event in enumerate(eventlog.parse(files["eventlog"]), 1):
        entry = {"id": id, "seq": seq, "event": event}
        if event["name"] == "submit":
            entry["jobspec"] = without_environment(json.loads(files["jobspec"]))
        elif event["name"] == "alloc" and "R" in files:
            entry["R"] = rset.redacted(json.loads(files["R"]))
        yield entry
