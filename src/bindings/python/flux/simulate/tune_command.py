# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux simulate tune``: its options and its output."""

import json
import shlex
import sys

from flux.simulate import arguments, policy, run, tuning
from flux.simulate.results.metrics import span_text
from flux.simulate.workload.record import OptionError
from flux.simulate.workload.text import counted
from flux_engine.command.errors import CommandError
from flux_engine.command.options import Parser

DESCRIPTION = "Find better options of a scheduler for a trace, and validate them on jobs not used for the choice"

LEGEND = (
    "against, chosen: means over these runs, or the longest wait of all; difference: geometric mean over the splits, or"
    " for a size that of the two means"
)


def make_parser():
    """Return the parser of the command."""
    parser = Parser(
        prog="flux-simulate-tune",
        usage="flux simulate tune [OPTIONS] TRACE... | --model=lublin",
        description=DESCRIPTION,
    )
    parser.option("traces=TRACE", 'files, or "sample"', nargs="*")
    arguments.add_jobs(parser)
    arguments.add_machine(parser)
    add = parser.group("tuning")
    text = "candidate; NAME=a,b,c stands for three (default: orders and promises of sched-backfill)"
    add("--scheduler=MODULE [ARG...]", text, action="append")
    add("--against=MODULE [ARG...]", "reference (sched-backfill)", default=tuning.AGAINST)
    figures = tuple(tuning.FIGURES)
    text = f"figure to minimize: {', '.join(figures)}"
    add("--figure=FIGURE", text, choices=figures, default="wait_mean")
    text = f"number of splits of the trace ({tuning.SPLITS})"
    add("--splits=N", text, type=arguments.positive, default=tuning.SPLITS)
    arguments.add_parallel(add)
    add = parser.group("results")
    add("--json", "print the result as JSON")
    add("-q --quiet", "print no progress")
    return parser


def tune_main(argv):
    """Run the command. Return the exit code."""
    parser = make_parser()
    options = parser.parse_intermixed_args(argv)
    try:
        if bool(options.traces) + bool(options.model) != 1:
            raise OptionError("give one of TRACE... and --model")
        arguments.check_jobs(options)
        if options.model:
            arguments.refuse(options, ("seeds",), "each split of a model is a workload of its own")
        trace = arguments.trace_of(options)
        for line in {} if trace.sweeps else trace.workload().notes.warnings:
            print(f"WARNING: {line}", file=sys.stderr)
        candidates = options.scheduler or tuning.CANDIDATES
        found = tuning.tune(
            trace,
            candidates,
            options.against,
            figure=options.figure,
            splits=options.splits,
            versions=options.seeds or tuning.VERSIONS,
            parallel=options.parallel,
            progress=None if options.quiet else run.Progress(),
        )
    except OptionError as exc:
        return parser.error(str(exc))
    except RuntimeError as exc:
        raise CommandError(str(exc)) from None
    if options.json:
        print(json.dumps(vars(found), indent=1))
    else:
        print("\n".join(text_of(found, policy.parse(candidates))))
    for name, reason in found.dropped.items():
        print(f"flux-simulate: {name}: failed, and is not a candidate: {reason}", file=sys.stderr)
    return 1 if found.dropped else 0


def text_of(found, candidates):
    """Yield the lines to print for a `Tuning` among candidates (`Policy`)."""
    words = tuning.FIGURES[found.figure]
    half = found.splits // 2
    often = f", each {found.versions} times with submissions shaken" if found.versions > 1 else ""
    count = counted(len(found.tried), "candidate")
    yield (
        f"{found.splits} splits of {found.jobs:,} jobs: {found.splits - half} choose among {count}"
        f" by {words}, {half} judge the one that they chose{often}"
    )
    yield ""
    if found.chosen is None:
        yield f"No better than {found.against}: no candidate had a lower {words} on the splits that choose."
        return
    yield f"against: {found.against}"
    yield f"chosen:  {found.chosen}"
    yield ""
    yield f"{'on the splits that judge':<30}{'against':>12}{'chosen':>12}   difference (95 %)"
    for name, row in found.rows.items():
        show = "{:.1f}".format if name == "bsld_mean" else span_text
        yield (
            f"{tuning.FIGURES[name]:<30}{show(row['against']):>12}{show(row['chosen']):>12}"
            f"   {_percent(row['change'])} ({_percent(row['low'])} to {_percent(row['high'])})"
        )
    for name, row in found.classes.items():
        change = row["chosen"] / row["against"] - 1 if row["against"] else 0.0
        means = f"{span_text(row['against']):>12}{span_text(row['chosen']):>12}"
        yield f"{'mean wait, size ' + name:<30}{means}   {_percent(change)}"
    yield ""
    yield LEGEND
    yield ""
    yield from _losses(found)
    yield ""
    if not found.better:
        yield (
            f"No better than {found.against}: the 95 % interval of the difference in {words} does not lie below 0."
            " What was chosen may be as good by chance."
        )
        return
    (chosen,) = (one for one in candidates if one.name == found.chosen)
    load = chosen.load_words()
    yield f"Better than {found.against}: the 95 % interval of the difference in {words} lies below 0. To use it:"
    yield ""
    yield f"    flux module load {shlex.join(load)}"
    module, *args = load
    if "/" in module:
        return  # a configuration names a module by the name under which it is installed
    yield ""
    yield "or, for each start of the instance, in its configuration:"
    yield ""
    yield "    [modules]"
    yield f'    alternatives.sched = "{module}"'
    if args:
        yield f"    {module}.args = {json.dumps(args)}"


def _losses(found):
    lost = found.losses
    jobs = lost["later"] + lost["earlier"] + lost["same"]
    yield (
        f"Losses, in all these runs: {lost['later']:,} of {jobs:,} jobs start later, by {lost['lost'] / 3600:,.0f} {found.unit} hours in all, one"
        f" by {span_text(lost['worst'])}; {lost['earlier']:,} start earlier, by {lost['won'] / 3600:,.0f} {found.unit} hours."
    )
    if lost["users"]:
        named = ", ".join(f"{user} ({more / 3600:,.0f})" for user, more in lost["users"])
        yield f"Users with the largest losses, in {found.unit} hours: {named}."


def _percent(share):
    return f"{100 * share:+.0f} %"
