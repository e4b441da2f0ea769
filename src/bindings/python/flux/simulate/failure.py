# SPDX-License-Identifier: LGPL-3.0-or-later
"""Failures of a policy, in words: an exception, a premature end, or jobs that never started.

A policy that starts three jobs and no others has the shortest waits. So a run is compared with
others only if every job that could start did.
"""

import contextlib
import io
import sys
from syslog import LOG_ERR

from flux.resource import InfeasibleRequest
from flux.resource.Rv1Pool import Rv1Pool
from flux.simulate.engine.manager import COMPLAINT, default_queue, request_of
from flux.simulate.results.outcome import REJECTED
from flux.simulate.site_check import tables_of
from flux_engine.job_manager.queues import Queues
from flux_engine.modules.pymodule import LOADER, LoaderExit, traceback_of
from flux_engine.resource.inventory import Inventory
from flux_engine.resource.state import ResourceState

#: First line of a traceback, also in a log.
TRACEBACK = "Traceback (most recent call last):"


#: Prefixes of the loader's messages about a file that it cannot execute: a syntax error, a missing entry point.
LOADER_ERRORS = ('  File "', f"flux-{LOADER}.py: ")


class _Tracebacks(io.TextIOBase):
    """Passes on printed text, except tracebacks and the loader's errors, of which it keeps the `lines`."""

    def __init__(self, stream):
        self.lines = []
        self._stream = stream
        self._begun = ""
        self._inside = False

    def write(self, text):
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            if line == TRACEBACK or line.startswith(LOADER_ERRORS):
                self._inside = True
            if not self._inside:
                self._stream.write(f"{line}\n")
                continue
            self.lines.append(line)
            # Frames are indented; the line of the exception, which is not, ends the traceback.
            self._inside = line == TRACEBACK or line.startswith(" ")
        return len(text)

    def flush(self):
        self._stream.flush()

    def finish(self):
        """Pass on an unterminated last line."""
        self._stream.write(self._begun)
        self._begun = ""


def run(engine, path):
    """Run `engine`; `path` is the file of its module. Return the error, with the tracebacks that it printed, if it ended
    with an exception. Raises KeyboardInterrupt at the second interrupt."""
    printed = _Tracebacks(sys.stderr)
    reason = None
    try:
        with contextlib.redirect_stderr(printed):
            engine.run()
    except LoaderExit as exc:
        reason = str(exc)
    except (ValueError, OSError) as exc:
        reason = getattr(exc, "strerror", None) or str(exc)
    except Exception as exc:
        reason = traceback_of(exc, path).rstrip()
    finally:
        printed.finish()
    if printed.lines and TRACEBACK not in (reason or ""):
        trace = "\n".join(printed.lines)
        reason = trace if reason is None else f"{reason}\n{trace}"
    return reason


def reason_of(outcome, engine, policy, settings):
    """Return why a completed run counts as failed, or None."""
    found = []
    jobs = outcome.workload.jobs
    errors = [text for _, level, text in engine.log.lines if level <= LOG_ERR]
    objections = [text for text in errors if text.startswith(COMPLAINT)]
    # Tracebacks come below, the first in full.
    others = [text for text in errors if not text.startswith(COMPLAINT) and TRACEBACK not in text]
    short = [f"job {jobs[i].id} was given {text}" for i, text in outcome.short.items()]
    for said in (objections, others, short):
        if said:
            more = f" (and {len(said) - 1:,} more)" if len(said) > 1 else ""
            found.append(f"{said[0]:.500}{more}")
    # A script or failures may remove nodes that jobs wait for, and jobs of the running instance may
    # never start.
    is_excused = engine.interrupted or bool(settings.script or settings.failures or settings.live)
    tables = tables_of(settings.config)
    refused = [] if is_excused or tables or settings.jobtap else _refused(outcome, settings.config)
    if refused:
        note = outcome.notes.get(refused[0]) or "no reason"
        found.append(
            f"{len(refused):,} of {len(jobs):,} jobs were refused although the machine has room for them:"
            f" job {jobs[refused[0]].id}: {note:.200}"
        )
    trace = next((text for text in errors if TRACEBACK in text), None)
    if trace is not None:
        found.append(_from_file(trace, policy.path))
    if engine.ended_at is not None:
        unless = " (does mod_main() call run()?)" if engine.ended_at <= 0 else ""
        found.append(f"the scheduler ended after {engine.ended_at:g} s, with jobs left{unless}")
    stranded = [] if is_excused else [i for i in outcome.unstarted() if jobs[i].urgency]
    if stranded:
        ids = ", ".join(jobs[i].id for i in stranded[:3])
        more = ", ..." if len(stranded) > 3 else ""
        count = f"{len(stranded):,} of {len(jobs):,} jobs"
        found.append(f"{count} never started: job {ids}{more}")
        if tables:
            found.append(
                "a limit or budget may keep them waiting; deny = true refuses jobs over a limit"
            )
    return "\n".join(found) or None


def _from_file(text, path):
    """Return a text with a traceback, without the frames above the first one in the file `path`."""
    lines = text.splitlines()
    frames = [number for number, line in enumerate(lines) if line.startswith('  File "')]
    own = next((number for number in frames if f'"{path}"' in lines[number]), None)
    if own is None:
        return text
    return "\n".join(lines[: frames[0]] + lines[own:])


def _refused(outcome, config):
    """Return the indices of jobs that were refused although they fit the empty machine, unless by
    attributes of their own jobspecs."""
    workload = outcome.workload
    if REJECTED not in outcome.how:
        return []
    config = {"queues": workload.queues, **config}
    state = ResourceState(0)
    state.define(Inventory(workload.machine.R), config)
    pool = Rv1Pool(state.view.R, amounts=config.get("amounts"))
    queues = Queues()
    if config["queues"]:
        queues.configure({"queues": config["queues"]})
    known = {}
    found = []
    for index, job in enumerate(workload.jobs):
        extra = job.extra or {}
        if outcome.how[index] != REJECTED or job.shape is None or "jobspec" in extra:
            continue
        queue = (job.queue or default_queue(config)) if queues.are_named else None
        if queue not in queues.table:
            continue  # job-ingest refuses it
        key = (job.shape, queue, repr((extra.get("constraints"), extra.get("memory"))))
        if key not in known:
            try:
                pool.check_feasibility(pool.parse_resource_request(request_of(job, queue, queues)))
                known[key] = True
            except (InfeasibleRequest, ValueError):
                known[key] = False
        if known[key]:
            found.append(index)
    return found
