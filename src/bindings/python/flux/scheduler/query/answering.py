# SPDX-License-Identifier: LGPL-3.0-or-later
"""Questions and their answers: who asks, what may be asked, and answering a little at a time."""

from __future__ import annotations

import errno
import json
from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Callable

from flux.scheduler.disclosure import is_private, shown_to
from flux.scheduler.handle_functions import has_left
from flux.scheduler.host import name_of
from flux.scheduler.messages import sees_all

if TYPE_CHECKING:
    from flux.scheduler.host import InstanceConfig

#: How far ahead a question may look, seconds: a year.
MAX_HORIZON_S = 366 * 86400.0

#: Seconds of one reactor turn that answers may take, so that no pass waits longer for them.
ANSWER_SECONDS_PER_TURN = 0.001

#: Turns in a row in which a question came and none is worked on. A turn brings one message, and behind
#: questions there may be some of the job manager.
MAX_TURNS_OF_READING = 256

#: Questions that may be open at a time: of one guest, and of all. The owner and admins have the rest.
MAX_OPEN_OF_GUEST = 32
MAX_OPEN = 1024

#: An answer that is made in steps, between which the scheduler may do other work; a step that yields
#: a number has to wait for so many seconds.
Steps = Generator[Any, None, dict[str, Any]]


class Caller:
    """Who asks: the instance owner and a user with the role admin see everything, a guest own jobs,
    and of others what `flux.scheduler.disclosure` says.

    Args:
        msg (Message): the request
        private: whether a guest is not even told how many jobs others have
            (``access.private-mode``)

    Attributes:
        userid (int): who it is
        sees_all (bool): whether it is shown what belongs to others
        private (bool): as given; never for one who sees all
    """

    def __init__(self, msg: Any, private: bool = False) -> None:
        self.userid = msg.userid
        self.sees_all = sees_all(msg)
        self.private = private and not self.sees_all

    def may_see(self, userid: int | None) -> bool:
        """Whether a job of this user may be shown by its name."""
        return self.sees_all or (userid is not None and userid == self.userid)

    def name(self, jobid: int, userid: int | None) -> str:
        """A job's id as users write it, or ``another job``."""
        return name_of(jobid) if self.may_see(userid) else "another job"

    def shown(self, path: str, value: Any) -> Any:
        """What of a value in an answer the caller may learn; see `flux.scheduler.disclosure.FIELDS`."""
        return value if self.sees_all else shown_to(self, path, value)


def payload_of(msg: Any) -> Any:
    """The payload of a request; None if it has none."""
    try:
        return msg.payload
    except TypeError:
        return None


def read(payload: Any, **known: Any) -> dict[str, Any]:
    """The payload of a question, with its defaults.

    Args:
        payload: None or an object
        **known: its keys and their defaults

    Raises:
        ValueError: it has a key that is not known
    """
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
    """How far to look ahead, seconds.

    Raises:
        ValueError: it is not a number of seconds from 1 to a year
    """
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
    """A long list in an answer: each entry is encoded when it is added, not all at the end.

    Args:
        caller (Caller): who asks
        path (str): of the list, as in `flux.scheduler.disclosure.FIELDS`
    """

    def __init__(self, caller: Caller, path: str) -> None:
        self._caller = caller
        self._path = path
        self._texts: list[str] = []

    def append(self, entry: Any) -> None:
        """Add an entry, JSON values, as far as the caller may learn it."""
        self._texts.append(json.dumps(self._caller.shown(self._path, entry)))

    def text(self) -> str:
        """The list as JSON."""
        return f"[{', '.join(self._texts)}]"


def encode(answer: dict[str, Any]) -> str:
    """An answer as JSON; its values may be `Entries`."""
    parts = [
        f"{json.dumps(key)}: {value.text() if isinstance(value, Entries) else json.dumps(value)}"
        for key, value in answer.items()
    ]
    return f"{{{', '.join(parts)}}}"


