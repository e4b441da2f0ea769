# SPDX-License-Identifier: LGPL-3.0-or-later
"""Streams of job-info: eventlog-watch."""

import errno
import json

from flux_engine.formats import eventlog, jobid, rset
from flux_engine.formats.dotted import update_paths
from flux_engine.kernel.message import ROLE_OWNER

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
                obj = rset.with_expiration(obj, context["expiration"])
        else:
            obj = update_paths(obj, context)
    return obj


class EventlogWatch:
    """A stream of ``eventlog-watch``: it follows one or two keys of a job in the KVS."""

    def __init__(self, service, msg, id, path, waitcreate):
        self.service = service
        self.msg = msg
        self.id = id
        self.where = jobid.kvs_dir(id)
        self._futures = []
        self.path = "guest.exec.eventlog" if path == "exec" else path
        self._waitcreate = waitcreate
        self._sent = 0
        self._last = LAST_EVENT.get(self.path)
        # The main eventlog tells whether the job exists, its owner, and the end of its events.
        self._checked = False

    def begin(self):
        self.follow("eventlog", self._main)

    def follow(self, path, function, waitcreate=False):
        """Call ``function(text)`` for the text of a log and for each addition."""

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
        self.end(exc.errno, None if exc.errno == errno.ENOENT else exc.strerror)

    def end(self, errnum, text=None):
        """Send the final answer."""
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

    def _main(self, text):
        inactive = _has(text, "clean")
        if not self._checked:
            self._checked = True
            if self.msg.is_guest and not may_see(self.msg, text):
                self.end(errno.EPERM)
                return
            if self.path != "eventlog" and not inactive:
                self.follow(self.path, self._other, self._waitcreate)
        if self.path == "eventlog":
            self._send(text)
        elif inactive:
            self._send_rest()

    def _other(self, text):
        self._sent += len(text)
        self._send(text)

    def _send_rest(self):
        """The job has ended: read the part of the log that no watch has delivered, and send it."""

        def answer(future):
            if self.is_over:
                return
            try:
                self._send(future.body["value"][self._sent :])
            except OSError as exc:
                if len(self._futures) == 1:  # the log was not waited for
                    self.lost(self.path, exc)
            self.end(errno.ENODATA)

        self.service.rpc("kvs.lookup", {"key": f"{self.where}.{self.path}"}).then(answer)

    def _send(self, text):
        last = f'"name":"{self._last}"'
        for line in eventlog.split(text):
            self.service.respond(self.msg, {"event": line})
            if self._last is not None and last in line and json.loads(line)["name"] == self._last:
                self.end(errno.ENODATA)
                return


def _has(text, name):
    """Whether an eventlog text has an event `name`."""
    needle = f'"name":"{name}"'
    return needle in text and any(
        json.loads(line)["name"] == name for line in eventlog.split(text) if needle in line
    )


def may_see(msg, text):
    """Whether the sender may see the job whose eventlog is `text`."""
    if msg.rolemask & ROLE_OWNER:
        return True
    return (
        text is not None and json.loads(text.split("\n", 1)[0])["context"]["userid"] == msg.userid
    )
