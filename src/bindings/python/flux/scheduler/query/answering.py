# SPDX-License-Identifier: LGPL-3.0-or-later
"""Queries and answers: the caller, limits on open queries, and stepwise answers."""

from __future__ import annotations

import errno
import heapq
import itertools
import json
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Callable

from flux.scheduler.disclosure import is_private, shown_to
from flux.scheduler.host import Host, has_left, name_of, payload_size
from flux.scheduler.messages import ID_MAX, Responder, sees_all
from flux.scheduler.requests import PendingJob

#: Maximum horizon of a query, seconds: a year.
MAX_HORIZON_S = 366 * 86400.0

#: Jobs examined per step of an answer, if each costs a comparison.
JOBS_PER_STEP = 256

#: Seconds per reactor turn that answers may take: no pass is delayed by more.
ANSWER_SECONDS_PER_TURN = 0.001

#: Maximum number of consecutive periods of `READING_S` without work while queries arrive: a reactor
#: turn brings one message, and the job manager's may be behind queries. A timer in each turn would
#: cost as much as refusing a query.
MAX_READINGS = 10
READING_S = 0.001

#: Maximum number of open queries: of one guest, of all guests, and of all users. A query counts
#: once per started `BYTES_OF_ONE` of its payload, since requests are kept until they are answered.
MAX_OPEN_OF_GUEST = 32
MAX_OPEN_OF_GUESTS = 512
MAX_OPEN = 1024
BYTES_OF_ONE = 256 << 10

_TRY_AGAIN = "not answered yet: try again later"

#: An answer made in steps, between which the scheduler may do other work; a step that yields a
#: number waits for that number of seconds.
Steps = Generator[Any, None, dict[str, Any]]


class Caller:
    """The caller: the instance owner and admins see everything, a guest sees own jobs, and of
    others' the parts in `flux.scheduler.disclosure`. `private`: whether guests do not even learn
    the number of others' jobs (``access.private-mode``)."""

    def __init__(self, msg: Any, private: bool = False) -> None:
        self.userid = msg.userid  # the user
        self.sees_all = sees_all(msg)  # whether the caller sees others' jobs in full
        self.private = private and not self.sees_all  # as given; false if the caller sees all

    def may_see(self, userid: int | None) -> bool:
        """Whether this user's jobs may be shown by name."""
        return self.sees_all or (userid is not None and userid == self.userid)

    def name(self, jobid: int, userid: int | None) -> str:
        """Return a job's id as users write it, or ``another job``."""
        return name_of(jobid) if self.may_see(userid) else "another job"

    def pending_job(self, policy: Any, jobid: Any) -> PendingJob:
        """Return the job of an id in a query. Raises ValueError if the id is invalid, or it is no
        pending job that the caller may see."""
        if type(jobid) is not int or not 0 <= jobid <= ID_MAX:
            raise ValueError(f"id={jobid!r} is invalid: expected a job id")
        job: PendingJob | None = policy.pending(jobid)
        if job is None or not self.may_see(job.request.userid):
            raise ValueError(f"{name_of(jobid)} is not a pending job")
        return job

    def shown(self, path: str, value: Any) -> Any:
        """Return the part of an answer's value that the caller may see; see
        `flux.scheduler.disclosure.FIELDS`."""
        return value if self.sees_all else shown_to(self, path, value)


def payload_of(msg: Any) -> Any:
    """Return the payload of a request, or None."""
    try:
        return msg.payload
    except TypeError:
        return None


def read(payload: Any, **known: Any) -> dict[str, Any]:
    """Return the payload of a query, with the defaults of its `known` keys. Raises ValueError if a
    key is unknown."""
    if payload is None:
        payload = {}
    if not isinstance(payload, dict):
        raise ValueError(f"expected an object, got {type(payload).__name__}")
    for key in payload:
        if key not in known:
            expected = ", ".join(known) or "none"
            raise ValueError(f"unknown key {key!r}: expected {expected}")
    return {**known, **payload}


def read_horizon(value: Any) -> float:
    """Parse a horizon, in seconds. Raises ValueError if the value is not a number of seconds from 1
    to a year."""
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not 1 <= value <= MAX_HORIZON_S
    ):
        raise ValueError(
            f"horizon={value!r} is invalid: expected seconds, from 1 to {MAX_HORIZON_S:.0f}"
        )
    return float(value)


class Entries:
    """A long list in an answer: each entry is encoded when it is added, not all at the end. `path`:
    path of the list, as in `flux.scheduler.disclosure.FIELDS`."""

    def __init__(self, caller: Caller, path: str) -> None:
        self._caller = caller
        self._path = path
        self._texts: list[str] = []

    def append(self, entry: Any) -> None:
        """Add the part of an entry (a JSON value) that the caller may see."""
        self._texts.append(json.dumps(self._caller.shown(self._path, entry)))

    def text(self) -> str:
        """Return the list as JSON."""
        return f"[{', '.join(self._texts)}]"


def encode(answer: dict[str, Any]) -> str:
    """Return an answer as JSON; values may be `Entries`."""
    parts = [
        f"{json.dumps(key)}: {value.text() if isinstance(value, Entries) else json.dumps(value)}"
        for key, value in answer.items()
    ]
    return f"{{{', '.join(parts)}}}"


