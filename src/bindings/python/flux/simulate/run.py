# SPDX-License-Identifier: LGPL-3.0-or-later
"""Run the policies of a call side by side, each in its own process."""

import collections
import contextlib
import importlib.util
import json
import math
import multiprocessing
import multiprocessing.connection
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Optional

from flux.simulate import failure
from flux.simulate.as_jobs.runs import run_as_jobs
from flux.simulate.engine.lean import EPOCH, GRAINS, LeanEngine
from flux.simulate.engine.manager import default_queue
from flux.simulate.odds import OddsSampler
from flux.simulate.policy import Policy, file_of, plugin_of
from flux.simulate.results import files, metrics, reading
from flux.simulate.results.outcome import REJECTED, Outcome
from flux.simulate.results.picture import picture_data
from flux.simulate.script import Outages, Script
from flux.simulate.signals import ending
from flux.simulate.site_check import tables_of
from flux.simulate.trace import Case
from flux.simulate.workload.record import OptionError, check_count
from flux.simulate.workload.text import digest
from flux_engine.kernel import collector

#: Settings available only with the lean engine.
LEAN_ONLY = ("grain", "odds", "script", "failures", "live")
#: Maximum number of jobs of a live instance whose starts are listed.
LISTED = 200
#: Signals that end a command. They are blocked during fork(): Python drops exceptions that a
#: handler raises in fork callbacks, and the new run is not yet listed.
ENDING = {signal.SIGINT, signal.SIGTERM}
#: Seconds between progress reports of a run.
REPORT_EVERY = 0.25


@dataclass
class Settings:
    """How to run a workload, for all policies: options of the command, the `Script`, and the provenance of the results,
    without the scheduler. Raises OptionError if options do not go together, ValueError if a plugin does not exist."""

    engine: Optional[str] = None
    grain: str = "batch"
    forecast: bool = False
    odds: Optional[int] = None
    config: dict = field(default_factory=dict)
    script: Optional[Script] = None
    jobtap: Sequence = ()
    eventlogs: bool = False
    swf: bool = False
    failures: Optional[str] = None
    provenance: dict = field(default_factory=dict)
    live: bool = False

    def __post_init__(self):
        self.engine = self.engine or ("instance" if self.jobtap else "lean")
        if self.engine not in ("lean", "instance"):
            raise OptionError(f"engine {self.engine!r}: expected lean or instance")
        if self.engine == "lean" and self.jobtap:
            raise OptionError("jobtap plugins need a whole instance: leave engine=lean out")
        if self.engine == "instance":
            if importlib.util.find_spec("flux_embedded") is None:
                raise OptionError(
                    "engine instance: the embedded instance is not installed here; a source tree and 'make install' have it"
                )
            from flux import queue  # half a second

            if not hasattr(queue, "QueueConf"):  # as in flux-core 0.88.0 itself
                raise OptionError(
                    f"engine instance: the bindings in {os.path.dirname(queue.__file__)} are too old for the embedded"
                    " instance: run 'scripts/flux-python DIRECTORY' and set FLUX_SCHEDULER_BINDINGS=DIRECTORY"
                )
            for one in fields(self):
                if one.name in LEAN_ONLY and getattr(self, one.name) != one.default:
                    raise OptionError(f"{one.name} needs the lean engine")
        if self.grain not in GRAINS:
            raise OptionError(f"grain {self.grain!r}: expected one of {', '.join(GRAINS)}")
        check_count("odds", self.odds)
        if self.failures is not None:
            Outages.parse(self.failures)
        for text in self.jobtap:
            path, _ = plugin_of(text)
            if os.path.isabs(path) and not os.path.exists(path):
                raise ValueError(f"{path}: there is no such file")


def _engine(workload, policy, settings, outcome):
    if settings.engine == "instance":
        from flux.simulate.engine.instance import InstanceEngine as Engine

        more = {"config": settings.config, "jobtap": settings.jobtap}
    else:
        Engine = LeanEngine
        more = {
            "grain": settings.grain,
            "config": {"queues": workload.queues, **settings.config},
            "running": workload.running,
            "down": workload.down,
            "entry": policy.entry,
        }
    what = workload.machine, workload.jobs, policy.path, policy.args, outcome
    engine = Engine(*what, epoch=workload.epoch or EPOCH, forecast=settings.forecast, **more)
    if settings.script is not None:
        settings.script.install(engine)
    if settings.failures is not None:
        Outages.parse(settings.failures).install(engine)
    return engine


