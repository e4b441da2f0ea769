# SPDX-License-Identifier: LGPL-3.0-or-later
"""Scripts: events of a simulation other than jobs. They make a bug report reproducible as one file.

A line has a time or an event, then an action; ``#`` starts a comment:

    2d 12:00        drain 0-3
    90000           undrain 0-3
    start 17        cancel 12
    end 17          reload sched-backfill reservations=4

A time is seconds since the first submission, an FSD (``2d``, ``1.5h``), a time of day (``12:00``),
or a day and a time of day. An event is ``submit``, ``start`` or ``end`` and the id of a job of the
trace.
"""

import os
import random
import re
import shlex
import subprocess
import time
from dataclasses import dataclass
from typing import Optional

from flux.simulate.job import Job, Shape
from flux.simulate.workload.record import OptionError
from flux_engine.formats import fsd, states

EVENTS = ("submit", "start", "end")


class ScriptError(ValueError):
    """An invalid line; the text names it."""


@dataclass
class Step:
    """One line of a script: its number, the action and its arguments, and the time (perhaps of day, without a day) or the
    event (kind and job id)."""

    line: int
    action: str
    words: list
    time: Optional[float] = None
    event: Optional[tuple] = None
    is_clock: bool = False


class Script:
    """The steps of a script, a file. Raises ScriptError if it cannot be read, or a line is invalid."""

    def __init__(self, path):
        self.name = path
        #: in order of lines
        self.steps = []
        try:
            with open(path, encoding="utf-8") as stream:
                lines = stream.read().splitlines()
        except OSError as exc:
            raise ScriptError(f"{path}: {exc.strerror}") from None
        for number, line in enumerate(lines, 1):
            body = line.split("#", 1)[0].strip() if "run " not in line else line.strip()
            if not body or body.startswith("#"):
                continue
            try:
                self.steps.append(_step(number, body))
            except ValueError as exc:
                raise ScriptError(f"{path}:{number}: {exc}") from None

    def by_the_clock(self, now):
        """Set each time of day without a day to its next occurrence after `now` (seconds since the
        epoch)."""
        clock = time.localtime(now)
        today = clock.tm_hour * 3600 + clock.tm_min * 60 + clock.tm_sec
        for step in self.steps:
            if step.is_clock:
                step.time = (step.time - today) % 86400

    def install(self, engine):
        """Schedule the steps in `engine` (a LeanEngine). Raises ScriptError if a job is not in the
        trace."""
        known = {job.id for job in engine.jobs}
        for step in self.steps:
            if step.event is None:
                engine.at(step.time, self._doing(step))
            else:
                kind, id = step.event
                if id not in known:
                    raise ScriptError(f"{self.name}:{step.line}: there is no job {id}")
                engine.on(kind, id, self._doing(step))

    def _doing(self, step):
        function = ACTIONS[step.action][0]

        def do(engine):
            try:
                function(engine, step.words)
            except (ValueError, OSError) as exc:
                text = getattr(exc, "strerror", None) or str(exc)
                file = getattr(exc, "filename", None)
                text = f"{file}: {text}" if file else text
                raise ScriptError(f"{self.name}:{step.line}: {step.action}: {text}") from None

        return do


def _step(number, body):
    """Parse a line. Raises ValueError if it is invalid."""
    when = event = None
    first, *rest = shlex.split(body)
    is_clock = ":" in first
    if first in EVENTS:
        if len(rest) < 2:
            raise ValueError(f"expected {first} JOB ACTION")
        event = (first, rest.pop(0))
    elif is_clock:
        when = _clock(first)
    elif re.fullmatch(r"\d+(\.\d+)?d", first) and rest and ":" in rest[0]:
        when = 86400 * float(first[:-1]) + _clock(rest.pop(0))
    else:
        when = _duration(first)
    if not rest:
        raise ValueError("nothing is to be done then")
    action, *words = rest
    if action not in ACTIONS:
        raise ValueError(f"unknown action {action!r}: expected one of {', '.join(sorted(ACTIONS))}")
    _, least, most, usage = ACTIONS[action]
    if not least <= len(words) <= most:
        raise ValueError(f"expected {action} {usage}".rstrip())
    return Step(number, action, words, when, event, is_clock)


