# SPDX-License-Identifier: LGPL-3.0-or-later
"""The command ``flux simulate``, and the table of its subcommands."""

import importlib

from flux.simulate import arguments
from flux.simulate.workload.record import OptionError
from flux_engine.command.options import Parser
from flux_scheduler_version import VERSION

DESCRIPTION = "Replay recorded or generated jobs under schedulers, and compare their schedules"

#: Subcommand -> (module, function); modules are imported on demand.
SUBCOMMANDS = {
    "compare": ("comparing", "compare_main"),
    "check": ("checking", "check_main"),
    "tune": ("tuning", "tune_main"),
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
    parser.option("--again=DIR", text)
    parser.option("traces=TRACE", 'files, or "sample"', nargs="*")
    add = arguments.add_jobs(parser)
    add("--live", "use the jobs and resources of the running instance")
    arguments.add_machine(parser)
    add = parser.group("run")
    text = "name or file of a scheduler module; NAME=a,b,c stands for three policies"
    add("--scheduler=MODULE [ARG...]", text, action="append")
    text = "simulate with the lean engine, or with a whole instance"
    add("--engine=", text, choices=("lean", "instance"))
    text = "make one pass for all events of an instant, or one for each"
    add("--grain=", text, choices=("batch", "event-end", "event-submit"))
    add("--forecast", "let schedulers make estimates and reasons")
    text = "query the likely start of each N-th waiting job, and print the accuracy"
    add("--odds=N", text, type=int)
    add("--script=FILE", "scripted events: drain, cancel, ...")
    add("--failures=mtbf=TIME,repair=TIME[,seed=N]", "let nodes fail and return")
    text = "load a Python jobtap plugin"
    add("--jobtap=FILE [KEY=VALUE...]", text, action="append", default=[])
    arguments.add_parallel(add)
    add = parser.group("results")
    add("-o --output=DIR", "write result files and a report to DIR")
    add("--eventlogs", "also write eventlog, jobspec and R of each job")
    add("--swf", "also write the schedule as a trace (SWF)")
    add("--save-trace=FILE", "write the jobs as a trace (SWF), and run nothing")
    add("--resume", "keep results of an earlier call in DIR, and make the missing ones")
    add("--force", "remove results of an earlier call in DIR first")
    add("--diff=A,B", "print the first difference of two policies, by number")
    add("--json", "print the figures as JSON")
    add("-q --quiet", "print no notes and no progress")
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
            from flux.simulate.again import again

            if argv not in (["--again", options.again], [f"--again={options.again}"]):
                text = "--again reads all options from the results, and takes no other option"
                raise OptionError(text)
            return again(options.again, main)
        check_usage(options)
        from flux.simulate.call import Call

        return Call(options, argv).run()
    except OptionError as exc:
        return parser.error(str(exc))


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