def check_queues(workload, config):
    """Check that the queues of all jobs are configured.

    If the configuration has no ``queues``, the queues of jobs are ignored. Raises ValueError with
    the names and numbers of jobs of queues that are not configured.
    """
    known = config.get("queues") or workload.queues
    if not known:
        return
    default = default_queue(config)
    queues = (job.queue or default for job in workload.jobs)
    others = collections.Counter(name for name in queues if name not in known)
    if not others:
        return
    parts = [
        f"{count:,} for {name!r}" if name else f"{count:,} that name none"
        for name, count in others.most_common(5)
    ]
    raise ValueError(
        f"{sum(others.values()):,} of {len(workload.jobs):,} jobs are for queues that are not configured"
        f" ({', '.join(parts)}); [queues] has {', '.join(sorted(known))}. Name them there, or a default in"
        " policy.jobspec.defaults.system.queue"
    )


def simulate(workload, policy, settings, tell=None, catch=False, seed=1):
    """Run one policy. Return the `Outcome`, and the summary; its ``failed`` is None, or why the policy is not comparable.

    Args:
        tell: None, or called with a dict of progress from time to time
        catch (bool): let SIGINT end the run with the results so far, and report an exception of the
            module in ``failed``
        seed (int): seed of `random`, and so of the policy's ``self.random``
    """
    # Jobs may get more cores than they request: those of nodes that they share with no other job, or
    # of their GPUs.
    entries = tables_of(settings.config).get("sharing", {}).values()
    more = any(isinstance(one, dict) and one.get("mode") == "node" for one in entries)
    more = more or any(arg.startswith("pool-cores-per-gpu=") for arg in policy.args)
    more = more and workload.unit == "core"
    outcome = Outcome(workload, workload.epoch or EPOCH, settings.eventlogs, more)
    engine = _engine(workload, policy, settings, outcome)
    sampler = None if settings.odds is None else OddsSampler(engine, settings.odds)
    if catch:

        def interrupt(signum, frame):
            if engine.interrupted:
                raise KeyboardInterrupt
            engine.interrupted = True

        signal.signal(signal.SIGINT, interrupt)
    if tell is not None:
        engine.every = _reporter(outcome, engine, tell)
    random.seed(seed)
    collector.settle()
    wall, cpu = time.perf_counter(), time.process_time()
    failed = failure.run(engine, policy.path) if catch else engine.run()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    failed = failed or failure.reason_of(outcome, engine, policy, settings)
    if engine.interrupted:
        outcome.until = engine.now
    outcome.history = [(round(when - outcome.epoch, 6), up) for when, up in engine.history]
    figures = metrics.figures(outcome)
    if failed:
        # Its means would cover only the jobs it started.
        figures.update(dict.fromkeys(figures.keys() - metrics.COUNTS, math.nan))
    summary = {
        "policy": policy.name,
        "slug": policy.slug,
        "failed": failed,
        "figures": figures,
        "classes": {} if failed else metrics.classes(outcome),
        "interrupted": engine.interrupted,
        # reasons why the figures may mislead
        "warnings": list(workload.notes.warnings),
        "seconds": wall,
        "cpu_seconds": cpu,
        "jobs_per_second": outcome.done / cpu if cpu > 0 else math.nan,
        "log": [
            {"time": when - outcome.epoch, "level": level, "text": text}
            for when, level, text in engine.log.lines[:100]
        ],
        "log_lines": len(engine.log.lines),
    }
    if REJECTED in outcome.how:
        first = outcome.how.index(REJECTED)
        summary["refusal"] = (
            f"job {workload.jobs[first].id}: {outcome.notes.get(first) or 'no reason'}"
        )
    if outcome.preempted_for or settings.live:
        summary["unit"] = workload.unit
    if len(outcome.history) > 1:
        summary["available"] = outcome.available()
    if sampler is not None:
        summary["odds"] = sampler.figures(outcome)
    if outcome.others:
        summary["others"] = outcome.others
    if workload.running or settings.live:
        jobs = workload.jobs[:LISTED]
        summary["asked"] = {job.id: (job.user or "", outcome.size[i]) for i, job in enumerate(jobs)}
        summary["starts"] = {
            job.id: outcome.epoch + outcome.start[i]
            for i, job in enumerate(jobs)
            if outcome.start[i] == outcome.start[i]
        }
    return outcome, summary


