# SPDX-License-Identifier: LGPL-3.0-or-later
"""A projection in a child process, and its answers in the parent."""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import time
import warnings
from collections.abc import Generator
from typing import Any

from flux.scheduler.decision import PolicyView
from flux.scheduler.projection.odds import LEAST_PLAYS, MOST_WITHOUT_START, PLAYS, Draws
from flux.scheduler.projection.player import DRAWN_PLAY_SECONDS, PLAY_SECONDS, Player
from flux.scheduler.query.answering import Caller

#: Seconds after which no more plays with drawn run times are made for a query, beyond the minimum
#: number.
ODDS_SECONDS = 5.0

#: Seconds per query after which a child is killed.
KILLED_AFTER_S = 2 * (PLAY_SECONDS + ODDS_SECONDS + DRAWN_PLAY_SECONDS)

#: Factor for these in virtual time: there an answer must not depend on the machine's load.
VIRTUAL_PATIENCE = 10

#: Maximum number of queries answered by a child, so that no user waits for all of another's; and
#: with odds, which take longer. A guest has at most that number of queries with odds waiting:
#: further ones are answered without.
QUERIES_PER_CHILD = 16
ODDS_PER_CHILD = 4

#: Niceness of a child: the scheduler and its broker go first.
NICENESS = 10

#: Seconds between checks for a child's answer.
POLL_S = 0.005

#: Guests' waiting queries together check as often as this number of queries would: 512 that checked
#: every 5 ms took half of the scheduler's time, a millisecond per reactor turn.
POLLING_QUERIES = 8

#: Ratio of the pause after a fork to the fork's duration: forks take a tenth of the scheduler's
#: time.
PAUSE_PER_FORK = 9.0

#: Upper bound of file descriptors.
MAX_FD = 1 << 16


def _killed_after(policy: PolicyView) -> float:
    return KILLED_AFTER_S * (VIRTUAL_PATIENCE if policy.has_virtual_time else 1)


class ProjectionFailed(Exception):
    """A projection has no answer; the text says why."""


class Query:
    """A query about the future.

    Args:
        asked_by (Caller or None): the client; None for the scheduler itself
        **arguments: arguments of the method; a ``caller`` is also the client
    """

    def __init__(
        self, method: str, odds: bool = False, asked_by: Caller | None = None, **arguments: Any
    ) -> None:
        caller = arguments.get("caller", asked_by)
        self.method = method  # a method of `Player`
        #: whether to play it `PLAYS` times with drawn run times too, unless a guest has too many
        #: such queries
        self.odds = odds
        #: the guest that sent the query; None for the owner, admins and the scheduler itself
        self.guest = None if caller is None or caller.sees_all else caller.userid
        self.arguments = arguments
        self.is_asked = False  # whether it was passed to a child
        #: the method's result, with odds also ``plays``: the ``starts`` of each play; no such plays
        #: are made if the result is ``settled``. None: no answer yet
        self.answer: dict[str, Any] | None = None
        self.error: str | None = None  # why there is no answer, or None


