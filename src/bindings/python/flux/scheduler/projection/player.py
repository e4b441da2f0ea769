# SPDX-License-Identifier: LGPL-3.0-or-later
"""Runs a forked scheduler ahead: running jobs end at their limits, pending ones start."""

from __future__ import annotations

import errno
import heapq
import itertools
import math
import os
import time
from itertools import islice
from typing import Any, Callable, NamedTuple

from flux.resource.pool.masks import idset_text, parse_idset
from flux.scheduler import messages
from flux.scheduler.attributes import SystemAttributes
from flux.scheduler.decision import PolicyView
from flux.scheduler.disclosure import Reason, read_by
from flux.scheduler.projection.odds import Draws
from flux.scheduler.query.answering import Caller


class VirtualTime:
    """Calls functions in order of their times, from `now` (seconds since the epoch) on."""

    def __init__(self, now: float) -> None:
        self.now = now  # initial time, seconds since the epoch
        self._numbers = itertools.count()
        self._due: list[tuple[float, int, Callable[[], Any]]] = []

    def call_at(self, when: float, function: Callable[[], Any]) -> None:
        heapq.heappush(self._due, (max(when, self.now), next(self._numbers), function))

    def next_time(self) -> float:
        """Return the time of the next call; infinite if there is none."""
        return self._due[0][0] if self._due else math.inf

    def step(self) -> None:
        self.now, _, function = heapq.heappop(self._due)
        function()


class VirtualTimer:
    """A timer watcher, with those methods of flux-core's that the library uses."""

    def __init__(self, handle: VirtualHandle, callback: Callable[..., Any], args: Any) -> None:
        self._handle = handle
        self._callback = callback
        self._args = args
        self._setting = 0  # calls of earlier settings are ignored

    def reset(self, after: float = 0.0, repeat: float = 0.0) -> None:
        """Call the callback once, after `after` seconds."""
        self._setting += 1
        setting, time = self._setting, self._handle.time
        time.call_at(time.now + after, lambda: self._fire(setting))

    def stop(self) -> None:
        self._setting += 1

    def _fire(self, setting: int) -> None:
        if setting == self._setting:
            self._callback(self._handle, self, 0, self._args)


class VirtualFuture:
    """The future of a request that is answered at once."""

    def __init__(
        self, time: VirtualTime, error: int = 0, answer: dict[str, Any] | None = None
    ) -> None:
        self._time = time
        self._error = error  # an errno; 0 for success
        self._answer = answer or {}

    def then(self, callback: Callable[..., Any], *args: Any) -> VirtualFuture:
        self._time.call_at(self._time.now, lambda: callback(self, *args))
        return self

    def get(self) -> dict[str, Any]:
        """Return the answer. Raises OSError if the request failed."""
        if self._error:
            raise OSError(self._error, os.strerror(self._error))
        return self._answer


class VirtualHandle:
    """The class assigned to the handle of a forked scheduler.

    The object must remain the same, since the policy, its rules and a site's own code refer to it.
    """

    time: VirtualTime
    observer: Player
    handle: Any

    def take_over(self, time: VirtualTime, observer: Player, handle: Any) -> None:
        """Initialize, right after the class was assigned; `observer` is told of the scheduler's
        messages, `handle` is the bindings', with the module's debug flags."""
        self.time = time
        self.observer = observer
        self.handle = handle

    # -- time --------------------------------------------------------------------------------------

    def reactor_now(self, reactor: Any = None) -> float:
        return self.time.now

    def stopwatch(self) -> float:
        """Return the virtual time: code takes no time here."""
        return self.time.now

    def reactor_stop(self, reactor: Any = None) -> None:
        """Ignored: the play ends by itself."""

    reactor_stop_error = reactor_stop

    def timer_watcher_create(
        self, after: float, callback: Callable[..., Any], repeat: float = 0.0, args: Any = None
    ) -> VirtualTimer:
        """Return a timer that is not armed."""
        return VirtualTimer(self, callback, args)

    # -- messages ----------------------------------------------------------------------------------

    def log(self, level: int, text: str) -> None:
        """Log nothing: an error in the copy will occur in the original too."""

    def respond(self, msg: Any, answer: Any = None) -> None:
        """Receive an answer; only those to ``sched.alloc`` are objects here."""
        if isinstance(answer, dict) and "type" in answer:
            self.observer.answered(answer)

    respond_object = respond

    def respond_error(self, msg: Any, errnum: int, errmsg: str | None = None) -> None:
        """Ignore an error."""

    def rpc(
        self, topic: str, payload: Any = None, nodeid: int = 0, flags: int = 0
    ) -> VirtualFuture:
        """Answer a request: the job manager accepts all, other services do not exist."""
        if not topic.startswith("job-manager."):
            return VirtualFuture(self.time, errno.ENOSYS)
        if topic == "job-manager.raise" and payload["severity"] == 0:
            self.observer.end_job(payload["id"])
        if topic == "job-manager.getattr":  # no job has ended without a message
            return VirtualFuture(self.time, answer={"eventlog": ""})
        return VirtualFuture(self.time)