def _reporter(outcome, engine, tell):
    began = last = time.perf_counter()

    def report():
        nonlocal last
        now = time.perf_counter()
        if now - last < REPORT_EVERY:
            return
        last = now
        done, jobs = outcome.done, len(outcome.submit)
        rate = done / (now - began)
        left = (jobs - done) / rate if rate > 0 else None
        virtual = outcome.epoch + engine.now
        tell({"virtual": virtual, "done": done, "jobs": jobs, "rate": rate, "left": left})

    return report


def write(outcome, summary, policy, settings, directory):
    """Write the files of one result. Raises OSError if a file cannot be written; ``filename`` is
    its path."""
    writers = {
        "jobs.csv": files.write_jobs,
        "schedule.json": files.write_schedule,
        "machine_states.csv": files.write_machine_states,
    }
    if settings.eventlogs:
        writers["eventlogs"] = files.write_eventlogs
    if settings.swf:
        writers["schedule.swf"] = files.write_swf
    os.makedirs(directory, exist_ok=True)
    for name, write_one in writers.items():
        write_one(outcome, os.path.join(directory, name))
    files.write_json(provenance_of(settings, policy), os.path.join(directory, "provenance.json"))
    # Written last: its presence marks a complete result.
    files.write_json(plain(summary), os.path.join(directory, "summary.json"))


def provenance_of(settings, policy):
    """Return the provenance of a result. Equal provenance means equal results."""
    scheduler = {"path": policy.path, "args": policy.args, "sha256": policy.digest()}
    named = {path: digest(path) for path in map(file_of, policy.args) if path}
    if named:
        scheduler["files"] = named
    return {**settings.provenance, "scheduler": scheduler}


def plain(value):
    """Return `value` with None for NaN and infinity, which JSON lacks."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@dataclass
class Task:
    """One run.

    Attributes:
        case (Case): the workload, with its number in the study
        directory (str or None): directory of its files
        number (int): the policy's number in the study
        keep (bool): whether the result includes its `Outcome`, as ``outcome``
    """

    case: Case
    policy: Policy
    settings: Settings
    directory: Optional[str]
    number: int
    keep: bool

    @property
    def workload(self):
        return self.case.workload

    @property
    def label(self):
        return f"{self.policy.name} ({self.case.label})" if self.case.label else self.policy.name

    def former_result(self):
        """Return the summary of an earlier run with the same provenance, or None."""
        try:
            former = reading.Result(self.directory)
        except ValueError:
            return None
        provenance, summary = former.provenance, former.summary
        mine = json.loads(json.dumps(provenance_of(self.settings, self.policy)))
        for record in (mine, provenance):
            for key in ("command", "directory", "date", "host"):
                record.pop(key, None)
        if provenance != mine or summary.get("interrupted") or summary.get("failed"):
            return None
        return summary


def result_of(task, tell):
    """Make one run, and write its files; call ``tell(progress)`` from time to time. Return ``done``
    and the summary, with ``start`` and perhaps ``outcome``, or ``failed`` and the reason."""
    try:
        outcome, summary = simulate(
            task.workload, task.policy, task.settings, tell, catch=True, seed=task.case.drawn
        )
        if task.directory is not None or task.keep:
            # otherwise no chart is drawn
            summary["picture"] = picture_data(outcome)
        summary["number"] = task.number
        summary["case"] = task.case.place
        summary["variant"] = {key: str(value) for key, value in task.case.variant.items()}
        if task.case.seed is not None:
            summary["seed"] = task.case.seed
            summary["shaken"] = task.workload.shaken
        if task.directory is not None:
            try:
                write(outcome, summary, task.policy, task.settings, task.directory)
            except OSError as exc:
                # The run succeeded, and its figures can still be shown.
                summary["not_written"] = f"{exc.filename or task.directory}: {exc.strerror}"
        summary = plain(summary)
        # Not written to its file: jobs.csv has both.
        summary["start"] = outcome.start
        if task.keep:
            summary["outcome"] = outcome
        return "done", summary
    except KeyboardInterrupt:
        return "failed", "interrupted"
    except BaseException as exc:
        text = str(exc) or type(exc).__name__
        if not isinstance(exc, (ValueError, OSError)):
            text = traceback.format_exc().rstrip()
        return "failed", text


def _child(task, pipe, theirs, parent):
    theirs.close()  # its own end for reading: a write must fail once the parent is gone
    # In its own process group: Ctrl-C reaches it through its parent, once.
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)

    def tell(progress):
        if os.getppid() != parent:
            os._exit(1)  # the parent has exited
        pipe.send(("progress", progress))

    pipe.send(result_of(task, tell))
    pipe.close()


class Progress:
    """Shows the progress of runs on stderr: one line on a terminal, else lines of JSON, at most every `every` seconds."""

    def __init__(self, every=10.0):
        self.stream = sys.stderr
        self.is_terminal = self.stream.isatty()
        self.every = every
        self._last = time.perf_counter()
        self._now = {}

    def update(self, task, progress):
        """Show a run's progress."""
        self._now[task.label] = progress
        now = time.perf_counter()
        if self.is_terminal:
            self._show_line()
        elif now - self._last >= self.every:
            self._last = now
            for label, one in self._now.items():
                print(json.dumps({"policy": label, **one}), file=self.stream, flush=True)

    def finished(self, task, summary):
        """Show the end of a run."""
        self._now.pop(task.label, None)
        if self.is_terminal:
            self.stream.write("\r\033[K")
            self.stream.flush()
        else:
            figures, finished = summary["figures"], not summary["interrupted"]
            done = figures["jobs"] - figures["never_started"]
            line = {"policy": task.label, "done": done, "finished": finished}
            line["rate"] = summary["jobs_per_second"]
            print(json.dumps(line), file=self.stream, flush=True)

    def _show_line(self):
        parts = []
        for label, one in self._now.items():
            date = time.strftime("%Y-%m-%d", time.gmtime(one["virtual"]))
            left = "" if one["left"] is None else f", {one['left']:.0f} s left"
            share = 100 * one["done"] / max(one["jobs"], 1)
            parts.append(f"{label}: {date} {share:.0f} % {one['rate']:.0f} jobs/s{left}")
        self.stream.write("\r\033[K" + " | ".join(parts)[:200])
        self.stream.flush()


