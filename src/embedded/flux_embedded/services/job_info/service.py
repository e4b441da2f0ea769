# SPDX-License-Identifier: LGPL-3.0-or-later
"""Job data from the KVS: service ``job-info`` (RFC 41).

=======================  ===================================================================================
method                   payload -> response
=======================  ===================================================================================
lookup                   ``{id, keys, flags?}`` -> ``{id, KEY: value, ...}``; keys are relative to the job's
                         directory. Flags: 1 R and jobspec as objects instead of text, 2 with the updates of
                         the eventlog applied. One key missing: ENOENT
eventlog-watch (S)       ``{id, path, flags?}`` -> ``{event: line}`` for each event, past ones first. Flag 1:
                         wait for the log to appear. ENODATA after its last event, when the job is inactive,
                         or after eventlog-watch-cancel
eventlog-watch-cancel    ``{matchtag}``, no response: that stream of the sender ends with ENODATA
=======================  ===================================================================================

Other users than the owner see their own jobs only (EPERM).
"""

import errno
import json

from flux_embedded.services.job_info.watch import (
    UPDATE_EVENT,
    EventlogWatch,
    apply_updates,
    may_see,
)
from flux_engine.formats import eventlog, jobid
from flux_engine.kernel.service import Service, request

JSON_DECODE, CURRENT = 1, 2
WAITCREATE = 1


class JobInfo(Service):
    """The job-info service."""

    name = "job-info"

    def __init__(self, ctx, *args):
        super().__init__(ctx, *args)
        self._watches = {}

    # -- lookup ------------------------------------------------------------------------------------

    @request("lookup", guest=True, form={"id": int, "keys": [str], "flags": int})
    def lookup(self, msg):
        id, keys, flags = msg.body["id"], msg.body["keys"], msg.body["flags"]
        if not 0 <= id <= jobid.MAX_ID:
            raise OSError(errno.ENOENT, "invalid job id or key")
        where = jobid.kvs_dir(id)
        current = flags & CURRENT and not UPDATE_EVENT.keys().isdisjoint(keys)
        wanted = [f"{where}.{key}" for key in keys]
        log = f"{where}.eventlog"
        if (current or msg.is_guest or not keys) and log not in wanted:
            wanted.append(log)
        self.rpc("kvs.lookup", {"keys": wanted}).then(self._fetched, msg, id, keys, flags)

    def _fetched(self, future, msg, id, keys, flags):
        where = jobid.kvs_dir(id)
        try:
            values = future.body["values"]
        except OSError as exc:
            if exc.errno in (errno.ENOENT, errno.EISDIR, errno.ENOTDIR):
                self.respond_error(msg, errno.ENOENT, "invalid job id or key")
            else:
                self.respond_error(msg, exc.errno, exc.strerror)
            return
        log = values.get(f"{where}.eventlog")
        if msg.is_guest and not may_see(msg, log):
            self.respond_error(msg, errno.EPERM, "access is restricted to job/instance owner")
            return
        answer = {"id": id}
        for key in keys:
            text = values[f"{where}.{key}"]
            if key in UPDATE_EVENT and flags & (JSON_DECODE | CURRENT):
                obj = json.loads(text)
                if flags & CURRENT and UPDATE_EVENT[key] in log:
                    obj = apply_updates(key, obj, eventlog.parse(log))
                    text = json.dumps(obj)
                answer[key] = obj if flags & JSON_DECODE else text
            else:
                answer[key] = text
        self.respond(msg, answer)

    # -- watching ------------------------------------------------------------------------------------

    @request(
        "eventlog-watch", guest=True, streaming=True, form={"id": int, "path": str, "flags": int}
    )
    def eventlog_watch(self, msg):
        body = msg.body
        waitcreate = bool(body["flags"] & WAITCREATE)
        watch = EventlogWatch(self, msg, body["id"], body["path"], waitcreate)
        self._watches[watch.msg.sender, watch.msg.matchtag] = watch
        watch.begin()

    @request("eventlog-watch-cancel", guest=True, form={"matchtag": int})
    def _watch_cancel(self, msg):
        watch = self._watches.get((msg.sender, (msg.body or {}).get("matchtag")))
        if watch is not None:
            watch.end(errno.ENODATA)

    def forget(self, watch):
        self._watches.pop((watch.msg.sender, watch.msg.matchtag), None)

    @request("disconnect", guest=True)
    def _disconnect(self, msg):
        for watch in [w for (sender, _), w in self._watches.items() if sender is msg.sender]:
            watch.drop()