#: Maximum duration of a play in seconds: of real time or, if the host has another clock, counted by
#: steps, independent of the machine's speed.
PLAY_SECONDS = 2.0
DRAWN_PLAY_SECONDS = 0.5
SECONDS_PER_STEP = 0.0005

#: Id of a job that is not submitted: the highest, which no job has had, and behind all its equals.
NEWCOMER = (1 << 63) - 1

#: Virtual seconds without a start or an end after which a play ends: eight days show the start of a
#: job that waits for a weekly reservation, and bound the cost of one that waits forever.
HORIZON_S = 8 * 86400.0

#: Expected seconds until the end of a running job that is past its limit.
LATE_END_S = 1.0

#: Seconds from the exception that ends a job to its end: a pass that is due comes first.
ENDING_S = 1e-3

#: Number of steps between checks of the time.
STEPS_PER_CHECK = 64

#: Priority of a job unless a plugin sets another: the default urgency (RFC 14); and the highest
#: urgency, whose priority is `messages.PRIORITY_MAX`.
DEFAULT_PRIORITY = 16
MAX_URGENCY = 31


class PlayedMessage(NamedTuple):
    """A message of the job manager in a play; its attributes are those of a received one."""

    topic: str
    payload: dict[str, Any]
    userid: int = 0


class Player:
    """Takes over a forked scheduler. A player plays once."""

    def __init__(self, policy: PolicyView, draws: Draws | None = None) -> None:
        self._policy = policy  # the scheduler; not usable for other purposes afterwards
        self._draws = draws  # draws the run times of jobs; None: they run to their limits
        self._time = VirtualTime(policy.now())
        self._began_at = self._time.now
        self._happened = self._time.now  # time of the last start or end
        #: job id -> start, seconds since the epoch, of jobs that were pending
        self.starts: dict[int, float] = {}
        self.denied: dict[int, str | None] = {}  # job id -> note (str or None), likewise
        self._granted: dict[int, dict[str, Any]] = {}
        self._latest: dict[int, float | None] = {}  # None: promised no more
        self._steps = 0
        self._seconds = PLAY_SECONDS if draws is None else DRAWN_PLAY_SECONDS
        self._counts_steps = policy.has_virtual_time
        self._began = time.perf_counter()
        handle = policy.handle
        flux_t = handle.handle
        handle.__class__ = VirtualHandle
        handle.take_over(self._time, self, flux_t)
        policy.enter_projection()
        for jobid in policy.running:
            self._expect_end(jobid)

    # -- questions ---------------------------------------------------------------------------------

    def estimates(
        self, most: int = 0, jobid: int | None = None, patient: bool = False
    ) -> dict[str, Any]:
        """Play until the first `most` pending jobs have started, or a given one; `patient`: no job
        is given up for its wait.

        Returns ``starts``, pairs of job id and start (seconds since the epoch); ``denied``, ids of
        jobs denied earlier; ``late``, pairs of the id of each other job and the time before which
        it does not start, infinite unless time ran out; ``took``, duration in seconds; ``settled``,
        whether drawn run times would add nothing: here, whether time ran out before any of the jobs
        started.
        """
        if patient:
            self._policy.wait_limits.drop_all()
        waiting = [job.jobid for job in islice(self._policy.pending_jobs(), most)]
        if jobid is not None:
            waiting.append(jobid)
        first = 0

        def is_done() -> bool:
            nonlocal first
            while first < len(waiting) and (
                waiting[first] in self.starts or waiting[first] in self.denied
            ):
                first += 1
            return first == len(waiting)

        in_time = self._play(is_done)
        answer: dict[str, Any] = {"took": self.took}
        answer["starts"] = [[job, self.starts[job]] for job in waiting if job in self.starts]
        answer["settled"] = not (in_time or answer["starts"])
        answer["denied"] = [job for job in waiting if job in self.denied]
        known, until = {*self.starts, *self.denied}, math.inf if in_time else self._time.now
        answer["late"] = [[job, until] for job in waiting if job not in known]
        return answer

    def newcomer(
        self, jobspec: dict[str, Any], caller: Caller, priority: int | None
    ) -> dict[str, Any]:
        """Submit a job of a caller, and play until it starts. Without a priority it has that of a
        new job (`_usual_priority`).

        Returns ``made``, time of submission; ``start`` (seconds since the epoch) and ``ranks`` (an
        idset), or None; ``starts``, ``took`` and ``settled`` as for `estimates`; ``denied``, a
        bool; ``reason``, why it is denied, initially kept waiting by a rule, or its start is
        unknown; ``t_latest``, if it was promised a latest start; ``left``, number of pending jobs
        without a start when time ran out.
        """
        policy = self._policy
        waiting = list(policy.pending_jobs())
        jobid = NEWCOMER
        payload = {
            "id": jobid,
            "priority": self._usual_priority(waiting) if priority is None else priority,
            "userid": caller.userid,
            "t_submit": self._time.now,
            "jobspec": jobspec,
        }
        policy.take_in_projection(PlayedMessage("sched.alloc", payload, caller.userid))
        job = policy.pending(jobid)

        def is_answered() -> bool:
            return jobid in self.starts or jobid in self.denied

        began = self._time.now
        self._play(lambda: is_answered() or self._time.next_time() > began)
        cause = None if job is None or is_answered() else policy.admission.why(job)
        reason = cause.reason if cause else ""
        if isinstance(reason, Reason) and SystemAttributes.from_jobspec(jobspec).bank is not None:
            reason = reason.not_for_guests()  # the caller may not belong to this bank
        in_time = self._play(is_answered)
        parts = self._granted[jobid]["execution"]["R_lite"] if jobid in self._granted else []
        answer: dict[str, Any] = {
            "made": began,
            "start": self.starts.get(jobid),
            "starts": [[jobid, self.starts[jobid]]] if jobid in self.starts else [],
            "took": self.took,
            "settled": jobid in self.denied
            or self.starts.get(jobid) == began
            or not (in_time or jobid in self.starts),
            "ranks": idset_text(sum(parse_idset(one["rank"]) for one in parts)) or None,
            "denied": jobid in self.denied,
            "reason": read_by(caller, self.denied.get(jobid) or reason),
            "left": 0 if in_time else sum(1 for one in waiting if one.jobid not in self.starts),
        }
        if self._latest.get(jobid) is not None:
            answer["t_latest"] = self._latest[jobid]
        if job is not None and not is_answered() and not answer["reason"]:
            pool, request = policy.resources, job.resource_request
            if pool.waits_for_ranks(request):
                answer["reason"] = pool.why_not(request)
            elif not in_time:
                answer["reason"] = "it does not start in the time that was played"
            else:
                answer["reason"] = "a job without a time limit is in the way"
        return answer

    @staticmethod
    def _usual_priority(waiting: list[Any]) -> int:
        """Return the priority expected for a new job: the default urgency; or, if a pending job's
        priority comes from a priority plugin, the lowest priority of pending jobs. A plugin's is
        higher than any urgency, and not that of an expedited job."""
        highest = messages.PRIORITY_MAX
        priorities: list[int] = [job.priority for job in waiting if job.priority < highest]
        if not priorities or max(priorities) <= MAX_URGENCY:
            return DEFAULT_PRIORITY
        return min(priorities)

    def _play(self, done: Callable[[], bool]) -> bool:
        """Play until `done` returns true, or no event is left. Return False if time ran out."""
        while not done():
            if self._time.next_time() > self._happened + HORIZON_S:
                return True
            self._time.step()
            self._steps += 1
            if self._steps % STEPS_PER_CHECK == 0 and self.took > self._seconds:
                return False
        return True

    @property
    def took(self) -> float:
        """Duration so far, in seconds."""
        if self._counts_steps:
            return self._steps * SECONDS_PER_STEP
        return time.perf_counter() - self._began

    # -- the scheduler's messages ------------------------------------------------------------------

    def answered(self, answer: dict[str, Any]) -> None:
        """Called when the scheduler answered ``sched.alloc``."""
        jobid = answer["id"]
        if answer["type"] == messages.SUCCESS:
            self.starts[jobid] = self._happened = self._time.now
            self._granted[jobid] = answer["R"]
            self._expect_end(jobid)
        elif answer["type"] in (messages.DENY, messages.CANCEL):
            self.denied[jobid] = answer.get("note")
        elif "t_latest" in (answer["annotations"].get("sched") or {}):
            self._latest[jobid] = answer["annotations"]["sched"]["t_latest"]

    def end_job(self, jobid: int) -> None:
        """Called when the scheduler raised a fatal exception on a job."""
        self._time.call_at(self._time.now + ENDING_S, lambda: self._end(jobid))

    # -- the ends of jobs --------------------------------------------------------------------------

    def _end_of(self, jobid: int) -> float:
        """Return the end of a job in seconds since the epoch; infinite: unknown."""
        job = self._policy.running[jobid]
        if job.ending is not None:
            return job.ending
        end = self._policy.admission.own_ends.get(jobid, job.end) or math.inf
        if self._draws is not None:
            elapsed = max(0.0, self._began_at - job.start)
            end = min(end, job.start + self._draws.run_of(job, elapsed))
        return end

    def _expect_end(self, jobid: int) -> None:
        end = self._end_of(jobid)
        if end <= self._time.now and jobid not in self.starts:
            end = self._time.now + LATE_END_S
        if end < math.inf:
            self._time.call_at(end, lambda: self._limit_is_over(jobid))

    def _limit_is_over(self, jobid: int) -> None:
        """End a job at its limit, unless it was given more time or has ended."""
        if jobid not in self._policy.running:
            return
        if self._end_of(jobid) > self._time.now:
            self._expect_end(jobid)
        else:
            self._end(jobid)

    def _end(self, jobid: int) -> None:
        """End a job and free its resources."""
        policy = self._policy
        self._happened = self._time.now
        if jobid in policy.running:
            R = self._granted.pop(jobid, None)
            if R is None and policy.resources.can("held_to_dict"):
                R = policy.resources.held_to_dict(jobid)
            policy.take_in_projection(PlayedMessage("sched.free", {"id": jobid, "R": R}))
