# SPDX-License-Identifier: LGPL-3.0-or-later
"""Policies on the workloads of a trace: `simulate` and its result `Runs`."""

import contextlib
import copy
import math
import os
import warnings

from flux.simulate import __version__, policy, run
from flux.simulate.engine.lean import EPOCH
from flux.simulate.job import with_userids
from flux.simulate.policy import plugin_of
from flux.simulate.results import statistics
from flux.simulate.results.files import make_room, taken
from flux.simulate.results.outcome import PREEMPTED, REJECTED, UNFINISHED, bounded_slowdown
from flux.simulate.results.table import logged, misleading
from flux.simulate.script import Script
from flux.simulate.site_check import groups_of, queues_constrain, tables_of
from flux.simulate.trace import Trace, case_text, variant_text
from flux.simulate.workload.record import OptionError
from flux.simulate.workload.text import digest
from flux_engine.formats import states

#: Tables beside the checked ones by which jobs start in another order than that of submission.
SET_ASIDE = ("fairshare", "reservations", "topology", "preemption", "rules")

#: Final states in the tables.
STATES = {
    states.COMPLETED: "completed",
    states.TIMEOUT: "timeout",
    states.FAILED: "failed",
    states.CANCELED: "canceled",
    REJECTED: "rejected",
    PREEMPTED: "preempted",
    UNFINISHED: "unfinished",
}


def as_table(rows):
    """Return rows as a pandas DataFrame, or unchanged (a list of dicts) if pandas is not
    installed."""
    try:
        import pandas
    except ImportError:
        return rows
    return pandas.DataFrame(rows)


def provenance(case, settings, files=(), options=None, command=None):
    """Return the provenance of a result, without the scheduler: equal provenance means equal results. Input files are
    recorded with their SHA-256."""
    # Imported here: it hashes 2.6 MB and calls git, 50 ms that a call without results saves.
    from flux.simulate import again

    workload, machine = case.workload, case.workload.machine
    known = [path for path in files if path and os.path.isfile(path)]
    record = {
        "files": [{"path": os.path.abspath(path), "sha256": digest(path)} for path in known],
        "options": options or {},
        "seed": case.seed,
        "random_seed": case.drawn,
        "variant": {key: str(value) for key, value in case.variant.items()},
        "engine": settings.engine,
        "machine": {
            "nodes": machine.nodes,
            "cores": machine.cores,
            "gpus": machine.gpus,
            "cores_per_node": machine.cores_per_node if machine.is_uniform else None,
            "unit": workload.unit,
            "units": workload.units,
            "last_unit": workload.units - 1,
        },
        "jobs": len(workload.jobs),
        "notes": workload.notes.lines(),
        "formats": __version__,
        **again.software(),
        **again.circumstances(),
    }
    tables = tables_of(settings.config)
    if tables:
        record["tables"] = {**tables, "epoch": workload.epoch or EPOCH}
    set_aside = {
        name: settings.config.get(f"sched-{name}", settings.config.get(name)) for name in SET_ASIDE
    }
    has_urgencies = len({job.urgency for job in workload.jobs}) > 1
    if has_urgencies or any(set_aside.values()):
        record["reordered"] = True
    if has_urgencies or set_aside["fairshare"]:
        record["precedence"] = True
    topology = groups_of(settings.config, machine.R)
    if topology:
        record["topology"] = topology
        record["queues_constrain"] = queues_constrain(settings.config)
    if command:
        record["command"] = command
        record["directory"] = os.getcwd()
    return record


def tasks_of(cases, policies, settings, output=None, describe=None, keep=False):
    """Return the runs of a study: each policy, numbered, on each workload. Raises ValueError if queues of jobs are not
    configured.

    Args:
        output (str or None): output directory; ``describe(case)`` returns the provenance of its results
        keep (bool): whether results include their `Outcome`
    """
    tasks = []
    for case in cases:
        run.check_queues(case.workload, settings.config)
        own = copy.copy(settings)
        own.provenance = describe(case) if describe and output else {}
        own.config, _ = with_userids(settings.config, case.workload.userids)
        for number, one in enumerate(policies, 1):
            directory = os.path.join(output, case.directory, one.slug) if output else None
            tasks.append(run.Task(case, one, own, directory, number, keep))
    return tasks