def run_all(tasks, at_once=None, progress=None):
    """Run `tasks` side by side; arguments as ``parallel`` and ``progress`` of `study.simulate`.

    Returns:
        (list, bool): per task, a summary or an error text; and whether it was interrupted, in which
        case runs not begun are None
    """
    if at_once == "flux" and tasks:
        return run_as_jobs(tasks, progress)
    check_count("parallel", at_once)
    if multiprocessing.current_process().daemon:
        raise ValueError(
            "each run is a process of its own, and a daemonic process, such as a worker of multiprocessing.Pool, may have"
            " none: use concurrent.futures.ProcessPoolExecutor, or one call with parallel="
        )
    context = multiprocessing.get_context("fork")
    at_once = at_once or len(os.sched_getaffinity(0))
    results = [None] * len(tasks)
    waiting = list(reversed(range(len(tasks))))
    running = {}
    interrupted = []

    def interrupt(signum, frame):
        interrupted.append(signum)
        for _, child in running.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGINT)

    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.ExitStack() as left, ending(interrupt):
        left.callback(_end, running)
        while running or (waiting and not interrupted):
            while waiting and len(running) < at_once and not interrupted:
                index = waiting.pop()
                ours, theirs = context.Pipe(duplex=False)
                about = tasks[index], theirs, ours, os.getpid()
                child = context.Process(target=_child, args=about, daemon=True)
                signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
                try:
                    child.start()
                    theirs.close()
                    running[ours] = (index, child)
                finally:
                    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
            for pipe in multiprocessing.connection.wait(list(running)):
                index, child = running[pipe]
                try:
                    kind, value = pipe.recv()
                except EOFError:
                    child.join()
                    code = child.exitcode
                    value = f"the process ended with exit code {code}"
                    if code < 0:
                        value = f"the process was ended by {signal.Signals(-code).name}"
                    kind = "failed"
                if kind == "progress":
                    if progress is not None:
                        progress.update(tasks[index], value)
                    continue
                del running[pipe]
                pipe.close()
                child.join()
                results[index] = value
                if kind == "done" and progress is not None:
                    progress.finished(tasks[index], value)
    return results, bool(interrupted)


def _end(running):
    """Terminate the remaining processes."""
    for pipe, (_, child) in running.items():
        child.terminate()
        child.join()
        pipe.close()
