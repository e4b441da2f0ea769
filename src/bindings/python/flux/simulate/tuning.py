# SPDX-License-Identifier: LGPL-3.0-or-later
"""Search for scheduler options that suit a trace better, and test whether the gain is significant:
`tune`, and ``flux simulate tune``.

The trace is cut into splits with equal numbers of jobs, in order of submission. Splits alternate
between two uses. On the splits that *choose*, beginning with the first, all candidates are run, and the
best is taken. On the splits that *judge*, the chosen candidate is compared with the policy `against`,
over several versions with submissions shaken. Only the latter are reported: the best of many
candidates looks better than it is on the jobs that chose it.

Before each split run half a split's worth of earlier jobs, which are not counted: otherwise its
machine would be empty at first. A model is not cut: each split is a workload with its own seed.
"""

import copy
import json
import math
import shlex
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Optional

from flux.simulate import arguments, policy, run
from flux.simulate.job import cut
from flux.simulate.results import metrics, statistics
from flux.simulate.results.metrics import span_text
from flux.simulate.study import tasks_of
from flux.simulate.trace import SHAKE, Case, Trace
from flux.simulate.workload.record import OptionError, check_count
from flux.simulate.workload.text import counted
from flux_engine.command.errors import CommandError
from flux_engine.command.options import Parser

#: Defaults of the policy to compare with, and of the candidates. All of them make promises: orders
#: without promises have shorter waits, but may leave a wide job waiting for weeks.
AGAINST = "sched-backfill"
CANDIDATES = (
    "sched-backfill candidates=shortest",
    "sched-backfill promise=4,unlimited",
    "sched-backfill rank=expansion,area,wfp3 predict=class promise=all within=24h,48h,96h",
)

#: Figures to judge by, and their names.
FIGURES = {
    "wait_mean": "mean wait",
    "bsld_mean": "mean bounded slowdown",
    "wait_weighted": "mean wait, weighted by area",
    "wait_max": "longest wait",
}

#: Defaults of the numbers of splits and of versions of each that judges; minimum numbers of splits,
#: and of jobs in a split.
SPLITS = 10
VERSIONS = 3
MIN_SPLITS = 6
MIN_JOBS = 50


@dataclass
class Tuning:
    """The result of `tune`.

    Attributes:
        figure (str): the figure judged by, a key of `FIGURES`
        against (str): the policy compared with: module and arguments
        tried (list of str): the candidates
        dropped (dict): candidate -> reason of its failure on a split
        chosen (str or None): the best candidate on the splits that choose; None if none was better
            than `against`
        splits, jobs, versions (int): numbers of splits, of jobs in each, and of versions of each
            that judges
        rows (dict): figure -> ``against``, ``chosen`` (means over the splits that judge; for
            ``wait_max`` the maximum), ``change``, ``low``, ``high`` (relative difference, the geometric
            mean over the splits, and its 95 % interval; -0.1 is 10 % less)
        better (bool): whether the interval of `figure` is below 0
        unit (str): unit of sizes, ``node`` or ``core``
        losses (dict): see `results.statistics.losses`; over all runs of the splits that judge
        classes (dict): class of size -> ``jobs`` and the mean waits ``against`` and ``chosen``
    """

    figure: str
    against: str
    tried: list
    dropped: dict
    chosen: Optional[str]
    splits: int
    jobs: int
    versions: int
    unit: str
    rows: dict = field(default_factory=dict)
    better: bool = False
    losses: dict = field(default_factory=dict)
    classes: dict = field(default_factory=dict)


