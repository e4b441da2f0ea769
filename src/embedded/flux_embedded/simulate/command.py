"""The command: ``flux simulate``, ``flux simulate compare`` and ``flux simulate check``."""

import os
import shlex
import sys

from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.cmd.lib.options import Parser
from flux_embedded.simulate import __version__

DESCRIPTION = "Run recorded jobs through schedulers, and compare what becomes of them"

#: The trace that comes along, and how to name it.
SAMPLE = "sample"


def sample_path():
    """The file of the sample trace."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "sample.swf")


def make_parser():
    """The parser of the command without a subcommand."""
    parser = Parser(
        prog="flux-simulate",
        usage="flux simulate [OPTIONS] TRACE... | --model=lublin | --live\n"
        "       flux simulate compare DIR...\n"
        "       flux simulate check DIR... | --live",
        description=DESCRIPTION,
    )
    parser.add_argument("traces", nargs="*", metavar="TRACE", help='files, or "sample"')
    what = parser.add_argument_group("jobs")
    what.add_argument(
        "--format", default="auto", help="auto, swf, sacct, flux, accounting, batsim, csv"
    )
    what.add_argument(
        "--model", metavar="MODEL", help="jobs from a model: lublin[:PARAMETER=VALUE,...]"
    )
    what.add_argument(
        "--live", action="store_true", help="jobs and resources of the running instance"
    )
    what.add_argument(
        "--limits", default="trace", help="trace, run (time), or xF: F times the run time"
    )
    what.add_argument(
        "--estimates", default="none", help="limits of jobs without one: none, run, f:F, tsafrir"
    )
    what.add_argument("--window", help="DAYS, FROM-TO in days, or DATE/DATE")
    what.add_argument("--jobs", type=_positive, metavar="N", help="the first N jobs only")
    what.add_argument(
        "--scale-arrivals", type=float, default=1.0, metavar="F",
        help="multiply the times between submissions",
    )  # fmt: skip
    what.add_argument(
        "--seed", type=int, default=1, metavar="N", help="for what is drawn at random"
    )
    what.add_argument(
        "--seeds", type=_positive, metavar="N",
        help="N workloads: of the model, or the trace with submissions shaken",
    )  # fmt: skip
    what.add_argument(
        "--shake", type=float, metavar="SECONDS", help="most that a submission is shaken by (30)"
    )
    where = parser.add_argument_group("machine")
    where.add_argument("--nodes", type=_positive, metavar="N", help="number of nodes")
    where.add_argument("--cores-per-node", type=_positive, metavar="C", help="cores of each")
    where.add_argument("--gpus-per-node", type=_count, default=0, metavar="G", help="GPUs of each")
    where.add_argument("--R", metavar="FILE", help="resource set (RFC 20)")
    where.add_argument("--conf", metavar="FILE", help="TOML with resource.config, queues, ...")
    where.add_argument("--unit", choices=("node", "core"), help="what sizes count")
    how = parser.add_argument_group("run")
    how.add_argument(
        "--scheduler", action="append", metavar="MODULE [ARG...]",
        help="name or file; NAME=a,b,c is three policies",
    )  # fmt: skip
    how.add_argument("--engine", choices=("lean", "instance"), help="lean, or a whole instance")
    how.add_argument(
        "--grain", choices=("batch", "event-end", "event-submit"), default="batch",
        help="a pass for all events of an instant, or one for each",
    )  # fmt: skip
    how.add_argument("--forecast", action="store_true", help="let schedulers estimate and explain")
    how.add_argument("--script", metavar="FILE", help="what happens besides: drain, cancel, ...")
    how.add_argument("--jobtap", action="append", default=[], metavar="FILE", help="load a plugin")
    how.add_argument("--parallel", type=_positive, metavar="N", help="processes at a time")
    out = parser.add_argument_group("results")
    out.add_argument("-o", "--output", metavar="DIR", help="write files and a report here")
    out.add_argument("--eventlogs", action="store_true", help="also eventlogs, jobspecs and Rs")
    out.add_argument("--swf", action="store_true", help="also the schedule as a trace")
    out.add_argument("--save-trace", metavar="FILE", help="write the jobs as a trace (SWF); no run")
    out.add_argument("--resume", action="store_true", help="keep what DIR has of an earlier call")
    out.add_argument("--diff", metavar="A,B", help="first difference of two policies, by number")
    out.add_argument("--json", action="store_true", help="figures as JSON")
    out.add_argument("-q", "--quiet", action="store_true", help="no notes, no progress")
    return parser


def _positive(text):
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def _count(text):
    value = int(text)
    if value < 0:
        raise ValueError(text)
    return value


_positive.__name__ = "count (1 or more)"
_count.__name__ = "count"


def main(argv):
    """Run the command; returns the exit code."""
    if argv and argv[0] == "compare":
        from flux_embedded.simulate.comparing import compare_main

        return compare_main(argv[1:])
    if argv and argv[0] == "check":
        from flux_embedded.simulate.checking import check_main

        return check_main(argv[1:])
    parser = make_parser()
    # Options may stand between the traces.
    options = parser.parse_intermixed_args(argv)
    if bool(options.traces) + bool(options.model) + options.live != 1:
        parser.error("give one of TRACE..., --model and --live")
    try:
        return Call(options, argv).run()
    except ValueError as exc:
        raise CommandError(str(exc)) from None


class Call:
    """One call of the command.

    Args:
        options: as parsed
        argv (list of str): the command line, for the record
    """

    def __init__(self, options, argv):
        self.options = options
        self.argv = argv

    def say(self, text=""):
        """A line for the user, besides the results."""
        if not self.options.quiet:
            print(text, file=sys.stderr if self.options.json else sys.stdout, flush=True)

    def run(self):
        """Do what was asked for; returns the exit code."""
        from flux_embedded.simulate import policy, run
        from flux_embedded.simulate.results import files

        options = self.options
        policies = policy.parse(options.scheduler or ["sched-backfill"])
        if options.diff:
            self._diff_pair(policies)
        config = self._config()
        workloads = self._workloads(config)
        workload = workloads[0][1]
        self.now = workload.epoch
        settings = self._settings(config)
        self._announce(workload, policies)
        if options.save_trace:
            files.write_trace(workload, options.save_trace)
            return 0
        tasks = []
        for seed, one in workloads:
            own = self._settings(config) if len(workloads) > 1 else settings
            own.provenance = self._provenance(one, own, seed)
            for each in policies:
                tasks.append(run.Task(one, each, own, self._directory(each, seed), seed))
        results, interrupted = self._run(tasks)
        failed = [
            (task, result) for task, result in zip(tasks, results) if not isinstance(result, dict)
        ]
        summaries = [result for result in results if isinstance(result, dict)]
        if summaries:
            self._show(summaries, workload)
        for task, result in failed:
            print(
                f"flux-simulate: {task.label}: {result or 'not begun'}", file=sys.stderr, flush=True
            )
        if options.diff and not failed and options.output and not options.seeds:
            self._diff(policies)
        if interrupted:
            return 130
        return 1 if failed else 0

    # -- before ----------------------------------------------------------------------------------------------

    def _config(self):
        path = self.options.conf
        if not path:
            return {}
        from flux_embedded.broker.config import parse_toml

        try:
            with open(path, encoding="utf-8") as stream:
                return parse_toml(stream.read(), path)
        except OSError as exc:
            raise ValueError(f"{path}: {exc.strerror}") from None

    def _machine(self, config):
        import json

        from flux_embedded.services.resource import sources
        from flux_embedded.simulate.machine import Machine

        path = self.options.R
        if path:
            try:
                with open(path, encoding="utf-8") as stream:
                    R = json.load(stream)
            except OSError as exc:
                raise ValueError(f"{path}: {exc.strerror}") from None
            except ValueError as exc:
                raise ValueError(f"{path}: not JSON: {exc}") from None
            try:
                return Machine(R, path)
            except ValueError as exc:
                raise ValueError(f"{path}: {exc}") from None
        R = sources.from_config(config)
        return None if R is None else Machine(R, self.options.conf)

    def _workloads(self, config):
        """[(seed or None, Workload)]."""
        from flux_embedded.simulate.workload.build import Options, build

        options = self.options
        if options.live:
            from flux_embedded.simulate.live import snapshot

            return [(None, snapshot(self._machine(config), options.unit))]
        traces = [
            sample_path() if path == SAMPLE and not os.path.exists(path) else path
            for path in options.traces
        ]
        shake = options.shake or 0.0
        if options.seeds and not options.model:
            shake = 30.0 if options.shake is None else options.shake
        found = []
        seeds = range(options.seed, options.seed + (options.seeds or 1))
        for seed in seeds:
            workload = build(
                Options(
                    traces=traces,
                    format=options.format,
                    model=options.model,
                    machine=self._machine(config),
                    nodes=options.nodes,
                    cores_per_node=options.cores_per_node,
                    gpus_per_node=options.gpus_per_node,
                    unit=options.unit,
                    limits=options.limits,
                    estimates=options.estimates,
                    window=options.window,
                    jobs=options.jobs,
                    scale_arrivals=options.scale_arrivals,
                    seed=seed,
                    shake=shake,
                )
            )
            found.append((seed if options.seeds else None, workload))
        if shake:
            found[0][1].notes.fact(f"submissions are shaken by up to {shake:g} s")
        return found

    def _settings(self, config):
        from flux_embedded.simulate.run import Settings

        options = self.options
        engine = options.engine or "lean"
        if options.live and engine == "instance":
            raise ValueError("--live needs the lean engine")
        if options.jobtap and engine == "lean":
            if options.engine:
                raise ValueError("--jobtap needs a whole instance: leave --engine=lean out")
            engine = "instance"
        if engine == "instance":
            for option, given in (
                ("--script", options.script),
                ("--grain", options.grain != "batch"),
            ):
                if given:
                    raise ValueError(f"{option} needs the lean engine")
        script = None
        if options.script:
            from flux_embedded.simulate.script import Script

            script = Script.read(options.script)
            if options.live:
                script.by_the_clock(self.now)
        return Settings(
            engine=engine,
            grain=options.grain,
            forecast=options.forecast,
            config=config,
            script=script,
            jobtap=[os.path.abspath(path) for path in options.jobtap],
            eventlogs=options.eventlogs,
            swf=options.swf,
            live=options.live,
        )

    def _provenance(self, workload, settings, seed):
        import platform

        from flux_embedded.simulate.workload.text import digest

        options = self.options
        files = []
        for path in [
            *(
                sample_path() if path == SAMPLE and not os.path.exists(path) else path
                for path in options.traces
            ),
            options.R,
            options.conf,
            options.script,
            *options.jobtap,
        ]:
            if path and os.path.isfile(path):
                files.append({"path": os.path.abspath(path), "sha256": digest(path)})
        return {
            "command": "flux simulate " + shlex.join(self.argv),
            "files": files,
            "options": {
                key: value
                for key, value in vars(options).items()
                if key not in ("output", "resume", "quiet", "json", "parallel", "diff", "scheduler")
            },
            "seed": seed,
            "engine": settings.engine,
            "machine": {
                "nodes": workload.machine.nodes,
                "cores": workload.machine.cores,
                "gpus": workload.machine.gpus,
                "unit": workload.unit,
                "units": workload.units,
                "last_unit": workload.units - 1,
            },
            "jobs": len(workload.jobs),
            "notes": workload.notes.lines(),
            "versions": {"flux-scheduler": __version__, "python": platform.python_version()},
        }

    def _announce(self, workload, policies):
        for line in workload.notes.lines():
            self.say(f"  {line}")
        load = workload.offered_load()
        days = workload.jobs[-1].submit / 86400
        span = f" over {days:.1f} days, offered load {load:.2f}," if days else ""
        self.say(
            f"{len(workload.jobs):,} jobs{span} on {workload.machine}; "
            f"{len(policies)} {'policies' if len(policies) != 1 else 'policy'}"
        )

    def _directory(self, policy, seed):
        base = self.options.output
        if base is None:
            return None
        return (
            os.path.join(base, policy.slug)
            if seed is None
            else os.path.join(base, f"seed-{seed}", policy.slug)
        )

    # -- the runs --------------------------------------------------------------------------------------------

    def _run(self, tasks):
        from flux_embedded.simulate import run

        options = self.options
        if options.output:
            try:
                os.makedirs(options.output, exist_ok=True)
            except OSError as exc:
                raise ValueError(f"{options.output}: {exc.strerror}") from None
        results = [task.former_result() if options.resume else None for task in tasks]
        kept = sum(result is not None for result in results)
        if options.resume:
            self.say(f"{kept} of {len(tasks)} results are there already")
        left = [i for i, result in enumerate(results) if result is None]
        progress = None if options.quiet else run.Progress()
        new, interrupted = run.run_all([tasks[i] for i in left], options.parallel, progress)
        for i, result in zip(left, new):
            results[i] = result
        return results, interrupted

    # -- after -----------------------------------------------------------------------------------------------

    def _show(self, summaries, workload):
        import json

        from flux_embedded.simulate.results import table

        options = self.options
        if options.json:
            keys = ("policy", "seed", "figures", "classes", "interrupted", "jobs_per_second")
            print(json.dumps([{k: s[k] for k in keys if k in s} for s in summaries], indent=1))
        elif options.live:
            from flux_embedded.simulate.live import starts_table

            names = [summary["policy"] for summary in summaries]
            print("\n".join(["", *table.lines(starts_table(names, summaries))]))
        elif options.seeds:
            groups = {}
            for summary in summaries:
                groups.setdefault(summary["policy"], []).append(summary)
            print("\n".join(["", *table.seeds_table(list(groups.items()))]))
        else:
            print("\n".join(["", *table.main_table(summaries), "", *table.class_table(summaries)]))
            self.say(f"\n{table.LEGEND}; in the matrix: mean bounded slowdown")
            for line in table.remarks(summaries):
                self.say(line)
        if options.output and not options.seeds:
            from flux_embedded.simulate.report.page import write_report

            path = os.path.join(options.output, "report.html")
            write_report(path, summaries, title=workload.name, notes=workload.notes.lines())
            self.say(f"\n{path}")

    def _diff_pair(self, policies):
        try:
            first, second = (int(part) for part in self.options.diff.split(","))
            if not (1 <= first <= len(policies) and 1 <= second <= len(policies)):
                raise ValueError
        except ValueError:
            raise ValueError(
                f"--diff={self.options.diff}: expected two numbers of policies, 1 to {len(policies)}"
            ) from None
        if not self.options.output:
            raise ValueError("--diff needs the files of both policies: give a directory with -o")
        return policies[first - 1], policies[second - 1]

    def _diff(self, policies):
        from flux_embedded.simulate.comparing import first_difference

        pair = self._diff_pair(policies)
        directories = [self._directory(policy, None) for policy in pair]
        print("\n" + "\n".join(first_difference(*directories)))