class Run:
    """The run of one policy on one workload.

    Attributes:
        policy (str): module and arguments
        number (int): the policy's number in the study, from 1
        seed (int or None), variant (dict): its workload, if the study has several
        failed (str or None): why its figures are not comparable
        interrupted (bool): whether it was interrupted
        figures (dict): see doc/guide/comparing.rst; NaN if undefined
        workload (Workload): the jobs and the machine
        summary (dict): the contents of the command's summary.json
    """

    def __init__(self, case, summary, outcome):
        self.workload = case.workload
        self.summary = summary
        self.outcome = outcome
        self.policy = summary["policy"]
        self.number = summary["number"]
        self.seed = case.seed
        self.variant = case.variant
        self.failed = summary["failed"]
        self.interrupted = summary["interrupted"]
        self.figures = {
            key: math.nan if value is None else value for key, value in summary["figures"].items()
        }

    def __repr__(self):
        case = case_text(variant_text(self.variant), self.seed)
        about = [repr(self.policy), case, "failed" if self.failed else ""]
        return f"<Run of {', '.join(filter(None, about))}>"

    @property
    def jobs(self):
        """A row per job, in order of submission; times in seconds since the first submission.

        Columns: ``job``, ``user``, ``group``, ``queue``, ``size``, the same again as ``nodes`` or
        ``cores``, by the unit, so that `Trace` reads it, ``limit`` (NaN: none), ``submit``,
        ``start``, ``end``, ``wait``, ``run``, ``bounded_slowdown``, ``state``, ``units`` (an
        idset), ``promise`` (the first promised start), ``note``.
        """
        outcome, unit = self.outcome, f"{self.workload.unit}s"
        rows = []
        for index, job in enumerate(self.workload.jobs):
            submit, start, end = outcome.submit[index], outcome.start[index], outcome.end[index]
            wait, length = start - submit, end - start
            slowdown = bounded_slowdown(wait, length) if length == length else math.nan
            rows.append(
                {
                    "job": job.id,
                    "user": job.user,
                    "group": job.group,
                    "queue": job.queue,
                    "size": outcome.size[index],
                    unit: outcome.size[index],
                    "limit": job.limit or math.nan,
                    "submit": submit,
                    "start": start,
                    "end": end,
                    "wait": wait,
                    "run": length,
                    "bounded_slowdown": slowdown,
                    "state": STATES[outcome.how[index]],
                    "units": (outcome.allocated[index] or "").replace(" ", ","),
                    "promise": outcome.promise[index],
                    "note": outcome.notes.get(index),
                }
            )
        return as_table(rows)


class Runs(list):
    """The runs of a study, by workload, then in order of the policies; slices are `Runs`."""

    def __getitem__(self, index):
        found = super().__getitem__(index)
        return Runs(found) if isinstance(index, slice) else found

    @property
    def figures(self):
        """A row per run: ``policy``, the varied options, ``seed``, ``failed``, and its figures."""
        rows = []
        for one in self:
            row = {"policy": one.policy, **one.variant}
            if one.seed is not None:
                row["seed"] = one.seed
            rows.append({**row, "failed": one.failed, **one.figures})
        return as_table(rows)

    def differences(self, figure="wait_mean"):
        """Compare each policy with that of the first run in a figure, workload by workload.

        Returns:
            rows per policy and variant: ``policy``, the variant, ``runs``, ``difference`` (mean),
            ``interval`` (half-width of its 95 % interval; NaN for one run), ``verdict`` (``more``,
            ``less``, ``no difference``, ``one run``, or ``failed``)

        Raises:
            OptionError: the runs have no such figure
        """
        known = [set(one.figures) for one in self if not one.failed]
        if known and figure not in set.intersection(*known):
            names = ", ".join(sorted(set.intersection(*known)))
            raise OptionError(f"figure {figure!r}: these runs have {names}")
        groups = {}
        for one in self:
            groups.setdefault((one.number, tuple(one.variant.items())), {})[one.seed] = one
        rows = []
        for (number, variant), runs in groups.items():
            if number == self[0].number:
                continue
            base = groups.get((self[0].number, variant), {})
            pairs = [(base[seed], one) for seed, one in runs.items() if seed in base]
            if not pairs:
                continue  # in a slice
            row = {"policy": pairs[0][1].policy, **dict(variant), "runs": len(pairs)}
            if any(one.failed for pair in pairs for one in pair):
                row.update(difference=math.nan, interval=math.nan, verdict="failed")
            else:
                first, second = ([one.figures[figure] for one in some] for some in zip(*pairs))
                middle, width = statistics.paired(first, second)
                said = statistics.verdict(first, second)
                row.update(difference=middle, interval=width, verdict=said)
            rows.append(row)
        return as_table(rows)

    def report(self, path):
        """Write the report to a file.

        Raises:
            OSError: the file cannot be written
        """
        write_report(path, [(one.summary, one.workload, one.outcome.start) for one in self])