def tune(
    trace,
    candidates=CANDIDATES,
    against=AGAINST,
    *,
    figure="wait_mean",
    splits=SPLITS,
    versions=VERSIONS,
    parallel=None,
    progress=None,
):
    """Find the best candidate for a trace, and judge it on jobs that did not choose it.

    Args:
        trace (Trace, str or table): the jobs, or a file or DataFrame of jobs; with one value per
            option
        candidates (list of str or type): modules and arguments, where ``NAME=a,b`` makes two; or
            classes, as for `simulate`
        against (str or type): the policy to compare with
        figure (str): the figure to minimize, a key of `FIGURES`
        splits (int): number of splits
        versions (int): number of shaken versions of each split that judges
        parallel (int or str): maximum number of processes; default: the number of processors;
            ``flux``: run as jobs of the instance
        progress (run.Progress): receives the progress

    Returns:
        Tuning

    Raises:
        OptionError: an option is invalid
        ValueError: a file cannot be read, or has too few jobs
        RuntimeError: the policy `against` fails
        KeyboardInterrupt: the search was interrupted
    """
    trace = trace if isinstance(trace, Trace) else Trace(trace)
    if figure not in FIGURES:
        raise OptionError(f"figure {figure!r}: expected one of {', '.join(FIGURES)}")
    check_count("splits", splits, MIN_SPLITS, required=True)
    check_count("versions", versions, required=True)
    tried, rivals = policy.parse(policy.listed(candidates)), policy.parse([against])
    if len(rivals) != 1:
        raise OptionError(f"against {against!r}: expected one policy")
    if any(one.slug == rivals[0].slug for one in tried):
        raise OptionError(f"scheduler: {rivals[0].name} is the one to compare with (against)")
    policies = [*rivals, *tried]
    parts = _Splits(trace, splits, versions)
    settings = run.Settings(config=trace.config)
    first, *names = (one.name for one in policies)
    sizes = splits, parts.jobs, parts.versions
    found = Tuning(figure, first, names, {}, None, *sizes, parts.unit)

    def outcomes(cases, some):
        """Run policies on splits. Return {policy number: [Outcome or error text]}."""
        tasks = tasks_of([case for case, _ in cases], some, settings, keep=True)
        results, interrupted = run.run_all(tasks, parallel, progress)
        if interrupted:
            raise KeyboardInterrupt
        by_policy = defaultdict(list)
        for task, result in zip(tasks, results):
            found = result if not isinstance(result, dict) else result.get("failed")
            if found is None:
                found = result["outcome"]
                found.workload = task.workload
            by_policy[some[task.number - 1]].append(found)
        return by_policy

    choosing = parts.choosing()
    tried = outcomes(choosing, policies)
    base = []
    means = {}
    for one in policies:
        failure = _failure(tried[one])
        if failure is not None and one is policies[0]:
            raise RuntimeError(f"{one.name}: {failure}")
        if failure is not None:
            found.dropped[one.name] = failure
            continue
        pairs = zip(tried[one], choosing)
        values = [_figures(outcome, counted)[figure] for outcome, (_, counted) in pairs]
        base = base or values  # the first policy, which the others are compared with
        means[one] = metrics.mean([_change(*pair) for pair in zip(base, values)])
    best = min(means, key=lambda one: (means[one], one is not policies[0]))
    if best is policies[0] or means[best] >= 0:
        return found
    judging = parts.judging()
    judged = outcomes(judging, [policies[0], best])
    for one, some in judged.items():
        if _failure(some) is not None:
            raise RuntimeError(f"{one.name}: {_failure(some)}")
    found.chosen = best.name
    _judge(found, judged[policies[0]], judged[best], judging, parts.versions)
    return found


def _failure(outcomes):
    """Return the first error text among outcomes, or None."""
    return next((text for text in outcomes if isinstance(text, str)), None)


