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
update-lookup            ``{id, key: "R" | "jobspec", flags?}`` -> ``{id, KEY: object}``, current
update-watch (S)         ``{id, key: "R" | "jobspec", flags?}`` -> the same, again after every update
eventlog-watch-cancel,   ``{matchtag}``, no response: that stream of the sender ends with ENODATA
update-watch-cancel
stats-get                -> ``{lookups, watchers}``
=======================  ===================================================================================

ENOENT has one of two texts: ``invalid job id``, or ``KEY: key not found``. Other users than the owner see
their own jobs only (EPERM).
"""

import errno
import json

from flux_embedded.formats import eventlog, jobid
from flux_embedded.kernel.message import ROLE_OWNER
from flux_embedded.kernel.service import Service, request
from flux_embedded.services.job_manager import rlite
from flux_embedded.services.job_manager.job import update_path

JSON_DECODE, CURRENT = 1, 2
WAITCREATE = 1
LAST_EVENT = {"eventlog": "clean", "guest.exec.eventlog": "done"}
UPDATE_EVENT = {"R": "resource-update", "jobspec": "jobspec-update"}


def apply_updates(key, obj, events):
    """R or jobspec `obj` with the updates of `events` (RFC 21)."""
    name = UPDATE_EVENT[key]
    for event in events:
        if event["name"] != name:
            continue
        context = event.get("context", {})
        if key == "R":
            if "expiration" in context:
                obj = rlite.with_expiration(obj, context["expiration"])
        else:
            for path, value in context.items():
                obj = update_path(obj, path, value)
    return obj


class JobInfo(Service):
    """The job-info service."""

    name = "job-info"

    def __init__(self, ctx, *args):
        super().__init__(ctx, *args)
        self._watches = {}
        self._lookups = 0

    # -- lookup ------------------------------------------------------------------------------------

    @request("lookup", guest=True)
    def lookup(self, msg):
        body = msg.body
        id, keys = _id_of(body), body.get("keys")
        if not isinstance(keys, list) or not keys or not all(isinstance(key, str) and key for key in keys):
            raise OSError(errno.EPROTO, "lookup: keys must be an array of strings")
        self._fetch(msg, id, keys, body.get("flags", 0))

    @request("update-lookup", guest=True, form={"key": str})
    def update_lookup(self, msg):
        self._fetch(msg, _id_of(msg.body), [_update_key(msg.body)], JSON_DECODE | CURRENT)

    def _fetch(self, msg, id, keys, flags):
        self._lookups += 1
        where = jobid.kvs_dir(id)
        current = flags & CURRENT and not UPDATE_EVENT.keys().isdisjoint(keys)
        wanted = [f"{where}.{key}" for key in keys]
        log = f"{where}.eventlog"
        if (current or msg.is_guest) and log not in wanted:
            wanted.append(log)
        self.rpc("kvs.lookup", {"keys": wanted}).then(self._fetched, msg, id, keys, flags)

    def _fetched(self, future, msg, id, keys, flags):
        where = jobid.kvs_dir(id)
        try:
            values = future.body["values"]
        except OSError as exc:
            if exc.errno in (errno.ENOENT, errno.EISDIR, errno.ENOTDIR):
                self._explain_missing(msg, id, keys)
            else:
                self.respond_error(msg, exc.errno, exc.strerror)
            return
        log = values.get(f"{where}.eventlog")
        if msg.is_guest and not _may_see(msg, log):
            self.respond_error(msg, errno.EPERM)
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

    def _explain_missing(self, msg, id, keys):
        """Say which it is: no such job, or no such key."""

        def answer(future):
            try:
                names = _names(future.body["entries"])
            except OSError:
                self.respond_error(msg, errno.ENOENT, "invalid job id")
                return
            missing = [key for key in keys if key not in names]
            self.respond_error(msg, errno.ENOENT, f"{(missing or keys)[0]}: key not found")

        self.rpc("kvs.dir", {"key": jobid.kvs_dir(id), "recursive": True}).then(answer)

    # -- watching ------------------------------------------------------------------------------------

    @request("eventlog-watch", guest=True, streaming=True)
    def eventlog_watch(self, msg):
        body = msg.body
        id, path = _id_of(body), body.get("path")
        if not isinstance(path, str) or not path:
            raise OSError(errno.EPROTO, "eventlog-watch: path must be a string")
        self._add(EventlogWatch(self, msg, id, path, bool(body.get("flags", 0) & WAITCREATE)))

    @request("update-watch", guest=True, streaming=True, form={"key": str})
    def update_watch(self, msg):
        self._add(UpdateWatch(self, msg, _id_of(msg.body), _update_key(msg.body)))

    def _add(self, watch):
        self._watches[watch.msg.sender, watch.msg.matchtag] = watch
        watch.begin()

    @request("eventlog-watch-cancel", guest=True, form={"matchtag": int})
    def _watch_cancel(self, msg):
        watch = self._watches.get((msg.sender, (msg.body or {}).get("matchtag")))
        if watch is not None:
            watch.end(errno.ENODATA)

    @request("update-watch-cancel", guest=True, form={"matchtag": int})
    def _update_watch_cancel(self, msg):
        self._watch_cancel(msg)

    def forget(self, watch):
        self._watches.pop((watch.msg.sender, watch.msg.matchtag), None)

    @request("disconnect", guest=True)
    def _disconnect(self, msg):
        for watch in [w for (sender, _), w in self._watches.items() if sender is msg.sender]:
            watch.drop()

    @request("stats-get", guest=True)
    def _stats(self, msg):
        self.respond(msg, {"lookups": self._lookups, "watchers": len(self._watches)})


class Watch:
    """A stream that follows one or two keys of a job in the KVS."""

    def __init__(self, service, msg, id):
        self.service = service
        self.msg = msg
        self.id = id
        self.where = jobid.kvs_dir(id)
        self._futures = []

    def follow(self, path, function, waitcreate=False):
        """Call ``function(text)`` for the text of a log and for all that is added to it."""

        def arrived(future):
            try:
                text = future.body["value"]
            except OSError as exc:
                self.lost(path, exc)
                return
            future.reset()
            if text:
                function(text)

        request = {"key": f"{self.where}.{path}", "append": True, "waitcreate": waitcreate}
        future = self.service.rpc("kvs.watch", request, streaming=True)
        self._futures.append(future)
        future.then(arrived)

    def lost(self, path, exc):
        if exc.errno == errno.ENOENT and path == "eventlog":
            self.end(errno.ENOENT, "invalid job id")
        elif exc.errno == errno.ENOENT:
            self.end(errno.ENOENT, f"{path}: key not found")
        else:
            self.end(exc.errno, exc.strerror)

    def end(self, errnum, text=None):
        """Answer for the last time."""
        if self._futures is not None:
            self.drop()
            self.service.respond_error(self.msg, errnum, text)

    def drop(self):
        """No more answers."""
        for future in self._futures or ():
            if future.matchtag in self.service.task.futures:
                self.service.notify("kvs.watch-cancel", {"matchtag": future.matchtag})
            future.stop()
        self._futures = None
        self.service.forget(self)

    @property
    def is_over(self):
        return self._futures is None


class EventlogWatch(Watch):
    """``eventlog-watch``."""

    def __init__(self, service, msg, id, path, waitcreate):
        super().__init__(service, msg, id)
        self.path = "guest.exec.eventlog" if path == "exec" else path
        self._waitcreate = waitcreate
        self._sent = 0
        self._last = LAST_EVENT.get(self.path)

    def begin(self):
        # The main eventlog says whether there is such a job, whose it is, and when nothing more can come.
        self._checked = False
        self.follow("eventlog", self._main)

    def _main(self, text):
        if not self._checked:
            self._checked = True
            if self.msg.is_guest and not _may_see(self.msg, text):
                self.end(errno.EPERM)
                return
            if self.path != "eventlog":
                inactive = _has(text, "clean")
                if not inactive:
                    self.follow(self.path, self._other, self._waitcreate)
                else:
                    self._send_whole()
                return
        if self.path == "eventlog":
            self._send(text)
        elif _has(text, "clean"):
            self._send_rest()

    def _other(self, text):
        self._sent += len(text)
        self._send(text)

    def _send_rest(self):
        """The job is over: what the watch has not delivered yet is read from the log itself."""

        def answer(future):
            if self.is_over:
                return
            try:
                self._send(future.body["value"][self._sent :])
            except OSError:
                pass  # the log was never written
            self.end(errno.ENODATA)

        self.service.rpc("kvs.lookup", {"key": f"{self.where}.{self.path}"}).then(answer)

    def _send_whole(self):
        def answer(future):
            if self.is_over:
                return
            try:
                self._send(future.body["value"])
            except OSError as exc:
                self.lost(self.path, exc)
                return
            self.end(errno.ENODATA)

        self.service.rpc("kvs.lookup", {"key": f"{self.where}.{self.path}"}).then(answer)

    def _send(self, text):
        last = f'"name":"{self._last}"'
        for line in eventlog.split(text):
            self.service.respond(self.msg, {"event": line})
            if self._last is not None and last in line and json.loads(line)["name"] == self._last:
                self.end(errno.ENODATA)
                return


class UpdateWatch(Watch):
    """``update-watch``."""

    def __init__(self, service, msg, id, key):
        super().__init__(service, msg, id)
        self.key = key
        self._obj = None
        self._text = ""
        self._asked = False

    def begin(self):
        self.follow("eventlog", self._main)

    def _main(self, text):
        if not self._text and self.msg.is_guest and not _may_see(self.msg, text):
            self.end(errno.EPERM)
            return
        self._text += text
        if self._obj is None:
            # There is an R from `alloc` on; a job that ends without one never has any.
            if self.key == "jobspec" or _has(self._text, "alloc"):
                self._ask()
            elif _has(self._text, "clean"):
                self.end(errno.ENOENT, f"{self.key}: key not found")
            return
        if UPDATE_EVENT[self.key] in text:
            self._obj = apply_updates(self.key, self._obj, eventlog.parse(text))
            self.service.respond(self.msg, {"id": self.id, self.key: self._obj})
        self._check_end(text)

    def _ask(self):
        if not self._asked:
            self._asked = True
            self.service.rpc("kvs.lookup", {"key": f"{self.where}.{self.key}"}).then(self._got)

    def _got(self, future):
        if self.is_over:
            return
        try:
            text = future.body["value"]
        except OSError as exc:
            self.lost(self.key, exc)
            return
        self._obj = apply_updates(self.key, json.loads(text), eventlog.parse(self._text))
        self.service.respond(self.msg, {"id": self.id, self.key: self._obj})
        self._check_end(self._text)

    def _check_end(self, text):
        if _has(text, "clean"):
            self.end(errno.ENODATA)


def _id_of(body):
    id = (body or {}).get("id")
    if type(id) is not int or not 0 <= id < 1 << 64:
        raise OSError(errno.EPROTO, "id must be an integer")
    return id


def _update_key(body):
    key = body.get("key")
    if key not in UPDATE_EVENT:
        raise OSError(errno.EINVAL, f"key={key!r}: expected 'R' or 'jobspec'")
    return key


def _has(text, name):
    """Whether an eventlog text has an event `name`."""
    needle = f'"name":"{name}"'
    return needle in text and any(json.loads(line)["name"] == name for line in eventlog.split(text) if needle in line)


def _may_see(msg, text):
    """Whether the sender may see the job whose eventlog is `text`."""
    if msg.rolemask & ROLE_OWNER:
        return True
    return text is not None and json.loads(text.split("\n", 1)[0])["context"]["userid"] == msg.userid


def _names(entries):
    return {path for path, kind, _ in entries if kind != "dir"}
