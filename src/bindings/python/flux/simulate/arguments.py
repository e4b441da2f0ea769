# SPDX-License-Identifier: LGPL-3.0-or-later
"""Options that select jobs and machine, shared by ``flux simulate`` and ``flux simulate tune``."""

import math

from flux.simulate.trace import Trace
from flux.simulate.workload.formats import FORMATS
from flux.simulate.workload.record import OptionError

#: Options that define a machine of equal nodes.
ABOUT_NODES = ("nodes", "cores_per_node", "gpus_per_node")

#: Options passed on to `Trace` unchanged.
TRACE_OPTIONS = [name for name in Trace.__init__.__kwdefaults__ if name != "config"]


def refuse(options, names, why):
    """Raise OptionError if one of the options `names` was given."""
    # store_true and append leave False and []; a given number counts, even 0.
    given = [
        f"--{name.replace('_', '-')}"
        for name in names
        if getattr(options, name) not in (None, False, [])
        or type(getattr(options, name)) in (int, float)
    ]
    if given:
        raise OptionError(f"{', '.join(given)}: {why}")


def check_jobs(options):
    """Raise OptionError if an option on jobs or machine would have no effect."""
    if options.model:
        refuse(options, ("format", "dependencies", "status"), "jobs of a model come from no file")
    if options.R:
        refuse(options, ABOUT_NODES, "the machine is that of --R")
    if options.estimates and options.limits not in (None, "trace"):
        refuse(options, ("estimates",), "--limits gives every job a limit")


def add_jobs(parser):
    """Add the options on jobs. Return their group, for further options."""
    group = parser.add_argument_group("jobs")
    group.add_argument(
        "--format",
        choices=FORMATS,
        metavar="FORMAT",
        help=f"format of the trace: {', '.join(FORMATS)}",
    )
    group.add_argument(
        "--model", metavar="MODEL", help="generate jobs by a model: lublin[:PARAMETER=VALUE,...]"
    )
    group.add_argument(
        "--limits",
        help="limit of a job: trace, run (its run time), or xF (F times that); A,B is a sweep",
    )
    group.add_argument(
        "--estimates", help="limits for jobs without one in the trace: none, run, f:F, tsafrir"
    )
    group.add_argument(
        "--window", help="jobs submitted in a window: DAYS, FROM-TO in days, or DATE/DATE"
    )
    group.add_argument("--jobs", type=positive, metavar="N", help="only the first N jobs")
    group.add_argument(
        "--scale-arrivals", type=_numbers, metavar="F[,F...]",
        help="multiply the times between submissions; several factors are a sweep",
    )  # fmt: skip
    group.add_argument(
        "--dependencies",
        action="store_true",
        help="let jobs wait for the preceding jobs that SWF names",
    )
    group.add_argument(
        "--status", type=_statuses, metavar="N[,N...]",
        help="only jobs with these statuses (1: completed, 0: failed or timed out, 5: cancelled, -1: unknown)",
    )  # fmt: skip
    group.add_argument("--seed", type=int, default=1, metavar="N", help="seed of random draws (1)")
    group.add_argument(
        "--seeds", type=positive, metavar="N",
        help="run N workloads: of the model, or the trace with shaken submissions",
    )  # fmt: skip
    group.add_argument(
        "--shake",
        type=_seconds,
        metavar="SECONDS",
        help="maximum shift of a submission by --seeds (30)",
    )
    return group


def add_machine(parser):
    """Add the options on the machine."""
    group = parser.add_argument_group("machine")
    group.add_argument(
        "--nodes", type=_counts, metavar="N[,N...]", help="number of nodes; several are a sweep"
    )
    group.add_argument("--cores-per-node", type=positive, metavar="C", help="cores of each node")
    group.add_argument("--gpus-per-node", type=_count, metavar="G", help="GPUs of each node")
    group.add_argument(
        "--memory-per-node", metavar="AMOUNT", help="count memory: AMOUNT (240G) of each node"
    )
    group.add_argument("--R", metavar="FILE", help="resources of the machine (RFC 20)")
    group.add_argument(
        "--conf", metavar="FILE", help="configuration (TOML) with resource.config, queues, ..."
    )
    group.add_argument("--unit", choices=("node", "core"), help="unit of job sizes")


def add_parallel(group):
    """Add --parallel."""
    group.add_argument(
        "--parallel",
        type=_parallel,
        metavar="N|flux",
        help="number of runs at a time; flux: make each run a job",
    )


def trace_of(options):
    """Return the `Trace` that the options describe."""
    given = {
        name: getattr(options, name) for name in TRACE_OPTIONS if getattr(options, name) is not None
    }
    if "," in given.get("limits", ""):
        given["limits"] = given["limits"].split(",")
    return Trace(*options.traces, config=options.conf, **given)


def _number(convert, name, least, below=math.inf):
    """Return a converter to a number from `least` on; argparse's message is: invalid NAME value."""

    def parse(text):
        value = convert(text)
        if not least <= value < below:
            raise ValueError(text)
        return value

    parse.__name__ = name
    return parse


positive = _number(int, "count (1 or more)", 1)
_count = _number(int, "count", 0)
_seconds = _number(float, "duration (seconds, 0 or more)", 0, 1e9)


def _parallel(text):
    """Convert to a number of processes, or ``flux``."""
    return text if text == "flux" else positive(text)


def _statuses(text):
    return [int(part) for part in text.split(",")]


def _one_or_more(convert):
    """Return a converter of ``A,B`` to a list; a single value is not put in a list."""

    def parse(text):
        values = [convert(part) for part in text.split(",")]
        return values[0] if len(values) == 1 else values

    return parse


_numbers = _one_or_more(float)
_counts = _one_or_more(positive)
_counts.__name__ = positive.__name__
_parallel.__name__ = "number of processes (1 or more, or flux)"
_statuses.__name__ = "list of statuses"
_numbers.__name__ = "number"