class _Splits:
    """The splits of a trace or a model; `jobs`: number of counted jobs in each, or in the smallest."""

    def __init__(self, trace, splits, versions):
        self._trace = trace
        self._splits = splits
        if trace.sweeps:
            raise OptionError(
                f"{trace.sweeps[0].replace('_', '-')}: tune takes one value for each option"
            )
        whole = trace.workload()
        self.unit = whole.unit
        if trace.is_model:
            self.versions = 1
            self._ids = None
            self.jobs = len(whole.jobs)
            return
        if any(job.after is not None for job in whole.jobs):
            raise OptionError("dependencies: a trace whose jobs follow others cannot be cut")
        self.versions = versions
        self.jobs = len(whole.jobs) // splits
        if self.jobs < MIN_JOBS:
            raise ValueError(
                f"{len(whole.jobs)} jobs in {splits} splits are {self.jobs} in each: expected {MIN_JOBS} or more"
            )
        self._whole = whole
        ids = [job.id for job in whole.jobs]
        edges = [len(ids) * number // splits for number in range(splits + 1)]
        self._ids = []
        for low, high in zip(edges, edges[1:]):
            before = ids[max(0, low - self.jobs // 2) : low]
            self._ids.append((frozenset(before), frozenset(ids[low:high])))

    def choosing(self):
        """Return (Case, ids of the counted jobs, or None for all) of each split that chooses."""
        return [self._case(number) for number in range(0, self._splits, 2)]

    def judging(self):
        """Return (Case, ids) of each split that judges, for each version."""
        versions = [None]
        if self._ids is not None:
            # A version is built once, for all splits.
            shake = SHAKE if self._trace.shake is None else self._trace.shake
            seeds = [self._trace.seed + version for version in range(1, self.versions + 1)]
            versions = [(seed, self._trace.workload(seed, shake)) for seed in seeds]
        numbers = range(1, self._splits, 2)
        return [self._case(number, version) for number in numbers for version in versions]

    def _case(self, number, version=None):
        """Return one split, of a shaken version of the trace (seed and workload) or of the trace
        itself."""
        variant = {"split": number + 1}
        if self._ids is None:
            workload = self._trace.workload(self._trace.seed + number)
            return Case(workload, None, variant), None
        seed, workload = version or (None, self._whole)
        before, counted = self._ids[number]
        chosen = [job for job in workload.jobs if job.id in before or job.id in counted]
        first = chosen[0].submit
        part = copy.copy(workload)
        part.jobs = cut(chosen)
        part.epoch = workload.epoch + first if workload.epoch else 0.0
        return Case(part, seed, variant), counted


def _counted(outcome, counted):
    """Return the indices of the counted jobs that started."""
    jobs = outcome.workload.jobs
    return [i for i in outcome.started() if counted is None or jobs[i].id in counted]


def _figures(outcome, counted):
    """Return the figures in `FIGURES`, over the counted jobs; 0 if undefined, as where no job takes time."""
    found = metrics.job_figures(outcome, _counted(outcome, counted))
    return {name: found[name] if found[name] == found[name] else 0.0 for name in FIGURES}


def _change(first, second):
    """Return a relative difference as a logarithm, which can be averaged. 1 s is added to each, so
    that a wait may be 0."""
    return math.log((second + 1) / (first + 1))


def _judge(found, against, chosen, judging, versions):
    """Set the figures of the splits that judge."""
    figures = [
        (_figures(first, counted), _figures(second, counted))
        for first, second, (_, counted) in zip(against, chosen, judging)
    ]
    for name in FIGURES:
        pairs = [(first[name], second[name]) for first, second in figures]
        # The versions of a split are one sample together, not independent ones.
        changes = [
            metrics.mean([_change(*pair) for pair in pairs[at : at + versions]])
            for at in range(0, len(pairs), versions)
        ]
        middle, width = statistics.interval(changes)
        total = max if name == "wait_max" else metrics.mean
        found.rows[name] = {
            "against": total([first for first, _ in pairs]),
            "chosen": total([second for _, second in pairs]),
            "change": math.expm1(middle),
            "low": math.expm1(middle - width),
            "high": math.expm1(middle + width),
        }
    found.better = found.rows[found.figure]["high"] < 0
    starts, jobs, classes = ([], []), [], metrics.Means()
    for first, second, (_, some) in zip(against, chosen, judging):
        for index in _counted(first, some):
            size = first.size[index]
            starts[0].append(first.start[index])
            starts[1].append(second.start[index])
            jobs.append((first.workload.jobs[index].user, size))
            name = metrics.class_of(size, 0.0)[0]
            waits = (one.start[index] - one.submit[index] for one in (first, second))
            classes.add(name, *waits)
    found.losses = statistics.losses(*starts, jobs)
    found.classes = classes.table(metrics.SIZES, "against", "chosen")


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
    add("--against=MODULE [ARG...]", "reference (sched-backfill)", default=AGAINST)
    figures = tuple(FIGURES)
    text = f"figure to minimize: {', '.join(figures)}"
    add("--figure=FIGURE", text, choices=figures, default="wait_mean")
    text = f"number of splits of the trace ({SPLITS})"
    add("--splits=N", text, type=int, default=SPLITS)
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
        candidates = options.scheduler or CANDIDATES
        found = tune(
            trace,
            candidates,
            options.against,
            figure=options.figure,
            splits=options.splits,
            versions=options.seeds or VERSIONS,
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
    words = FIGURES[found.figure]
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
            f"{FIGURES[name]:<30}{show(row['against']):>12}{show(row['chosen']):>12}"
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
