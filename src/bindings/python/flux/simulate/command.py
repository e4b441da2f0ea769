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