class Projections:
    """Forks children of a scheduler to answer queries, one child at a time."""

    def __init__(self, policy: PolicyView, waits: bool) -> None:
        self._policy = policy
        #: whether to wait for each child: in virtual time an answer must not depend on the
        #: machine's speed
        self._waits = waits
        self.count = 0  # number of children so far
        self._waiting: list[Query] = []
        self._asked: list[Query] = []  # queries of the child
        self._pid = 0  # pid of the child, or 0
        self._exiting: list[int] = []  # children that answer no more, still to be reaped
        self._pipe = -1
        self._text = b""
        self._began = 0.0
        self._next_fork = 0.0

    def ask(
        self, method: str, odds: bool = False, asked_by: Caller | None = None, **arguments: Any
    ) -> Generator[float, None, dict[str, Any]]:
        """Query a `Player`; arguments are those of `Query`. Yields the seconds after which to
        continue. Raises ProjectionFailed if there is no answer."""
        query = Query(method, odds, asked_by, **arguments)
        guest = query.guest
        if odds and guest is not None:
            own = sum(one.odds and one.guest == guest for one in self._waiting)
            query.odds = own < ODDS_PER_CHILD
        self._waiting.append(query)
        try:
            while query.answer is None:
                if query.error is not None:
                    raise ProjectionFailed(query.error)
                self._go_on()
                if query.answer is None and query.error is None:
                    is_guest = guest is not None and not query.is_asked and not self._waits
                    waiting = len(self._waiting) if is_guest else 0
                    yield POLL_S * max(1.0, waiting / POLLING_QUERIES)
        finally:
            if query in self._waiting:  # the client has disconnected
                self._waiting.remove(query)
        return query.answer

    def stop(self) -> None:
        """End the child; its queries get no answer."""
        self._end_child()
        self._reap(0)

    # -- the parent's side -------------------------------------------------------------------------

    def _go_on(self) -> None:
        self._reap(os.WNOHANG)
        if not self._pid and time.monotonic() >= self._next_fork:
            self._fork()
        if self._pid:
            self._read()

    def _take_queries(self) -> list[Query]:
        """Remove the next child's queries from the waiting ones: guests come last, and take
        turns."""
        before: dict[int | None, int] = {None: -len(self._waiting)}  # queries so far, by user
        turns = []
        for number, query in enumerate(self._waiting):
            user = query.guest
            turns.append((before.get(user, 0), number))
            before[user] = before.get(user, 0) + 1
        most = ODDS_PER_CHILD if any(one.odds for one in self._waiting) else QUERIES_PER_CHILD
        taken = [self._waiting[number] for _, number in sorted(turns)[:most]]
        self._waiting = [one for one in self._waiting if one not in taken]
        for query in taken:
            query.is_asked = True
        return taken

    def _fork(self) -> None:
        self._asked = self._take_queries()
        began = time.monotonic()
        read_end, write_end = os.pipe()
        try:
            with warnings.catch_warnings():  # a host's thread would not be copied, and is not used
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
        except OSError as exc:
            os.close(read_end)
            os.close(write_end)
            self._fail(f"cannot fork: {exc.strerror}")
            return
        if pid == 0:
            _play(self._policy, self._asked, write_end, 0 if self._waits else NICENESS)
        os.close(write_end)
        os.set_blocking(read_end, False)
        self._pid, self._pipe, self._text = pid, read_end, b""
        self._began = time.monotonic()
        self._next_fork = self._began + (
            0.0 if self._waits else PAUSE_PER_FORK * (self._began - began)
        )
        self.count += 1

    def _read(self) -> None:
        deadline = self._began + _killed_after(self._policy) * len(self._asked)
        while True:
            if self._waits:
                poll = select.poll()
                poll.register(self._pipe, select.POLLIN)
                poll.poll(1000 * max(0.0, deadline - time.monotonic()))
            try:
                part = os.read(self._pipe, 1 << 16)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    self._end_child()
                return
            if not part:
                self._over()
                return
            *lines, self._text = (self._text + part).split(b"\n")
            for line in lines:
                try:
                    number, answer, error = json.loads(line)
                except ValueError:
                    continue  # its writer was killed
                self._asked[number].answer, self._asked[number].error = answer, error

    def _end_child(self) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            self._over()

    def _over(self) -> None:
        """Close the child's pipe. The process is reaped later, since a niced one exits late on a
        loaded machine; in virtual time at once, since there may be no later query."""
        os.close(self._pipe)
        self._exiting.append(self._pid)
        self._pid = 0
        if self._waits:
            self._reap(0)
        self._fail("the projection was ended, since it took too long")

    def _reap(self, options: int) -> None:
        running = []
        for pid in self._exiting:
            try:
                if os.waitpid(pid, options)[0] == 0:
                    running.append(pid)
            except ChildProcessError:
                pass  # the host reaps the children of its process
        self._exiting = running

    def _fail(self, error: str) -> None:
        for query in self._asked:
            if query.answer is None and query.error is None:
                query.error = error
        self._asked = []


# -- the child's side ------------------------------------------------------------------------------


def _play(policy: PolicyView, queries: list[Query], pipe: int, niceness: int) -> None:
    """Answer the queries, each in its own child, then exit."""
    try:
        os.nice(niceness)
        gc.disable()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, _killed_after(policy) * len(queries))
        # This process must not reach any peer of the scheduler.
        os.closerange(0, pipe)
        os.closerange(pipe + 1, MAX_FD)
        last = len(queries) - 1
        for number, query in enumerate(queries):
            pid = os.fork() if number < last else 0
            if pid:
                os.waitpid(pid, 0)
                continue
            signal.setitimer(signal.ITIMER_REAL, _killed_after(policy))  # not inherited by a child
            _answer(policy, number, query, pipe)
            break
    finally:
        os._exit(0)


def _answer(policy: PolicyView, number: int, query: Query, pipe: int) -> None:
    answer, error = None, None
    try:
        if query.odds:
            answer = _answer_with_odds(policy, query)
        else:
            answer = getattr(Player(policy), query.method)(**query.arguments)
    except (Exception, SystemExit) as exc:
        error = f"{type(exc).__name__}: {exc}"
    _write(pipe, [number, answer, error])


def _answer_with_odds(policy: PolicyView, query: Query) -> dict[str, Any]:
    began = time.perf_counter()
    answer = _in_child(policy, query, None)
    answer["plays"] = []
    if not answer["settled"]:
        for seed in range(PLAYS):
            played = _in_child(policy, query, Draws(policy.odds.shares, seed))
            answer["plays"].append(played["starts"])
            answer["took"] += played["took"]
            if answer["plays"].count([]) == MOST_WITHOUT_START:
                break  # none of the jobs starts often enough for odds
            if len(answer["plays"]) >= LEAST_PLAYS and answer["took"] > ODDS_SECONDS:
                break
    if not policy.has_virtual_time:
        answer["took"] = time.perf_counter() - began  # including the forks
    return answer


def _in_child(policy: PolicyView, query: Query, draws: Draws | None) -> dict[str, Any]:
    """Play once, in a child, so that this process remains unchanged."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            signal.setitimer(signal.ITIMER_REAL, _killed_after(policy))
            play = getattr(Player(policy, draws), query.method)
            _write(write_end, play(**query.arguments))
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as stream:
        text = stream.read()
    os.waitpid(pid, 0)
    answer: dict[str, Any] = json.loads(text)  # ValueError if the child failed
    return answer


def _write(pipe: int, answer: Any) -> None:
    data = (json.dumps(answer) + "\n").encode()
    while data:
        data = data[os.write(pipe, data) :]
