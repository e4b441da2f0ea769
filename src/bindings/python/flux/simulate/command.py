# SPDX-License-Identifier: LGPL-3.0-or-later
"""The command ``flux simulate``, and the table of its subcommands."""

import contextlib
import importlib
import json
import os
import shlex
import sys
import time

from flux.simulate import arguments
from flux.simulate.trace import sample_path
from flux.simulate.workload.record import OptionError
from flux.simulate.workload.text import counted
from flux_engine.command.options import Parser
from flux_scheduler_version import VERSION

DESCRIPTION = "Replay recorded or generated jobs under schedulers, and compare their schedules"

#: Subcommand -> (module, function); modules are imported on demand.
SUBCOMMANDS = {
    "compare": ("comparing", "compare_main"),
    "check": ("checking", "check_main"),
    "tune": ("tune_command", "tune_main"),
}
#: Options that require an output directory.
NEED_OUTPUT = ("eventlogs", "swf", "resume", "force", "diff")
#: Options on jobs, not valid for the running instance.
ABOUT_JOBS = (
    "format", "limits", "estimates", "window", "jobs", "scale_arrivals", "seeds", "shake", "dependencies", "status",
    "save_trace", "failures", "odds",
)  # fmt: skip
#: Options without effect if the trace is only written.
ABOUT_RUNS = (
    "scheduler", "engine", "grain", "forecast", "odds", "script", "jobtap", "parallel", "output", "seeds", "failures",
)  # fmt: skip


def make_parser():
    """Return the parser of the command without subcommands."""
    parser = Parser(
        prog="flux-simulate",
        usage="flux simulate [OPTIONS] TRACE... | --model=lublin | --live\n"
        "       flux simulate tune [OPTIONS] TRACE... | --model=lublin\n"
        "       flux simulate compare DIR...\n"
        "       flux simulate check DIR... | --live",
        description=DESCRIPTION,
    )
    parser.add_argument("--version", action="version", version=f"flux-scheduler {VERSION}")
    text = "repeat the run of these results, and report whether all starts are the same"
    parser.add_argument("--again", metavar="DIR", help=text)
    parser.add_argument("traces", nargs="*", metavar="TRACE", help='files, or "sample"')
    add = arguments.add_jobs(parser)
    text = "use the jobs and resources of the running instance"
    add("--live", action="store_true", help=text)
    arguments.add_machine(parser)
    add = parser.add_argument_group("run").add_argument
    text = "name or file of a scheduler module; NAME=a,b,c stands for three policies"
    add("--scheduler", action="append", metavar="MODULE [ARG...]", help=text)
    text = "simulate with the lean engine, or with a whole instance"
    add("--engine", choices=("lean", "instance"), help=text)
    text = "make one pass for all events of an instant, or one for each"
    add("--grain", choices=("batch", "event-end", "event-submit"), help=text)
    add("--forecast", action="store_true", help="let schedulers make estimates and reasons")
    text = "query the likely start of each N-th waiting job, and print the accuracy"
    add("--odds", type=arguments.positive, metavar="N", help=text)
    add("--script", metavar="FILE", help="scripted events: drain, cancel, ...")
    text = "let nodes fail and return"
    add("--failures", metavar="mtbf=TIME,repair=TIME[,seed=N]", help=text)
    text = "load a Python jobtap plugin"
    add("--jobtap", action="append", default=[], metavar="FILE [KEY=VALUE...]", help=text)
    arguments.add_parallel(add)
    add = parser.add_argument_group("results").add_argument
    add("-o", "--output", metavar="DIR", help="write result files and a report to DIR")
    text = "also write eventlog, jobspec and R of each job"
    add("--eventlogs", action="store_true", help=text)
    add("--swf", action="store_true", help="also write the schedule as a trace (SWF)")
    text = "write the jobs as a trace (SWF), and run nothing"
    add("--save-trace", metavar="FILE", help=text)
    text = "keep results of an earlier call in DIR, and make the missing ones"
    add("--resume", action="store_true", help=text)
    text = "remove results of an earlier call in DIR first"
    add("--force", action="store_true", help=text)
    text = "print the first difference of two policies, by number"
    add("--diff", metavar="A,B", help=text)
    add("--json", action="store_true", help="print the figures as JSON")
    add("-q", "--quiet", action="store_true", help="print no notes and no progress")
    return parser


def main(argv):
    """Run the command. Return the exit code."""
    if argv and argv[0] in SUBCOMMANDS:
        module, function = SUBCOMMANDS[argv[0]]
        return getattr(importlib.import_module(f"flux.simulate.{module}"), function)(argv[1:])
    parser = make_parser()
    # Options may stand between traces.
    options = parser.parse_intermixed_args(argv)
    try:
        if options.again:
            return _again(options, argv)
        check_usage(options)
        return Call(options, argv).run()
    except OptionError as exc:
        return parser.error(str(exc))