class Answering:
    """Works on answers, one after another, `ANSWER_SECONDS_PER_TURN` per reactor turn: no pass
    waits longer, whatever the number of queries. Users take turns after each answer. While queries
    arrive, they are only queued or refused, so that messages behind them are read soon."""

    def __init__(self, host: Host, responder: Responder) -> None:
        self._handle, self._stopwatch, self._config = host.handle, host.stopwatch, host.config
        self._responder = responder
        self._reading_s = 0.0 if host.has_virtual_time else READING_S  # there queries take no time
        # user -> open queries, never empty; the user whose turn it is comes first
        self._ready: dict[int, deque[_OpenQuery]] = {}
        self._resting: list[tuple[float, int, _OpenQuery]] = []  # a heap: (time, number, query)
        self._numbers = itertools.count()
        self._count = 0  # number of all these
        self._of_user: dict[int, int] = {}  # user -> number of them, never 0
        self._timer = host.handle.timer_watcher_create(0.0, self._turn)
        self._armed = False
        self._rests = False  # whether the timer is armed for later than at once
        self._came = False  # whether a query arrived since the last turn
        self._readings = 0

    def answer(self, msg: Any, query: Callable[[Any, Caller], Steps]) -> None:
        """Answer a request in a later turn. `query` makes the answer from payload and caller.
        Raises BlockingIOError if too many queries are open (EAGAIN), ValueError if the payload is
        too large."""
        self._came = True
        # Most queries of a flood are refused here, before any work on them.
        self._check_open(msg.userid, sees_all(msg))
        limits = self._responder.limits
        if limits is not None:
            limits.check_bytes(msg)

        caller = Caller(msg, is_private(self._config.get()))

        def steps() -> Steps:
            if limits is not None:
                limits.check(msg)
            answer = yield from query(payload_of(msg), caller)
            shown: dict[str, Any] = caller.shown(msg.topic, answer)
            return shown

        self.begin(steps(), msg)

    def _check_open(self, userid: int, sees_all: bool) -> None:
        """Raise BlockingIOError if a user may not send more queries now."""
        if not sees_all and self._of_user.get(userid, 0) >= MAX_OPEN_OF_GUEST:
            raise BlockingIOError(errno.EAGAIN, f"too many questions of yours are {_TRY_AGAIN}")
        if self._count >= (MAX_OPEN if sees_all else MAX_OPEN_OF_GUESTS):
            raise BlockingIOError(errno.EAGAIN, f"too many questions are {_TRY_AGAIN}")

    def begin(self, steps: Steps, msg: Any) -> None:
        """Work on the answer of a request in later turns."""
        query = _OpenQuery(steps, msg, 1 + payload_size(msg) // BYTES_OF_ONE)
        self._count += query.weight
        self._of_user[msg.userid] = self._of_user.get(msg.userid, 0) + query.weight
        self._put(query)
        if self._rests:  # all others do
            self._timer.stop()
            self._armed = False
        self._arm()

    def forget(self, notice: Any) -> None:
        """Drop the queries of a client that has disconnected.  O(open queries), if its user has
        any. `notice`: the disconnect request (RFC 6), with the client's userid."""
        if notice.userid not in self._of_user:
            return
        own = [*self._ready.get(notice.userid, ()), *(one for _, _, one in self._resting)]
        for query in own:
            if not query.is_over and has_left(notice, query.msg):
                self._is_over(query)  # dropped at its turn
                query.steps.close()

    def _put(self, query: _OpenQuery) -> None:
        self._ready.setdefault(query.msg.userid, deque()).append(query)

    def _is_over(self, query: _OpenQuery) -> None:
        query.is_over = True
        userid = query.msg.userid
        self._count -= query.weight
        self._of_user[userid] -= query.weight
        if not self._of_user[userid]:
            del self._of_user[userid]

    def _arm(self, reading: bool = False) -> None:
        if (self._ready or self._resting) and not self._armed:
            self._armed = True
            after = 0.0 if self._ready else max(0.0, self._resting[0][0] - self._stopwatch())
            self._rests = after > 0.0
            self._timer.reset(after=max(after, self._reading_s) if reading else after)

    def _turn(self, *_: Any) -> None:
        self._armed = self._rests = False
        reading = self._came and self._readings < MAX_READINGS
        self._came = False
        self._readings = self._readings + 1 if reading else 0
        if not reading:
            self._work()
        self._arm(reading)

    def _work(self) -> None:
        now = self._stopwatch()
        until = now + ANSWER_SECONDS_PER_TURN
        while self._resting and self._resting[0][0] <= now:
            self._put(heapq.heappop(self._resting)[2])
        while self._ready and now < until:
            userid = next(iter(self._ready))
            some = self._ready[userid]
            if not self._go_on(some[0], now):  # it is the next user's turn
                some.popleft()
                del self._ready[userid]
                if some:
                    self._ready[userid] = some
            now = self._stopwatch()

    def _go_on(self, query: _OpenQuery, now: float) -> bool:
        """Make the next step of a query. Return whether another may follow at once."""
        if query.is_over:
            return False
        try:
            try:
                rest = next(query.steps)
            except StopIteration as end:
                text = encode(end.value)
            else:
                if rest:
                    entry = (now + rest, next(self._numbers), query)
                    heapq.heappush(self._resting, entry)
                return not rest
        except (Exception, SystemExit) as exc:
            self._answer(query, exc)
        else:
            self._answer(query, text)
        return False

    def _answer(self, query: _OpenQuery, answer: str | BaseException) -> None:
        self._is_over(query)

        def give() -> None:
            if isinstance(answer, BaseException):
                raise answer
            self._handle.respond(query.msg, answer)

        self._responder.serve(query.msg, give)
        if isinstance(answer, BaseException):
            # Its frames refer to the payload, and `give` refers to it.
            answer.__traceback__ = None


@dataclass(eq=False)
class _OpenQuery:
    """An unanswered query."""

    steps: Steps  # make the answer
    msg: Any  # the request
    weight: int  # its weight in the limits
    is_over: bool = False  # whether it is answered, or dropped
