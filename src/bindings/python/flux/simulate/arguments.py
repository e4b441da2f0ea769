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
    """Add the options on jobs. Return the function that adds one to their group."""
    add = parser.add_argument_group("jobs").add_argument
    text = f"format of the trace: {', '.join(FORMATS)}"
    add("--format", choices=FORMATS, metavar="FORMAT", help=text)
    text = "generate jobs by a model: lublin[:PARAMETER=VALUE,...]"
    add("--model", metavar="MODEL", help=text)
    text = "limit of a job: trace, run (its run time), or xF (F times that); A,B is a sweep"
    add("--limits", help=text)
    text = "limits for jobs without one in the trace: none, run, f:F, tsafrir"
    add("--estimates", help=text)
    text = "jobs submitted in a window: DAYS, FROM-TO in days, or DATE/DATE"
    add("--window", help=text)
    add("--jobs", type=positive, metavar="N", help="only the first N jobs")
    text = "multiply the times between submissions; several factors are a sweep"
    add("--scale-arrivals", type=_numbers, metavar="F[,F...]", help=text)
    text = "let jobs wait for the preceding jobs that SWF names"
    add("--dependencies", action="store_true", help=text)
    text = "only jobs with these statuses (1: completed, 0: failed or timed out, 5: cancelled, -1: unknown)"
    add("--status", type=_statuses, metavar="N[,N...]", help=text)
    add("--seed", type=int, default=1, metavar="N", help="seed of random draws (1)")
    text = "run N workloads: of the model, or the trace with shaken submissions"
    add("--seeds", type=positive, metavar="N", help=text)
    text = "maximum shift of a submission by --seeds (30)"
    add("--shake", type=_seconds, metavar="SECONDS", help=text)
    return add


def add_machine(parser):
    """Add the options on the machine."""
    add = parser.add_argument_group("machine").add_argument
    text = "number of nodes; several are a sweep"
    add("--nodes", type=_counts, metavar="N[,N...]", help=text)
    add("--cores-per-node", type=positive, metavar="C", help="cores of each node")
    add("--gpus-per-node", type=_count, metavar="G", help="GPUs of each node")
    text = "count memory: AMOUNT (240G) of each node"
    add("--memory-per-node", metavar="AMOUNT", help=text)
    add("--R", metavar="FILE", help="resources of the machine (RFC 20)")
    text = "configuration (TOML) with resource.config, queues, ..."
    add("--conf", metavar="FILE", help=text)
    add("--unit", choices=("node", "core"), help="unit of job sizes")


def add_parallel(add):
    """Add --parallel by a function."""
    text = "number of runs at a time; flux: make each run a job"
    add("--parallel", type=_parallel, metavar="N|flux", help=text)


def trace_of(options):
    """Return the `Trace` that the options describe."""
    given = {
        name: getattr(options, name) for name in TRACE_OPTIONS if getattr(options, name) is not None
    }
    if "," in given.get("limits", ""):
        given["limits"] = given["limits"].split(",")
    return Trace(*options.traces, config=options.conf, **given)


def _converter(name, convert, least=-math.inf, below=math.inf):
    """Return a converter to a number from `least` on; argparse's message is: invalid NAME value."""

    def parse(text):
        value = convert(text)
        if not least <= value < below:
            raise ValueError(text)
        return value

    parse.__name__ = name
    return parse


def _listing(convert, is_always=False):
    """Return a converter of ``A,B`` to a list; a single value is not put in a list, unless always."""

    def parse(text):
        values = [convert(part) for part in text.split(",")]
        return values if is_always or len(values) > 1 else values[0]

    parse.__name__ = convert.__name__
    return parse


positive = _converter("count (1 or more)", int, 1)
_count = _converter("count", int, 0)
_seconds = _converter("duration (seconds, 0 or more)", float, 0, 1e9)
_counts = _listing(positive)
_numbers = _listing(_converter("number", float))
_statuses = _listing(_converter("list of statuses", int), is_always=True)


def _parallel(text):
    return text if text == "flux" else positive(text)


_parallel.__name__ = "number of processes (1 or more, or flux)"
