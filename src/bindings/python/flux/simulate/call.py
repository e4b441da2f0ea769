# SPDX-License-Identifier: LGPL-3.0-or-later
"""A call of the command ``flux simulate``: its runs, files and output."""

import contextlib
import json
import os
import shlex
import sys
import time

from flux.resource.plan import compiled
from flux.simulate import arguments, policy, run, study
from flux.simulate.comparing import first_difference, pair_of
from flux.simulate.results import files, reading, table
from flux.simulate.script import Script
from flux.simulate.trace import Case, machine_of
from flux.simulate.workload.record import OptionError
from flux.simulate.workload.text import counted
from flux_engine.formats.config import load_path

#: Options passed on to `run.Settings` unchanged.
SETTINGS = ("engine", "forecast", "jobtap", "live", "failures", "odds", "eventlogs", "swf")
#: Options that do not change a result, and `scheduler`, which its provenance has in another form.
UNRECORDED = ("output", "resume", "force", "quiet", "json", "parallel", "diff", "scheduler")
#: Parts of a summary that --json prints.
PRINTED = (
    "policy", "number", "variant", "seed", "failed", "figures", "classes", "interrupted", "jobs_per_second", "odds",
)  # fmt: skip


class Call:
    """One call of the command, with the parsed options and, for the provenance, the command line."""

    def __init__(self, options, argv):
        self.options = options
        self.argv = argv
        #: whether the reader of standard output or error has closed it
        self.output_closed = False

    def print(self, text, stream=None):
        """Print. If the reader has closed the stream, go on: the files are still wanted."""
        stream = stream or sys.stdout
        try:
            print(text, file=stream, flush=True)
        except BrokenPipeError:
            self.output_closed = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())

    def say(self, text=""):
        """Print a line that is not part of the results, unless --quiet."""
        if not self.options.quiet:
            self.print(text, sys.stderr if self.options.json else sys.stdout)

    def run(self):
        """Prepare the runs, make them and print the results. Return the exit code."""
        options = self.options
        policies = policy.parse(options.scheduler or ["sched-backfill"])
        numbers = pair_of(options.diff, range(1, len(policies) + 1)) if options.diff else ()
        cases, config, files_read = self._cases()
        workload = cases[0].workload
        script = Script(options.script) if options.script else None
        if script is not None and options.live:
            script.by_the_clock(workload.epoch)
        same = {name: getattr(options, name) for name in SETTINGS}
        grain = options.grain or "batch"
        settings = run.Settings(grain=grain, script=script, config=config, **same)
        self._announce(cases, policies)
        if options.save_trace:
            if len(cases) > 1:
                raise OptionError("--save-trace: one value for each option")
            with files.naming_errors():
                files.write_trace(workload, options.save_trace)
            return 0
        with contextlib.ExitStack() as held:
            if options.output:
                self._prepare_output(held)
            tasks = self._tasks(cases, policies, settings, files_read)
            return self._make(tasks, numbers)

    def _make(self, tasks, numbers):
        """Make the runs and print the results, with the first difference of two policies (their
        `numbers`). Return the exit code."""
        options = self.options
        results, interrupted = self._run(tasks)
        done = [(task, result) for task, result in zip(tasks, results) if isinstance(result, dict)]
        errors = list(_errors(tasks, results))
        path = None
        # The report comes first: the reader of the table may close the pipe.
        if options.output and done:
            path = os.path.join(options.output, "report.html")
            try:
                self._write_report(path, done)
            except OSError as exc:
                path = None
                errors.append(f"not written: {exc.filename}: {exc.strerror}")
        if done:
            self._show([result for _, result in done], path)
        for text in errors:
            print(f"flux-simulate: {text}", file=sys.stderr, flush=True)
        if numbers and len(done) == len(tasks):
            if all("not_written" not in result for result in results):
                directories = [tasks[number - 1].directory for number in numbers]
                self.print("\n" + "\n".join(first_difference(*directories, numbers)))
        if interrupted:
            return 130
        if errors:
            return 1
        return 141 if self.output_closed else 0

    # -- before ----------------------------------------------------------------------------------------------

    def _cases(self):
        """Return ([Case], configuration, files of traces)."""
        options = self.options
        if options.live:
            from flux.simulate import live

            config = load_path(options.conf) if options.conf else {}
            machine = machine_of(options.R, config, options.conf)
            workload = live.workload_of(live.probe(), machine, options.unit)
            # Ranks excluded in the instance stay excluded.
            return [Case(workload, None, {}, drawn=options.seed)], {**workload.config, **config}, []
        trace = arguments.trace_of(options)
        return trace.cases(options.seeds), trace.config, trace.files

    def _announce(self, cases, policies):
        workload = cases[0].workload
        for line in table.misleading([(one.label, one.workload.notes.warnings) for one in cases]):
            self.print(f"WARNING: {line}", sys.stderr)
        for line in workload.notes.lines(with_warnings=False):
            self.say(f"  {line}")
        if not compiled.is_built():
            self.say(f"  {compiled.NOT_BUILT}")
        load = workload.offered_load()
        days = workload.jobs[-1].submit / 86400
        begin = time.strftime(" from %Y-%m-%d %H:%M UTC", time.gmtime(workload.epoch))
        begin = begin if workload.epoch else ""
        span = f" over {days:.1f} days{begin}, offered load {load:.2f}," if days else ""
        self.say(
            f"{counted(len(workload.jobs), 'job')}{span} on {workload.machine}; "
            f"{counted(len(policies), 'policy', 'policies')}"
        )
        if len(cases) > 1:
            self.say(f"{len(cases)} workloads: {'; '.join(case.label for case in cases)}")

    def _prepare_output(self, held):
        """Lock the output directory until `held` (an ExitStack) is closed. Refuse, keep or remove
        earlier results in it, so that none is taken for this call's."""
        options = self.options
        base = options.output
        with files.naming_errors():
            held.enter_context(files.taken(base))
            there = list(reading.directories(base))
            if options.force:
                files.remove(base, there)
            elif not options.resume:
                remedy = "--force to replace them, or --resume to keep unchanged ones"
                files.refuse(base, there, remedy)

    def _tasks(self, cases, policies, settings, files_read):
        options = self.options
        read = [*files_read, options.R, options.conf, options.script]
        read += [policy.plugin_of(text)[0] for text in options.jobtap]
        given = {key: value for key, value in vars(options).items() if key not in UNRECORDED}
        command = "flux simulate " + shlex.join(self.argv)

        def describe(case):
            return study.provenance(case, settings, read, given, command)

        return study.tasks_of(cases, policies, settings, options.output, describe)

    # -- the runs --------------------------------------------------------------------------------------------

    def _run(self, tasks):
        options = self.options
        results = [task.former_result() if options.resume else None for task in tasks]
        left = [i for i, result in enumerate(results) if result is None]
        if options.resume:
            self.say(f"{len(tasks) - len(left)} of {len(tasks)} results are there already")
            ours = {os.path.abspath(task.directory) for task in tasks}
            there = reading.directories(options.output)
            others = [one for one in there if os.path.abspath(one) not in ours]
            if others:
                self.say(f"left alone, and in no table here: {', '.join(others)}")
            with files.naming_errors():
                files.remove(options.output, [tasks[i].directory for i in left])
        progress = None if options.quiet else run.Progress()
        new, interrupted = run.run_all([tasks[i] for i in left], options.parallel, progress)
        for i, result in zip(left, new):
            results[i] = result
        return results, interrupted

    # -- after -----------------------------------------------------------------------------------------------

    def _write_report(self, path, done):
        """Write the page, from the runs that were made. Raises OSError."""
        runs = []
        for task, result in done:
            starts = result.get("start")
            if starts is None:  # by an earlier call
                with contextlib.suppress(ValueError):
                    starts = reading.Result(task.directory).starts()
            runs.append((result, task.workload, starts))
        provenance = [run.provenance_of(task.settings, task.policy) for task, _ in done]
        study.write_report(path, runs, provenance)

    def _show(self, summaries, report):
        options = self.options
        for line in table.logged(summaries):
            self.print(f"WARNING: {line}", sys.stderr)
        if options.json:
            some = [{key: one[key] for key in PRINTED if key in one} for one in summaries]
            self.print(json.dumps(some, indent=1))
        elif options.live:
            from flux.simulate import live

            self.print("\n".join(["", *table.lines(live.starts_table(summaries))]))
            more = summaries[0]["figures"]["jobs"] - len(summaries[0]["asked"])
            self.say(f"\n{live.LEGEND}" + (f"; {more:,} more jobs wait" if more else ""))
        else:
            self.print("\n".join(table.tables(summaries)))
            if options.odds:
                self.print("\n".join(["", *table.odds_table(summaries)]))
                self.say(f"\n{table.ODDS_LEGEND}")
            if not options.seeds:
                self.say(f"\n{table.LEGEND}; in the matrix: mean bounded slowdown")
            for line in table.remarks(summaries):
                self.say(line)
        if report:
            self.say(f"\n{report}")


def _errors(tasks, results):
    """Yield the errors of runs, a text each."""
    for task, result in zip(tasks, results):
        if not isinstance(result, dict):
            yield f"{task.label}: {result or 'not begun'}"
            continue
        if result.get("failed"):
            yield f"{task.label}: failed: {result['failed']}"
        if "not_written" in result:
            yield f"{task.label}: not written: {result['not_written']}"