_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?")


def _clock(text):
    """Parse a time of day to seconds after midnight."""
    match = _CLOCK.fullmatch(text)
    hours, minutes, rest = (int(part or 0) for part in match.groups()) if match else (24, 0, 0)
    if hours > 23 or minutes > 59 or rest > 59:
        raise ValueError(
            f"{text!r} is not a time of day: expected HH:MM or HH:MM:SS, up to 23:59:59"
        )
    return 3600.0 * hours + 60 * minutes + rest


def _duration(text):
    try:
        value = float(text)
    except ValueError:
        try:
            value = float(fsd.parse(text))
        except ValueError:
            raise ValueError(f"{text!r} is neither a time nor submit, start or end") from None
    if not 0 <= value < 1e12:
        raise ValueError(f"{text!r}: expected a time of 0 s or more")
    return value


# -- actions --------------------------------------------------------------------------------------------------


def _job(engine, id):
    for active in engine.manager.jobs.values():
        if active.job.id == id:
            return active
    raise ValueError(f"job {id} is not active")


def _ranks(engine, words):
    return engine.resource.ranks_of(words[0])


def _drain(engine, words):
    engine.resource.drain(_ranks(engine, words), " ".join(words[1:]) or None)


def _undrain(engine, words):
    engine.resource.undrain(_ranks(engine, words))


def _shrink(engine, words):
    ranks = _ranks(engine, words)
    engine.end_jobs_on(ranks)
    engine.resource.shrink(ranks)


def _queue(engine, words):
    verb, *name = words
    if verb not in ("stop", "start"):
        raise ValueError(f"{verb!r}: expected stop or start")
    engine.manager.set_queue(name[0] if name else None, verb == "start")


def _count(key, text, least=1, most=None):
    """Parse a whole number. Raises ValueError if it is none, or out of range."""
    number = int(text) if text.isascii() and text.isdigit() else -1
    if number < least or (most is not None and number > most):
        bound = f"{least} or more" if most is None else f"{least} to {most}"
        raise ValueError(f"{key}={text}: expected {bound}")
    return number


def _submit(engine, words):
    values = dict(word.partition("=")[::2] for word in words)
    unknown = set(values) - {"id", "nodes", "cores", "run", "limit", "urgency", "queue"}
    if unknown:
        raise ValueError(f"unknown key {min(unknown)!r}")
    if "nodes" in values:
        nodes = _count("nodes", values["nodes"])
        cores = _count("cores", values.get("cores", str(engine.machine.cores_per_node)))
        shape, size = Shape(nodes, 1, cores), nodes
    else:
        size = _count("cores", values.get("cores", "1"))
        shape = Shape(0, size)
    run = _duration(values.get("run", "60"))
    limit = _duration(values["limit"]) if "limit" in values else 0
    job = Job(values.get("id"), engine.now, run, limit, shape, size, None, values.get("queue"))
    job.urgency = _count("urgency", values.get("urgency", "16"), 0, states.URGENCY_MAX)
    engine.submit_extra(job)


def _reload(engine, words):
    if not words:
        engine.reload()
        return
    from flux.simulate.policy import parse

    (policy,) = parse([shlex.join(words)])
    engine.reload(policy.path, policy.args)


def _priority(engine, words):
    urgency = _count("urgency", words[1], 0, states.URGENCY_MAX)
    engine.manager.set_urgency(_job(engine, words[0]), urgency)


def _extend(engine, words):
    engine.extend(_job(engine, words[0]), _duration(words[1]))


