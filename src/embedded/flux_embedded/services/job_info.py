# SPDX-License-Identifier: LGPL-3.0-or-later
"""Job data from the KVS: service ``job-info`` (RFC 41).

=======================  ===================================================================================
method                   payload -> response
=======================  ===================================================================================
lookup                   ``{id, keys, flags?}`` -> ``{id, KEY: value, ...}``; keys are relative to the job's
                         directory. Flags: 1 R and jobspec as objects instead of text, 2 with the updates of
                         the eventlog applied. One key missing: ENOENT
eventlog-watch (S)       ``{id, path, flags?}`` -> ``{event: line}`` for each event, past ones first. Flag 1:
                         wait for the log to appear; one of execution (``guest.``) is waited for until the job
                         starts. ENODATA after its last event, when the job is inactive, or after
                         eventlog-watch-cancel
eventlog-watch-cancel    ``{matchtag}``, no response: that stream of the sender ends with ENODATA
=======================  ===================================================================================

Other users than the owner see their own jobs only (EPERM).
"""

import errno
import json

from flux_engine.formats import eventlog, jobid, rset
from flux_engine.kernel.service import Service, request

JSON_DECODE, CURRENT = 1, 2
WAITCREATE = 1


class JobInfo(Service):
    name = "job-info"

    def __init__(self, ctx, *args):
        super().__init__(ctx, *args)
        self._watches = {}

    @request("lookup", guest=True, form={"id": int, "keys": [str], "flags": int})
    def lookup(self, msg):
        id, keys, flags = msg.body["id"], msg.body["keys"], msg.body["flags"]
        values = {}
        for key in ("eventlog", *keys):
            try:
                values[key] = self.ctx.kvs.value(f"{jobid.kvs_dir(id)}.{key}")
            except (OSError, ValueError):
                text = f"{key}: key not found" if values else "invalid job id"
                raise OSError(errno.ENOENT, text) from None
        log = values["eventlog"]
        if msg.is_guest and not _may_see(msg, log):
            raise OSError(errno.EPERM, "access is restricted to job/instance owner")
        answer = {"id": id}
        for key in keys:
            answer[key] = values[key]
            if key in ("R", "jobspec") and flags & (JSON_DECODE | CURRENT):
                obj = json.loads(values[key])
                if flags & CURRENT:
                    obj = self._updated(id, key, obj)
                answer[key] = obj if flags & JSON_DECODE else json.dumps(obj)
        return answer

    def _updated(self, id, key, obj):
        """R or jobspec as it was stored, with its updates since (RFC 21), which the job manager's record of the job has."""
        job = self.ctx.jobs and self.ctx.jobs.find(id)
        if not job:
            return obj
        if key == "jobspec":
            return job.jobspec
        return rset.with_expiration(obj, job.R["execution"].get("expiration", 0.0))

    @request(
        "eventlog-watch", guest=True, streaming=True, form={"id": int, "path": str, "flags": int}
    )
    def eventlog_watch(self, msg):
        watch = EventlogWatch(self, msg)
        self._watches[msg.sender, msg.matchtag] = watch
        watch.look()

    @request("eventlog-watch-cancel", guest=True, form={"matchtag": int})
    def _watch_cancel(self, msg):
        watch = self._watches.get((msg.sender, msg.body["matchtag"]))
        if watch is not None:
            watch.end(errno.ENODATA)

    def forget(self, watch):
        del self._watches[watch.msg.sender, watch.msg.matchtag]

    @request("disconnect", guest=True)
    def _disconnect(self, msg):
        for watch in [w for (sender, _), w in self._watches.items() if sender is msg.sender]:
            watch.drop()


class EventlogWatch:
    """A stream of ``eventlog-watch``. The main eventlog tells whether the job exists, its owner, and its end."""

    def __init__(self, service, msg):
        self.service = service
        self.msg = msg
        self._kvs = service.ctx.kvs
        path, where = msg.body["path"], jobid.kvs_dir(msg.body["id"])
        self._main = f"{where}.eventlog"
        self._key = f"{where}.{path}"
        self._is_guest = path.startswith("guest.")
        self._sent = 0
        self._over = False
        self._kvs.find(self._key)  # raises for an invalid path
        self._where = where
        self._kvs.watch(where, self._changed)

    def _changed(self):
        self.service.post(self.look)

    def look(self):
        """Send the events that are new."""
        if self._over:
            return
        main, text = self._text(self._main), self._text(self._key)
        if main is None:
            self.end(errno.ENOENT)
            return
        if self.msg.is_guest and not _may_see(self.msg, main):
            self.end(errno.EPERM)
            return
        if text is None and not self.msg.body["flags"] & WAITCREATE:
            if not self._is_guest or _has(main, "start"):
                self.end(errno.ENOENT)
                return
        new, self._sent = (text or "")[self._sent :], len(text or "")
        for line in eventlog.split(new):
            self.service.respond(self.msg, {"event": line})
        # Execution writes nothing after "done", which comes before the job's own end.
        if _has(main, "clean") or (
            self._key.endswith(".guest.exec.eventlog") and _has(new, "done")
        ):
            self.end(errno.ENODATA)

    def _text(self, key):
        value = self._kvs.find(key)
        return value if type(value) is str else None

    def end(self, errnum):
        """Send the final answer."""
        self.drop()
        self.service.respond_error(self.msg, errnum)

    def drop(self):
        """No more answers."""
        self._over = True
        self._kvs.unwatch(self._where, self._changed)
        self.service.forget(self)


def _has(text, name):
    """Whether an eventlog text has an event `name`."""
    needle = f'"name":"{name}"'
    return needle in text and any(
        json.loads(line)["name"] == name for line in eventlog.split(text) if needle in line
    )


def _may_see(msg, text):
    """Whether a guest may see the job whose eventlog is `text`."""
    return json.loads(text.split("\n", 1)[0])["context"]["userid"] == msg.userid