def write_report(path, runs, provenance=()):
    """Write the report on runs, (summary, workload, starts or None) each, with the `statistics.losses`
    of each policy against the first on the first workload. Raises OSError."""
    from flux.simulate.report import page

    work = runs[0][1]
    same = [(starts, summary) for summary, other, starts in runs if other is work]
    good = [starts for starts, summary in same if not summary.get("failed")]
    lost = statistics.against_first(good, [(job.user, job.size) for job in work.jobs])
    summaries = [summary for summary, _, _ in runs]
    page.write_report(path, summaries, work.name, work.notes.lines(), lost, provenance)


def simulate(
    trace,
    schedulers="sched-backfill",
    *,
    seeds=None,
    engine=None,
    grain="batch",
    forecast=False,
    script=None,
    jobtap=(),
    failures=None,
    odds=None,
    output=None,
    parallel=None,
    progress=None,
):
    """Run policies on a trace, each in its own process.

    Args:
        trace (Trace, str or table): the jobs, or a file or DataFrame of jobs
        schedulers (str, path, type, or list of them): module name or file and arguments, where
            ``NAME=a,b`` makes two policies; a path; or a class derived from `flux.scheduler.Scheduler`
        seeds (int): number of workloads per case: from the model, or with submissions shaken
        engine (str): ``lean`` (the default) or ``instance``, a whole embedded instance
        grain (str): ``batch``: one pass after all events of an instant; ``event-end``,
            ``event-submit``: one after each event
        forecast (bool): whether schedulers estimate starts and give reasons
        script (str): file of events other than jobs: drains, cancellations, ...
        jobtap (str or list of str): Python jobtap plugins, ``FILE [KEY=VALUE ...]``; they need engine
            ``instance``
        failures (str): random failures of nodes: ``mtbf=TIME,repair=TIME[,seed=N]``
        odds (int): query the odds of every n-th job that has to wait; ``odds`` in the summary has
            their accuracy
        output (str or path): output directory for the files of each policy that the command writes;
            results of the same policies and workloads there are replaced
        parallel (int or str): maximum number of processes; default: the number of processors;
            ``flux``: run as jobs of the instance
        progress (run.Progress): receives the progress

    Returns:
        Runs: a list of `Run`. A policy that raises, ends, or leaves jobs unstarted is included,
            with ``failed`` set

    Warns:
        UserWarning: a reason why the figures may mislead, as printed by the command, or why a
            policy failed, whose figures are NaN

    Raises:
        OptionError: an option is invalid
        ValueError: a file cannot be read, queues of jobs are not configured, or `output` has
            results of other policies or workloads
        OSError: a result cannot be written
        KeyboardInterrupt: the study was interrupted
    """
    trace = trace if isinstance(trace, Trace) else Trace(trace)
    policies = policy.parse(policy.listed(schedulers))
    jobtap = [jobtap] if isinstance(jobtap, str) else jobtap
    settings = run.Settings(
        engine=engine,
        grain=grain,
        forecast=forecast,
        script=None if script is None else Script(script),
        jobtap=jobtap,
        failures=failures,
        odds=odds,
        config=trace.config,
    )
    classes = [one.name for one in policies if one.entry is not None]
    if classes and settings.engine == "instance":
        raise OptionError(f"{classes[0]}: a whole instance loads files: write the class into one")
    files = [*trace.files, script, *(plugin_of(text)[0] for text in jobtap)]

    def describe(case):
        return provenance(case, settings, files)

    cases = trace.cases(seeds)
    for text in misleading([(case.label, case.workload.notes.warnings) for case in cases]):
        warnings.warn(text, stacklevel=2)
    tasks = tasks_of(cases, policies, settings, output, describe, keep=True)
    with contextlib.ExitStack() as held:
        if output is not None:
            held.enter_context(taken(output))
            make_room(output, tasks)
        results, interrupted = run.run_all(tasks, parallel, progress)
    if interrupted:
        raise KeyboardInterrupt
    runs = Runs()
    for task, result in zip(tasks, results):
        if not isinstance(result, dict):
            raise RuntimeError(f"{task.label}: {result}")
        if "not_written" in result:
            raise OSError(result["not_written"])
        outcome = result.pop("outcome")
        outcome.workload = task.workload
        runs.append(Run(task.case, result, outcome))
    failed = [f"{task.label}: failed: {one.failed}" for task, one in zip(tasks, runs) if one.failed]
    for text in logged(results) + failed:
        warnings.warn(text, stacklevel=2)
    return runs