def _stop(engine, words):
    engine.interrupted = True


def _run(engine, words):
    environ = {
        **os.environ,
        "FLUX_SIMULATE_TIME": f"{engine.now:g}",
        "FLUX_SIMULATE_RUNNING": str(engine.manager.running),
        "FLUX_SIMULATE_WAITING": str(engine.manager.waiting),
    }
    done = subprocess.run(words, env=environ, check=False)
    if done.returncode:
        raise ValueError(f"{shlex.join(words)}: exit code {done.returncode}")


_SUBMIT_USAGE = "[nodes=N|cores=N] [run=TIME] [limit=TIME] [urgency=N] [queue=NAME] [id=ID]"

#: action -> (function, minimum and maximum number of words, usage)
ACTIONS = {
    "drain": (_drain, 1, 99, "RANKS [REASON]"),
    "undrain": (_undrain, 1, 1, "RANKS"),
    "down": (lambda engine, words: engine.take_down(_ranks(engine, words)), 1, 1, "RANKS"),
    "up": (lambda engine, words: engine.resource.up(_ranks(engine, words)), 1, 1, "RANKS"),
    "shrink": (_shrink, 1, 1, "RANKS"),
    "queue": (_queue, 1, 2, "stop|start [NAME]"),
    "submit": (_submit, 0, 9, _SUBMIT_USAGE),
    "cancel": (lambda engine, words: engine.manager.cancel(_job(engine, words[0])), 1, 1, "JOB"),
    "extend": (_extend, 2, 2, "JOB TIME"),
    "reload": (_reload, 0, 99, "[MODULE [ARG...]]"),
    "priority": (_priority, 2, 2, "JOB URGENCY"),
    "stop": (_stop, 0, 0, ""),
    "run": (_run, 1, 99, "COMMAND [ARG...]"),
}


#: Number of consecutive outages with no running or coming job, after which failures stop: they have
#: no effect any more.
UNSEEN = 1000


class Outages:
    """Independent failures of single nodes; times between failures and to repair are exponentially distributed, with the
    means `mtbf` and `repair` (seconds)."""

    def __init__(self, mtbf, repair, seed=1):
        self.mtbf, self.repair, self.seed = mtbf, repair, seed
        self._unseen = 0

    @classmethod
    def parse(cls, text):
        """Return the outages described by ``mtbf=TIME,repair=TIME[,seed=N]``; times are seconds or
        FSD. Raises OptionError if the text is invalid."""
        values = dict(part.partition("=")[::2] for part in str(text).split(","))
        try:
            seed = int(values.pop("seed", 1))
            mtbf, repair = (float(fsd.parse(values.pop(name))) for name in ("mtbf", "repair"))
        except (KeyError, ValueError):
            values = {"": ""}
        if values or not 0 < mtbf < 1e12 or not 0 < repair < 1e12:
            raise OptionError(
                f"failures {text!r}: expected mtbf=TIME,repair=TIME[,seed=N], times such as 90d and 4h"
            )
        return cls(mtbf, repair, seed)

    def install(self, engine):
        """Let nodes of `engine` (a LeanEngine) fail."""
        for rank in range(engine.machine.nodes):
            # Each node has its own sequence, independent of the other nodes.
            rng = random.Random(f"{self.seed} {rank}")
            engine.at(rng.expovariate(1 / self.mtbf), self._failing(rank, rng))

    def _failing(self, rank, rng):
        bounds = [rank, rank + 1]

        def fail(engine):
            if engine.has_work():
                self._unseen = 0
            else:
                self._unseen += 1
                if not engine.manager.waiting or self._unseen > UNSEEN:
                    return
            engine.take_down(bounds)
            engine.at(engine.now + rng.expovariate(1 / self.repair), come_back)

        def come_back(engine):
            engine.resource.up(bounds)
            engine.at(engine.now + rng.expovariate(1 / self.mtbf), fail)

        return fail