class Answering:
    """Works on answers, one after the other and for `ANSWER_SECONDS_PER_TURN` in a turn of the
    reactor, so that no pass waits for longer, however many are asked for. Users take turns, answer by
    answer. While questions come in, they are only taken note of, or refused, so that the job
    manager's messages behind them are read soon.

    Args:
        handle: the Flux handle
        stopwatch: gives seconds of real time
        config (InstanceConfig): says what guests may know of others
    """

    def __init__(
        self, handle: Any, stopwatch: Callable[[], float], config: InstanceConfig | None = None
    ) -> None:
        self._handle = handle
        self._stopwatch = stopwatch
        self._config = config
        # By user, the one whose turn it is first; none is empty.
        self._open: dict[int, deque[_Question]] = {}
        self._timer = handle.timer_watcher_create(0.0, self._turn)
        self._armed = False
        self._rests = False  # whether the timer is armed for later than at once
        self._came = False  # whether a question came since the last turn
        self._turns_of_reading = 0

    def answer(
        self,
        msg: Any,
        question: Callable[[Any, Caller], Steps],
        check: Callable[[Any], None],
        serve: Callable[[Any, Callable[[], Any]], None],
    ) -> None:
        """Answer a request in one of the next turns.

        Args:
            msg (Message): the request
            question: makes the answer from its payload, for whoever asks
            check: called with the request before its payload is read; may raise
            serve: calls a function, and answers the request with an error if that raises

        Raises:
            BlockingIOError: too many are open (EAGAIN)
        """

        def failed(error: Exception) -> None:
            def raise_it() -> None:
                raise error

            serve(msg, raise_it)
            # The frames in it hold the payload, and `raise_it` holds the error.
            error.__traceback__ = None

        def done(answer: str) -> None:
            serve(msg, lambda: self._handle.respond(msg, answer))

        self._came = True
        caller = Caller(msg, self._config is not None and is_private(self._config.get()))
        own = len(self._open.get(caller.userid, ()))
        if not caller.sees_all and own >= MAX_OPEN_OF_GUEST:
            raise BlockingIOError(
                errno.EAGAIN, f"{own} questions of yours are not answered yet: try again later"
            )
        if sum(map(len, self._open.values())) >= MAX_OPEN:
            raise BlockingIOError(
                errno.EAGAIN, f"{MAX_OPEN} questions are not answered yet: try again later"
            )

        def steps() -> Steps:
            check(msg)
            answer = yield from question(payload_of(msg), caller)
            shown: dict[str, Any] = caller.shown(msg.topic, answer)
            return shown

        self.begin(steps(), done, failed, caller.userid, msg)

    def begin(
        self,
        steps: Steps,
        done: Callable[[str], None],
        failed: Callable[[Exception], None],
        userid: int,
        msg: Any = None,
    ) -> None:
        """Work on an answer, in one of the next turns.

        Args:
            steps (generator): returns the answer
            done: called with it, encoded
            failed: called with what the steps raised
            userid: who asks
            msg (Message): the request
        """
        self._open.setdefault(userid, deque()).append(_Question(steps, done, failed, msg))
        if self._rests:  # all others do
            self._timer.stop()
            self._armed = False
        self._arm()

    def forget(self, notice: Any) -> None:
        """A client has disconnected: its questions are not answered.  O(open questions).

        Args:
            notice (Message): the request that says so (RFC 6)
        """
        for userid, waiting in list(self._open.items()):
            left = deque(one for one in waiting if one.msg is None or not has_left(notice, one.msg))
            if left:
                self._open[userid] = left
            else:
                del self._open[userid]

    def _arm(self) -> None:
        if self._open and not self._armed:
            self._armed = True
            first = min(one.until for some in self._open.values() for one in some)
            after = max(0.0, first - self._stopwatch())
            self._rests = after > 0.0
            self._timer.reset(after=after)

    def _turn(self, *_: Any) -> None:
        self._armed = self._rests = False
        came, self._came = self._came, False
        if came and self._turns_of_reading < MAX_TURNS_OF_READING:
            self._turns_of_reading += 1
        else:
            self._turns_of_reading = 0
            self._work()
        self._arm()

    def _work(self) -> None:
        now = self._stopwatch()
        until = now + ANSWER_SECONDS_PER_TURN
        while now < until:
            userid = self._whose_turn(now)
            if userid is None:
                break
            question = self._open[userid].popleft()
            try:
                rest, text = _go_on(question.steps)
            except Exception as exc:
                self._has_had_turn(userid)
                question.failed(exc)
            else:
                if text is not None:
                    self._has_had_turn(userid)
                    question.done(text)
                elif rest:
                    question.until = now + rest
                    self._open[userid].append(question)
                else:
                    self._open[userid].appendleft(question)
            now = self._stopwatch()

    def _whose_turn(self, now: float) -> int | None:
        """The first user whose first question need not wait, or another of his then; None: all
        questions have to."""
        for userid, some in self._open.items():
            for _ in range(len(some)):
                if some[0].until <= now:
                    return userid
                some.rotate(-1)
        return None

    def _has_had_turn(self, userid: int) -> None:
        """A question is answered: it is the next user's turn."""
        left = self._open.pop(userid)
        if left:
            self._open[userid] = left


def _go_on(steps: Steps) -> tuple[float, str | None]:
    """Take the next step: seconds to wait after it, and the answer as JSON if it was the last."""
    try:
        return next(steps) or 0.0, None
    except StopIteration as end:
        return 0.0, encode(end.value)


class _Question:
    """A question that is not answered yet.

    Attributes:
        steps, done, failed, msg: as `Answering.begin` takes them
        until (float): when to go on, by the stopwatch
    """

    __slots__ = ("steps", "done", "failed", "msg", "until")

    def __init__(
        self,
        steps: Steps,
        done: Callable[[str], None],
        failed: Callable[[Exception], None],
        msg: Any,
    ) -> None:
        self.steps = steps
        self.done = done
        self.failed = failed
        self.msg = msg
        self.until = 0.0