def _again(options, argv):
    from flux.simulate.again import again

    if argv not in (["--again", options.again], [f"--again={options.again}"]):
        raise OptionError("--again reads all options from the results, and takes no other option")
    return again(options.again, main)


def check_usage(options):
    """Raise OptionError if options do not go together, or would have no effect."""
    empty = [name.replace("_", "-") for name, value in vars(options).items() if value == ""]
    if empty:
        raise OptionError(f"--{empty[0]}: expected a value, not an empty word")
    if bool(options.traces) + bool(options.model) + options.live != 1:
        raise OptionError("give one of TRACE..., --model and --live")

    def refuse(names, why):
        arguments.refuse(options, names, why)

    arguments.check_jobs(options)
    if options.live:
        refuse(ABOUT_JOBS, "the jobs are those of the running instance (--live)")
        text = "the machine is that of the running instance (--live), or an --R"
        refuse((*arguments.ABOUT_NODES, "memory_per_node"), text)
    if options.save_trace:
        refuse(ABOUT_RUNS, "--save-trace writes the jobs, and runs nothing")
    if not options.output:
        refuse(NEED_OUTPUT, "this needs the files of results: give a directory with -o")
    if options.seeds:
        refuse(("diff",), "with --seeds there are several workloads")
    if options.resume:
        refuse(("force",), "--resume keeps what --force removes")


