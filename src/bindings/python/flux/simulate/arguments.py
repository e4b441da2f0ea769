# SPDX-License-Identifier: LGPL-3.0-or-later
"""Options that select jobs and machine, shared by ``flux simulate`` and ``flux simulate tune``."""

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
    add = parser.group("jobs")
    text = f"format of the trace: {', '.join(FORMATS)}"
    add("--format=FORMAT", text, choices=FORMATS)
    add("--model=MODEL", "generate jobs by a model: lublin[:PARAMETER=VALUE,...]")
    add(
        "--limits=",
        "limit of a job: trace, run (its run time), or xF (F times that); A,B is a sweep",
    )
    add("--estimates=", "limits for jobs without one in the trace: none, run, f:F, tsafrir")
    add("--window=", "jobs submitted in a window: DAYS, FROM-TO in days, or DATE/DATE")
    add("--jobs=N", "only the first N jobs", type=int)
    text = "multiply the times between submissions; several factors are a sweep"
    add("--scale-arrivals=F[,F...]", text, type=_listing(float))
    add("--dependencies", "let jobs wait for the preceding jobs that SWF names")
    text = "only jobs with these statuses (1: completed, 0: failed or timed out, 5: cancelled, -1: unknown)"
    add("--status=N[,N...]", text, type=_listing(int, is_always=True))
    add("--seed=N", "seed of random draws (1)", type=int, default=1)
    text = "run N workloads: of the model, or the trace with shaken submissions"
    add("--seeds=N", text, type=int)
    add("--shake=SECONDS", "maximum shift of a submission by --seeds (30)", type=float)
    return add


def add_machine(parser):
    """Add the options on the machine."""
    add = parser.group("machine")
    add("--nodes=N[,N...]", "number of nodes; several are a sweep", type=_listing(int))
    add("--cores-per-node=C", "cores of each node", type=int)
    add("--gpus-per-node=G", "GPUs of each node", type=int)
    add("--memory-per-node=AMOUNT", "count memory: AMOUNT (240G) of each node")
    add("--R=FILE", "resources of the machine (RFC 20)")
    add("--conf=FILE", "configuration (TOML) with resource.config, queues, ...")
    add("--unit=", "unit of job sizes", choices=("node", "core"))


def add_parallel(add):
    """Add --parallel by a function."""
    add("--parallel=N|flux", "number of runs at a time; flux: make each run a job", type=_parallel)


def trace_of(options):
    """Return the `Trace` that the options describe."""
    given = {
        name: getattr(options, name) for name in TRACE_OPTIONS if getattr(options, name) is not None
    }
    if "," in given.get("limits", ""):
        given["limits"] = given["limits"].split(",")
    return Trace(*options.traces, config=options.conf, **given)


def _listing(convert, is_always=False):
    """Return a converter of ``A,B`` to a list; a single value is not put in a list, unless always."""

    def parse(text):
        values = [convert(part) for part in text.split(",")]
        return values if is_always or len(values) > 1 else values[0]

    parse.__name__ = convert.__name__
    return parse


def _parallel(text):
    if text == "flux":
        return text
    # A wrong number is found here, before earlier results are removed.
    if int(text) < 1:
        raise ValueError(text)
    return int(text)


_parallel.__name__ = "number of processes (1 or more, or flux)"
