# SPDX-License-Identifier: LGPL-3.0-or-later
"""The services around a scheduler in a fake instance: resource, job-manager, job-info, kvs, and the
broker's.

Each has only the part of the real service that a scheduler sees (RFC 27, RFC 28). They answer at
once unless stated otherwise.
"""

from __future__ import annotations

import errno
import json
from math import inf
from typing import Any, Callable

from flux.idset import IDset
from flux_engine.formats import idset, rset
from flux_engine.kernel.direct import Peer
from flux_engine.kernel.message import Message, payload_text
from flux_engine.resource.acquire import ResourcePeer


class FakeService(Peer):
    """A service of the instance. A test may replace one of its `methods`."""

    def __init__(
        self, instance: Any, name: str, methods: dict[str, Callable[[Message], Any]]
    ) -> None:
        self.instance = instance
        self.name = name  # first word of its topics
        instance.reactor.services.pop(name, None)
        super().__init__(instance.reactor)
        #: rest of a topic -> function of the request, which answers with `respond`, or raises
        #: OSError to refuse
        self.methods = methods

    def respond(self, msg: Message, payload: Any = None) -> None:
        """Answer a request with a text, not necessarily JSON."""
        self.kernel.respond(msg, msg.response(payload_text(payload)))


class ResourceService(FakeService, ResourcePeer):
    """``resource``: sends the scheduler its resources and all changes (RFC 28). At first all ranks
    are up, or those in the idset `up`."""

    def __init__(self, instance: Any, R: dict[str, Any], up: str | None = None) -> None:
        self.instance = instance
        ResourcePeer.__init__(self, instance.reactor, R, instance.config, patience=inf)
        if up is not None:
            self.down(idset.difference(self.state.up, idset.decode(up)))

    def changed(self, gone: Any = ()) -> None:
        super().changed(gone)
        if self.acquired.request is not None:
            self.acquired.request.sender.post(self._has_read)

    def _has_read(self) -> None:
        """Check allocations by the changes: the scheduler has read of them."""
        told: Any = self.acquired.told
        told.set_up(idset.encode(self.state.up))


class JobInfo(FakeService):
    """``job-info``: R, jobspec and eventlog of jobs.

    All requests of a turn are answered together in the next: a client that waits for each answer
    before the next request needs a turn per request.
    """

    def __init__(self, instance: Any) -> None:
        super().__init__(instance, "job-info", {"lookup": self._lookup})
        self.R: dict[int, dict[str, Any]] = {}  # job id -> R, of jobs not in `FakeInstance.jobs`
        self.jobspecs: dict[int, dict[str, Any]] = {}  # job id -> jobspec, likewise
        self.eventlogs: dict[int, list[dict[str, Any]]] = {}  # job id -> events (RFC 18), likewise
        self.most_waiting = 0  # maximum number of requests waiting at a time
        self._waiting: list[Message] = []

    def _lookup(self, msg: Message) -> None:
        self._waiting.append(msg)
        self.most_waiting = max(self.most_waiting, len(self._waiting))
        if len(self._waiting) == 1:
            self.kernel.call_soon(self._answer)

    def _answer(self) -> None:
        waiting, self._waiting = self._waiting, []
        for msg in waiting:
            payload = msg.payload
            answer = {"id": payload["id"]}
            for key in payload["keys"]:
                value = self._value(payload["id"], key)
                if value is None:
                    self.respond_error(msg, errno.ENOENT, "invalid key")
                    break
                decode = payload.get("flags", 0) & 1
                answer[key] = value if decode else json.dumps(value)
            else:
                self.respond(msg, answer)

    def _value(self, jobid: int, key: str) -> Any:
        job = self.instance.jobs.get(jobid)
        if key == "R":
            return self.R.get(jobid) or (job and job.R)
        if key == "jobspec":
            return self.jobspecs.get(jobid) or (job and job.jobspec)
        if key == "eventlog":
            return self.eventlogs.get(jobid, job and job.events)
        return None

    def answer_attributes(self, service: FakeService, msg: Message) -> None:
        """Answer ``job-manager.getattr``. Raises OSError if the job is unknown, or has no such
        attribute."""
        payload = msg.payload
        answer = {name: self._value(payload["id"], name) for name in payload["attrs"]}
        for name, value in answer.items():
            if value is None:
                raise OSError(errno.EINVAL, f"{name} of job {payload['id']} is not known")
        service.respond(msg, answer)


class KeyValueStore(FakeService):
    """``kvs``: a dict."""

    def __init__(self, instance: Any) -> None:
        super().__init__(instance, "kvs", {"commit": self._commit})
        self.values: dict[str, str] = {}  # key -> text
        self.commits: list[dict[str, Any]] = []  # payloads of all commits
        self.failing = False  # whether to refuse every commit
        #: commits waiting for `release`; None: they are answered at once
        self.held: list[Message] | None = None

    def _commit(self, msg: Message) -> None:
        self.commits.append(msg.payload)
        if self.failing:
            raise OSError(errno.EIO, "disk on fire")
        if self.held is not None:
            self.held.append(msg)
        else:
            self._store(msg)

    def _store(self, msg: Message) -> None:
        for key, text in msg.payload["changes"]:
            if text is None:
                self.values.pop(key, None)
            else:
                self.values[key] = text
        self.respond(msg, {"rootseq": len(self.commits)})

    def hold(self) -> None:
        """Answer no commit until `release`."""
        self.held = []

    def release(self) -> None:
        """Answer the commits held back."""
        held, self.held = self.held or [], None
        for msg in held:
            self._store(msg)


def ranks_of(R: dict[str, Any]) -> IDset:
    return IDset(idset.text(rset.ranks(R)))