class Call:
    """One call of the command, with the parsed options and, for the provenance, the command line."""

    def __init__(self, options, argv):
        self.options = options
        self.argv = argv
        #: whether the reader of standard output or error has closed it
        self.output_closed = False
        #: path of the report, once written
        self.report = None

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
        from flux.simulate import policy
        from flux.simulate.results import files, output

        options = self.options
        policies = policy.parse(options.scheduler or ["sched-backfill"])
        if options.diff:
            self._diff_pair(policies)
        cases, config = self._cases()
        workload = cases[0].workload
        self.now = workload.epoch
        settings = self._settings(config)
        self._announce(cases, policies)
        if options.save_trace:
            if len(cases) > 1:
                raise OptionError("--save-trace: one value for each option")
            with output.naming_errors():
                files.write_trace(workload, options.save_trace)
            return 0
        with contextlib.ExitStack() as held:
            if options.output:
                self._prepare_output(held)
            return self._make(policies, self._tasks(cases, policies, settings))

    def _make(self, policies, tasks):
        """Make the runs and print the results. Return the exit code."""
        options = self.options
        results, interrupted = self._run(tasks)
        summaries = [result for result in results if isinstance(result, dict)]
        errors = self._errors(tasks, results)
        # The report comes first: the reader of the table may close the pipe.
        if options.output and summaries:
            errors += self._write_report(tasks, results)
        if summaries:
            self._show(summaries)
        for text in errors:
            print(f"flux-simulate: {text}", file=sys.stderr, flush=True)
        if options.diff and len(summaries) == len(tasks):
            if all("not_written" not in one for one in summaries):
                self._diff(policies)
        if interrupted:
            return 130
        if errors:
            return 1
        return 141 if self.output_closed else 0

    # -- before ----------------------------------------------------------------------------------------------

    def _cases(self):
        """Return ([Case], configuration)."""
        from flux.simulate.trace import Case, machine_of

        options = self.options
        if options.live:
            from flux.simulate.live import probe, workload_of
            from flux_engine.formats.config import load_path

            config = load_path(options.conf) if options.conf else {}
            machine = machine_of(options.R, config, options.conf)
            workload = workload_of(probe(), machine, options.unit)
            # Ranks excluded in the instance stay excluded.
            return [Case(workload, None, {}, drawn=options.seed)], {**workload.config, **config}
        trace = arguments.trace_of(options)
        return trace.cases(options.seeds), trace.config

    def _settings(self, config):
        from flux.simulate.run import Settings
        from flux.simulate.script import Script

        options = self.options
        script = Script(options.script) if options.script else None
        if script is not None and options.live:
            script.by_the_clock(self.now)
        names = ("engine", "forecast", "jobtap", "live", "failures", "odds", "eventlogs", "swf")
        same = {name: getattr(options, name) for name in names}
        return Settings(grain=options.grain or "batch", script=script, config=config, **same)

    def _announce(self, cases, policies):
        from flux.resource.plan import compiled
        from flux.simulate.results.table import misleading

        workload = cases[0].workload
        for line in misleading([(case.label, case.workload.notes.warnings) for case in cases]):
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
        from flux.simulate.results import output, reading

        options = self.options
        base = options.output
        with output.naming_errors():
            held.enter_context(output.taken(base))
            there = list(reading.directories(base))
            if options.force:
                output.remove(base, there)
            elif not options.resume:
                remedy = "--force to replace them, or --resume to keep what is the same"
                output.refuse(base, there, remedy)

    def _tasks(self, cases, policies, settings):
        from flux.simulate import study
        from flux.simulate.policy import plugin_of

        options = self.options
        read = [sample_path() if path == "sample" else path for path in options.traces]
        read += [options.R, options.conf, options.script]
        read += [plugin_of(text)[0] for text in options.jobtap]
        unlike = ("output", "resume", "force", "quiet", "json", "parallel", "diff", "scheduler")
        given = {key: value for key, value in vars(options).items() if key not in unlike}
        command = "flux simulate " + shlex.join(self.argv)

        def describe(case):
            return study.provenance(case, settings, read, given, command)

        return study.tasks_of(cases, policies, settings, options.output, describe)

    # -- the runs --------------------------------------------------------------------------------------------

    def _run(self, tasks):
        from flux.simulate import run
        from flux.simulate.results import output, reading

        options = self.options
        results = [task.former_result() if options.resume else None for task in tasks]
        kept = sum(result is not None for result in results)
        if options.resume:
            self.say(f"{kept} of {len(tasks)} results are there already")
            ours = {os.path.abspath(task.directory) for task in tasks}
            there = reading.directories(options.output)
            others = [one for one in there if os.path.abspath(one) not in ours]
            if others:
                self.say(f"left alone, and in no table here: {', '.join(others)}")
        left = [i for i, result in enumerate(results) if result is None]
        if options.resume and left:
            with output.naming_errors():
                output.remove(options.output, [tasks[i].directory for i in left])
        progress = None if options.quiet else run.Progress()
        new, interrupted = run.run_all([tasks[i] for i in left], options.parallel, progress)
        for i, result in zip(left, new):
            results[i] = result
        return results, interrupted

    @staticmethod
    def _errors(tasks, results):
        """Return the errors of runs, a text each."""
        found = []
        for task, result in zip(tasks, results):
            if not isinstance(result, dict):
                found.append(f"{task.label}: {result or 'not begun'}")
                continue
            if result.get("failed"):
                found.append(f"{task.label}: failed: {result['failed']}")
            if "not_written" in result:
                found.append(f"{task.label}: not written: {result['not_written']}")
        return found

    # -- after -----------------------------------------------------------------------------------------------

    def _write_report(self, tasks, results):
        """Write the page. Return errors, a text each."""
        from flux.simulate import run, study
        from flux.simulate.report.page import write_report

        path = os.path.join(self.options.output, "report.html")
        done = [(task, result) for task, result in zip(tasks, results) if isinstance(result, dict)]
        work = done[0][0].workload
        summaries = [result for _, result in done]
        provenance = [run.provenance_of(task.settings, task.policy) for task, _ in done]
        losses = study.losses_of_first(
            [(result, task.workload, _starts(task, result)) for task, result in done]
        )
        try:
            write_report(path, summaries, work.name, work.notes.lines(), losses, provenance)
        except OSError as exc:
            return [f"not written: {exc.filename}: {exc.strerror}"]
        self.report = path
        return []

    def _show(self, summaries):
        from flux.simulate.results import table

        options = self.options
        for line in table.logged(summaries):
            self.print(f"WARNING: {line}", sys.stderr)
        if options.json:
            keys = (
                "policy", "number", "variant", "seed", "failed", "figures", "classes", "interrupted",
                "jobs_per_second", "odds",
            )  # fmt: skip
            self.print(json.dumps([{k: s[k] for k in keys if k in s} for s in summaries], indent=1))
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
        if self.report:
            self.say(f"\n{self.report}")

    def _diff_pair(self, policies):
        from flux.simulate.comparing import pair_of

        return pair_of(self.options.diff, range(1, len(policies) + 1))

    def _diff(self, policies):
        from flux.simulate.comparing import first_difference

        numbers = self._diff_pair(policies)
        slugs = [policies[number - 1].slug for number in numbers]
        directories = [os.path.join(self.options.output, slug) for slug in slugs]
        self.print("\n" + "\n".join(first_difference(*directories, numbers)))


def _starts(task, result):
    """Return the starts of a run, read from its files if an earlier call made them; None if they
    cannot be read."""
    from flux.simulate.results import reading

    if "start" in result:
        return result["start"]
    try:
        return reading.Result(task.directory).starts()
    except ValueError:
        return None
